//! Our document in storage, so that peers learn what we serve by watch and need not ask.
//!
//! What storage holds is compared with what it should hold, and written if they differ, whoever changed it.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use discovery::Groups;
use fastrand::Rng;
use tasks::Backoff;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Leave, PresenceConfig};
use crate::documents::{ServerDocument, Source, StoredDocument, Tenure, leave_behind};
use crate::members::KnownDocument;
use crate::membership::OwnDocument;
use crate::ports::{Documents, Version};
use crate::readiness::Milestone;
use crate::wait::changed;

const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_LAST: Duration = Duration::from_secs(5);
/// Should two processes ever publish under one name, they replace each other's documents slowly.
const RIVAL_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps our document in storage.
pub(super) struct Publisher {
    pub(super) config: Arc<PresenceConfig>,
    pub(super) documents: Arc<dyn Documents>,
    pub(super) local: watch::Receiver<Arc<Groups>>,
    pub(super) own_document: watch::Receiver<OwnDocument>,
    pub(super) leave: Leave,
    pub(super) first: Milestone,
}

impl Publisher {
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut put = None;
        if self.config.publishes {
            tokio::select! {
                () = self.keep(&mut put) => {}
                () = self.leave.begun(&stop) => {}
            }
        } else {
            self.first.reach();
            self.leave.begun(&stop).await;
        }
        self.leave.release(self.config.pace.leave_timeout, self.release(put)).await;
        self.first.reach();
        stop.cancelled().await;
    }

    /// Never returns.
    async fn keep(&self, put: &mut Option<Version>) {
        let mut rng = Rng::with_seed(self.config.seed);
        let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_LAST);
        let (mut local, mut own) = (self.local.clone(), self.own_document.clone());
        loop {
            let wanted = self.wanted(&local.borrow_and_update().clone(), Tenure::Staying);
            let known = own.borrow_and_update().clone();
            let is_listed = !matches!(known, OwnDocument::NotListed);
            let retry = match known {
                // Nothing can be compared before storage was listed.
                OwnDocument::NotListed => None,
                OwnDocument::Absent => self.write(&wanted, None, put).await,
                OwnDocument::Known(known) if known.stored == wanted => {
                    *put = Some(known.version);
                    None
                }
                // Ours, and not seen yet.
                OwnDocument::Known(KnownDocument { version, .. }) if Some(version) < *put => None,
                OwnDocument::Known(KnownDocument { version, stored, .. }) => {
                    if put.is_some() && stored.holder != self.config.holder {
                        tokio::time::sleep(RIVAL_INTERVAL).await;
                    }
                    match self.leave_behind(&stored, &wanted).await {
                        None => self.write(&wanted, Some(version), put).await,
                        Some(Retry) => Some(Retry),
                    }
                }
            };
            if is_listed {
                self.first.reach();
            }
            let wait = match retry {
                None => {
                    backoff.reset();
                    None
                }
                Some(Retry) => Some(backoff.next_jittered(&mut rng)),
            };
            tokio::select! {
                () = changed(&mut local) => {}
                () = changed(&mut own) => {}
                () = sleep_or_wait(wait) => {}
            }
        }
    }

    /// What we served before and do not serve any more lingers too.
    async fn leave_behind(&self, former: &StoredDocument, wanted: &StoredDocument) -> Option<Retry> {
        let leaving = leave_behind(&*self.documents, former, wanted, self.config.linger);
        match tokio::time::timeout(self.config.pace.call_timeout, leaving).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::warn!(%error, "what this server served before cannot be left to linger");
                Some(Retry)
            }
            Err(_) => Some(Retry),
        }
    }

    async fn write(&self, wanted: &StoredDocument, seen: Option<Version>, put: &mut Option<Version>) -> Option<Retry> {
        let server = &self.config.server;
        let writing = self.documents.put(server, wanted.encode(), seen, None);
        match tokio::time::timeout(self.config.pace.call_timeout, writing).await {
            Ok(Ok(version)) => {
                *put = Some(version);
                None
            }
            // Storage will tell what it holds now; should it not, there is another try.
            Ok(Err(PortError::Conflict | PortError::NotFound)) => Some(Retry),
            Ok(Err(error)) => {
                tracing::warn!(%server, %error, "our document cannot be published");
                Some(Retry)
            }
            Err(_) => {
                tracing::warn!(%server, "our document cannot be published: it took too long");
                Some(Retry)
            }
        }
    }

    /// Leaves the document to linger: what only we served is then 503 and not 404.
    async fn release(&self, put: Option<Version>) {
        if !self.config.publishes {
            return;
        }
        let server = &self.config.server;
        let document = self.wanted(&self.local.borrow().clone(), Tenure::Leaving);
        let seen = match &*self.own_document.borrow() {
            OwnDocument::Known(known) => put.max(Some(known.version)),
            OwnDocument::NotListed | OwnDocument::Absent => put,
        };
        let linger = Some(self.config.linger);
        match self.documents.put(server, document.encode(), seen, linger).await {
            // Another process of ours has published already.
            Ok(_) | Err(PortError::Conflict | PortError::NotFound) => {}
            Err(error) => tracing::warn!(%server, %error, "our document cannot be left to linger; others will do so"),
        }
    }

    fn wanted(&self, local: &Arc<Groups>, tenure: Tenure) -> StoredDocument {
        let document = ServerDocument::from_whole(local).with_unbuilt(self.config.unbuilt.clone());
        StoredDocument {
            holder: self.config.holder.clone(),
            source: Source::Published,
            tenure,
            document: Arc::new(document),
        }
    }
}

/// The write did not succeed.
struct Retry;

async fn sleep_or_wait(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
