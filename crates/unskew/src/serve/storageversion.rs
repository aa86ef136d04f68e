//! Storage versions: published before the first write, agreed on, collected.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::storage_ports::{IdentityLeases, StorageVersionObjects};
use apiserver::storage_version_barrier::{StorageVersionBarrier, registrations_for};
use edge::health::{HealthCheck, HealthPages};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use peering::members::MemberState;
use peering::{Cluster, ServerId, View};
use registry::{AlwaysOpenBarrier, Registry};
use storageversion::ports::{MemberSource, MembersUnknown};
use storageversion::{
    Config, MemberSet, Metrics, POST_START_HOOK, PublicationBarrier, StorageVersionManager, StorageVersionPorts,
};
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

use super::config;

/// The gate of all of it.
const FEATURE_GATE: &str = "StorageVersionAPI";
/// How long any one call to storage may take; less than what is left of a lease when its renewal is due.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// How long the first objects of the server wait for publication before they are tried all the same.
const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(10);

/// The barrier, before there is a registry to publish through. Open with the gate off.
pub(super) struct PreparedStorageVersions {
    barrier: Option<(PublicationBarrier, Metrics)>,
    server: ServerId,
    prefix: String,
}

/// Closes the barrier for everything that this server keeps.
pub(super) fn prepare_storage_versions(
    config: &config::Config,
    port: u16,
    registry: &prometheus::Registry,
) -> anyhow::Result<PreparedStorageVersions> {
    let server = config.peers.server_id(&config.storage, port);
    let prefix = config.prefix.clone();
    if !config.gates.enabled(FEATURE_GATE) {
        return Ok(PreparedStorageVersions { barrier: None, server, prefix });
    }
    let kept = registrations_for(&config.served_resources).context("the table of kinds contradicts itself")?;
    let metrics = Metrics::new(registry);
    let barrier =
        PublicationBarrier::new(server.as_str().into(), config.peers.lease_duration(), &kept, metrics.clone());
    Ok(PreparedStorageVersions { barrier: Some((barrier, metrics)), server, prefix })
}

impl PreparedStorageVersions {
    /// What stands before the persist step.
    pub(super) fn write_barrier(&self) -> Arc<dyn registry::WriteBarrier> {
        match &self.barrier {
            Some((barrier, _)) => Arc::new(StorageVersionBarrier::new(barrier.clone(), &self.prefix)),
            None => Arc::new(AlwaysOpenBarrier),
        }
    }

    /// Starts everything; nothing happens before [`RunningStorageVersions::publish_after_join`]. `None` with the gate off.
    pub(super) fn start(
        self,
        registry: &Registry,
        leases: &IdentityLeases,
        cluster: Option<&Arc<Cluster>>,
        tasks: &Tasks,
    ) -> Option<RunningStorageVersions> {
        // Without a lease nobody would know whose entries they are; the gates depend on each other for this reason.
        let ((barrier, metrics), cluster) = (self.barrier?, cluster?);
        let ports = StorageVersionPorts {
            client: Arc::new(StorageVersionObjects::start(registry, &self.prefix, tasks)),
            member_source: Arc::new(ClusterMembers::start(cluster, tasks)),
            lease_client: Arc::new(leases.clone()),
        };
        let config = Config {
            holder: format!("{}_{:032x}", self.server, fastrand::u128(..)),
            request_timeout: CALL_TIMEOUT,
            election_timings: election::ElectionTimings::default(),
            clock: jiff::Timestamp::now,
            seed: fastrand::u64(..),
        };
        let (renewed, receiver) = watch::channel(None);
        let versioning = StorageVersionManager::start(&config, barrier, &ports, receiver, &metrics, tasks);
        Some(RunningStorageVersions { versioning, lease_renewals: renewed })
    }
}

/// Storage versions of a running server.
pub(super) struct RunningStorageVersions {
    versioning: StorageVersionManager,
    lease_renewals: watch::Sender<Option<Instant>>,
}

impl RunningStorageVersions {
    /// The hook is red until everything was published; readiness is red whenever writes are held.
    pub(super) fn health_checks(&self) -> [HealthCheck; 2] {
        let (first, held) = (self.versioning.clone(), self.versioning.clone());
        [
            HealthCheck::new(format!("poststarthook/{POST_START_HOOK}"), HealthPages::All, move || {
                first.check_first_publication()
            }),
            HealthCheck::new("storage-version-barrier", HealthPages::ReadyOnly, move || held.check_writable()),
        ]
    }

    /// This server has joined: its lease is renewed, and this tells when. Comes back when everything was published.
    pub(super) async fn publish_after_join(&self, mut renewals: watch::Receiver<Option<Instant>>, tasks: &Tasks) {
        let renewed = self.lease_renewals.clone();
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
        self.versioning.wait_until_published().await;
    }
}

/// Ends when objects of the server itself can be expected to be permitted.
pub(super) fn wait_until_published(
    versions: Option<&RunningStorageVersions>,
) -> impl Future<Output = ()> + Send + use<> {
    let versioning = versions.map(|versions| versions.versioning.clone());
    async move {
        if let Some(versioning) = versioning {
            // Those that cannot be published are held one by one; the others need not wait for them.
            let _ = tokio::time::timeout(BOOTSTRAP_TIMEOUT, versioning.wait_until_published()).await;
        }
    }
}

/// Those who hold a valid identity lease, as peering judges them.
struct ClusterMembers {
    cluster: Arc<Cluster>,
    members: watch::Receiver<Option<Arc<MemberSet>>>,
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
                    let members = lease_holders(&views.borrow_and_update());
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

impl MemberSource for ClusterMembers {
    fn subscribe(&self) -> watch::Receiver<Option<Arc<MemberSet>>> {
        self.members.clone()
    }

    fn fetch_current(&self) -> BoxFuture<'_, Result<Arc<MemberSet>, MembersUnknown>> {
        async move {
            self.cluster.catch_up().await.map_err(|_| MembersUnknown)?;
            Ok(Arc::new(lease_holders(&self.cluster.view())))
        }
        .boxed()
    }
}

/// The routing's linger does not count: who holds no lease may not write.
fn lease_holders(view: &View) -> MemberSet {
    let others = view.members().iter().filter(|member| match member.state {
        MemberState::Live | MemberState::Suspect | MemberState::Unknown | MemberState::Mute => true,
        MemberState::Left | MemberState::Gone => false,
    });
    others.map(|member| &member.server).chain([view.this_server()]).map(ServerId::as_str).collect()
}
