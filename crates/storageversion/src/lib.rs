//! Agreement on encoding versions (KEP-2339): which version each server writes, and that it says so before it writes.
//!
//! A pure core decides: [`agreement`] computes what follows from the entries of an object, [`edit`] what becomes of it,
//! [`validation`] what Kubernetes accepts. A thin shell acts through [`ports`]: [`publish`] keeps our entries in place,
//! [`permit`] is the barrier that every write passes, [`collect`] removes what servers leave behind. [`StorageVersioning`]
//! wires all of it.
//!
//! Nothing here knows a store, a registry or a catalogue. So an aggregated API server can use the crate as it is: it gives its
//! own resources as [`Registration`]s, implements [`ports::StorageVersions`] and [`ports::Membership`] over a client of the
//! main API server, keeps an identity lease, and asks the [`Barrier`] before it persists.

pub mod agreement;
pub mod collect;
pub mod edit;
pub mod members;
pub mod metrics;
pub mod names;
mod pace;
pub mod permit;
pub mod ports;
pub mod publish;
pub mod registration;
#[cfg(test)]
mod testing;
pub mod validation;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::GroupResource;
use election::{Elector, Leases};
use jiff::Timestamp;
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

pub use members::Members;
pub use metrics::Metrics;
pub use permit::{Author, Barrier, Closed, Fence, Novelty, Write};
pub use registration::{InvalidRegistration, Registration, Registrations};

use crate::collect::Collector;
use crate::ports::{Membership, StorageVersions};
use crate::publish::Publisher;

/// The name of kube-apiserver's post-start hook, by which readiness and metrics tell of publication.
pub const HOOK: &str = "built-in-resources-storage-version-updater";
/// The Lease by which the collector is elected, in kube-system.
pub const COLLECTOR_LEASE: &str = "unskew-storage-version-collector";

/// How storage versions are kept.
#[derive(Clone, Debug)]
pub struct Config {
    /// This process, for the election of the collector.
    pub holder: String,
    /// How long any one call to storage may take.
    pub call_timeout: Duration,
    /// How quickly the collector is elected.
    pub election: election::Pace,
    /// The wall clock, for times in conditions.
    pub clock: fn() -> Timestamp,
    /// For jitter.
    pub seed: u64,
}

/// Everything that is needed of the world.
#[derive(Clone)]
pub struct Ports {
    /// The objects.
    pub objects: Arc<dyn StorageVersions>,
    /// Who takes part.
    pub membership: Arc<dyn Membership>,
    /// For the election of the collector.
    pub leases: Arc<dyn Leases>,
}

/// Storage versions, kept by tasks. Clones share them.
#[derive(Clone)]
pub struct StorageVersioning {
    barrier: Barrier,
    first: watch::Receiver<bool>,
}

impl StorageVersioning {
    /// Starts to publish what the barrier was made with, once `renewed` tells that this server holds its identity lease; to
    /// follow the objects; and to stand for the collector.
    pub fn start(
        config: &Config,
        barrier: Barrier,
        ports: &Ports,
        renewed: watch::Receiver<Option<Instant>>,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Self {
        barrier.keep_lease(renewed.clone());
        let (first_sender, first) = watch::channel(false);
        let Config { call_timeout, clock, seed, .. } = *config;
        let publisher = Publisher {
            barrier: barrier.clone(),
            objects: ports.objects.clone(),
            membership: ports.membership.clone(),
            renewed,
            first: first_sender,
            call_timeout,
            clock,
            seed,
            metrics: metrics.clone(),
        };
        tasks.spawn("storage-version-publisher", |stop| publisher.run(stop));
        let (follower, mut snapshots) = (barrier.clone(), ports.objects.follow());
        tasks.spawn("storage-version-follower", |stop| async move {
            let follow = async {
                let mut before = Arc::default();
                loop {
                    let snapshot = snapshots.borrow_and_update().clone();
                    follower.see_changes(&before, &snapshot);
                    before = snapshot;
                    if snapshots.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            stop.run_until_cancelled(follow).await;
        });
        let collector = Collector {
            objects: ports.objects.clone(),
            membership: ports.membership.clone(),
            call_timeout,
            clock,
            seed,
            metrics: metrics.clone(),
        };
        let elector = Elector::new(election_of(config), ports.leases.clone());
        tasks.spawn("storage-version-collector", |stop| elector.run(stop, move |term| collector.clone().lead(term)));
        Self { barrier, first }
    }

    /// Registers a resource that is served from now on, or in another version from now on, and waits until that is published:
    /// only then may its handler open, or write in the new version. In between, writes of it are held.
    ///
    /// For custom resources. Those of a former start that are not registered again are withdrawn, so what is known at the start
    /// is better given to [`Barrier::new`].
    pub async fn register(&self, registration: Registration) {
        let registration = Arc::new(registration);
        self.barrier.require(&registration);
        self.barrier.opened(&registration).await;
    }

    /// Forgets a resource that is served no longer; its entry is withdrawn.
    pub fn unregister(&self, resource: GroupResource<&str>) {
        self.barrier.release(resource);
    }

    /// Waits until everything was published once.
    pub async fn published(&self) {
        let mut first = self.first.clone();
        // The publisher ends with the server; nobody waits for readiness then.
        if first.wait_for(|first| *first).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether everything was published once; in kube-apiserver's words if not, and what it waits for.
    pub fn check_first(&self) -> Result<(), String> {
        if *self.first.borrow() {
            return Ok(());
        }
        Err(match (self.barrier.is_lease_current(), &self.barrier.closed()[..]) {
            (Err(lapse), _) => format!("not finished: {lapse}"),
            (Ok(()), closed) => format!("not finished: {} resources are not published yet", closed.len()),
        })
    }

    /// Whether writes pass: everything was published and still stands, and our lease is current. In words if not.
    pub fn check(&self) -> Result<(), String> {
        self.check_first()?;
        self.barrier.is_lease_current()?;
        match &self.barrier.closed()[..] {
            [] => Ok(()),
            closed => Err(format!("to be published again: {}", closed.join(", "))),
        }
    }
}

impl fmt::Debug for StorageVersioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StorageVersioning").field(&self.barrier).finish()
    }
}

fn election_of(config: &Config) -> election::Config {
    election::Config {
        namespace: "kube-system".to_owned(),
        name: COLLECTOR_LEASE.to_owned(),
        holder: config.holder.clone(),
        pace: config.election,
        clock: config.clock,
        seed: config.seed,
    }
}
