//! Being a member: our document, endpoint record and identity lease, in this order; and leaving again.
//!
//! Each of the three is kept by a task of its own, so that trouble with one does not cost the others. Nothing here holds up
//! start or shutdown: what cannot be written is tried again, what cannot be removed in time goes by itself.

mod document_publisher;
mod identity_claim;
mod lease_renewer;
mod record_renewer;

use std::sync::Arc;
use std::time::Duration;

use api::time::MicroTime;
use discovery::GroupDiscoveryList;
use jiff::Timestamp;
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use identity_claim::{DuplicateIdentityError, claim_identity};

use crate::documents::UnimplementedResource;
use crate::endpoint_record::Address;
use crate::identity::{HolderIdentity, IdentityLeaseTemplate, ServerId};
use crate::membership::OwnDocument;
use crate::ports::{DocumentStorage, LeaseStorage, RecordStorage};
use crate::readiness::{Milestone, Milestones};

/// Who we are to others, and how we keep it up.
#[derive(Clone, Debug)]
pub struct PresenceConfig {
    /// Our identity.
    pub server: ServerId,
    /// This process.
    pub holder: HolderIdentity,
    /// The host, for people who read the lease.
    pub hostname: String,
    /// Where peers reach us.
    pub address: Address,
    /// What of us others see.
    pub scope: PresenceScope,
    /// What of our document is listed only.
    pub unimplemented: Vec<UnimplementedResource>,
    /// Whether our document is put into storage (`--publish-discovery`), or peers must ask.
    pub publishes_document: bool,
    /// `--peer-linger`: how long our document stays after us.
    pub linger: Duration,
    /// How often things are written, and for how long they are valid.
    pub timings: PresenceTimings,
    /// The wall clock, for `renewTime`.
    pub clock: fn() -> Timestamp,
    /// For jitter.
    pub seed: u64,
}

/// What of us others see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceScope {
    /// All of it: document, record and lease, with the address in the lease for people.
    Full,
    /// The lease alone: with the gate `UnknownVersionInteroperabilityProxy` off, `APIServerIdentity` remains.
    LeaseOnly,
}

/// How often things are written, and for how long they are valid. The defaults are kube-apiserver's.
#[derive(Clone, Copy, Debug)]
pub struct PresenceTimings {
    /// How long our lease is valid after a renewal.
    pub lease_duration: Duration,
    /// How often it is renewed.
    pub lease_interval: Duration,
    /// How long our endpoint record is valid after a write.
    pub record_ttl: Duration,
    /// How often it is written.
    pub record_interval: Duration,
    /// How long any one call to storage may take.
    pub request_timeout: Duration,
    /// How long leaving may take.
    pub leave_timeout: Duration,
}

impl Default for PresenceTimings {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(3600),
            lease_interval: Duration::from_secs(10),
            record_ttl: Duration::from_secs(15),
            record_interval: Duration::from_secs(10),
            // Less than what is left of a record's life when its renewal is due.
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
            hostname: self.hostname.clone(),
            address: (self.scope == PresenceScope::Full).then(|| self.address.clone()),
            duration: self.timings.lease_duration,
        }
    }

    fn current_time(&self) -> MicroTime {
        (self.clock)().into()
    }
}

/// Our presence in the cluster.
#[derive(Debug)]
pub struct Presence {
    leave_token: CancellationToken,
    released: [Milestone; 3],
    leave_timeout: Duration,
    last_renewal: watch::Receiver<Option<Instant>>,
}

/// Where presence is written.
#[derive(Clone)]
pub struct PresencePorts {
    /// For the lease.
    pub leases: Arc<dyn LeaseStorage>,
    /// For the endpoint record.
    pub records: Arc<dyn RecordStorage>,
    /// For the document.
    pub documents: Arc<dyn DocumentStorage>,
}

impl Presence {
    /// Joins: document, then record, then lease, each at least tried before the next. What this server serves must be complete,
    /// because real peers ask once, when the lease appears.
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

    /// Leaves: lease, then record, then the document is left to linger. Comes back when all is done or the time for it is over;
    /// what could not be removed goes by itself.
    pub async fn leave(&self) {
        self.leave_token.cancel();
        let released = async {
            for milestone in &self.released {
                milestone.wait_until_reached().await;
            }
        };
        if tokio::time::timeout(self.leave_timeout, released).await.is_err() {
            tracing::warn!(left = ?self.released, "leaving the cluster took too long; what is left expires by itself");
        }
    }

    /// When our lease was last known to be renewed: the beginning of the call that did it.
    pub fn last_renewal(&self) -> watch::Receiver<Option<Instant>> {
        self.last_renewal.clone()
    }
}

/// When and how a keeper lets go.
struct LeaveStep {
    leave_token: CancellationToken,
    /// What must be released before.
    released_after: Option<Milestone>,
    released: Milestone,
}

impl LeaveStep {
    /// Waits until it is time to leave, or to stop without.
    async fn wait_for_leave_or_stop(&self, stop: &CancellationToken) {
        tokio::select! {
            () = self.leave_token.cancelled() => {}
            () = stop.cancelled() => {}
        }
    }

    /// Releases after what must be released before, within the time there is.
    async fn release(&self, timeout: Duration, release: impl Future<Output = ()>) {
        let releasing = async {
            if let Some(predecessor) = &self.released_after {
                predecessor.wait_until_reached().await;
            }
            release.await;
        };
        if tokio::time::timeout(timeout, releasing).await.is_err() {
            tracing::debug!(what = ?self.released, "releasing took too long");
        }
        self.released.mark_reached();
    }
}

#[cfg(test)]
mod tests;
