//! The chores of the cluster: expired leases are removed, documents of those who left are put to an end.
//!
//! Every server sees the same chores and tries them, with preconditions, so that the first one does them and a server that came
//! back in between loses nothing.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::documents::{StoredDocument, Tenure};
use crate::members::Chore;
use crate::ports::{Documents, Leases, PortError};
use crate::readiness::Milestone;
use crate::wait::changed;

/// Servers see a chore at the same moment; one of them should be first.
const HEAD_START_MAX: Duration = Duration::from_millis(250);
/// How long after a round the next one may begin: the feeds tell of the last one meanwhile.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);

/// The task.
pub(crate) struct Sweeper {
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) documents: Arc<dyn Documents>,
    pub(crate) chores: watch::Receiver<Arc<[Chore]>>,
    pub(crate) call_timeout: Duration,
    pub(crate) seed: u64,
    pub(crate) started: Milestone,
}

impl Sweeper {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        self.started.reach();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.sweep_for_ever() => {}
        }
    }

    async fn sweep_for_ever(&mut self) {
        let mut rng = Rng::with_seed(self.seed);
        loop {
            if self.chores.borrow_and_update().is_empty() {
                changed(&mut self.chores).await;
                continue;
            }
            tokio::time::sleep(HEAD_START_MAX.mul_f64(rng.f64())).await;
            let chores = self.chores.borrow_and_update().clone();
            for chore in chores.iter() {
                match tokio::time::timeout(self.call_timeout, self.perform(chore)).await {
                    // Somebody was faster, or the server is back.
                    Ok(Ok(()) | Err(PortError::Conflict | PortError::NotFound)) => {}
                    Ok(Err(error)) => tracing::warn!(?chore, %error, "what a server left behind cannot be removed"),
                    Err(_) => tracing::warn!(?chore, "what a server left behind cannot be removed in time"),
                }
            }
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
    }

    async fn perform(&self, chore: &Chore) -> Result<(), PortError> {
        match chore {
            Chore::Sweep { lease, document } => {
                match self.leases.delete(lease).await {
                    Ok(()) => tracing::info!(server = %lease.server, "removed the expired lease of a server"),
                    Err(PortError::NotFound) => {}
                    Err(error) => return Err(error),
                }
                match document {
                    Some(document) => self.documents.delete(&lease.server, *document).await,
                    None => Ok(()),
                }
            }
            Chore::Linger { server, document, ttl } => {
                let stored = StoredDocument { tenure: Tenure::Leaving, ..document.stored.clone() };
                self.documents.put(server, stored.encode(), Some(document.version), Some(*ttl)).await.map(drop)
            }
            Chore::Keep { server, document } => {
                let stored = StoredDocument { tenure: Tenure::Staying, ..document.stored.clone() };
                self.documents.put(server, stored.encode(), Some(document.version), None).await.map(drop)
            }
            Chore::Forget { server, document } => self.documents.delete(server, *document).await,
        }
    }
}
