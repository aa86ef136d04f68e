//! Fetches from one member for as long as it is assigned.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use fastrand::Rng;
use tasks::{Backoff, jittered};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{DiscoveryFetchConfig, FetchAssignment};
use crate::discovery_client::{DiscoveryPeer, FetchedDiscovery, PreviousDiscovery, fetch_discovery};
use crate::documents::{DocumentSource, Etags, Retention, ServerDocument, StoredDocument, keep_previous_as_lingering};
use crate::identity::ServerId;
use crate::members::TrackedDocument;
use crate::metrics::{Metrics, SyncError};
use crate::ports::{DocumentStorage, Fetch};
use crate::wait::sleep_until_if_some;

/// Spreads the revalidations of servers that started together.
const REVALIDATE_JITTER: f64 = 0.2;

/// Fetches the document of one member.
pub(super) struct DiscoveryFetcher {
    pub(super) server: ServerId,
    pub(super) config: DiscoveryFetchConfig,
    pub(super) fetch: Arc<dyn Fetch>,
    pub(super) documents: Arc<dyn DocumentStorage>,
    pub(super) attempted: mpsc::Sender<ServerId>,
    pub(super) metrics: Metrics,
    pub(super) assignment: watch::Receiver<FetchAssignment>,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchOutcome {
    /// The stored document is up to date.
    UpToDate,
    /// The fetch or the write failed.
    Failed,
    /// The member has no address.
    NoAddress,
}

impl DiscoveryFetcher {
    pub(super) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.fetch_until_unassigned() => {}
        }
    }

    /// Returns when the member is no longer assigned.
    async fn fetch_until_unassigned(&mut self) {
        let DiscoveryFetchConfig { backoff_initial, backoff_max, revalidate_interval, seed, .. } = self.config;
        let mut rng = Rng::with_seed(seed ^ self.server.as_str().bytes().map(u64::from).sum::<u64>());
        let mut backoff = Backoff::new(backoff_initial, backoff_max);
        let mut is_first = true;
        loop {
            let assignment = self.assignment.borrow_and_update().clone();
            let is_known = is_first && is_document_current(&assignment);
            is_first = false;
            let attempt = if is_known { FetchOutcome::UpToDate } else { self.fetch_once(&assignment).await };
            // If the queue is full, the first sync ends by its timeout.
            let _ = self.attempted.try_send(self.server.clone());
            let wait = match attempt {
                FetchOutcome::UpToDate => {
                    backoff.reset();
                    Some(jittered(revalidate_interval, REVALIDATE_JITTER, &mut rng))
                }
                FetchOutcome::Failed => Some(backoff.next_jittered(&mut rng)),
                FetchOutcome::NoAddress => None,
            };
            match self.wait_for_next_fetch(&assignment, wait).await {
                NextFetch::Refetch => {}
                NextFetch::RefetchWithoutBackoff => backoff.reset(),
                NextFetch::Stop => return,
            }
        }
    }

    async fn fetch_once(&self, assignment: &FetchAssignment) -> FetchOutcome {
        let server = &self.server;
        let Some(address) = assignment.address.clone() else {
            self.metrics.count_sync_error(SyncError::HostportResolution);
            return FetchOutcome::NoAddress;
        };
        let peer = DiscoveryPeer { server: server.clone(), address };
        let previous = assignment.document.as_ref().and_then(previous_discovery);
        match fetch_discovery(&*self.fetch, &peer, previous.as_ref(), self.config.limits).await {
            Ok(fetched) => match self.store_if_changed(assignment, previous, fetched).await {
                Ok(()) => FetchOutcome::UpToDate,
                Err(error) => {
                    tracing::warn!(%server, %error, "failed to store a fetched discovery document");
                    FetchOutcome::Failed
                }
            },
            Err(error) => {
                for failure in &error.failures {
                    self.metrics.count_sync_error(SyncError::FetchDiscovery);
                    let labels = [server.as_str(), failure.kind.as_str()];
                    self.metrics.transport_failures.with_label_values(&labels).inc();
                }
                tracing::debug!(%server, %error, "discovery fetch failed");
                FetchOutcome::Failed
            }
        }
    }

    /// Stores a fetched document unless it is unchanged.
    async fn store_if_changed(
        &self,
        assignment: &FetchAssignment,
        previous: Option<PreviousDiscovery>,
        fetched: FetchedDiscovery,
    ) -> Result<(), PortError> {
        let (document, etags): (Arc<ServerDocument>, Etags) = match (fetched, previous) {
            (FetchedDiscovery::Changed { document, etags }, _) => (document, etags),
            (FetchedDiscovery::Unchanged, Some(former)) if !is_document_current(assignment) => {
                (former.document, former.etags)
            }
            (FetchedDiscovery::Unchanged, _) => return Ok(()),
        };
        let stored = StoredDocument {
            holder: assignment.holder.clone(),
            source: DocumentSource::Fetched { etags },
            retention: Retention::UntilReplaced,
            document,
        };
        let expected = assignment.document.as_ref().map(|known| known.version);
        let storing = async {
            if let Some(known) = &assignment.document {
                keep_previous_as_lingering(&*self.documents, &known.stored, &stored, self.config.linger).await?;
            }
            self.documents.put(&self.server, stored.encode(), expected, None).await
        };
        match tokio::time::timeout(self.config.limits.timeout, storing).await {
            // Another server fetched it too, and was faster.
            Ok(Ok(_) | Err(PortError::Conflict | PortError::NotFound)) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(PortError::Unavailable { reason: "it took too long".to_owned() }),
        }
    }

    /// Waits for the next attempt.
    async fn wait_for_next_fetch(&mut self, fetched_assignment: &FetchAssignment, wait: Option<Duration>) -> NextFetch {
        let now = Instant::now();
        let mut deadline = wait.map(|wait| now + wait);
        loop {
            tokio::select! {
                () = sleep_until_if_some(deadline) => return NextFetch::Refetch,
                changed = self.assignment.changed() => if changed.is_err() { return NextFetch::Stop },
            }
            let assignment = self.assignment.borrow_and_update();
            if assignment.address != fetched_assignment.address || assignment.holder != fetched_assignment.holder {
                return NextFetch::RefetchWithoutBackoff;
            }
            if assignment.stale_marks != fetched_assignment.stale_marks {
                let refetch_at = now + self.config.stale_refetch_interval;
                deadline = Some(deadline.map_or(refetch_at, |deadline| deadline.min(refetch_at)));
            }
        }
    }
}

/// The next step after a wait.
enum NextFetch {
    /// Fetch again.
    Refetch,
    /// Fetch again and reset the backoff: the process or the address has changed.
    RefetchWithoutBackoff,
    /// The member is no longer assigned.
    Stop,
}

/// True if the known document is that of the process that holds the lease.
fn is_document_current(assignment: &FetchAssignment) -> bool {
    assignment.document.as_ref().is_some_and(|known| known.stored.holder == assignment.holder)
}

/// The fetched document that a member can revalidate, of its current process or a former one.
fn previous_discovery(tracked: &TrackedDocument) -> Option<PreviousDiscovery> {
    match &tracked.stored.source {
        DocumentSource::Published => None,
        DocumentSource::Fetched { etags } => {
            Some(PreviousDiscovery { etags: etags.clone(), document: tracked.stored.document.clone() })
        }
    }
}
