//! Being a member: our document, endpoint record and identity lease, in this order; and leaving again.
//!
//! Each of the three is kept by a task of its own, so that trouble with one does not cost the others. Nothing here holds up
//! start or shutdown: what cannot be written is tried again, what cannot be removed in time goes by itself.

mod claim;
mod document;
mod lease;
mod record;

use std::sync::Arc;
use std::time::Duration;

use api::time::MicroTime;
use discovery::Groups;
use jiff::Timestamp;
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use claim::{TwinError, claim};

use crate::documents::Unbuilt;
use crate::endpoints::Address;
use crate::identity::{HolderIdentity, LeaseForm, ServerId};
use crate::membership::OwnDocument;
use crate::ports::{Documents, Leases, Records};
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
    pub extent: Extent,
    /// What of our document is listed only.
    pub unbuilt: Vec<Unbuilt>,
    /// Whether our document is put into storage (`--publish-discovery`), or peers must ask.
    pub publishes: bool,
    /// `--peer-linger`: how long our document stays after us.
    pub linger: Duration,
    /// How often things are written, and for how long they are valid.
    pub pace: Pace,
    /// The wall clock, for `renewTime`.
    pub clock: fn() -> Timestamp,
    /// For jitter.
    pub seed: u64,
}

/// What of us others see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it: document, record and lease, with the address in the lease for people.
    Full,
    /// The lease alone: with the gate `UnknownVersionInteroperabilityProxy` off, `APIServerIdentity` remains.
    LeaseOnly,
}

/// How often things are written, and for how long they are valid. The defaults are kube-apiserver's.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long our lease is valid after a renewal.
    pub lease_duration: Duration,
    /// How often it is renewed.
    pub lease_interval: Duration,
    /// How long our endpoint record is valid after a write.
    pub record_ttl: Duration,
    /// How often it is written.
    pub record_interval: Duration,
    /// How long any one call to storage may take.
    pub call_timeout: Duration,
    /// How long leaving may take.
    pub leave_timeout: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(3600),
            lease_interval: Duration::from_secs(10),
            record_ttl: Duration::from_secs(15),
            record_interval: Duration::from_secs(10),
            // Less than what is left of a record's life when its renewal is due.
            call_timeout: Duration::from_secs(4),
            leave_timeout: Duration::from_secs(4),
        }
    }
}

impl PresenceConfig {
    pub(crate) fn lease_form(&self) -> LeaseForm {
        LeaseForm {
            server: self.server.clone(),
            holder: self.holder.clone(),
            hostname: self.hostname.clone(),
            address: (self.extent == Extent::Full).then(|| self.address.clone()),
            duration: self.pace.lease_duration,
        }
    }

    fn now(&self) -> MicroTime {
        (self.clock)().into()
    }
}

/// Our presence in the cluster.
#[derive(Debug)]
pub struct Presence {
    leave: CancellationToken,
    released: [Milestone; 3],
    leave_timeout: Duration,
    renewed: watch::Receiver<Option<Instant>>,
}

/// Where presence is written.
#[derive(Clone)]
pub struct PresencePorts {
    /// For the lease.
    pub leases: Arc<dyn Leases>,
    /// For the endpoint record.
    pub records: Arc<dyn Records>,
    /// For the document.
    pub documents: Arc<dyn Documents>,
}

impl Presence {
    /// Joins: document, then record, then lease, each at least tried before the next. What this server serves must be complete,
    /// because real peers ask once, when the lease appears.
    pub(crate) fn start(
        config: &Arc<PresenceConfig>,
        ports: &PresencePorts,
        local: watch::Receiver<Arc<Groups>>,
        own_document: watch::Receiver<OwnDocument>,
        milestones: &Milestones,
        tasks: &Tasks,
    ) -> Self {
        let leave = CancellationToken::new();
        let published = Milestone::new("document");
        let released = ["lease", "record", "document"].map(Milestone::new);
        let [lease_released, record_released, document_released] = &released;
        let (renewed_sender, renewed) = watch::channel(None);
        let publisher = document::Publisher {
            config: config.clone(),
            documents: ports.documents.clone(),
            local,
            own_document,
            leave: Leave {
                token: leave.clone(),
                after: Some(record_released.clone()),
                released: document_released.clone(),
            },
            first: published.clone(),
        };
        let record = record::RecordKeeper {
            config: config.clone(),
            records: ports.records.clone(),
            after: published,
            leave: Leave {
                token: leave.clone(),
                after: Some(lease_released.clone()),
                released: record_released.clone(),
            },
            first: milestones.endpoint_record.clone(),
        };
        let lease = lease::LeaseKeeper {
            config: config.clone(),
            leases: ports.leases.clone(),
            records: ports.records.clone(),
            after: milestones.endpoint_record.clone(),
            leave: Leave { token: leave.clone(), after: None, released: lease_released.clone() },
            first: milestones.identity_lease.clone(),
            renewed: renewed_sender,
        };
        match config.extent {
            Extent::Full => {
                tasks.spawn("document-publisher", |stop| publisher.run(stop));
                tasks.spawn("endpoint-record", |stop| record.run(stop));
            }
            Extent::LeaseOnly => {
                milestones.endpoint_record.reach();
                record_released.reach();
                document_released.reach();
            }
        }
        tasks.spawn("identity-lease", |stop| lease.run(stop));
        Self { leave, released, leave_timeout: config.pace.leave_timeout, renewed }
    }

    /// Leaves: lease, then record, then the document is left to linger. Comes back when all is done or the time for it is over;
    /// what could not be removed goes by itself.
    pub async fn leave(&self) {
        self.leave.cancel();
        let released = async {
            for milestone in &self.released {
                milestone.reached().await;
            }
        };
        if tokio::time::timeout(self.leave_timeout, released).await.is_err() {
            tracing::warn!(left = ?self.released, "leaving the cluster took too long; what is left expires by itself");
        }
    }

    /// When our lease was last known to be renewed: the beginning of the call that did it.
    pub fn renewed(&self) -> watch::Receiver<Option<Instant>> {
        self.renewed.clone()
    }
}

/// When and how a keeper lets go.
struct Leave {
    token: CancellationToken,
    /// What must be released before.
    after: Option<Milestone>,
    released: Milestone,
}

impl Leave {
    /// Waits until it is time to leave, or to stop without.
    async fn begun(&self, stop: &CancellationToken) {
        tokio::select! {
            () = self.token.cancelled() => {}
            () = stop.cancelled() => {}
        }
    }

    /// Releases after what must be released before, within the time there is.
    async fn release(&self, timeout: Duration, release: impl Future<Output = ()>) {
        let releasing = async {
            if let Some(before) = &self.after {
                before.reached().await;
            }
            release.await;
        };
        if tokio::time::timeout(timeout, releasing).await.is_err() {
            tracing::debug!(what = ?self.released, "releasing took too long");
        }
        self.released.reach();
    }
}

#[cfg(test)]
mod tests;
