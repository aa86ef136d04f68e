//! From a configuration to a server that runs, and back down in order.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::access_control::{AccessRules, RbacAccessControl};
use apiserver::rbac_index::{self, RbacIndexUpdater};
use apiserver::{ApiServer, bootstrap};
use edge::health::{HealthCheck, HealthChecks, HealthPages};
use edge::metrics::Metrics;
use edge::pipeline::Pipeline;
use peering::presence::{DuplicateIdentityError, Presence};
use registry::{Registry, WatchCache, WriteBarrier};
use tasks::{Tasks, Workers};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::audit::AuditFlags;
use super::certificates::{self, ServerCertificates};
use super::config::Config;
use super::controllers;
use super::peers;
use super::storage::{StorageProbe, StoreHandle};
use super::storageversion::{self, RunningStorageVersions};
use crate::process::{raise_file_limit, wait_for_stop_signal};
use crate::{logging, print_line};

/// How long connections may take to finish what they have begun, and tasks to end.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Runs the server until SIGTERM or SIGINT.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    logging::init(config.logging.json, config.logging.verbosity);
    raise_file_limit();
    if !config.ignored_flags.is_empty() {
        tracing::warn!(flags = config.ignored_flags.join(", "), "these flags have no meaning here and are ignored");
    }
    for notice in &config.startup_warnings {
        tracing::warn!("{notice}");
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(config))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let listener = bind_listener(&config).await?;
    let ip = config.advertise_ip.unwrap_or_else(|| peers::advertisable_ip(config.bind_ip));
    let listens = listener.local_addr()?;
    let address = SocketAddr::new(ip, listens.port());
    let tasks = Tasks::new();
    let trust = ServerCertificates::start(&config, address, &tasks)?;
    let rules = certificates::start_access_rules(&config, address, &tasks)?;
    let auditor = config.audit.as_ref().map(AuditFlags::open_auditor).transpose()?;
    let opened = StoreHandle::open(&config.storage, &config.prefix).await?;
    let metrics = prometheus::Registry::new();
    let (streams_end, draining) = (CancellationToken::new(), CancellationToken::new());
    let prepared = storageversion::prepare_storage_versions(&config, address.port(), &metrics)?;
    let core =
        ServerCore::start(&config, address, rules.clone(), prepared.write_barrier(), &opened, &tasks, &streams_end);
    let ports = apiserver::storage_ports::PeeringStorage::new(&core.registry, &opened.store(), &config.prefix);
    let mut cluster = peers::start(peers::PeersContext {
        flags: &config.peers,
        storage: &config.storage,
        served_resources: &config.served_resources,
        cert_dir: &config.cert_dir,
        advertised: address,
        ports: ports.clone(),
        registry: &metrics,
        tasks: &tasks,
    })?;
    let members = cluster.as_ref().map(|started| &started.cluster);
    let versions = prepared.start(&core.registry, &ports.leases, members, &tasks);
    let started = bootstrap::BootstrapProgress::default();
    let controllers = controllers::start(&config.controllers, listens, &trust, &started, &metrics, &tasks)?;
    let settings = bootstrap::BootstrapConfig {
        address,
        service_ip: config.kubernetes_service_ip,
        cluster_authentication: trust.published_authorities,
    };
    let permitted = storageversion::wait_until_published(versions.as_ref());
    let putting =
        bootstrap::run(core.server.clone(), settings, core.policy_progress.clone(), started.clone(), permitted);
    tasks.spawn_once("bootstrap", putting);
    let probe = StorageProbe::start(opened.store(), &tasks);
    let mut checks = health_checks(probe, &core, started, draining.clone(), cluster.as_ref());
    checks.extend(versions.as_ref().map(RunningStorageVersions::health_checks).into_iter().flatten());
    let health = HealthChecks::new(checks);
    health.register(&metrics);
    let gate =
        RbacAccessControl { bundles: trust.bundles, access_rules: rules, bound_objects: core.server.bound_objects() };
    let pipeline = Pipeline::new(gate, core.server.clone(), health, Metrics::new(&metrics), config.pipeline_limits());
    let peers = cluster.as_mut().and_then(|started| started.peers.take());
    let pipeline = Arc::new(pipeline.with_auditor(auditor).with_peer_routing(peers));
    let (connections, closing) = (Tasks::new(), CancellationToken::new());
    let accepting =
        edge::listener::run(listener, trust.serving, pipeline, Workers::start()?, connections.clone(), closing.clone());
    tasks.spawn_once("listener", accepting);
    print_address(address, trust.admin_kubeconfig.as_deref());
    let mut presence = None;
    let outcome = tokio::select! {
        failure = wait_for_failure(&tasks, &controllers, &opened) => Err(failure),
        twin = join_cluster(cluster.as_ref(), &core, versions.as_ref(), &tasks, &mut presence) => Err(twin.into()),
        () = wait_for_stop_signal() => Ok(()),
    };
    // Not ready first, so that balancers look elsewhere; then others may lead; then we leave, so that other servers look
    // elsewhere too; then no new connections; then the end of those there are, streams from others among them; the store last,
    // because everything else writes to it.
    draining.cancel();
    tokio::time::sleep(config.shutdown_delay).await;
    leave_cluster(&controllers, presence.as_ref()).await;
    closing.cancel();
    streams_end.cancel();
    cluster.iter().for_each(peers::StartedPeers::end_streams);
    for (what, family) in [("connections", &connections), ("tasks", &tasks)] {
        stop_tasks(what, family).await;
    }
    opened.close(STOP_GRACE).await;
    outcome
}

/// Waits for the first task that ends unasked.
async fn wait_for_failure(tasks: &Tasks, controllers: &Tasks, opened: &StoreHandle) -> anyhow::Error {
    let failure = tokio::select! {
        failure = tasks.wait_for_failure() => failure,
        failure = controllers.wait_for_failure() => failure,
        failure = opened.wait_for_failure() => failure,
    };
    anyhow::anyhow!("{} {:?}", failure.task, failure.kind)
}

async fn leave_cluster(controllers: &Tasks, presence: Option<&Presence>) {
    stop_tasks("controllers", controllers).await;
    if let Some(presence) = presence {
        presence.leave().await;
    }
}

async fn stop_tasks(what: &str, tasks: &Tasks) {
    if let Err(error) = tasks.stop(STOP_GRACE).await {
        tracing::warn!(%error, what, "not everything ended in time");
    }
}

/// Objects and their handlers, over the store.
struct ServerCore {
    cache: WatchCache,
    registry: Registry,
    server: Arc<ApiServer>,
    /// Whether roles and bindings are read.
    policy_progress: rbac_index::RbacIndexProgress,
}

impl ServerCore {
    fn start(
        config: &Config,
        address: SocketAddr,
        rules: Arc<AccessRules>,
        barrier: Arc<dyn WriteBarrier>,
        opened: &StoreHandle,
        tasks: &Tasks,
        streams_end: &CancellationToken,
    ) -> Self {
        let (store, surface) = (opened.store(), config.served_resources.clone());
        let prefix = store::Key::from(format!("{}/", config.prefix));
        let mut shelves = apiserver::resource_prefixes(&surface, &config.prefix);
        shelves.extend(apiserver::storage_ports::internal_resource_prefixes(&config.prefix, &shelves));
        let cache = WatchCache::start(store.clone(), prefix, shelves, tasks);
        let registry = Registry::new(store.clone(), cache.clone(), barrier);
        let local = config.apiserver_config(address);
        let index = rules.index.clone();
        let server = ApiServer::new(registry.clone(), surface, &config.prefix, &local, rules, streams_end.clone());
        let server = Arc::new(server);
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

/// Joins the cluster once what this server serves is complete, and is in it from then on. Ends only if somebody else is who we
/// are.
async fn join_cluster(
    cluster: Option<&peers::StartedPeers>,
    core: &ServerCore,
    versions: Option<&RunningStorageVersions>,
    tasks: &Tasks,
    presence: &mut Option<Presence>,
) -> DuplicateIdentityError {
    let Some(peers::StartedPeers { cluster, joined, .. }) = cluster else { return std::future::pending().await };
    if core.cache.wait_for_sync().await.is_err() {
        return std::future::pending().await;
    }
    core.policy_progress.clone().catch_up().await;
    if let Err(twin) = cluster.claim_identity().await {
        return twin;
    }
    let present = presence.insert(cluster.join(tasks));
    cluster.milestones().identity_lease.wait_until_reached().await;
    if let Some(versions) = versions {
        versions.publish_after_join(present.last_renewal(), tasks).await;
    }
    joined.send_replace(true);
    std::future::pending().await
}

async fn bind_listener(config: &Config) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(config.bind_ip, config.port);
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another server there? --secure-port and --bind-address choose another")
    })
}

fn health_checks(
    probe: StorageProbe,
    core: &ServerCore,
    started: bootstrap::BootstrapProgress,
    draining: CancellationToken,
    cluster: Option<&peers::StartedPeers>,
) -> Vec<HealthCheck> {
    let (cache, known) = (core.cache.clone(), core.policy_progress.clone());
    let readiness_probe = probe.clone();
    let namespaces = started.clone();
    let finished = |started: &bootstrap::BootstrapProgress| {
        if started.is_done() { Ok(()) } else { Err("not finished".to_owned()) }
    };
    let mut checks = vec![
        HealthCheck::new("log", HealthPages::All, || Ok(())),
        HealthCheck::new("etcd", HealthPages::All, move || probe.check()),
        HealthCheck::new("etcd-readiness", HealthPages::ReadyOnly, move || readiness_probe.check()),
        HealthCheck::new("informer-sync", HealthPages::ReadyOnly, move || {
            match (cache.has_synced(), known.has_synced()) {
                (false, _) => Err("the watch cache is not filled yet".to_owned()),
                (true, false) => Err("roles and bindings are not read yet".to_owned()),
                (true, true) => Ok(()),
            }
        }),
        HealthCheck::new("poststarthook/rbac/bootstrap-roles", HealthPages::All, move || finished(&started)),
        HealthCheck::new("poststarthook/start-system-namespaces-controller", HealthPages::All, move || {
            finished(&namespaces)
        }),
    ];
    checks.extend(cluster.map(peers::StartedPeers::health_checks).into_iter().flatten());
    checks.push(HealthCheck::new("shutdown", HealthPages::ReadyOnly, move || {
        if draining.is_cancelled() { Err("process is shutting down".to_owned()) } else { Ok(()) }
    }));
    checks
}

fn print_address(address: SocketAddr, admin: Option<&Path>) {
    print_line(&mut std::io::stdout(), &format!("unskew serve: https://{address}"));
    if let Some(file) = admin {
        print_line(
            &mut std::io::stdout(),
            &format!("unskew serve: kubectl --kubeconfig {} get namespaces", file.display()),
        );
    }
}
