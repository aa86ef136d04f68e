//! Agreement on encoding versions (KEP-2339): which version each server writes, and that it says so before it writes.
//!
//! A pure core decides: [`agreement`] computes what follows from the entries of an object, [`edit`] what becomes of it,
//! [`validation`] what Kubernetes accepts. A thin shell acts through [`ports`]: [`publisher`] keeps our entries in place,
//! [`barrier`] is the barrier that every write passes, [`collector`] removes what servers leave behind. [`StorageVersionManager`]
//! wires all of it.
//!
//! Nothing here knows a store, a registry or a catalogue. So an aggregated API server can use the crate as it is: it gives its
//! own resources as [`Registration`]s, implements [`ports::StorageVersionClient`] and [`ports::MemberSource`] over a client of the
//! main API server, keeps an identity lease, and asks the [`PublicationBarrier`] before it persists.

pub mod agreement;
mod backoff;
pub mod barrier;
pub mod collector;
pub mod edit;
pub mod members;
pub mod metrics;
pub mod names;
pub mod ports;
pub mod publisher;
pub mod registration;
#[cfg(test)]
mod testing;
pub mod validation;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::GroupResource;
use election::{Elector, LeaseClient};
use jiff::Timestamp;
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

pub use barrier::{Fence, IntentAuthor, PublicationBarrier, RegistrationPending, WriteIntent, WriteOperation};
pub use members::MemberSet;
pub use metrics::Metrics;
pub use registration::{InvalidRegistration, Registration, Registrations};

use crate::collector::StorageVersionCollector;
use crate::ports::{MemberSource, StorageVersionClient};
use crate::publisher::StorageVersionPublisher;

/// The name of kube-apiserver's post-start hook, by which readiness and metrics tell of publication.
pub const POST_START_HOOK: &str = "built-in-resources-storage-version-updater";
/// The Lease by which the collector is elected, in kube-system.
pub const COLLECTOR_LEASE: &str = "unskew-storage-version-collector";

/// How storage versions are kept.
#[derive(Clone, Debug)]
pub struct Config {
    /// This process, for the election of the collector.
    pub holder: String,
    /// How long any one call to storage may take.
    pub request_timeout: Duration,
    /// How quickly the collector is elected.
    pub election_timings: election::ElectionTimings,
    /// The wall clock, for times in conditions.
    pub clock: fn() -> Timestamp,
    /// For jitter.
    pub seed: u64,
}

/// Everything that is needed of the world.
#[derive(Clone)]
pub struct StorageVersionPorts {
    /// The objects.
    pub client: Arc<dyn StorageVersionClient>,
    /// Who takes part.
    pub member_source: Arc<dyn MemberSource>,
    /// For the election of the collector.
    pub lease_client: Arc<dyn LeaseClient>,
}

/// Storage versions, kept by tasks. Clones share them.
#[derive(Clone)]
pub struct StorageVersionManager {
    barrier: PublicationBarrier,
    first_publication: watch::Receiver<bool>,
}

impl StorageVersionManager {
    /// Starts to publish what the barrier was made with, once `renewed` tells that this server holds its identity lease; to
    /// follow the objects; and to stand for the collector.
    pub fn start(
        config: &Config,
        barrier: PublicationBarrier,
        ports: &StorageVersionPorts,
        lease_renewals: watch::Receiver<Option<Instant>>,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Self {
        barrier.set_lease_renewals(lease_renewals.clone());
        let (first_sender, first) = watch::channel(false);
        let Config { request_timeout: call_timeout, clock, seed, .. } = *config;
        let publisher = StorageVersionPublisher {
            barrier: barrier.clone(),
            client: ports.client.clone(),
            member_source: ports.member_source.clone(),
            lease_renewals,
            first_publication: first_sender,
            request_timeout: call_timeout,
            clock,
            seed,
            metrics: metrics.clone(),
        };
        tasks.spawn("storage-version-publisher", |stop| publisher.run(stop));
        let (follower, mut snapshots) = (barrier.clone(), ports.client.subscribe());
        tasks.spawn("storage-version-follower", |stop| async move {
            let follow = async {
                let mut before = Arc::default();
                loop {
                    let snapshot = snapshots.borrow_and_update().clone();
                    follower.observe_changes(&before, &snapshot);
                    before = snapshot;
                    if snapshots.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            stop.run_until_cancelled(follow).await;
        });
        let collector = StorageVersionCollector {
            client: ports.client.clone(),
            member_source: ports.member_source.clone(),
            request_timeout: call_timeout,
            clock,
            seed,
            metrics: metrics.clone(),
        };
        let elector = Elector::new(election_config(config), ports.lease_client.clone());
        tasks.spawn("storage-version-collector", |stop| {
            elector.run(stop, move |term| collector.clone().run_as_leader(term))
        });
        Self { barrier, first_publication: first }
    }

    /// Registers a resource that is served from now on, or in another version from now on, and waits until that is published:
    /// only then may its handler open, or write in the new version. In between, writes of it are held.
    ///
    /// For custom resources. Those of a former start that are not registered again are withdrawn, so what is known at the start
    /// is better given to [`PublicationBarrier::new`].
    pub async fn register_and_publish(&self, registration: Registration) {
        let registration = Arc::new(registration);
        self.barrier.register(&registration);
        self.barrier.wait_until_open(&registration).await;
    }

    /// Forgets a resource that is served no longer; its entry is withdrawn.
    pub fn unregister(&self, resource: GroupResource<&str>) {
        self.barrier.unregister(resource);
    }

    /// Waits until everything was published once.
    pub async fn wait_until_published(&self) {
        let mut first = self.first_publication.clone();
        // The publisher ends with the server; nobody waits for readiness then.
        if first.wait_for(|first| *first).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether everything was published once; in kube-apiserver's words if not, and what it waits for.
    pub fn check_first_publication(&self) -> Result<(), String> {
        if *self.first_publication.borrow() {
            return Ok(());
        }
        Err(match (self.barrier.check_lease(), &self.barrier.closed_resources()[..]) {
            (Err(lapse), _) => format!("not finished: {lapse}"),
            (Ok(()), closed) => format!("not finished: {} resources are not published yet", closed.len()),
        })
    }

    /// Whether writes pass: everything was published and still stands, and our lease is current. In words if not.
    pub fn check_writable(&self) -> Result<(), String> {
        self.check_first_publication()?;
        self.barrier.check_lease()?;
        match &self.barrier.closed_resources()[..] {
            [] => Ok(()),
            closed => Err(format!("to be published again: {}", closed.join(", "))),
        }
    }
}

impl fmt::Debug for StorageVersionManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StorageVersionManager").field(&self.barrier).finish()
    }
}

fn election_config(config: &Config) -> election::Config {
    election::Config {
        namespace: "kube-system".to_owned(),
        name: COLLECTOR_LEASE.to_owned(),
        holder: config.holder.clone(),
        timings: config.election_timings,
        clock: config.clock,
        seed: config.seed,
    }
}
