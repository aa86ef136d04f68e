//! From a configuration to a server that runs, and back down in order.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::gate::AccessGate;
use apiserver::policy::PolicyFeed;
use apiserver::{ApiServer, bootstrap};
use arc_swap::ArcSwap;
use edge::health::{Check, Health, Pages};
use edge::metrics::Metrics;
use edge::pipeline::{Limits, Pipeline};
use registry::{Cache, Open, Registry};
use store::Store;
use store::sqlite::SqliteStore;
use tasks::Tasks;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use transport::pki::{Authority, Pair, Purpose};
use transport::{Authorities, Watched};

use super::config::{Config, Storage};
use crate::{kubeconfig, logging, say};

/// How long connections may take to finish what they have begun, and tasks to end.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Runs the server until SIGTERM or SIGINT.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    logging::start(config.logging.json, config.logging.verbosity);
    if !config.without_meaning.is_empty() {
        tracing::warn!(flags = config.without_meaning.join(", "), "these flags have no meaning here and are ignored");
    }
    if let Some(notice) = config.authorizer.notice() {
        tracing::warn!("{notice}");
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(config))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let listener = bind(&config).await?;
    let address = listener.local_addr()?;
    let advertised = SocketAddr::new(config.advertise.unwrap_or(config.bind), address.port());
    let tasks = Tasks::new();
    let (trust, admin) = trust(&config, advertised, &tasks)?;
    let opened = open_store(&config.storage, &tasks).await?;
    let store = opened.store();
    let surface = Arc::new(config.surface);
    let shelves = apiserver::shelves(&surface, &config.prefix);
    let prefix = store::Key::from(format!("{}/", config.prefix));
    let cache = Cache::start(store.clone(), prefix, shelves, &tasks);
    let registry = Registry::new(store.clone(), cache.clone(), Arc::new(Open));
    let streams = Tasks::new();
    let local = ApiServer::new(
        registry,
        surface.clone(),
        &config.prefix,
        &apiserver::Config {
            git_version: format!("v{}.0+unskew.{}", surface.release(), env!("CARGO_PKG_VERSION")),
            address: advertised.to_string(),
            watch_seconds_min: config.watch_seconds_min,
        },
        streams.clone(),
    );
    let index = Arc::new(ArcSwap::from_pointee(access::rbac::Index::default()));
    let feed = PolicyFeed::new(&local, index.clone());
    tasks.spawn("rbac", |stop| feed.run(stop));
    let gate = AccessGate {
        client_ca: Some(trust.client_ca),
        anonymous: config.anonymous && config.authorizer.permits_anonymous(),
        authorizer: config.authorizer,
        index,
    };
    let started = bootstrap::Progress::default();
    let draining = CancellationToken::new();
    let health = Health::new(checks(&store, &cache, &started, &draining));
    let limits = Limits { reads: config.reads_max, writes: config.writes_max, request_timeout: config.request_timeout };
    let local = Arc::new(local);
    let bootstrapping = bootstrap::run(local.clone(), started.clone());
    let metrics = Metrics::new(&prometheus::Registry::new());
    let pipeline = Arc::new(Pipeline::new(gate, local, health, metrics, limits));
    let connections = Tasks::new();
    let closing = CancellationToken::new();
    let accepting = edge::listener::run(listener, trust.serving, pipeline, connections.clone(), closing.clone());
    tasks.spawn_once("listener", accepting);
    tasks.spawn_once("bootstrap", bootstrapping);
    announce(advertised, admin.as_deref());
    let outcome = tokio::select! {
        failure = tasks.failed() => Err(anyhow::anyhow!("{} {:?}", failure.task, failure.kind)),
        () = stop_signal() => Ok(()),
    };
    // Not ready first, so that balancers look elsewhere; then no new connections; then the end of those there are.
    draining.cancel();
    tokio::time::sleep(config.shutdown_delay).await;
    closing.cancel();
    let _ = streams.stop(STOP_GRACE).await;
    let _ = connections.stop(STOP_GRACE).await;
    opened.close().await;
    let _ = tasks.stop(STOP_GRACE).await;
    outcome
}

async fn bind(config: &Config) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(config.bind, config.port);
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another server there? --secure-port and --bind-address choose another")
    })
}

/// What the server shows, and whom it believes.
struct Trust {
    serving: Watched<rustls::ServerConfig>,
    client_ca: Watched<Authorities>,
}

/// Certificates as given, and those of our own where none are. The second value is the admin kubeconfig, if we made one.
fn trust(config: &Config, advertised: SocketAddr, tasks: &Tasks) -> anyhow::Result<(Trust, Option<PathBuf>)> {
    let own = Authority::open(&config.cert_dir, "ca").context("keys and certificates of our own (--cert-dir)");
    let serving = match &config.serving {
        Some((certificate, key)) => Pair { certificate: certificate.clone(), key: key.clone() },
        None => {
            let addresses = vec![advertised.ip(), config.bind, IpAddr::from([127, 0, 0, 1])];
            let purpose = Purpose::Serving { addresses, names: vec![] };
            own.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?.issue(
                "apiserver",
                "kube-apiserver",
                None,
                &purpose,
            )?
        }
    };
    let (client_ca, admin) = match &config.client_ca {
        Some(file) => (file.clone(), None),
        None => {
            let own = own?;
            let admin = own.issue("admin", "kubernetes-admin", Some("system:masters"), &Purpose::Client)?;
            let file = config.cert_dir.parent().unwrap_or(Path::new(".")).join("admin.kubeconfig");
            kubeconfig::write(&file, advertised, own.certificate(), &admin)?;
            (own.certificate().to_owned(), Some(file))
        }
    };
    let Pair { certificate, key } = serving;
    let files = vec![certificate.clone(), key.clone()];
    let serving = Watched::start(files, move || transport::server::serving(&certificate, &key), tasks)?;
    let client_ca = Watched::start(vec![client_ca.clone()], move || Authorities::from_file(&client_ca), tasks)?;
    Ok((Trust { serving, client_ca }, admin))
}

/// A store that was opened and must be closed.
enum Opened {
    Sqlite(Arc<SqliteStore>),
}

impl Opened {
    fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => store.clone(),
        }
    }

    async fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close().await,
        }
    }
}

async fn open_store(storage: &Storage, tasks: &Tasks) -> anyhow::Result<Opened> {
    match storage {
        Storage::Sqlite(file) => {
            if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("cannot create {} for --sqlite-file", folder.display()))?;
            }
            Ok(Opened::Sqlite(Arc::new(SqliteStore::open(store::sqlite::Config::new(file), tasks).await?)))
        }
        Storage::Etcd { .. } => anyhow::bail!("--etcd-servers: not built yet in serve"),
    }
}

fn checks(
    store: &Arc<dyn Store>,
    cache: &Cache,
    started: &bootstrap::Progress,
    draining: &CancellationToken,
) -> Vec<Check> {
    let _ = store;
    let (cache, started, draining) = (cache.clone(), started.clone(), draining.clone());
    vec![
        Check::new("log", Pages::All, || Ok(())),
        Check::new("etcd", Pages::All, || Ok(())),
        Check::new("informer-sync", Pages::ReadyOnly, move || {
            if cache.is_filled() { Ok(()) } else { Err("the watch cache is not filled yet".to_owned()) }
        }),
        Check::new("poststarthook/start-system-namespaces-controller", Pages::All, move || {
            if started.is_done() { Ok(()) } else { Err("not finished".to_owned()) }
        }),
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
