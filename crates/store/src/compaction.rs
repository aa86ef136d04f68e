//! The periodic compaction loop, in which all servers of a store elect one compactor per interval.
//!
//! The protocol is kube-apiserver's, byte for byte, so that both can share one etcd. Every interval each server tries
//! to write `compact_rev_key`; the server that finds the key as it last saw it wins the round, writes the revision of
//! the previous round and compacts to it. The other servers adopt the key that they find. Thus one server compacts per
//! interval, and between one and two intervals of history are kept.
//!
//! kube-apiserver compares the version of the key, which counts its puts; unskew compares the revision of its last put.
//! Every put changes both, so each side notices the rounds of the other. They differ only after the key was deleted:
//! its version restarts at 1 and may match an old one, while a revision never recurs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::contract::{Compare, Error, Key, Op, Revision, Store, Transaction, TransactionOutcome};

/// The key that the servers coordinate with. It lies outside of `--etcd-prefix`, as in kube-apiserver.
pub const COMPACT_REV_KEY: Key = Key::from_static(b"compact_rev_key");

/// The default of `--etcd-compaction-interval`, as in kube-apiserver.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// One server's participation in the compaction of a store.
#[derive(Debug)]
pub struct Compactor {
    store: Arc<dyn Store>,
    interval: Duration,
    /// The last known put of [`COMPACT_REV_KEY`]; `None`: the key is taken to be absent.
    key_revision: Option<Revision>,
    /// The store revision at the previous round; `None` before the first round, in which nothing is compacted.
    previous_round_revision: Option<Revision>,
}

#[derive(Debug, PartialEq, Eq)]
enum CompactionRound {
    /// This server won and compacted to this revision.
    Compacted(Revision),
    /// This server won its first round, so it only recorded a revision.
    Recorded,
    /// Another server won.
    Lost,
}

impl Compactor {
    /// Takes part every `interval`; a zero interval disables compaction by this server.
    pub fn new(store: Arc<dyn Store>, interval: Duration) -> Self {
        Self { store, interval, key_revision: None, previous_round_revision: None }
    }

    /// Runs until `shutdown`. A failed round is retried at the next interval.
    pub async fn run(mut self, shutdown: CancellationToken) {
        if self.interval.is_zero() {
            return shutdown.cancelled().await;
        }
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                () = shutdown.cancelled() => return,
            }
            let round = tokio::select! {
                round = self.run_round() => round,
                () = shutdown.cancelled() => return,
            };
            match round {
                Ok(round) => tracing::debug!(?round, "compaction round finished"),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "compaction round failed");
                }
            }
        }
    }

    /// Tries to write [`COMPACT_REV_KEY`]; the winner compacts to the revision of the previous round.
    async fn run_round(&mut self) -> Result<CompactionRound, Error> {
        let previous = self.previous_round_revision.unwrap_or_default();
        let transaction = Transaction {
            compares: vec![Compare { key: COMPACT_REV_KEY, revision: self.key_revision }],
            ops: vec![Op::Put { key: COMPACT_REV_KEY, value: Bytes::from(previous.to_string()), ttl: None }],
        };
        match self.store.commit(transaction).await? {
            TransactionOutcome::Conflict { current, revision } => {
                self.key_revision = current.into_iter().flatten().next().map(|entry| entry.revision);
                self.previous_round_revision = Some(revision);
                Ok(CompactionRound::Lost)
            }
            TransactionOutcome::Committed(revision) => {
                self.key_revision = Some(revision);
                let Some(target) = self.previous_round_revision.replace(revision) else {
                    return Ok(CompactionRound::Recorded);
                };
                self.store.compact(target).await?;
                Ok(CompactionRound::Compacted(target))
            }
        }
    }
}
