//! Storage versions: the write barrier, its publication before the first write, and its health checks.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::storage_ports::{IdentityLeases, StorageVersionObjects};
use apiserver::storage_version_barrier::{StorageVersionBarrier, registrations_for};
use edge::health::{HealthCheck, HealthPages};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use membership::identity::ComponentLeases;
use membership::members::MemberState;
use membership::{Cluster, ServerId, View};
use parking_lot::Mutex;
use registry::read::ReadConsistency;
use registry::{AlwaysOpenBarrier, Registry};
use storageversion::members::API_SERVER_COMPONENT;
use storageversion::ports::{MemberSource, MembersUnknown};
use storageversion::{
    Config, MemberSet, Metrics, POST_START_HOOK, PublicationBarrier, StorageVersionManager, StorageVersionPorts,
};
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config;

/// The feature gate of storage versions.
const FEATURE_GATE: &str = "StorageVersionAPI";
/// The timeout of one storage call; less than the remaining lease time when a renewal is due.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// How long bootstrap waits for publication before it tries to write its objects anyway.
const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(10);

/// The write barrier, before there is a registry to publish through. Open with the gate off.
pub(crate) struct PreparedStorageVersions {
    barrier: Option<(PublicationBarrier, Metrics)>,
    server: ServerId,
    prefix: String,
}

/// Creates the barrier, closed for every resource that this server stores.
pub(crate) fn prepare_storage_versions(
    config: &config::Config,
    port: u16,
    registry: &prometheus::Registry,
) -> anyhow::Result<PreparedStorageVersions> {
    let server = config.peers.server_id(&config.storage, port);
    let prefix = config.prefix.clone();
    if !config.gates.enabled(FEATURE_GATE) {
        return Ok(PreparedStorageVersions { barrier: None, server, prefix });
    }
    let kept =
        registrations_for(&config.served_resources).context("the table of kinds has contradictory storage versions")?;
    let metrics = Metrics::new(registry);
    let barrier =
        PublicationBarrier::new(server.as_str().into(), config.peers.lease_duration(), &kept, metrics.clone());
    Ok(PreparedStorageVersions { barrier: Some((barrier, metrics)), server, prefix })
}

impl PreparedStorageVersions {
    /// The barrier in the form that the registry needs.
    pub(crate) fn write_barrier(&self) -> Arc<dyn registry::WriteBarrier> {
        match &self.barrier {
            Some((barrier, _)) => Arc::new(StorageVersionBarrier::new(barrier.clone(), &self.prefix)),
            None => Arc::new(AlwaysOpenBarrier),
        }
    }

    /// The barrier that publishes the storage versions of custom resources. `None` with the gate off.
    pub(crate) fn publication(&self) -> Option<PublicationBarrier> {
        self.barrier.as_ref().map(|(barrier, _)| barrier.clone())
    }

    /// Starts the tasks. They publish nothing before [`RunningStorageVersions::publish_after_join`]. `None` with the gate off.
    pub(crate) fn start(
        self,
        registry: &Registry,
        leases: &IdentityLeases,
        cluster: Option<&Arc<Cluster>>,
        tasks: &Tasks,
    ) -> Option<RunningStorageVersions> {
        // Entries belong to identity leases, so that this gate depends on the gate of identity leases.
        let ((barrier, metrics), cluster) = (self.barrier?, cluster?);
        let ports = StorageVersionPorts {
            client: Arc::new(StorageVersionObjects::start(registry, &self.prefix, tasks)),
            member_source: Arc::new(ClusterMembers::start(cluster, leases, tasks)),
            lease_client: Some(Arc::new(leases.clone())),
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
pub(crate) struct RunningStorageVersions {
    versioning: StorageVersionManager,
    lease_renewals: watch::Sender<Option<Instant>>,
}

impl RunningStorageVersions {
    /// The post-start hook fails until the first publication is complete; readiness fails while writes are held.
    pub(crate) fn health_checks(&self) -> [HealthCheck; 2] {
        let (first, held) = (self.versioning.clone(), self.versioning.clone());
        [
            HealthCheck::new(format!("poststarthook/{POST_START_HOOK}"), HealthPages::All, move || {
                first.check_first_publication()
            }),
            HealthCheck::new("storage-version-barrier", HealthPages::ReadyOnly, move || held.check_writable()),
        ]
    }

    /// Publishes once this server holds its lease, and passes lease renewals on to the barrier. Returns when everything is
    /// published.
    pub(crate) async fn publish_after_join(&self, mut renewals: watch::Receiver<Option<Instant>>, tasks: &Tasks) {
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

/// Waits until bootstrap objects can be written, at most [`BOOTSTRAP_TIMEOUT`].
pub(crate) fn wait_until_published(
    versions: Option<&RunningStorageVersions>,
) -> impl Future<Output = ()> + Send + use<> {
    let versioning = versions.map(|versions| versions.versioning.clone());
    async move {
        if let Some(versioning) = versioning {
            // Resources that cannot be published are held individually; the others do not wait for them.
            let _ = tokio::time::timeout(BOOTSTRAP_TIMEOUT, versioning.wait_until_published()).await;
        }
    }
}

/// The servers that hold a valid identity lease: API servers from the view of peering, extension servers from their leases.
struct ClusterMembers {
    cluster: Arc<Cluster>,
    extension_servers: Arc<ExtensionServers>,
    members: watch::Receiver<Option<Arc<MemberSet>>>,
}

/// How often the leases of extension servers are looked at, in memory: they expire without a change.
const EXTENSION_SERVERS_INTERVAL: Duration = Duration::from_secs(1);

impl ClusterMembers {
    fn start(cluster: &Arc<Cluster>, leases: &IdentityLeases, tasks: &Tasks) -> Self {
        let (sender, members) = watch::channel(None);
        let (followed, mut views) = (cluster.clone(), cluster.views());
        let extension_servers = Arc::new(ExtensionServers { leases: leases.clone(), observed: Mutex::default() });
        let others = extension_servers.clone();
        tasks.spawn("storage-version-members", |stop| async move {
            let follow = async {
                // Until the view has caught up with storage, an absent member proves nothing.
                while followed.catch_up().await.is_err() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                loop {
                    let view = views.borrow_and_update().clone();
                    // If the leases cannot be read, the last known members stay.
                    if let Ok(others) = others.current(ReadConsistency::Any).await {
                        let members = lease_holders(&view, others);
                        sender.send_if_modified(|known| {
                            let is_new = known.as_deref() != Some(&members);
                            if is_new {
                                *known = Some(Arc::new(members));
                            }
                            is_new
                        });
                    }
                    match tokio::time::timeout(EXTENSION_SERVERS_INTERVAL, views.changed()).await {
                        Ok(Ok(())) | Err(_) => {}
                        Ok(Err(_)) => std::future::pending::<()>().await,
                    }
                }
            };
            stop.run_until_cancelled(follow).await;
        });
        Self { cluster: cluster.clone(), extension_servers, members }
    }
}

impl MemberSource for ClusterMembers {
    fn subscribe(&self) -> watch::Receiver<Option<Arc<MemberSet>>> {
        self.members.clone()
    }

    fn fetch_current(&self) -> BoxFuture<'_, Result<Arc<MemberSet>, MembersUnknown>> {
        async move {
            self.cluster.catch_up().await.map_err(|_| MembersUnknown)?;
            let others = self.extension_servers.current(ReadConsistency::Latest).await?;
            Ok(Arc::new(lease_holders(&self.cluster.view(), others)))
        }
        .boxed()
    }
}

/// The extension servers that publish storage versions in this cluster.
struct ExtensionServers {
    leases: IdentityLeases,
    observed: Mutex<ComponentLeases>,
}

impl ExtensionServers {
    /// Those with a valid lease, each with its component.
    async fn current(&self, consistency: ReadConsistency) -> Result<Vec<(Arc<str>, Arc<str>)>, MembersUnknown> {
        let leases = self.leases.list_of_extension_servers(consistency).await.map_err(|_| MembersUnknown)?;
        Ok(self.observed.lock().observe(leases.iter().map(AsRef::as_ref), Instant::now()))
    }
}

/// Servers that left are excluded even while requests for them linger: without a lease they do not write.
fn lease_holders(view: &View, extension_servers: Vec<(Arc<str>, Arc<str>)>) -> MemberSet {
    let others = view.members().iter().filter(|member| match member.state {
        MemberState::Live | MemberState::Suspect | MemberState::Unknown | MemberState::Mute => true,
        MemberState::Left | MemberState::Gone => false,
    });
    let api_servers = others.map(|member| &member.server).chain([view.this_server()]);
    let component: Arc<str> = API_SERVER_COMPONENT.into();
    let api_servers = api_servers.map(|server| (server.name().clone(), component.clone()));
    // A name can be held by one lease only: what an API server holds is no extension server's.
    MemberSet::from_components(extension_servers.into_iter().chain(api_servers))
}
