//! The chores of the cluster: expired leases are removed, documents of those who left are put to an end.
//!
//! Every server sees the same chores and tries them, with preconditions, so that the first one does them and a server that came
//! back in between loses nothing.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use fastrand::Rng;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::documents::{StoredDocument, Tenure};
use crate::members::Chore;
use crate::ports::{Documents, Leases};
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

#[cfg(test)]
mod tests {
    use tasks::Tasks;

    use super::*;
    use crate::documents::Source;
    use crate::identity::{HolderIdentity, IdentityLease, LeaseForm};
    use crate::members::KnownDocument;
    use crate::ports::Version;
    use crate::testing::memory::Memory;
    use crate::testing::servers::wait;
    use crate::testing::{server, server_document};

    /// A lease and a document of a server that is gone, as they were seen.
    async fn remains(memory: &Memory) -> (IdentityLease, KnownDocument) {
        let server = server("b");
        let form = LeaseForm {
            holder: HolderIdentity::new(&server, 1),
            server: server.clone(),
            hostname: "b".to_owned(),
            address: None,
            duration: Duration::from_secs(1),
        };
        let lease = memory.put_lease(form.new_lease(jiff::Timestamp::UNIX_EPOCH.into()));
        let stored = StoredDocument {
            holder: form.holder.clone(),
            source: Source::Published,
            tenure: Tenure::Staying,
            document: Arc::new(server_document("v1 pods:get")),
        };
        let version = Documents::put(memory, &server, stored.encode(), None, None).await.unwrap();
        memory.take_log();
        let since = tokio::time::Instant::now();
        (IdentityLease::read(&lease).unwrap(), KnownDocument { stored, version, since })
    }

    fn sweepers(memory: &Memory, count: u64) -> (watch::Sender<Arc<[Chore]>>, Tasks) {
        let (chores, tasks) = (watch::Sender::new(Arc::<[Chore]>::from([])), Tasks::new());
        for seed in 0..count {
            let sweeper = Sweeper {
                leases: Arc::new(memory.clone()),
                documents: Arc::new(memory.clone()),
                chores: chores.subscribe(),
                call_timeout: Duration::from_secs(4),
                seed,
                started: Milestone::new("sweeper"),
            };
            tasks.spawn("lease-sweeper", |stop| sweeper.run(stop));
        }
        (chores, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_servers_one_does_each_chore() {
        let memory = Memory::new(&Tasks::new());
        let (lease, document) = remains(&memory).await;
        let (chores, _tasks) = sweepers(&memory, 5);
        let ttl = Duration::from_secs(60);
        chores.send_replace([Chore::Linger { server: server("b"), document, ttl }].into());
        wait(1).await;
        assert_eq!(memory.take_log(), "linger-document b");
        let document = memory.document_version(&server("b"));
        chores.send_replace([Chore::Sweep { lease, document }].into());
        wait(3).await;
        assert_eq!(memory.take_log(), "delete-lease b, delete-document b");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_came_back_in_between_loses_nothing() {
        let memory = Memory::new(&Tasks::new());
        let (lease, document) = remains(&memory).await;
        let renewed = (*memory.lease(&server("b")).unwrap()).clone();
        memory.put_lease(renewed);
        let stored = document.stored.encode();
        Documents::put(&memory, &server("b"), stored, Some(document.version), None).await.unwrap();
        memory.take_log();
        let (chores, _tasks) = sweepers(&memory, 2);
        let ttl = Duration::from_secs(60);
        let old = document.version;
        chores.send_replace(
            [
                Chore::Sweep { lease, document: Some(old) },
                Chore::Linger { server: server("b"), document: document.clone(), ttl },
                Chore::Keep { server: server("b"), document },
                Chore::Forget { server: server("b"), document: old },
                Chore::Forget { server: server("nobody"), document: Version(1) },
            ]
            .into(),
        );
        wait(10).await;
        assert_eq!(memory.take_log(), "");
    }
}
