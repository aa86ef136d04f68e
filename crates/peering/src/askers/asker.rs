//! Asking one member, for as long as it is to be asked.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use fastrand::Rng;
use tasks::{Backoff, jittered};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{AskConfig, Assignment};
use crate::ask::{Answer, Former, Peer, ask};
use crate::documents::{Etags, ServerDocument, Source, StoredDocument, Tenure, leave_behind};
use crate::identity::ServerId;
use crate::members::KnownDocument;
use crate::metrics::{Metrics, SyncError};
use crate::ports::{Documents, Fetch};
use crate::wait::until;

/// Servers that started together should not confirm together.
const JITTER: f64 = 0.2;

/// Asks one member.
pub(super) struct Asker {
    pub(super) server: ServerId,
    pub(super) config: AskConfig,
    pub(super) fetch: Arc<dyn Fetch>,
    pub(super) documents: Arc<dyn Documents>,
    pub(super) tried: mpsc::Sender<ServerId>,
    pub(super) metrics: Metrics,
    pub(super) assignment: watch::Receiver<Assignment>,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// It is known what the member serves.
    Known,
    /// It was asked in vain.
    Failed,
    /// It has no address.
    Nowhere,
}

impl Asker {
    pub(super) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.ask_for_ever() => {}
        }
    }

    /// Returns when the member is not to be asked any more.
    async fn ask_for_ever(&mut self) {
        let AskConfig { backoff_first, backoff_last, revalidate_interval, seed, .. } = self.config;
        let mut rng = Rng::with_seed(seed ^ self.server.as_str().bytes().map(u64::from).sum::<u64>());
        let mut backoff = Backoff::new(backoff_first, backoff_last);
        let mut is_first = true;
        loop {
            let assignment = self.assignment.borrow_and_update().clone();
            let is_known = is_first && is_current(&assignment);
            is_first = false;
            let attempt = if is_known { Attempt::Known } else { self.attempt(&assignment).await };
            // A full queue means that many wait for the first sync, which ends by itself.
            let _ = self.tried.try_send(self.server.clone());
            let wait = match attempt {
                Attempt::Known => {
                    backoff.reset();
                    Some(jittered(revalidate_interval, JITTER, &mut rng))
                }
                Attempt::Failed => Some(backoff.next_jittered(&mut rng)),
                Attempt::Nowhere => None,
            };
            match self.wait(&assignment, wait).await {
                Next::Again => {}
                Next::Anew => backoff.reset(),
                Next::End => return,
            }
        }
    }

    async fn attempt(&self, assignment: &Assignment) -> Attempt {
        let server = &self.server;
        let Some(address) = assignment.address.clone() else {
            self.metrics.count_sync_error(SyncError::HostportResolution);
            return Attempt::Nowhere;
        };
        let peer = Peer { server: server.clone(), address };
        let former = assignment.known.as_ref().and_then(former_of);
        match ask(&*self.fetch, &peer, former.as_ref(), self.config.limits).await {
            Ok(answer) => match self.keep(assignment, former, answer).await {
                Ok(()) => Attempt::Known,
                Err(error) => {
                    tracing::warn!(%server, %error, "what a member serves cannot be stored");
                    Attempt::Failed
                }
            },
            Err(error) => {
                for fault in &error.faults {
                    self.metrics.count_sync_error(SyncError::FetchDiscovery);
                    let labels = [server.as_str(), fault.kind.as_str()];
                    self.metrics.transport_failures.with_label_values(&labels).inc();
                }
                tracing::debug!(%server, %error, "a member was asked in vain");
                Attempt::Failed
            }
        }
    }

    /// Stores an answer, unless it is there already.
    async fn keep(&self, assignment: &Assignment, former: Option<Former>, answer: Answer) -> Result<(), PortError> {
        let (document, etags): (Arc<ServerDocument>, Etags) = match (answer, former) {
            (Answer::New { document, etags }, _) => (document, etags),
            (Answer::Same, Some(former)) if !is_current(assignment) => (former.document, former.etags),
            (Answer::Same, _) => return Ok(()),
        };
        let stored = StoredDocument {
            holder: assignment.holder.clone(),
            source: Source::Asked { etags },
            tenure: Tenure::Staying,
            document,
        };
        let seen = assignment.known.as_ref().map(|known| known.version);
        let putting = async {
            if let Some(known) = &assignment.known {
                leave_behind(&*self.documents, &known.stored, &stored, self.config.linger).await?;
            }
            self.documents.put(&self.server, stored.encode(), seen, None).await
        };
        match tokio::time::timeout(self.config.limits.timeout, putting).await {
            // Somebody else asked too, and was faster.
            Ok(Ok(_) | Err(PortError::Conflict | PortError::NotFound)) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(PortError::Unavailable { reason: "it took too long".to_owned() }),
        }
    }

    /// Waits for the next attempt.
    async fn wait(&mut self, asked: &Assignment, wait: Option<Duration>) -> Next {
        let now = Instant::now();
        let mut deadline = wait.map(|wait| now + wait);
        loop {
            tokio::select! {
                () = until(deadline) => return Next::Again,
                changed = self.assignment.changed() => if changed.is_err() { return Next::End },
            }
            let assignment = self.assignment.borrow_and_update();
            if assignment.address != asked.address || assignment.holder != asked.holder {
                return Next::Anew;
            }
            if assignment.doubts != asked.doubts {
                let soon = now + self.config.again_interval;
                deadline = Some(deadline.map_or(soon, |deadline| deadline.min(soon)));
            }
        }
    }
}

/// What to do after a wait.
enum Next {
    /// Ask again.
    Again,
    /// Ask again: it is another process, or it is elsewhere.
    Anew,
    /// The member is not to be asked any more.
    End,
}

/// Whether what is known is of the process that holds the lease.
fn is_current(assignment: &Assignment) -> bool {
    assignment.known.as_ref().is_some_and(|known| known.stored.holder == assignment.holder)
}

/// What a member can confirm: an answer of its own, of this process or of a former one.
fn former_of(known: &KnownDocument) -> Option<Former> {
    match &known.stored.source {
        Source::Published => None,
        Source::Asked { etags } => Some(Former { etags: etags.clone(), document: known.stored.document.clone() }),
    }
}
