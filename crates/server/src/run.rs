//! The API server: started from its configuration, and stopped in order.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::access_control::{AccessRules, RbacAccessControl};
use apiserver::definitions::DefinitionController;
use apiserver::rbac_index::{self, RbacIndexUpdater};
use apiserver::storage_ports::PeeringStorage;
use apiserver::{ApiServer, ApiServiceController, ServiceAllocationController, WebhookConfig, bootstrap};
use edge::health::HealthChecks;
use edge::metrics::Metrics;
use edge::pipeline::Pipeline;
use membership::presence::{DuplicateIdentityError, Presence};
use registry::{Registry, WatchCache};
use tasks::Tasks;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transport::peer::Dialer;
use transport::serving::Acceptor;

use crate::audit::AuditConfig;
use crate::certificates::{self, ServerCertificates};
use crate::config::Config;
use crate::health_checks::health_checks;
use crate::storage::{StorageProbe, StoreHandle};
use crate::storageversion::{self, PreparedStorageVersions, RunningStorageVersions};
use crate::{STOP_GRACE, check_draining, controllers, peers, stop_tasks};

/// A running API server.
pub struct Server {
    address: SocketAddr,
    admin_kubeconfig: Option<PathBuf>,
    shutdown_delay: Duration,
    core: ServerCore,
    store: StoreHandle,
    cluster: Option<peers::StartedPeers>,
    versions: Option<RunningStorageVersions>,
    controllers: Tasks,
    tasks: Tasks,
    connections: Tasks,
    /// Cancelled first: the server is not ready from then on.
    draining: CancellationToken,
    /// Cancelled to stop accepting connections.
    closing: CancellationToken,
    /// Cancelled to end watches.
    streams_end: CancellationToken,
}

impl Server {
    /// Starts a server and returns when it listens. It joins its cluster while it [runs](Self::run_until).
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let listener = crate::bind_listener(config.bind_ip, config.port).await?;
        let ip = config.advertise_ip.unwrap_or_else(|| peers::advertisable_ip(config.bind_ip));
        let listens = listener.local_addr()?;
        let address = SocketAddr::new(ip, listens.port());
        let tasks = Tasks::new();
        let tokens = controllers::random_tokens();
        let trust = ServerCertificates::start(&config, address, &tasks)?;
        let rules = certificates::start_access_rules(&config, &tokens, address, &tasks)?;
        let auditor = config.audit.as_ref().map(AuditConfig::open_auditor).transpose()?;
        let store = StoreHandle::open(&config.storage, &config.prefix).await?;
        let metrics = prometheus::Registry::new();
        let (streams_end, draining) = (CancellationToken::new(), CancellationToken::new());
        let prepared = storageversion::prepare_storage_versions(&config, address.port(), &metrics)?;
        let local = handler_config(&config, address, &metrics, &tasks)?;
        let core = ServerCore::start(&config, &local, rules.clone(), &prepared, &store, &tasks, &streams_end);
        let live = core.server.definitions();
        let extension_apis = core.server.extension_apis();
        let ports = PeeringStorage::new(&core.registry, &store.store(), &config.prefix, &live, Some(&extension_apis));
        peers::start_extension_identity(&extension_apis, &ports, &tasks);
        let (shared, openapi) = (core.server.shared_resources().subscribe(), core.server.clone());
        let mut cluster = peers::start(&config, address, ports.clone(), shared, openapi, &metrics, &tasks)?;
        let members = cluster.as_ref().map(|started| started.participant.cluster());
        let versions = prepared.start(&core.registry, &ports.leases, members, &tasks);
        let started = bootstrap::BootstrapProgress::default();
        let ports = controllers::ControllerPorts { tokens, store: store.store() };
        let controllers = controllers::start(&config, ports, listens, &trust, &started, &metrics, &tasks)?;
        let settings = bootstrap::BootstrapConfig { address, cluster_authentication: trust.published_authorities };
        let permitted = storageversion::wait_until_published(versions.as_ref());
        let putting =
            bootstrap::run(core.server.clone(), settings, core.policy_progress.clone(), started.clone(), permitted);
        tasks.spawn_once("bootstrap", putting);
        let has_registered = start_api_services(&core, cluster.as_ref(), &tasks);
        let probe = StorageProbe::start(store.store(), &tasks);
        let mut checks = health_checks(probe, &core, started, &has_registered);
        checks.extend(cluster.as_ref().map(peers::StartedPeers::health_checks).into_iter().flatten());
        checks.push(check_draining(draining.clone()));
        checks.extend(versions.as_ref().map(RunningStorageVersions::health_checks).into_iter().flatten());
        let health = HealthChecks::new(checks);
        health.register(&metrics);
        let bound_objects = core.server.bound_objects();
        let access_control = RbacAccessControl { bundles: trust.bundles, access_rules: rules, bound_objects };
        let pipeline =
            Pipeline::new(access_control, core.server.clone(), health, Metrics::new(&metrics), config.limits);
        let peers = cluster.as_mut().and_then(|started| started.peers.take());
        let pipeline = Arc::new(pipeline.with_auditor(auditor).with_peer_routing(peers));
        let (connections, closing) = (Tasks::new(), CancellationToken::new());
        let acceptor = Acceptor::new(listener)?;
        let accepting = edge::listener::run(acceptor, trust.serving, pipeline, connections.clone(), closing.clone());
        tasks.spawn_once("listener", accepting);
        let (admin_kubeconfig, shutdown_delay) = (trust.admin_kubeconfig, config.shutdown_delay);
        Ok(Self {
            address,
            admin_kubeconfig,
            shutdown_delay,
            core,
            store,
            cluster,
            versions,
            controllers,
            tasks,
            connections,
            draining,
            closing,
            streams_end,
        })
    }

    /// The address at which clients reach the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The kubeconfig of the administrator, if the server generated one.
    pub fn admin_kubeconfig(&self) -> Option<&Path> {
        self.admin_kubeconfig.as_deref()
    }

    /// Joins the cluster and serves until `stop` or a failure, then stops in order.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let mut presence = None;
        let outcome = tokio::select! {
            failure = self.wait_for_failure() => Err(failure),
            twin = self.join_cluster(&mut presence) => Err(twin.into()),
            () = stop => Ok(()),
        };
        // Become not ready, so that load balancers choose another server; stop the controllers, which releases their leases; leave
        // the cluster, so that peers stop forwarding here; stop accepting; end watches and drain connections; stop tasks; close
        // the store last, because everything else writes to it.
        self.draining.cancel();
        tokio::time::sleep(self.shutdown_delay).await;
        stop_tasks("controllers", &self.controllers).await;
        if let Some(presence) = presence {
            presence.leave().await;
        }
        self.closing.cancel();
        self.streams_end.cancel();
        self.cluster.iter().for_each(peers::StartedPeers::end_streams);
        self.core.server.extension_apis().end_streams();
        for (what, family) in [("connections", &self.connections), ("tasks", &self.tasks)] {
            stop_tasks(what, family).await;
        }
        self.store.close(STOP_GRACE).await;
        outcome
    }

    /// Waits for the first task that fails or ends before shutdown.
    async fn wait_for_failure(&self) -> anyhow::Error {
        let failure = tokio::select! {
            failure = self.tasks.wait_for_failure() => failure,
            failure = self.controllers.wait_for_failure() => failure,
            failure = self.store.wait_for_failure() => failure,
        };
        anyhow::anyhow!("{} {:?}", failure.task, failure.kind)
    }

    /// Joins the cluster once caches and RBAC index are filled. Returns only if another live server has the same identity.
    async fn join_cluster(&self, presence: &mut Option<Presence>) -> DuplicateIdentityError {
        let Some(peers::StartedPeers { participant, joined, .. }) = &self.cluster else {
            return std::future::pending().await;
        };
        if self.core.cache.wait_for_sync().await.is_err() {
            return std::future::pending().await;
        }
        self.core.policy_progress.clone().catch_up().await;
        if let Err(twin) = participant.claim_identity().await {
            return twin;
        }
        let present = presence.insert(participant.join(&self.tasks));
        participant.cluster().milestones().identity_lease.wait_until_reached().await;
        if let Some(versions) = &self.versions {
            versions.publish_after_join(present.last_renewal(), &self.tasks).await;
        }
        joined.send_replace(true);
        std::future::pending().await
    }
}

/// The configuration of the REST handlers.
fn handler_config(
    config: &Config,
    address: SocketAddr,
    metrics: &prometheus::Registry,
    tasks: &Tasks,
) -> anyhow::Result<apiserver::Config> {
    let url_dialer = Dialer::start(&config.peers.egress, tasks).context("--egress-selector-config-file")?;
    let webhooks = WebhookConfig { url_dialer, routing: config.service_routing };
    Ok(config.apiserver_config(address, webhooks, peers::extension_config(config, tasks)?, metrics))
}

/// Watch cache, registry and REST handlers over the store.
pub(crate) struct ServerCore {
    pub(crate) cache: WatchCache,
    registry: Registry,
    pub(crate) server: Arc<ApiServer>,
    /// Tells when the RBAC index is filled.
    pub(crate) policy_progress: rbac_index::RbacIndexProgress,
}

impl ServerCore {
    fn start(
        config: &Config,
        local: &apiserver::Config,
        rules: Arc<AccessRules>,
        versions: &PreparedStorageVersions,
        opened: &StoreHandle,
        tasks: &Tasks,
        streams_end: &CancellationToken,
    ) -> Self {
        let (store, served_resources) = (opened.store(), config.served_resources.clone());
        let prefix = store::Key::from(format!("{}/", config.prefix));
        let mut resource_prefixes = apiserver::resource_prefixes(&served_resources, &config.prefix);
        resource_prefixes
            .extend(apiserver::storage_ports::internal_resource_prefixes(&config.prefix, &resource_prefixes));
        let cache = WatchCache::start(store.clone(), prefix, resource_prefixes, tasks);
        let registry = Registry::new(store.clone(), cache.clone(), versions.write_barrier());
        let index = rules.index.clone();
        let (server, definitions, extension_apis) =
            ApiServer::new(registry.clone(), served_resources, &config.prefix, local, rules, streams_end.clone());
        let definitions = match versions.publication() {
            Some(publication) => definitions.publish_storage_versions(publication),
            None => definitions,
        };
        let server = Arc::new(server);
        tasks.spawn("definitions", |stop| definitions.run(stop));
        tasks.spawn("extension-apis", |stop| extension_apis.run(stop));
        let definition_controller = DefinitionController::new(server.clone(), &config.prefix);
        tasks.spawn("definition-controller", |stop| definition_controller.run(stop));
        let service_allocation = ServiceAllocationController::new(server.clone());
        tasks.spawn("service-allocation", |stop| service_allocation.run(stop));
        let (feed, aggregation) = RbacIndexUpdater::new(&server, index);
        let known = feed.progress();
        tasks.spawn("rbac", |stop| feed.run(stop));
        tasks.spawn("aggregation", |stop| aggregation.run(stop));
        if !config.compaction_interval.is_zero() {
            let compaction = store::compaction::Compactor::new(store, config.compaction_interval);
            tasks.spawn("compaction", |stop| compaction.run(stop));
        }
        Self { cache, registry, server, policy_progress: known }
    }
}

/// Keeps the automatic APIServices. Without a cluster there is nothing to join before that. Returns whether all were
/// written once.
fn start_api_services(
    core: &ServerCore,
    cluster: Option<&peers::StartedPeers>,
    tasks: &Tasks,
) -> watch::Receiver<bool> {
    let members = cluster.map(|started| started.participant.cluster().clone());
    let has_joined = cluster.map_or_else(|| watch::Sender::new(true).subscribe(), |it| it.joined.subscribe());
    let api_services = ApiServiceController::new(core.server.clone(), members, has_joined);
    let has_registered = api_services.has_registered();
    tasks.spawn("api-services", |stop| api_services.run(stop));
    has_registered
}
