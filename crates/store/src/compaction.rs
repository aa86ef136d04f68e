//! The loop that forgets history, shared with every other server on the store.
//!
//! It is kube-apiserver's, to the byte, so that both can use one etcd: every interval each server tries to write
//! `compact_rev_key`, and the one that finds the key as it last saw it has won the round, writes the revision of the round
//! before and compacts to it. The others adopt what they find. So one server compacts per interval, and between one and two
//! intervals of history are kept.
//!
//! kube-apiserver compares the version of the key, which counts its puts; we compare the revision of its last put. Every put
//! changes both, so both sides see each other's rounds. They differ only after somebody has removed the key: its version
//! begins anew and may be mistaken for an old one, while a revision never comes back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::contract::{Compare, Error, Key, Op, Revision, Store, Transaction, TransactionOutcome};

/// The key that servers agree by. It lies outside of `--etcd-prefix`, as in kube-apiserver.
pub const COMPACT_REV_KEY: Key = Key::from_static(b"compact_rev_key");

/// The usual `--etcd-compaction-interval`, kube-apiserver's.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// One server's part in the compaction of a store.
#[derive(Debug)]
pub struct Compactor {
    store: Arc<dyn Store>,
    interval: Duration,
    /// The put of [`COMPACT_REV_KEY`] that we know of; `None`: there is none.
    key_revision: Option<Revision>,
    /// The revision of the round before; `None`: there was none, so nothing is compacted yet.
    previous_round_revision: Option<Revision>,
}

/// What a round came to.
#[derive(Debug, PartialEq, Eq)]
enum CompactionRound {
    /// We have won and compacted to this revision.
    Compacted(Revision),
    /// We have won, and know of nothing that is old enough.
    Recorded,
    /// Another server was faster.
    Lost,
}

impl Compactor {
    /// Takes part every `interval`; zero: not at all, for a store that somebody else compacts.
    pub fn new(store: Arc<dyn Store>, interval: Duration) -> Self {
        Self { store, interval, key_revision: None, previous_round_revision: None }
    }

    /// Runs until `shutdown`. What fails is tried again in the next round.
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
                Ok(round) => tracing::debug!(?round, "a round of compaction"),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a round of compaction failed");
                }
            }
        }
    }

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
