//! Storage versions (KEP-2339): every server publishes the encoding version of each resource before it writes the
//! resource.
//!
//! The rules are pure: [`agreement`] derives the common version and the conditions of an object from its entries,
//! [`edit`] computes updated objects. The I/O goes through [`ports`]:
//! [`publisher`] keeps this server's entries in place, [`barrier`] guards every write, [`collector`] removes entries of
//! servers that are gone. [`StorageVersionManager`] runs all of them. [`migration`] rewrites what is stored in other
//! versions.
//!
//! The crate knows no store, registry or built-in kind, so an aggregated API server can use it as it is: it passes its
//! resources as [`Registration`]s, implements [`ports::StorageVersionClient`] and [`ports::MemberSource`] over a client
//! of the main API server, renews an identity lease, and asks the [`PublicationBarrier`] for a permit before each
//! write.

pub mod agreement;
mod backoff;
pub mod barrier;
pub mod collector;
pub mod edit;
pub mod members;
pub mod metrics;
pub mod migration;
pub mod names;
pub mod ports;
pub mod publisher;
pub mod registration;
#[cfg(test)]
mod testing;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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

/// The name of kube-apiserver's post-start hook, under which readiness and metrics report publication.
pub const POST_START_HOOK: &str = "built-in-resources-storage-version-updater";
/// The Lease in kube-system that elects the collector.
pub const COLLECTOR_LEASE: &str = "unskew-storage-version-collector";

/// Settings of the [`StorageVersionManager`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The holder identity of this process in the election of the collector.
    pub holder: String,
    /// The deadline of each call to storage.
    pub request_timeout: Duration,
    /// The lease timings of the election.
    pub election_timings: election::ElectionTimings,
    /// The wall clock for `lastTransitionTime`.
    pub clock: fn() -> Timestamp,
    /// The seed of retry jitter.
    pub seed: u64,
}

/// The connections of the [`StorageVersionManager`] to the cluster.
#[derive(Clone)]
pub struct StorageVersionPorts {
    /// Reads and writes StorageVersion objects.
    pub client: Arc<dyn StorageVersionClient>,
    /// The servers of the cluster.
    pub member_source: Arc<dyn MemberSource>,
    /// Leases for the election of the collector; `None` in an extension server, whose entries the API servers collect.
    pub lease_client: Option<Arc<dyn LeaseClient>>,
}

/// The running publisher and collector of this server. Clones share them.
#[derive(Clone)]
pub struct StorageVersionManager {
    barrier: PublicationBarrier,
    first_publication: watch::Receiver<bool>,
}

impl StorageVersionManager {
    /// Starts the tasks: the publisher, which begins once `lease_renewals` shows that this server holds its identity
    /// lease; the task that feeds object changes to the barrier; and the elected collector, if there are leases to elect it.
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
        let Config { request_timeout, clock, seed, .. } = *config;
        let publisher = StorageVersionPublisher {
            barrier: barrier.clone(),
            client: ports.client.clone(),
            member_source: ports.member_source.clone(),
            lease_renewals,
            first_publication: first_sender,
            request_timeout,
            clock,
            seed,
            metrics: metrics.clone(),
            recent_members: tokio::sync::Mutex::new(None),
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
        if let Some(lease_client) = &ports.lease_client {
            start_collector(config, ports, lease_client, metrics, tasks);
        }
        Self { barrier, first_publication: first }
    }

    /// Waits until all built-in resources were published once.
    pub async fn wait_until_published(&self) {
        let mut first = self.first_publication.clone();
        // The publisher ends only with the server.
        if first.wait_for(|first| *first).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Checks that all built-in resources were published once; the error says what is missing, in kube-apiserver's words.
    pub fn check_first_publication(&self) -> Result<(), String> {
        if *self.first_publication.borrow() {
            return Ok(());
        }
        Err(match (self.barrier.check_lease(), &self.barrier.closed_built_in_resources()[..]) {
            (Err(lapse), _) => format!("not finished: {lapse}"),
            (Ok(()), closed) => format!("not finished: {} resources are not published yet", closed.len()),
        })
    }

    /// Checks that writes of built-in resources are permitted: all entries are published and unchanged, and the identity lease is current.
    pub fn check_writable(&self) -> Result<(), String> {
        self.check_first_publication()?;
        self.barrier.check_lease()?;
        match &self.barrier.closed_built_in_resources()[..] {
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

fn start_collector(
    config: &Config,
    ports: &StorageVersionPorts,
    lease_client: &Arc<dyn LeaseClient>,
    metrics: &Metrics,
    tasks: &Tasks,
) {
    let collector = StorageVersionCollector {
        client: ports.client.clone(),
        member_source: ports.member_source.clone(),
        request_timeout: config.request_timeout,
        clock: config.clock,
        seed: config.seed,
        metrics: metrics.clone(),
    };
    let elector = Elector::new(election_config(config), lease_client.clone());
    tasks.spawn("storage-version-collector", |stop| {
        elector.run(stop, move |term| collector.clone().run_as_leader(term))
    });
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
