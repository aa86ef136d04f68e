//! The proof before a 404: our views hold everything that storage holds.
//!
//! Rounds of proof are shared. A request joins the next round that has not begun, so that the round looks at storage after the
//! request came; a flood of requests costs one look after the other, never many at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::ports::Progress;

/// How long a proof may take; kube-apiserver waits as long for its caches.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Our views could not be shown to be up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("storage cannot be asked whether our views are up to date")]
pub struct NotProven;

/// Where proofs are asked for. Clones share the rounds.
#[derive(Clone, Debug)]
pub struct Prover {
    requests: mpsc::Sender<oneshot::Sender<Result<(), NotProven>>>,
}

impl Prover {
    /// A prover and its task.
    pub(crate) fn new(
        progress: Arc<dyn Progress>,
        membership: mpsc::Sender<oneshot::Sender<()>>,
        waiting_max: usize,
    ) -> (Self, ProverTask) {
        let (sender, requests) = mpsc::channel(waiting_max);
        (Self { requests: sender }, ProverTask { progress, membership, requests })
    }

    /// Waits until every view holds what storage held when this was called. If too many wait already, there is no proof.
    pub async fn prove(&self) -> Result<(), NotProven> {
        let (sender, answer) = oneshot::channel();
        self.requests.try_send(sender).map_err(|_| NotProven)?;
        answer.await.unwrap_or(Err(NotProven))
    }
}

/// The task that proves, one round after the other.
pub(crate) struct ProverTask {
    progress: Arc<dyn Progress>,
    membership: mpsc::Sender<oneshot::Sender<()>>,
    requests: mpsc::Receiver<oneshot::Sender<Result<(), NotProven>>>,
}

impl ProverTask {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let first = tokio::select! {
                () = stop.cancelled() => return,
                first = self.requests.recv() => first,
            };
            // All provers are gone with the server; the task ends when it is told to.
            let Some(first) = first else { return stop.cancelled().await };
            let mut waiting = vec![first];
            while let Ok(next) = self.requests.try_recv() {
                waiting.push(next);
            }
            let proven = tokio::select! {
                () = stop.cancelled() => return,
                proven = tokio::time::timeout(PATIENCE, self.prove_once()) => proven.unwrap_or(Err(NotProven)),
            };
            for one in waiting {
                // Whoever asked may have given up.
                let _ = one.send(proven);
            }
        }
    }

    async fn prove_once(&self) -> Result<(), NotProven> {
        self.progress.catch_up().await.map_err(|error| {
            tracing::debug!(%error, "a proof of absence failed");
            NotProven
        })?;
        let (sender, answer) = oneshot::channel();
        self.membership.send(sender).await.map_err(|_| NotProven)?;
        answer.await.map_err(|_| NotProven)
    }
}
