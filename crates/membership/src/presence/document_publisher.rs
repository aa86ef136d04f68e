//! Publishes this server's document in storage, so that peers learn of changes by watch.
//!
//! Compares the stored document with the desired one and writes it if they differ, whichever server changed it.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use discovery::GroupDiscoveryList;
use fastrand::Rng;
use tasks::Backoff;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{LeaveStep, PresenceConfig};
use crate::documents::{DocumentSource, Retention, ServerDocument, StoredDocument, keep_previous_as_lingering};
use crate::members::TrackedDocument;
use crate::membership_task::OwnDocument;
use crate::ports::{DocumentStorage, EntryVersion};
use crate::readiness::Milestone;
use crate::wait::wait_for_change;

const BACKOFF_INITIAL: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Slows down two processes that publish under one name and replace each other's documents.
const RIVAL_WRITE_DELAY: Duration = Duration::from_secs(1);

/// Keeps this server's document in storage.
pub(super) struct DocumentPublisher {
    pub(super) config: Arc<PresenceConfig>,
    pub(super) documents: Arc<dyn DocumentStorage>,
    pub(super) local_groups: watch::Receiver<Arc<GroupDiscoveryList>>,
    pub(super) own_document: watch::Receiver<OwnDocument>,
    pub(super) leave_step: LeaveStep,
    pub(super) first_attempt: Milestone,
}

impl DocumentPublisher {
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut written_version = None;
        if self.config.publishes_document {
            tokio::select! {
                () = self.publish_forever(&mut written_version) => {}
                () = self.leave_step.wait_for_leave_or_stop(&stop) => {}
            }
        } else {
            self.first_attempt.mark_reached();
            self.leave_step.wait_for_leave_or_stop(&stop).await;
        }
        self.leave_step.release(self.config.timings.leave_timeout, self.release(written_version)).await;
        self.first_attempt.mark_reached();
        stop.cancelled().await;
    }

    /// Never returns.
    async fn publish_forever(&self, written_version: &mut Option<EntryVersion>) {
        let mut rng = Rng::with_seed(self.config.seed);
        let mut backoff = Backoff::new(BACKOFF_INITIAL, BACKOFF_MAX);
        let (mut local_groups, mut own) = (self.local_groups.clone(), self.own_document.clone());
        loop {
            let desired = self.desired_document(&local_groups.borrow_and_update().clone(), Retention::UntilReplaced);
            let known = own.borrow_and_update().clone();
            let is_listed = !matches!(known, OwnDocument::NotListed);
            let retry = match known {
                // Storage was not listed yet.
                OwnDocument::NotListed => None,
                OwnDocument::Absent => self.write(&desired, None, written_version).await,
                OwnDocument::Known(known) if known.stored == desired => {
                    *written_version = Some(known.version);
                    None
                }
                // Our last write was not observed yet.
                OwnDocument::Known(TrackedDocument { version, .. }) if Some(version) < *written_version => None,
                OwnDocument::Known(TrackedDocument { version, stored, .. }) => {
                    if written_version.is_some() && stored.holder != self.config.holder {
                        tokio::time::sleep(RIVAL_WRITE_DELAY).await;
                    }
                    match self.keep_previous_as_lingering(&stored, &desired).await {
                        None => self.write(&desired, Some(version), written_version).await,
                        Some(Retry) => Some(Retry),
                    }
                }
            };
            if is_listed {
                self.first_attempt.mark_reached();
            }
            let wait = match retry {
                None => {
                    backoff.reset();
                    None
                }
                Some(Retry) => Some(backoff.next_jittered(&mut rng)),
            };
            tokio::select! {
                () = wait_for_change(&mut local_groups) => {}
                () = wait_for_change(&mut own) => {}
                () = sleep_or_pend(wait) => {}
            }
        }
    }

    /// Keeps what a former process served, if this one does not serve it any more.
    async fn keep_previous_as_lingering(&self, previous: &StoredDocument, desired: &StoredDocument) -> Option<Retry> {
        let leaving = keep_previous_as_lingering(&*self.documents, previous, desired, self.config.linger);
        match tokio::time::timeout(self.config.timings.request_timeout, leaving).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::warn!(%error, "failed to keep the document of a former process");
                Some(Retry)
            }
            Err(_) => Some(Retry),
        }
    }

    async fn write(
        &self,
        desired: &StoredDocument,
        expected: Option<EntryVersion>,
        written_version: &mut Option<EntryVersion>,
    ) -> Option<Retry> {
        let server = &self.config.server;
        let writing = self.documents.put(server, desired.encode(), expected, None);
        match tokio::time::timeout(self.config.timings.request_timeout, writing).await {
            Ok(Ok(version)) => {
                *written_version = Some(version);
                None
            }
            // The feed delivers the current version; the retry covers a missed one.
            Ok(Err(PortError::Conflict | PortError::NotFound)) => Some(Retry),
            Ok(Err(error)) => {
                tracing::warn!(%server, %error, "failed to publish the discovery document");
                Some(Retry)
            }
            Err(_) => {
                tracing::warn!(%server, "publishing the discovery document timed out");
                Some(Retry)
            }
        }
    }

    /// Gives the document the linger as its time to live: requests for what only this server served get 503 and not 404.
    async fn release(&self, written_version: Option<EntryVersion>) {
        if !self.config.publishes_document {
            return;
        }
        let server = &self.config.server;
        let document = self.desired_document(&self.local_groups.borrow().clone(), Retention::Lingering);
        let expected = match &*self.own_document.borrow() {
            OwnDocument::Known(known) => written_version.max(Some(known.version)),
            OwnDocument::NotListed | OwnDocument::Absent => written_version,
        };
        let linger = Some(self.config.linger);
        match self.documents.put(server, document.encode(), expected, linger).await {
            // Another process of this server has published already.
            Ok(_) | Err(PortError::Conflict | PortError::NotFound) => {}
            Err(error) => {
                tracing::warn!(%server, %error, "failed to start the linger of the discovery document; other servers will")
            }
        }
    }

    fn desired_document(&self, local_groups: &Arc<GroupDiscoveryList>, retention: Retention) -> StoredDocument {
        let document =
            ServerDocument::from_all_groups(local_groups).with_unimplemented(self.config.unimplemented.clone());
        StoredDocument {
            holder: self.config.holder.clone(),
            source: DocumentSource::Published,
            retention,
            document: Arc::new(document),
        }
    }
}

/// The write did not succeed.
struct Retry;

async fn sleep_or_pend(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
