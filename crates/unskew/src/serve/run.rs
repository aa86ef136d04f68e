//! From a configuration to a server that runs, and back down in order.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::gate::{AccessGate, Bundles, Rules};
use apiserver::policy::{self, PolicyFeed};
use apiserver::{ApiServer, bootstrap};
use edge::health::{Check, Health, Pages};
use edge::metrics::Metrics;
use edge::pipeline::{Limits, Pipeline};
use registry::{Cache, Open, Registry};
use tasks::Tasks;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::audit::Audit;
use super::config::Config;
use super::storage::{Opened, Probe};
use super::trust::{self, Trust};
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
    let address = SocketAddr::new(config.advertise.unwrap_or(config.bind), listener.local_addr()?.port());
    let tasks = Tasks::new();
    let trust = Trust::start(&config, address, &tasks)?;
    let rules = trust::rules(&config, address, &tasks)?;
    let auditor = config.audit.as_ref().map(Audit::start).transpose()?;
    let opened = Opened::open(&config.storage).await?;
    let streams = Tasks::new();
    let started = bootstrap::Progress::default();
    let draining = CancellationToken::new();
    let pipeline = assemble(
        &config.local(address),
        &config,
        (rules, trust.bundles),
        bootstrap::Settings { address, service_ip: config.service_ip, trust: trust.published },
        &opened,
        &Parts { tasks: &tasks, streams: &streams, started: &started, draining: &draining },
    );
    let pipeline = Arc::new(pipeline.audited(auditor));
    let connections = Tasks::new();
    let closing = CancellationToken::new();
    let accepting = edge::listener::run(listener, trust.serving, pipeline, connections.clone(), closing.clone());
    tasks.spawn_once("listener", accepting);
    announce(address, trust.admin.as_deref());
    let outcome = tokio::select! {
        failure = tasks.failed() => Err(anyhow::anyhow!("{} {:?}", failure.task, failure.kind)),
        failure = opened.failed() => Err(anyhow::anyhow!("{} {:?}", failure.task, failure.kind)),
        () = stop_signal() => Ok(()),
    };
    // Not ready first, so that balancers look elsewhere; then no new connections; then the end of those there are; the
    // store last, because everything else writes to it.
    draining.cancel();
    tokio::time::sleep(config.shutdown_delay).await;
    closing.cancel();
    for (what, family) in [("watches", &streams), ("connections", &connections), ("tasks", &tasks)] {
        if let Err(error) = family.stop(STOP_GRACE).await {
            tracing::warn!(%error, what, "not everything ended in time");
        }
    }
    opened.close(STOP_GRACE).await;
    outcome
}

/// What the pipeline's parts share with the process.
struct Parts<'a> {
    tasks: &'a Tasks,
    streams: &'a Tasks,
    started: &'a bootstrap::Progress,
    draining: &'a CancellationToken,
}

/// Puts the server together over its store: cache, registry, handlers, gate, pipeline.
fn assemble(
    local: &apiserver::Config,
    config: &Config,
    (rules, bundles): (Arc<Rules>, Bundles),
    settings: bootstrap::Settings,
    opened: &Opened,
    parts: &Parts<'_>,
) -> Pipeline<AccessGate, Arc<ApiServer>> {
    let (store, surface) = (opened.store(), config.surface.clone());
    let prefix = store::Key::from(format!("{}/", config.prefix));
    let shelves = apiserver::shelves(&surface, &config.prefix);
    let cache = Cache::start(store.clone(), prefix, shelves, parts.tasks);
    let registry = Registry::new(store.clone(), cache.clone(), Arc::new(Open));
    let streams = parts.streams.clone();
    let server = Arc::new(ApiServer::new(registry, surface, &config.prefix, local, rules.clone(), streams));
    let (feed, aggregation) = PolicyFeed::new(&server, rules.index.clone());
    let known = feed.known();
    parts.tasks.spawn("rbac", |stop| feed.run(stop));
    parts.tasks.spawn("aggregation", |stop| aggregation.run(stop));
    let putting = bootstrap::run(server.clone(), settings, known.clone(), parts.started.clone());
    parts.tasks.spawn_once("bootstrap", putting);
    let gate = AccessGate { bundles, rules, accounts: server.accounts() };
    let probe = Probe::start(store.clone(), parts.tasks);
    if !config.compaction_interval.is_zero() {
        let compaction = store::compaction::Compaction::new(store, config.compaction_interval);
        parts.tasks.spawn("compaction", |stop| compaction.run(stop));
    }
    let health = Health::new(checks(probe, &cache, known, parts));
    let limits = Limits { reads: config.reads_max, writes: config.writes_max, request_timeout: config.request_timeout };
    let metrics = Metrics::new(&prometheus::Registry::new());
    Pipeline::new(gate, server, health, metrics, limits)
}

/// Every watch is a connection: the soft limit of open files is raised to the hard one.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

async fn bind(config: &Config) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(config.bind, config.port);
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another server there? --secure-port and --bind-address choose another")
    })
}

fn checks(probe: Probe, cache: &Cache, rules_known: policy::Known, parts: &Parts<'_>) -> Vec<Check> {
    let (cache, started, draining) = (cache.clone(), parts.started.clone(), parts.draining.clone());
    let readiness_probe = probe.clone();
    let namespaces = started.clone();
    let finished =
        |started: &bootstrap::Progress| if started.is_done() { Ok(()) } else { Err("not finished".to_owned()) };
    vec![
        Check::new("log", Pages::All, || Ok(())),
        Check::new("etcd", Pages::All, move || probe.check()),
        Check::new("etcd-readiness", Pages::ReadyOnly, move || readiness_probe.check()),
        Check::new("informer-sync", Pages::ReadyOnly, move || match (cache.is_filled(), rules_known.is_filled()) {
            (false, _) => Err("the watch cache is not filled yet".to_owned()),
            (true, false) => Err("roles and bindings are not read yet".to_owned()),
            (true, true) => Ok(()),
        }),
        Check::new("poststarthook/rbac/bootstrap-roles", Pages::All, move || finished(&started)),
        Check::new("poststarthook/start-system-namespaces-controller", Pages::All, move || finished(&namespaces)),
        Check::new("shutdown", Pages::ReadyOnly, move || {
            if draining.is_cancelled() { Err("process is shutting down".to_owned()) } else { Ok(()) }
        }),
    ]
}

fn announce(address: SocketAddr, admin: Option<&Path>) {
    say(&mut std::io::stdout(), &format!("unskew serve: https://{address}"));
    if let Some(file) = admin {
        say(&mut std::io::stdout(), &format!("unskew serve: kubectl --kubeconfig {} get namespaces", file.display()));
    }
}

async fn stop_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
