//! Cleans up after other servers: removes expired leases, and gives documents of servers that left a time to live.
//!
//! Every server derives the same actions and tries them with preconditions. So the first server performs each action, and a
//! server that came back in between loses nothing.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use fastrand::Rng;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::documents::{Retention, StoredDocument};
use crate::members::CleanupAction;
use crate::ports::{DocumentStorage, LeaseStorage};
use crate::readiness::Milestone;
use crate::wait::wait_for_change;

/// Servers derive an action at the same moment; a random delay lets one of them be first.
const START_DELAY_MAX: Duration = Duration::from_millis(250);
/// The pause between rounds, in which the feeds deliver the result of the last one.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(1);

/// Performs cleanup actions as they are published.
pub(crate) struct CleanupTask {
    pub(crate) leases: Arc<dyn LeaseStorage>,
    pub(crate) documents: Arc<dyn DocumentStorage>,
    pub(crate) cleanup_actions: watch::Receiver<Arc<[CleanupAction]>>,
    pub(crate) request_timeout: Duration,
    pub(crate) seed: u64,
    pub(crate) started: Milestone,
}

impl CleanupTask {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        self.started.mark_reached();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.clean_up_forever() => {}
        }
    }

    async fn clean_up_forever(&mut self) {
        let mut rng = Rng::with_seed(self.seed);
        loop {
            if self.cleanup_actions.borrow_and_update().is_empty() {
                wait_for_change(&mut self.cleanup_actions).await;
                continue;
            }
            tokio::time::sleep(START_DELAY_MAX.mul_f64(rng.f64())).await;
            let actions = self.cleanup_actions.borrow_and_update().clone();
            for action in actions.iter() {
                match tokio::time::timeout(self.request_timeout, self.perform(action)).await {
                    // Another server was faster, or the server is back.
                    Ok(Ok(()) | Err(PortError::Conflict | PortError::NotFound)) => {}
                    Ok(Err(error)) => tracing::warn!(?action, %error, "cleanup after a server failed"),
                    Err(_) => tracing::warn!(?action, "cleanup after a server timed out"),
                }
            }
            tokio::time::sleep(CLEANUP_INTERVAL).await;
        }
    }

    async fn perform(&self, action: &CleanupAction) -> Result<(), PortError> {
        match action {
            CleanupAction::DeleteExpiredLease { lease, document } => {
                match self.leases.delete(lease).await {
                    Ok(()) => tracing::info!(server = %lease.server, "removed expired identity lease"),
                    Err(PortError::NotFound) => {}
                    Err(error) => return Err(error),
                }
                match document {
                    Some(document) => self.documents.delete(&lease.server, *document).await,
                    None => Ok(()),
                }
            }
            CleanupAction::StartLinger { server, document, ttl } => {
                let stored = StoredDocument { retention: Retention::Lingering, ..document.stored.clone() };
                self.documents.put(server, stored.encode(), Some(document.version), Some(*ttl)).await.map(drop)
            }
            CleanupAction::CancelLinger { server, document } => {
                let stored = StoredDocument { retention: Retention::UntilReplaced, ..document.stored.clone() };
                self.documents.put(server, stored.encode(), Some(document.version), None).await.map(drop)
            }
            CleanupAction::DeleteDocument { server, document } => self.documents.delete(server, *document).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tasks::Tasks;

    use super::*;
    use crate::documents::DocumentSource;
    use crate::identity::{HolderIdentity, IdentityLease, IdentityLeaseTemplate};
    use crate::members::TrackedDocument;
    use crate::ports::EntryVersion;
    use crate::testing::cluster_fixture::sleep_seconds;
    use crate::testing::memory_storage::MemoryStorage;
    use crate::testing::{server_document_from_notation, server_id};

    /// The lease and the document of a dead server.
    async fn put_remains_of_dead_server(memory: &MemoryStorage) -> (IdentityLease, TrackedDocument) {
        let server = server_id("b");
        let form = IdentityLeaseTemplate {
            holder: HolderIdentity::new(&server, 1),
            server: server.clone(),
            component: crate::identity::IDENTITY_LABEL_VALUE.to_owned(),
            hostname: "b".to_owned(),
            address: None,
            duration: Duration::from_secs(1),
        };
        let lease = memory.put_lease(form.new_lease(jiff::Timestamp::UNIX_EPOCH.into()));
        let stored = StoredDocument {
            holder: form.holder.clone(),
            source: DocumentSource::Published,
            retention: Retention::UntilReplaced,
            document: Arc::new(server_document_from_notation("v1 pods:get")),
        };
        let version = DocumentStorage::put(memory, &server, stored.encode(), None, None).await.unwrap();
        memory.take_log();
        let since = tokio::time::Instant::now();
        (IdentityLease::from_lease(&lease).unwrap(), TrackedDocument { stored, version, since })
    }

    fn start_cleanup_tasks(memory: &MemoryStorage, count: u64) -> (watch::Sender<Arc<[CleanupAction]>>, Tasks) {
        let (cleanup_actions, tasks) = (watch::Sender::new(Arc::<[CleanupAction]>::from([])), Tasks::new());
        for seed in 0..count {
            let cleanup_task = CleanupTask {
                leases: Arc::new(memory.clone()),
                documents: Arc::new(memory.clone()),
                cleanup_actions: cleanup_actions.subscribe(),
                request_timeout: Duration::from_secs(4),
                seed,
                started: Milestone::new("sweeper"),
            };
            tasks.spawn("lease-sweeper", |stop| cleanup_task.run(stop));
        }
        (cleanup_actions, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn each_cleanup_action_is_done_by_one_server() {
        let memory = MemoryStorage::new(&Tasks::new());
        let (lease, document) = put_remains_of_dead_server(&memory).await;
        let (chores, _tasks) = start_cleanup_tasks(&memory, 5);
        let ttl = Duration::from_secs(60);
        chores.send_replace([CleanupAction::StartLinger { server: server_id("b"), document, ttl }].into());
        sleep_seconds(1).await;
        assert_eq!(memory.take_log(), "linger-document b");
        let document = memory.document_version(&server_id("b"));
        chores.send_replace([CleanupAction::DeleteExpiredLease { lease, document }].into());
        sleep_seconds(3).await;
        assert_eq!(memory.take_log(), "delete-lease b, delete-document b");
    }

    #[tokio::test(start_paused = true)]
    async fn cleanup_spares_server_that_came_back() {
        let memory = MemoryStorage::new(&Tasks::new());
        let (lease, document) = put_remains_of_dead_server(&memory).await;
        let renewed = (*memory.lease(&server_id("b")).unwrap()).clone();
        memory.put_lease(renewed);
        let stored = document.stored.encode();
        DocumentStorage::put(&memory, &server_id("b"), stored, Some(document.version), None).await.unwrap();
        memory.take_log();
        let (chores, _tasks) = start_cleanup_tasks(&memory, 2);
        let ttl = Duration::from_secs(60);
        let old = document.version;
        chores.send_replace(
            [
                CleanupAction::DeleteExpiredLease { lease, document: Some(old) },
                CleanupAction::StartLinger { server: server_id("b"), document: document.clone(), ttl },
                CleanupAction::CancelLinger { server: server_id("b"), document },
                CleanupAction::DeleteDocument { server: server_id("b"), document: old },
                CleanupAction::DeleteDocument { server: server_id("missing"), document: EntryVersion(1) },
            ]
            .into(),
        );
        sleep_seconds(10).await;
        assert_eq!(memory.take_log(), "");
    }
}
