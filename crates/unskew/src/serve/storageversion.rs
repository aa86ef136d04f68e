//! Storage versions: published before the first write, agreed on, collected.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::barrier::{StorageVersionBarrier, registrations};
use apiserver::ports::{IdentityLeases, StorageVersionObjects};
use edge::health::{Check, Pages};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use peering::members::State;
use peering::{Cluster, ServerId, View};
use registry::{Open, Registry};
use storageversion::ports::{Membership, NotKnown};
use storageversion::{Barrier, Config, HOOK, Members, Metrics, Ports, StorageVersioning};
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

use super::config;

/// The gate of all of it.
const GATE: &str = "StorageVersionAPI";
/// How long any one call to storage may take; less than what is left of a lease when its renewal is due.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// How long the first objects of the server wait for publication before they are tried all the same.
const BOOTSTRAP_PATIENCE: Duration = Duration::from_secs(10);

/// The barrier, before there is a registry to publish through. Open with the gate off.
pub(super) struct Prepared {
    barrier: Option<(Barrier, Metrics)>,
    server: ServerId,
    prefix: String,
}

/// Closes the barrier for everything that this server keeps.
pub(super) fn prepare(config: &config::Config, port: u16, registry: &prometheus::Registry) -> anyhow::Result<Prepared> {
    let server = config.peers.identity(&config.storage, port);
    let prefix = config.prefix.clone();
    if !config.gates.enabled(GATE) {
        return Ok(Prepared { barrier: None, server, prefix });
    }
    let kept = registrations(&config.surface).context("the catalogue contradicts itself")?;
    let metrics = Metrics::new(registry);
    let barrier = Barrier::new(server.as_str().into(), config.peers.lease_duration(), &kept, metrics.clone());
    Ok(Prepared { barrier: Some((barrier, metrics)), server, prefix })
}

impl Prepared {
    /// What stands before the persist step.
    pub(super) fn barrier(&self) -> Arc<dyn registry::Barrier> {
        match &self.barrier {
            Some((barrier, _)) => Arc::new(StorageVersionBarrier::new(barrier.clone(), &self.prefix)),
            None => Arc::new(Open),
        }
    }

    /// Starts everything; nothing happens before [`Versions::leased`]. `None` with the gate off.
    pub(super) fn start(
        self,
        registry: &Registry,
        leases: &IdentityLeases,
        cluster: Option<&Arc<Cluster>>,
        tasks: &Tasks,
    ) -> Option<Versions> {
        // Without a lease nobody would know whose entries they are; the gates depend on each other for this reason.
        let ((barrier, metrics), cluster) = (self.barrier?, cluster?);
        let ports = Ports {
            objects: Arc::new(StorageVersionObjects::start(registry, &self.prefix, tasks)),
            membership: Arc::new(ClusterMembers::start(cluster, tasks)),
            leases: Arc::new(leases.clone()),
        };
        let config = Config {
            holder: format!("{}_{:032x}", self.server, fastrand::u128(..)),
            call_timeout: CALL_TIMEOUT,
            election: election::Pace::default(),
            clock: jiff::Timestamp::now,
            seed: fastrand::u64(..),
        };
        let (renewed, receiver) = watch::channel(None);
        let versioning = StorageVersioning::start(&config, barrier, &ports, receiver, &metrics, tasks);
        Some(Versions { versioning, renewed })
    }
}

/// Storage versions of a running server.
pub(super) struct Versions {
    versioning: StorageVersioning,
    renewed: watch::Sender<Option<Instant>>,
}

impl Versions {
    /// The hook is red until everything was published; readiness is red whenever writes are held.
    pub(super) fn checks(&self) -> [Check; 2] {
        let (first, held) = (self.versioning.clone(), self.versioning.clone());
        [
            Check::new(format!("poststarthook/{HOOK}"), Pages::All, move || first.check_first()),
            Check::new("storage-version-barrier", Pages::ReadyOnly, move || held.check()),
        ]
    }

    /// This server has joined: its lease is renewed, and this tells when. Comes back when everything was published.
    pub(super) async fn leased(&self, mut renewals: watch::Receiver<Option<Instant>>, tasks: &Tasks) {
        let renewed = self.renewed.clone();
        tasks.spawn("storage-version-lease", |stop| async move {
            let relay = async {
                loop {
                    renewed.send_replace(*renewals.borrow_and_update());
                    if renewals.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            stop.run_until_cancelled(relay).await;
        });
        self.versioning.published().await;
    }
}

/// Ends when objects of the server itself can be expected to be permitted.
pub(super) fn permitted(versions: Option<&Versions>) -> impl Future<Output = ()> + Send + use<> {
    let versioning = versions.map(|versions| versions.versioning.clone());
    async move {
        if let Some(versioning) = versioning {
            // Those that cannot be published are held one by one; the others need not wait for them.
            let _ = tokio::time::timeout(BOOTSTRAP_PATIENCE, versioning.published()).await;
        }
    }
}

/// Those who hold a valid identity lease, as peering judges them.
struct ClusterMembers {
    cluster: Arc<Cluster>,
    members: watch::Receiver<Option<Arc<Members>>>,
}

impl ClusterMembers {
    fn start(cluster: &Arc<Cluster>, tasks: &Tasks) -> Self {
        let (sender, members) = watch::channel(None);
        let (followed, mut views) = (cluster.clone(), cluster.views());
        tasks.spawn("storage-version-members", |stop| async move {
            let follow = async {
                // Before everything in storage was seen, a view without a member says nothing.
                while followed.catch_up().await.is_err() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                loop {
                    let members = members_of(&views.borrow_and_update());
                    sender.send_if_modified(|known| {
                        let is_new = known.as_deref() != Some(&members);
                        if is_new {
                            *known = Some(Arc::new(members));
                        }
                        is_new
                    });
                    if views.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            stop.run_until_cancelled(follow).await;
        });
        Self { cluster: cluster.clone(), members }
    }
}

impl Membership for ClusterMembers {
    fn follow(&self) -> watch::Receiver<Option<Arc<Members>>> {
        self.members.clone()
    }

    fn now(&self) -> BoxFuture<'_, Result<Arc<Members>, NotKnown>> {
        async move {
            self.cluster.catch_up().await.map_err(|_| NotKnown)?;
            Ok(Arc::new(members_of(&self.cluster.view())))
        }
        .boxed()
    }
}

/// The routing's linger does not count: who holds no lease may not write.
fn members_of(view: &View) -> Members {
    let others = view.members().iter().filter(|member| match member.state {
        State::Live | State::Suspect | State::Unknown | State::Mute => true,
        State::Left | State::Gone => false,
    });
    others.map(|member| &member.server).chain([view.me()]).map(ServerId::as_str).collect()
}
