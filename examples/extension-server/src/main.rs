//! An aggregated API server: one group on its own SQLite file, access decided by the main cluster, storage versions published there.
//!
//! - `gadgets` is the API: a resource in two versions, and the version that is stored.
//! - `delegation` asks the main cluster who a caller is and what it may do.
//! - `main_cluster` holds the identity lease, and has the ports through which `storageversion` publishes.
//!
//! A write is persisted only while this server's entry in the StorageVersion of `gadgets` is published and its identity lease is valid. The
//! objects are in another store than the StorageVersion, so that no transaction compares both, as in kube-apiserver: a server
//! whose lease lapses stops writing before its entry is collected.

mod delegation;
mod flags;
mod gadgets;
mod main_cluster;

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use controllers::{ApiClient, ApiServerAddress, ClientConnections, ServerTrust};
use edge::Pipeline;
use edge::health::{HealthCheck, HealthChecks, HealthPages};
use edge::pipeline::RequestLimits;
use membership::identity::{HolderIdentity, IdentityLeaseTemplate, ServerId};
use registry::{Registry, ValueFormat, WatchCache};
use storageversion::{PublicationBarrier, StorageVersionManager, StorageVersionPorts};
use store::sqlite::SqliteStore;
use store::{Key, Store};
use tasks::Tasks;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transport::serving::Acceptor;
use transport::{Reloading, TlsPolicy};

use crate::delegation::DelegatedAccess;
use crate::flags::Flags;
use crate::gadgets::{GadgetHandler, PublishedBarrier};
use crate::main_cluster::MainCluster;

/// The component in identity and lease: tells the replicas of this server from other servers of the main cluster.
const COMPONENT: &str = "gadget-apiserver";
/// The deadline of one call to the main cluster.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// The time for tasks and connections to end.
const STOP_GRACE: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let started = Flags::parse(std::env::args().skip(1)).and_then(|flags| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(run(flags))
    });
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGTERM, then withdraws from the main cluster.
async fn run(flags: Flags) -> anyhow::Result<()> {
    let tasks = Tasks::new();
    let metrics = prometheus::Registry::new();
    let client = main_cluster_client(&flags, &tasks)?;
    let server = ServerId::for_component(&flags.hostname, COMPONENT);
    let access = DelegatedAccess::start(client.clone(), &tasks).await.context("extension-apiserver-authentication")?;

    let versions_metrics = storageversion::Metrics::new(&metrics);
    let registrations = gadgets::registrations(&flags.storage_version)?;
    let lease_duration = flags.lease_duration;
    let barrier =
        PublicationBarrier::new(server.as_str().into(), lease_duration, &registrations, versions_metrics.clone());
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(store::sqlite::Config::new(&flags.store), &tasks).await?);
    let prefix = Key::from(gadgets::KEY_PREFIX.to_owned());
    let cache = WatchCache::start(store.clone(), prefix.clone(), vec![(prefix.clone(), ValueFormat::Objects)], &tasks);
    let registry = Registry::new(store, cache, Arc::new(PublishedBarrier(barrier.clone())));

    let (renewed, renewals) = watch::channel(None);
    let main_cluster = MainCluster::start(client, &tasks);
    let ports = StorageVersionPorts {
        client: main_cluster.clone(),
        member_source: main_cluster.clone(),
        // The servers of the main cluster collect.
        lease_client: None,
    };
    let config = storageversion::Config {
        holder: server.as_str().to_owned(),
        request_timeout: CALL_TIMEOUT,
        election_timings: election::ElectionTimings::default(),
        clock: jiff::Timestamp::now,
        seed: fastrand::u64(..),
    };
    let manager = StorageVersionManager::start(&config, barrier, &ports, renewals, &versions_metrics, &tasks);
    let template = IdentityLeaseTemplate {
        holder: HolderIdentity::new(&server, fastrand::u128(..)),
        server,
        component: COMPONENT.to_owned(),
        hostname: flags.hostname.clone(),
        address: None,
        duration: lease_duration,
    };
    let (lease_holder, lease) = (main_cluster.clone(), template.clone());
    tasks.spawn("identity-lease", |stop| async move { lease_holder.hold_identity_lease(lease, renewed, stop).await });

    let held = manager.clone();
    let health = HealthChecks::new(vec![HealthCheck::new("storage-versions", HealthPages::ReadyOnly, move || {
        held.check_writable()
    })]);
    let limits = RequestLimits { reads: 400, writes: 200, request_timeout: REQUEST_TIMEOUT };
    let handler = GadgetHandler::new(registry, flags.storage_version.clone());
    let pipeline = Pipeline::new(access, handler, health, edge::metrics::Metrics::new(&metrics), limits);
    let (connections, closing) = (Tasks::new(), CancellationToken::new());
    serve(&flags, pipeline, &tasks, &connections, &closing).await?;

    let mut terminate = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        failure = tasks.wait_for_failure() => Err(anyhow::anyhow!("{} {:?}", failure.task, failure.kind)),
        _ = terminate.recv() => Ok(()),
    };
    closing.cancel();
    connections.stop(STOP_GRACE).await.context("connections")?;
    // Without its lease this server is no member any more: its entries are collected.
    main_cluster.release_identity_lease(&template).await;
    tasks.stop(STOP_GRACE).await.context("tasks")?;
    outcome
}

async fn serve(
    flags: &Flags,
    pipeline: Pipeline<DelegatedAccess, GadgetHandler>,
    tasks: &Tasks,
    connections: &Tasks,
    closing: &CancellationToken,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], flags.port))).await?;
    writeln!(std::io::stdout(), "listening on https://{}", listener.local_addr()?)?;
    let tls = transport::server::server_config(&flags.certificate, &flags.key, &TlsPolicy::default())?;
    let (tls, pipeline) = (Reloading::fixed(tls), Arc::new(pipeline));
    let accepting = edge::listener::run(Acceptor::new(listener)?, tls, pipeline, connections.clone(), closing.clone());
    tasks.spawn_once("listener", accepting);
    Ok(())
}

fn main_cluster_client(flags: &Flags, tasks: &Tasks) -> anyhow::Result<ApiClient> {
    let token = std::fs::read_to_string(&flags.token_file).context("--token-file")?;
    let address =
        ApiServerAddress { socket: flags.main_cluster, trust: ServerTrust::Authority(flags.main_cluster_ca.clone()) };
    Ok(ApiClient::new(ClientConnections::new(address, tasks.clone()), token.trim(), COMPONENT))
}
