//! Joins the cluster with document, endpoint record and identity lease, in this order, and leaves it again.
//!
//! A task of its own keeps each of the three, so that a failure of one does not affect the others. Start and shutdown do not
//! wait for storage: failed writes are retried, and what cannot be removed in time expires.

mod document_publisher;
mod identity_claim;
mod lease_renewer;
mod record_renewer;

use std::sync::Arc;
use std::time::Duration;

use api::Address;
use api::time::MicroTime;
use discovery::GroupDiscoveryList;
use jiff::Timestamp;
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use identity_claim::{DuplicateIdentityError, claim_identity};

use crate::documents::UnimplementedResource;
use crate::identity::{HolderIdentity, IdentityLeaseTemplate, ServerId};
use crate::membership_task::OwnDocument;
use crate::ports::{DocumentStorage, LeaseStorage, RecordStorage};
use crate::readiness::{Milestone, Milestones};

/// How this server appears to others.
#[derive(Clone, Debug)]
pub struct PresenceConfig {
    /// The id of this server.
    pub server: ServerId,
    /// The holder identity of this process.
    pub holder: HolderIdentity,
    /// The hostname, for people who read the lease.
    pub hostname: String,
    /// The advertised address.
    pub address: Address,
    /// What of this server others see.
    pub scope: PresenceScope,
    /// Resources that this server lists but does not implement.
    pub unimplemented: Vec<UnimplementedResource>,
    /// `--publish-discovery`: whether this server stores its document; otherwise peers fetch it.
    pub publishes_document: bool,
    /// `--peer-linger`: how long the document stays after this server leaves.
    pub linger: Duration,
    /// Intervals, validity and timeouts.
    pub timings: PresenceTimings,
    /// The wall clock, for `renewTime`.
    pub clock: fn() -> Timestamp,
    /// Seed of the jitter.
    pub seed: u64,
}

/// What of this server others see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceScope {
    /// Document, record and lease, with the address in the lease for people.
    Full,
    /// The lease alone: with the gate `UnknownVersionInteroperabilityProxy` off, `APIServerIdentity` remains.
    LeaseOnly,
}

/// Intervals, validity and timeouts. The defaults are kube-apiserver's.
#[derive(Clone, Copy, Debug)]
pub struct PresenceTimings {
    /// How long the lease is valid after a renewal.
    pub lease_duration: Duration,
    /// How often the lease is renewed.
    pub lease_interval: Duration,
    /// How long the endpoint record is valid after a write.
    pub record_ttl: Duration,
    /// How often the endpoint record is written.
    pub record_interval: Duration,
    /// The timeout of each call to storage.
    pub request_timeout: Duration,
    /// The timeout of leaving.
    pub leave_timeout: Duration,
}

impl Default for PresenceTimings {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(3600),
            lease_interval: Duration::from_secs(10),
            record_ttl: Duration::from_secs(15),
            record_interval: Duration::from_secs(10),
            // Less than the rest of a record's validity when its renewal is due.
            request_timeout: Duration::from_secs(4),
            leave_timeout: Duration::from_secs(4),
        }
    }
}

impl PresenceConfig {
    pub(crate) fn lease_template(&self) -> IdentityLeaseTemplate {
        IdentityLeaseTemplate {
            server: self.server.clone(),
            holder: self.holder.clone(),
            component: crate::identity::IDENTITY_LABEL_VALUE.to_owned(),
            hostname: self.hostname.clone(),
            address: (self.scope == PresenceScope::Full).then(|| self.address.clone()),
            duration: self.timings.lease_duration,
        }
    }

    fn current_time(&self) -> MicroTime {
        (self.clock)().into()
    }
}

/// The presence of this server in the cluster.
#[derive(Debug)]
pub struct Presence {
    leave_token: CancellationToken,
    released: [Milestone; 3],
    leave_timeout: Duration,
    last_renewal: watch::Receiver<Option<Instant>>,
}

/// The storage of presence.
#[derive(Clone)]
pub struct PresencePorts {
    /// Stores the lease.
    pub leases: Arc<dyn LeaseStorage>,
    /// Stores the endpoint record.
    pub records: Arc<dyn RecordStorage>,
    /// Stores the document.
    pub documents: Arc<dyn DocumentStorage>,
}

impl Presence {
    /// Joins: document, then record, then lease, each tried at least once before the next. What this server serves must be
    /// complete, because kube-apiserver fetches discovery once, when the lease appears.
    pub(crate) fn start(
        config: &Arc<PresenceConfig>,
        ports: &PresencePorts,
        local_groups: watch::Receiver<Arc<GroupDiscoveryList>>,
        own_document: watch::Receiver<OwnDocument>,
        milestones: &Milestones,
        tasks: &Tasks,
    ) -> Self {
        let leave = CancellationToken::new();
        let published = Milestone::new("document");
        let released = ["lease", "record", "document"].map(Milestone::new);
        let [lease_released, record_released, document_released] = &released;
        let (renewal_sender, last_renewal) = watch::channel(None);
        let publisher = document_publisher::DocumentPublisher {
            config: config.clone(),
            documents: ports.documents.clone(),
            local_groups,
            own_document,
            leave_step: LeaveStep {
                leave_token: leave.clone(),
                released_after: Some(record_released.clone()),
                released: document_released.clone(),
            },
            first_attempt: published.clone(),
        };
        let record = record_renewer::RecordRenewer {
            config: config.clone(),
            records: ports.records.clone(),
            after_document: published,
            leave_step: LeaveStep {
                leave_token: leave.clone(),
                released_after: Some(lease_released.clone()),
                released: record_released.clone(),
            },
            first_attempt: milestones.endpoint_record.clone(),
        };
        let lease = lease_renewer::LeaseRenewer {
            config: config.clone(),
            leases: ports.leases.clone(),
            records: ports.records.clone(),
            after_record: milestones.endpoint_record.clone(),
            leave_step: LeaveStep {
                leave_token: leave.clone(),
                released_after: None,
                released: lease_released.clone(),
            },
            first_attempt: milestones.identity_lease.clone(),
            last_renewal: renewal_sender,
        };
        match config.scope {
            PresenceScope::Full => {
                tasks.spawn("document-publisher", |stop| publisher.run(stop));
                tasks.spawn("endpoint-record", |stop| record.run(stop));
            }
            PresenceScope::LeaseOnly => {
                milestones.endpoint_record.mark_reached();
                record_released.mark_reached();
                document_released.mark_reached();
            }
        }
        tasks.spawn("identity-lease", |stop| lease.run(stop));
        Self { leave_token: leave, released, leave_timeout: config.timings.leave_timeout, last_renewal }
    }

    /// Leaves: removes lease, then record, then gives the document the linger as its time to live. Returns when all is done or
    /// at the timeout; what could not be removed expires.
    pub async fn leave(&self) {
        self.leave_token.cancel();
        let released = async {
            for milestone in &self.released {
                milestone.wait_until_reached().await;
            }
        };
        if tokio::time::timeout(self.leave_timeout, released).await.is_err() {
            tracing::warn!(left = ?self.released, "leaving the cluster timed out; the rest expires");
        }
    }

    /// The start of the last successful renewal of the lease.
    pub fn last_renewal(&self) -> watch::Receiver<Option<Instant>> {
        self.last_renewal.clone()
    }
}

/// When and how a task releases what it keeps.
struct LeaveStep {
    leave_token: CancellationToken,
    /// What must be released first.
    released_after: Option<Milestone>,
    released: Milestone,
}

impl LeaveStep {
    /// Waits until the server leaves, or stops without leaving.
    async fn wait_for_leave_or_stop(&self, stop: &CancellationToken) {
        tokio::select! {
            () = self.leave_token.cancelled() => {}
            () = stop.cancelled() => {}
        }
    }

    /// Runs `release` in its turn, within the timeout.
    async fn release(&self, timeout: Duration, release: impl Future<Output = ()>) {
        let releasing = async {
            if let Some(predecessor) = &self.released_after {
                predecessor.wait_until_reached().await;
            }
            release.await;
        };
        if tokio::time::timeout(timeout, releasing).await.is_err() {
            tracing::debug!(what = ?self.released, "release timed out");
        }
        self.released.mark_reached();
    }
}

#[cfg(test)]
mod tests;
