//! From a configuration to a server that runs, and back down in order.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::gate::{AccessGate, Rules};
use apiserver::policy::{self, PolicyFeed};
use apiserver::{ApiServer, bootstrap};
use edge::health::{Check, Health, Pages};
use edge::metrics::Metrics;
use edge::pipeline::Pipeline;
use peering::presence::{Presence, TwinError};
use registry::{Barrier, Cache, Registry};
use tasks::{Tasks, Workers};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::audit::Audit;
use super::config::Config;
use super::controllers;
use super::peers;
use super::storage::{Opened, Probe};
use super::storageversion::{self, Versions};
use super::trust::{self, Trust};
use crate::process::{raise_file_limit, stop_signal};
use crate::{logging, say};

/// How long connections may take to finish what they have begun, and tasks to end.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Runs the server until SIGTERM or SIGINT.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    logging::start(config.logging.json, config.logging.verbosity);
    raise_file_limit();
    if !config.without_meaning.is_empty() {
        tracing::warn!(flags = config.without_meaning.join(", "), "these flags have no meaning here and are ignored");
    }
    for notice in &config.notices {
        tracing::warn!("{notice}");
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(config))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let listener = bind(&config).await?;
    let ip = config.advertise.unwrap_or_else(|| peers::reachable(config.bind));
    let listens = listener.local_addr()?;
    let address = SocketAddr::new(ip, listens.port());
    let tasks = Tasks::new();
    let trust = Trust::start(&config, address, &tasks)?;
    let rules = trust::rules(&config, address, &tasks)?;
    let auditor = config.audit.as_ref().map(Audit::start).transpose()?;
    let opened = Opened::open(&config.storage, &config.prefix).await?;
    let metrics = prometheus::Registry::new();
    let (streams_end, draining) = (CancellationToken::new(), CancellationToken::new());
    let prepared = storageversion::prepare(&config, address.port(), &metrics)?;
    let core = Core::start(&config, address, rules.clone(), prepared.barrier(), &opened, &tasks, &streams_end);
    let ports = apiserver::ports::Ports::new(&core.registry, &opened.store(), &config.prefix);
    let mut cluster = peers::start(peers::Surroundings {
        flags: &config.peers,
        storage: &config.storage,
        surface: &config.surface,
        cert_dir: &config.cert_dir,
        advertised: address,
        ports: ports.clone(),
        registry: &metrics,
        tasks: &tasks,
    })?;
    let members = cluster.as_ref().map(|started| &started.cluster);
    let versions = prepared.start(&core.registry, &ports.leases, members, &tasks);
    let started = bootstrap::Progress::default();
    let controllers = controllers::start(&config.controllers, listens, &trust, &started, &metrics, &tasks)?;
    let settings = bootstrap::Settings { address, service_ip: config.service_ip, trust: trust.published };
    let permitted = storageversion::permitted(versions.as_ref());
    let putting = bootstrap::run(core.server.clone(), settings, core.known.clone(), started.clone(), permitted);
    tasks.spawn_once("bootstrap", putting);
    let probe = Probe::start(opened.store(), &tasks);
    let mut checks = checks(probe, &core, started, draining.clone(), cluster.as_ref());
    checks.extend(versions.as_ref().map(Versions::checks).into_iter().flatten());
    let health = Health::new(checks);
    health.register(&metrics);
    let gate = AccessGate { bundles: trust.bundles, rules, accounts: core.server.accounts() };
    let pipeline = Pipeline::new(gate, core.server.clone(), health, Metrics::new(&metrics), config.limits());
    let peers = cluster.as_mut().and_then(|started| started.peers.take());
    let pipeline = Arc::new(pipeline.audited(auditor).among(peers));
    let (connections, closing) = (Tasks::new(), CancellationToken::new());
    let accepting =
        edge::listener::run(listener, trust.serving, pipeline, Workers::start()?, connections.clone(), closing.clone());
    tasks.spawn_once("listener", accepting);
    announce(address, trust.admin.as_deref());
    let mut presence = None;
    let outcome = tokio::select! {
        failure = first_failure(&tasks, &controllers, &opened) => Err(failure),
        twin = be_present(cluster.as_ref(), &core, versions.as_ref(), &tasks, &mut presence) => Err(twin.into()),
        () = stop_signal() => Ok(()),
    };
    // Not ready first, so that balancers look elsewhere; then others may lead; then we leave, so that other servers look
    // elsewhere too; then no new connections; then the end of those there are, streams from others among them; the store last,
    // because everything else writes to it.
    draining.cancel();
    tokio::time::sleep(config.shutdown_delay).await;
    leave(&controllers, presence.as_ref()).await;
    closing.cancel();
    streams_end.cancel();
    cluster.iter().for_each(peers::Started::end_streams);
    for (what, family) in [("connections", &connections), ("tasks", &tasks)] {
        end(what, family).await;
    }
    opened.close(STOP_GRACE).await;
    outcome
}

/// Waits for the first task that ends unasked.
async fn first_failure(tasks: &Tasks, controllers: &Tasks, opened: &Opened) -> anyhow::Error {
    let failure = tokio::select! {
        failure = tasks.failed() => failure,
        failure = controllers.failed() => failure,
        failure = opened.failed() => failure,
    };
    anyhow::anyhow!("{} {:?}", failure.task, failure.kind)
}

async fn leave(controllers: &Tasks, presence: Option<&Presence>) {
    end("controllers", controllers).await;
    if let Some(presence) = presence {
        presence.leave().await;
    }
}

async fn end(what: &str, family: &Tasks) {
    if let Err(error) = family.stop(STOP_GRACE).await {
        tracing::warn!(%error, what, "not everything ended in time");
    }
}

/// Objects and their handlers, over the store.
struct Core {
    cache: Cache,
    registry: Registry,
    server: Arc<ApiServer>,
    /// Whether roles and bindings are read.
    known: policy::Known,
}

impl Core {
    fn start(
        config: &Config,
        address: SocketAddr,
        rules: Arc<Rules>,
        barrier: Arc<dyn Barrier>,
        opened: &Opened,
        tasks: &Tasks,
        streams_end: &CancellationToken,
    ) -> Self {
        let (store, surface) = (opened.store(), config.surface.clone());
        let prefix = store::Key::from(format!("{}/", config.prefix));
        let mut shelves = apiserver::shelves(&surface, &config.prefix);
        shelves.extend(apiserver::ports::shelves(&config.prefix, &shelves));
        let cache = Cache::start(store.clone(), prefix, shelves, tasks);
        let registry = Registry::new(store.clone(), cache.clone(), barrier);
        let local = config.local(address);
        let index = rules.index.clone();
        let server = ApiServer::new(registry.clone(), surface, &config.prefix, &local, rules, streams_end.clone());
        let server = Arc::new(server);
        let (feed, aggregation) = PolicyFeed::new(&server, index);
        let known = feed.known();
        tasks.spawn("rbac", |stop| feed.run(stop));
        tasks.spawn("aggregation", |stop| aggregation.run(stop));
        if !config.compaction_interval.is_zero() {
            let compaction = store::compaction::Compaction::new(store, config.compaction_interval);
            tasks.spawn("compaction", |stop| compaction.run(stop));
        }
        Self { cache, registry, server, known }
    }
}

/// Joins the cluster once what this server serves is complete, and is in it from then on. Ends only if somebody else is who we
/// are.
async fn be_present(
    cluster: Option<&peers::Started>,
    core: &Core,
    versions: Option<&Versions>,
    tasks: &Tasks,
    presence: &mut Option<Presence>,
) -> TwinError {
    let Some(peers::Started { cluster, joined, .. }) = cluster else { return std::future::pending().await };
    if core.cache.filled().await.is_err() {
        return std::future::pending().await;
    }
    core.known.clone().catch_up().await;
    if let Err(twin) = cluster.claim().await {
        return twin;
    }
    let present = presence.insert(cluster.join(tasks));
    cluster.milestones().identity_lease.reached().await;
    if let Some(versions) = versions {
        versions.leased(present.renewed(), tasks).await;
    }
    joined.send_replace(true);
    std::future::pending().await
}

async fn bind(config: &Config) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(config.bind, config.port);
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another server there? --secure-port and --bind-address choose another")
    })
}

fn checks(
    probe: Probe,
    core: &Core,
    started: bootstrap::Progress,
    draining: CancellationToken,
    cluster: Option<&peers::Started>,
) -> Vec<Check> {
    let (cache, known) = (core.cache.clone(), core.known.clone());
    let readiness_probe = probe.clone();
    let namespaces = started.clone();
    let finished =
        |started: &bootstrap::Progress| if started.is_done() { Ok(()) } else { Err("not finished".to_owned()) };
    let mut checks = vec![
        Check::new("log", Pages::All, || Ok(())),
        Check::new("etcd", Pages::All, move || probe.check()),
        Check::new("etcd-readiness", Pages::ReadyOnly, move || readiness_probe.check()),
        Check::new("informer-sync", Pages::ReadyOnly, move || match (cache.is_filled(), known.is_filled()) {
            (false, _) => Err("the watch cache is not filled yet".to_owned()),
            (true, false) => Err("roles and bindings are not read yet".to_owned()),
            (true, true) => Ok(()),
        }),
        Check::new("poststarthook/rbac/bootstrap-roles", Pages::All, move || finished(&started)),
        Check::new("poststarthook/start-system-namespaces-controller", Pages::All, move || finished(&namespaces)),
    ];
    checks.extend(cluster.map(peers::Started::checks).into_iter().flatten());
    checks.push(Check::new("shutdown", Pages::ReadyOnly, move || {
        if draining.is_cancelled() { Err("process is shutting down".to_owned()) } else { Ok(()) }
    }));
    checks
}

fn announce(address: SocketAddr, admin: Option<&Path>) {
    say(&mut std::io::stdout(), &format!("unskew serve: https://{address}"));
    if let Some(file) = admin {
        say(&mut std::io::stdout(), &format!("unskew serve: kubectl --kubeconfig {} get namespaces", file.display()));
    }
}
