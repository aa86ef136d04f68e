//! From a configuration to a gateway that runs, and back down in order.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use access::authenticate::{Bundles as Overlap, HeaderNames};
use anyhow::Context as _;
use api::media::AggregatedVersion;
use edge::access_log::AccessLog;
use edge::certificates::Bundles;
use edge::health::{Check, Health, Pages};
use edge::merged::MergedPages;
use edge::peers::MisfitPolicy;
use edge::pipeline::Pipeline;
use gateway::board::Board;
use gateway::vouching::SETTINGS_READER;
use gateway::{AnyUpstream, AsGateway, GatewayGate, Reviews, Slices, StateDir, Upstreams, Vouching, Way};
use peering::forward::{CrossOrigin, ForwardLimits, Forwarder, Identity, VouchingPolicy, Ways};
use peering::members::State;
use peering::membership::MembershipConfig;
use peering::metrics::{Metrics, ViewMetrics};
use peering::presence::{Extent, Pace, PresenceConfig};
use peering::view::Peering;
use peering::{Address, Cluster, HolderIdentity, ServerId, View};
use tasks::{Tasks, Workers};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transport::peer::{ClientFiles, Connector, Dialer};
use transport::pki::{Authority, Pair, Purpose};
use transport::{Authorities, Watched};

use super::config::Config;
use crate::flags::FlagError;
use crate::process::{raise_file_limit, stop_signal};
use crate::settings::may_be_built_in;
use crate::{logging, say};

/// How long connections may take to finish what they have begun, and tasks to end.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Who the gateway is to upstreams; docs/deploy/gateway-rbac.yaml says what it needs to be allowed.
const USER: &str = "unskew:gateway";
/// The gateway's own name among the members.
const NAME: &str = "apiserver-gateway";

/// Runs the gateway until SIGTERM or SIGINT.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    logging::start(config.log_json, config.verbosity);
    raise_file_limit();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(config))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let listener = bind(&config).await?;
    let address = listener.local_addr()?;
    let tasks = Tasks::new();
    let serving = start_serving(&config, &tasks)?;
    let (bundles, front_proxy) = start_bundles(&config, &tasks)?;
    let registry = prometheus::Registry::new();
    let metrics = Metrics::new(&registry);
    let way = start_way(&config, address, &registry, &metrics, &tasks)?;
    let draining = CancellationToken::new();
    let reviews = Reviews::new(way.clone());
    let gate = GatewayGate { bundles, front_proxy, claims: config.claims.clone(), reviews };
    let health = Health::new(checks(&way, draining.clone()));
    let pipeline =
        Pipeline::new(gate, AnyUpstream(way.clone()), health, edge::metrics::Metrics::new(&registry), config.limits);
    let access_log = start_access_log(&config, &registry, &tasks)?;
    let pipeline = Arc::new(pipeline.logged(access_log).among(Some(peers(&config, &way, metrics))));
    let (connections, closing) = (Tasks::new(), CancellationToken::new());
    let accepting =
        edge::listener::run(listener, serving, pipeline, Workers::start()?, connections.clone(), closing.clone());
    tasks.spawn_once("listener", accepting);
    say(&mut std::io::stdout(), &format!("unskew gateway: https://{address}"));
    let outcome = tokio::select! {
        failure = tasks.failed() => Err(anyhow::anyhow!("{} {:?}", failure.task, failure.kind)),
        () = stop_signal() => Ok(()),
    };
    // Not ready first, so that balancers look elsewhere; then no new connections; then the end of those there are.
    draining.cancel();
    tokio::time::sleep(config.shutdown_delay).await;
    closing.cancel();
    way.forwarder.end_streams();
    for (what, family) in [("connections", &connections), ("tasks", &tasks)] {
        if let Err(error) = family.stop(STOP_GRACE).await {
            tracing::warn!(%error, what, "not everything ended in time");
        }
    }
    outcome
}

fn start_access_log(
    config: &Config,
    registry: &prometheus::Registry,
    tasks: &Tasks,
) -> anyhow::Result<Option<AccessLog>> {
    let Some(path) = &config.access_log else { return Ok(None) };
    let log = AccessLog::start(path, registry, tasks);
    log.with_context(|| format!("--access-log-path: {} cannot be written", path.display())).map(Some)
}

async fn bind(config: &Config) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(config.bind, config.port);
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another server there? --secure-port and --bind-address choose another")
    })
}

/// The serving certificate, read again when it changes; one of our own if none is given.
fn start_serving(config: &Config, tasks: &Tasks) -> anyhow::Result<Watched<rustls::ServerConfig>> {
    let Pair { certificate, key } = match &config.serving {
        Some(pair) => pair.clone(),
        None => {
            let own = Authority::open(&config.cert_dir, "ca").context("a certificate of our own (--cert-dir)")?;
            let addresses = vec![config.bind, IpAddr::from([127, 0, 0, 1])];
            own.issue("gateway", "unskew-gateway", None, &Purpose::Serving { addresses, names: vec![] })?
        }
    };
    let files = vec![certificate.clone(), key.clone()];
    Ok(Watched::start(files, move || transport::server::serving(&certificate, &key), tasks)?)
}

/// By which authorities certificates are judged. Refuses bundles by which users could pass for proxies.
fn start_bundles(
    config: &Config,
    tasks: &Tasks,
) -> anyhow::Result<(Bundles, Option<access::authenticate::FrontProxy>)> {
    let watch = |flag: &str, file: &std::path::Path| {
        let (name, file) = (flag.to_owned(), file.to_owned());
        let watched = Watched::start(vec![file.clone()], move || Authorities::from_file(&file), tasks);
        watched.map_err(|error| anyhow::anyhow!("--{name}: {error}"))
    };
    let client = config.client_ca.as_deref().map(|file| watch("client-ca-file", file)).transpose()?;
    let Some((file, rules)) = &config.front_proxy else {
        return Ok((Bundles { client, front_proxy: None }, None));
    };
    let front_proxy = watch("requestheader-client-ca-file", file)?;
    let overlap = match &client {
        Some(client) if front_proxy.get().overlaps(&client.get()) => Overlap::Overlap,
        Some(_) | None => Overlap::Apart,
    };
    rules.check(overlap).map_err(|error| FlagError::Refused(error.to_string()))?;
    Ok((Bundles { client, front_proxy: Some(front_proxy) }, Some(rules.clone())))
}

/// The upstreams, and the way to them.
fn start_way(
    config: &Config,
    address: SocketAddr,
    registry: &prometheus::Registry,
    metrics: &Metrics,
    tasks: &Tasks,
) -> anyhow::Result<Way> {
    let user = Identity::new(USER, "", ["system:authenticated"], []).expect("the name has no odd characters");
    let forwarder = start_forwarder(config, &user, metrics, tasks)?;
    let kept = match &config.state_dir {
        None => StateDir::none(),
        Some(folder) => StateDir::open(folder).with_context(|| format!("--state-dir: {}", folder.display()))?,
    };
    let board = Board::new(kept);
    let fetch = Arc::new(AsGateway { forwarder: forwarder.clone(), user: user.clone() });
    let settings = gateway::Config { forget_after: config.forget_after };
    let removed = config.claims.clone().unwrap_or_else(HeaderNames::standard);
    let reader = Identity::new(SETTINGS_READER, "", ["system:authenticated"], []).expect("the name is plain");
    let reader = Arc::new(AsGateway { forwarder: forwarder.clone(), user: reader });
    let vouching = Vouching::new(removed, config.local_header_names.clone(), Arc::new(forwarder.clone()), reader);
    let own_metrics = gateway::metrics::Metrics::new(registry);
    let upstreams = Upstreams::new(settings, board.clone(), fetch, vouching, own_metrics, tasks);
    upstreams.set(&config.upstreams);
    let ports = peering::Ports {
        leases: Arc::new(board.clone()),
        records: Arc::new(board.clone()),
        documents: Arc::new(board),
        progress: upstreams.clone(),
        // They are the upstreams' own concern.
        definitions: None,
        // Upstreams are inspected, which tells more than their documents.
        fetch: None,
    };
    // A gateway serves nothing itself, and definitions in storage are the upstreams' own concern.
    let local = watch::Sender::new(Arc::new(discovery::Groups::new(Vec::new()))).subscribe();
    let shared = watch::Sender::default().subscribe();
    let cluster = Cluster::start(following(address)?, &ports, local, shared, metrics, tasks);
    let cluster = Arc::new(cluster);
    if let Some(doubts) = cluster.take_doubts() {
        let upstreams = upstreams.clone();
        tasks.spawn("upstream-doubts", |stop| upstreams.follow_doubts(doubts, stop));
    }
    forwarder.follow(cluster.views(), tasks);
    registry.register(Box::new(ViewMetrics::new(cluster.views()))).expect("each name is registered once");
    let way = Way { cluster, forwarder, upstreams };
    if let Some(networks) = config.networks.clone() {
        let slices = Slices { way: way.clone(), user, configured: config.upstreams.clone(), networks };
        let upstreams = way.upstreams.clone();
        tasks.spawn("upstream-discovery", |stop| slices.run(upstreams, stop));
    }
    Ok(way)
}

fn start_forwarder(config: &Config, user: &Identity, metrics: &Metrics, tasks: &Tasks) -> anyhow::Result<Forwarder> {
    let connector = |files: ClientFiles| {
        let tls =
            files.watch(tasks).context("--upstream-ca-file, --proxy-client-cert-file, --proxy-client-key-file")?;
        anyhow::Ok(Arc::new(Connector::new(tls, Dialer::direct()).with_server_name(config.server_name.clone())))
    };
    let bare = ClientFiles { own: None, ..config.vouching.clone() };
    let ways = Ways {
        vouching: connector(config.vouching.clone())?,
        bare: Some(connector(bare)?),
        ourselves: user.clone(),
        cross_origin: CrossOrigin::Theirs,
        vouching_policy: VouchingPolicy::AllowedPeers,
    };
    let limits = ForwardLimits {
        in_flight_max: config.in_flight_max,
        bandwidth_max: config.bandwidth_max,
        queue: config.queue,
        ..ForwardLimits::default()
    };
    Ok(Forwarder::new(ways, limits, metrics.clone(), tasks))
}

/// A gateway follows the cluster and is no part of it: its presence is never made known.
fn following(address: SocketAddr) -> anyhow::Result<peering::Config> {
    let server = ServerId::from_name(NAME).context("the gateway's name is one of a server")?;
    let host = address.ip().to_string();
    let address = Address::new(&host, address.port()).context("the gateway listens somewhere")?;
    Ok(peering::Config {
        membership: MembershipConfig {
            server: server.clone(),
            peering: Peering::Enabled,
            unbuilt: Vec::new(),
            patience: peering::members::Patience::default(),
            first_sync_timeout: MembershipConfig::FIRST_SYNC_TIMEOUT,
            may_be_built_in,
        },
        presence: PresenceConfig {
            holder: HolderIdentity::new(&server, fastrand::u128(..)),
            server,
            hostname: host,
            address,
            extent: Extent::LeaseOnly,
            unbuilt: Vec::new(),
            publishes: false,
            linger: peering::members::Patience::LINGER,
            pace: Pace::default(),
            clock: jiff::Timestamp::now,
            seed: fastrand::u64(..),
        },
        ask: peering::askers::AskConfig::default(),
    })
}

fn peers(config: &Config, way: &Way, metrics: Metrics) -> edge::peers::Peers {
    let (upstreams, compared) = (way.upstreams.clone(), way.upstreams.clone());
    edge::peers::Peers {
        cluster: way.cluster.clone(),
        forwarder: Some(way.forwarder.clone()),
        metrics,
        merged: MergedPages { merge: config.merge, oldest: AggregatedVersion::V2Beta1 },
        misfits: MisfitPolicy::LeaveToPeer,
        tells: config.tells,
        // Nobody forwards to a gateway, so that it need not wait to be taken for a member.
        joined: watch::Sender::new(true).subscribe(),
        nearest: config.upstreams.iter().find(|upstream| upstream.is_local).map(|local| local.server.clone()),
        is_recent: Some(Box::new(move || upstreams.is_recent())),
        not_vouched: Some(Box::new(move |server| compared.not_vouched(server))),
    }
}

/// Ready once every upstream was heard or tried, and as long as one of them can be asked for every kind of user.
fn checks(way: &Way, draining: CancellationToken) -> Vec<Check> {
    let first_sync = way.cluster.milestones().first_sync.clone();
    let (upstreams, cluster) = (way.upstreams.clone(), way.cluster.clone());
    vec![
        Check::new("upstreams-heard", Pages::ReadyOnly, move || first_sync.check().map_err(str::to_owned)),
        Check::detailed("upstreams", Pages::ReadyOnly, move || check_upstreams(&upstreams, &cluster.view())),
        Check::new("shutdown", Pages::ReadyOnly, move || {
            if draining.is_cancelled() { Err("process is shutting down".to_owned()) } else { Ok(()) }
        }),
    ]
}

/// Fails unless there is an upstream that is ready and reads users as the gateway names them. What requests are routed by
/// decides: the inspector may have found an upstream ready a moment before that.
fn check_upstreams(upstreams: &Upstreams, view: &View) -> Result<Vec<String>, String> {
    let live = view.members().iter().filter(|member| member.state == State::Live);
    let (mut ready, mut refused) = (0, Vec::new());
    for member in live {
        match upstreams.not_vouched(member.server.as_str()) {
            None => ready += 1,
            Some(reason) => refused.push(format!("{}: {reason}", member.server)),
        }
    }
    let all = upstreams.count();
    if ready == 0 {
        let none = format!("none of {all} upstreams is ready");
        return Err([none].into_iter().chain(refused).collect::<Vec<_>>().join("; "));
    }
    let count = format!("{ready} of {all} upstreams are ready");
    Ok([count].into_iter().chain(refused).chain(peering::readiness::details(view)).collect())
}
