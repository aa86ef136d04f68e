//! From a configuration to a gateway that runs, and back down in order.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use access::authentication::{CaBundleOverlap as Overlap, FrontProxyHeaderNames};
use anyhow::Context as _;
use api::media::AggregatedVersion;
use edge::access_log::AccessLog;
use edge::certificate_verification::CaBundles;
use edge::health::{HealthCheck, HealthChecks, HealthPages};
use edge::merged_discovery::MergedPages;
use edge::peer_routing::RouteMismatchPolicy;
use edge::pipeline::Pipeline;
use gateway::upstream_storage::UpstreamStorage;
use gateway::vouching::SETTINGS_READER;
use gateway::{
    AnyUpstream, EndpointSlicePoller, GatewayAccessControl, GatewayFetch, PageAccessReviews, StateDir, UpstreamClient,
    Upstreams, VouchingDecider,
};
use peering::forward::{CorsHeaders, ForwardLimits, ForwardedUser, Forwarder, ForwarderConfig, VouchingPolicy};
use peering::members::MemberState;
use peering::membership::MembershipConfig;
use peering::metrics::{Metrics, ViewMetrics};
use peering::presence::{PresenceConfig, PresenceScope, PresenceTimings};
use peering::view::Peering;
use peering::{Address, Cluster, HolderIdentity, ServerId, View};
use tasks::{Tasks, Workers};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transport::peer::{ClientTlsFiles, Connector, Dialer};
use transport::pki::{CertificateAuthority, CertificateFiles, CertificateUsage};
use transport::{ClientCaBundle, Reloading};

use super::config::Config;
use crate::flags::FlagError;
use crate::process::{raise_file_limit, wait_for_stop_signal};
use crate::shared_flags::may_be_built_in;
use crate::{logging, print_line};

/// How long connections may take to finish what they have begun, and tasks to end.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Who the gateway is to upstreams; docs/deploy/gateway-rbac.yaml says what it needs to be allowed.
const GATEWAY_USER: &str = "unskew:gateway";
/// The gateway's own name among the members.
const GATEWAY_IDENTITY: &str = "apiserver-gateway";

/// Runs the gateway until SIGTERM or SIGINT.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    logging::init(config.log_json, config.verbosity);
    raise_file_limit();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(config))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let listener = bind_listener(&config).await?;
    let address = listener.local_addr()?;
    let tasks = Tasks::new();
    let serving = start_serving_certificate(&config, &tasks)?;
    let (bundles, front_proxy) = start_client_authorities(&config, &tasks)?;
    let registry = prometheus::Registry::new();
    let metrics = Metrics::new(&registry);
    let way = start_upstreams(&config, address, &registry, &metrics, &tasks)?;
    let draining = CancellationToken::new();
    let reviews = PageAccessReviews::new(way.clone());
    let gate = GatewayAccessControl {
        ca_bundles: bundles,
        front_proxy,
        identity_headers: config.identity_headers.clone(),
        page_reviews: reviews,
    };
    let health = HealthChecks::new(health_checks(&way, draining.clone()));
    let pipeline =
        Pipeline::new(gate, AnyUpstream(way.clone()), health, edge::metrics::Metrics::new(&registry), config.limits);
    let access_log = start_access_log(&config, &registry, &tasks)?;
    let pipeline =
        Arc::new(pipeline.with_access_log(access_log).with_peer_routing(Some(build_peers(&config, &way, metrics))));
    let (connections, closing) = (Tasks::new(), CancellationToken::new());
    let accepting =
        edge::listener::run(listener, serving, pipeline, Workers::start()?, connections.clone(), closing.clone());
    tasks.spawn_once("listener", accepting);
    print_line(&mut std::io::stdout(), &format!("unskew gateway: https://{address}"));
    let outcome = tokio::select! {
        failure = tasks.wait_for_failure() => Err(anyhow::anyhow!("{} {:?}", failure.task, failure.kind)),
        () = wait_for_stop_signal() => Ok(()),
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

async fn bind_listener(config: &Config) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(config.bind_ip, config.port);
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another server there? --secure-port and --bind-address choose another")
    })
}

/// The serving certificate, read again when it changes; one of our own if none is given.
fn start_serving_certificate(config: &Config, tasks: &Tasks) -> anyhow::Result<Reloading<rustls::ServerConfig>> {
    let CertificateFiles { certificate, key } = match &config.serving_certificate {
        Some(pair) => pair.clone(),
        None => {
            let own = CertificateAuthority::open_or_create(&config.cert_dir, "ca")
                .context("a certificate of our own (--cert-dir)")?;
            let addresses = vec![config.bind_ip, IpAddr::from([127, 0, 0, 1])];
            own.open_or_issue(
                "gateway",
                "unskew-gateway",
                None,
                &CertificateUsage::Serving { addresses, names: vec![] },
            )?
        }
    };
    let files = vec![certificate.clone(), key.clone()];
    Ok(Reloading::start(files, move || transport::server::server_config(&certificate, &key), tasks)?)
}

/// By which authorities certificates are judged. Refuses bundles by which users could pass for proxies.
fn start_client_authorities(
    config: &Config,
    tasks: &Tasks,
) -> anyhow::Result<(CaBundles, Option<access::authentication::FrontProxy>)> {
    let watch = |flag: &str, file: &std::path::Path| {
        let (name, file) = (flag.to_owned(), file.to_owned());
        let watched = Reloading::start(vec![file.clone()], move || ClientCaBundle::from_file(&file), tasks);
        watched.map_err(|error| anyhow::anyhow!("--{name}: {error}"))
    };
    let client = config.client_ca.as_deref().map(|file| watch("client-ca-file", file)).transpose()?;
    let Some((file, rules)) = &config.front_proxy else {
        return Ok((CaBundles { client, front_proxy: None }, None));
    };
    let front_proxy = watch("requestheader-client-ca-file", file)?;
    let overlap = match &client {
        Some(client) if front_proxy.get().overlaps(&client.get()) => Overlap::Overlapping,
        Some(_) | None => Overlap::Disjoint,
    };
    rules.validate(overlap).map_err(|error| FlagError::Rejected(error.to_string()))?;
    Ok((CaBundles { client, front_proxy: Some(front_proxy) }, Some(rules.clone())))
}

/// The upstreams, and the way to them.
fn start_upstreams(
    config: &Config,
    address: SocketAddr,
    registry: &prometheus::Registry,
    metrics: &Metrics,
    tasks: &Tasks,
) -> anyhow::Result<UpstreamClient> {
    let user =
        ForwardedUser::new(GATEWAY_USER, "", ["system:authenticated"], []).expect("the name has no odd characters");
    let forwarder = start_forwarder(config, &user, metrics, tasks)?;
    let kept = match &config.state_dir {
        None => StateDir::none(),
        Some(folder) => StateDir::open(folder).with_context(|| format!("--state-dir: {}", folder.display()))?,
    };
    let board = UpstreamStorage::new(kept);
    let fetch = Arc::new(GatewayFetch { forwarder: forwarder.clone(), user: user.clone() });
    let settings = gateway::UpstreamsConfig { forget_after: config.forget_after };
    let removed = config.identity_headers.clone().unwrap_or_else(FrontProxyHeaderNames::standard);
    let reader = ForwardedUser::new(SETTINGS_READER, "", ["system:authenticated"], []).expect("the name is plain");
    let reader = Arc::new(GatewayFetch { forwarder: forwarder.clone(), user: reader });
    let vouching =
        VouchingDecider::new(removed, config.local_header_names.clone(), Arc::new(forwarder.clone()), reader);
    let own_metrics = gateway::metrics::Metrics::new(registry);
    let upstreams = Upstreams::new(settings, board.clone(), fetch, vouching, own_metrics, tasks);
    upstreams.set_upstreams(&config.upstreams);
    let ports = peering::ClusterPorts {
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
    let local = watch::Sender::new(Arc::new(discovery::GroupDiscoveryList::new(Vec::new()))).subscribe();
    let shared = watch::Sender::default().subscribe();
    let cluster = Cluster::start(membership_config(address)?, &ports, local, shared, metrics, tasks);
    let cluster = Arc::new(cluster);
    if let Some(doubts) = cluster.take_stale_receiver() {
        let upstreams = upstreams.clone();
        tasks.spawn("upstream-doubts", |stop| upstreams.refetch_stale(doubts, stop));
    }
    forwarder.start_forgetting_departed(cluster.views(), tasks);
    registry.register(Box::new(ViewMetrics::new(cluster.views()))).expect("each name is registered once");
    let way = UpstreamClient { cluster, forwarder, upstreams };
    if let Some(networks) = config.upstream_networks.clone() {
        let slices =
            EndpointSlicePoller { upstream_client: way.clone(), user, configured: config.upstreams.clone(), networks };
        let upstreams = way.upstreams.clone();
        tasks.spawn("upstream-discovery", |stop| slices.run(upstreams, stop));
    }
    Ok(way)
}

fn start_forwarder(
    config: &Config,
    user: &ForwardedUser,
    metrics: &Metrics,
    tasks: &Tasks,
) -> anyhow::Result<Forwarder> {
    let connector = |files: ClientTlsFiles| {
        let tls = files
            .start_reloading(tasks)
            .context("--upstream-ca-file, --proxy-client-cert-file, --proxy-client-key-file")?;
        anyhow::Ok(Arc::new(
            Connector::new(tls, Dialer::direct()).with_server_name(config.upstream_server_name.clone()),
        ))
    };
    let bare = ClientTlsFiles { client_certificate: None, ..config.front_proxy_files.clone() };
    let ways = ForwarderConfig {
        front_proxy_connector: connector(config.front_proxy_files.clone())?,
        passthrough_connector: Some(connector(bare)?),
        own_user: user.clone(),
        cors_headers: CorsHeaders::PassThrough,
        vouching_policy: VouchingPolicy::AllowedPeers,
    };
    let limits = ForwardLimits {
        in_flight_max: config.in_flight_max,
        bandwidth_max: config.bandwidth_max,
        queue: config.queue_limits,
        ..ForwardLimits::default()
    };
    Ok(Forwarder::new(ways, limits, metrics.clone(), tasks))
}

/// A gateway follows the cluster and is no part of it: its presence is never made known.
fn membership_config(address: SocketAddr) -> anyhow::Result<peering::ClusterConfig> {
    let server = ServerId::from_name(GATEWAY_IDENTITY).context("the gateway's name is one of a server")?;
    let host = address.ip().to_string();
    let address = Address::new(&host, address.port()).context("the gateway listens somewhere")?;
    Ok(peering::ClusterConfig {
        membership: MembershipConfig {
            server: server.clone(),
            peering: Peering::Enabled,
            unimplemented: Vec::new(),
            timeouts: peering::members::MemberTimeouts::default(),
            first_sync_timeout: MembershipConfig::FIRST_SYNC_TIMEOUT,
            may_be_built_in,
        },
        presence: PresenceConfig {
            holder: HolderIdentity::new(&server, fastrand::u128(..)),
            server,
            hostname: host,
            address,
            scope: PresenceScope::LeaseOnly,
            unimplemented: Vec::new(),
            publishes_document: false,
            linger: peering::members::MemberTimeouts::LINGER,
            timings: PresenceTimings::default(),
            clock: jiff::Timestamp::now,
            seed: fastrand::u64(..),
        },
        discovery_fetch: peering::discovery_fetch::DiscoveryFetchConfig::default(),
    })
}

fn build_peers(config: &Config, way: &UpstreamClient, metrics: Metrics) -> edge::peer_routing::PeerRouting {
    let (upstreams, compared) = (way.upstreams.clone(), way.upstreams.clone());
    edge::peer_routing::PeerRouting {
        cluster: way.cluster.clone(),
        forwarder: Some(way.forwarder.clone()),
        metrics,
        merged_pages: MergedPages {
            merge_discovery: config.merge_discovery,
            oldest_version: AggregatedVersion::V2Beta1,
        },
        mismatch_policy: RouteMismatchPolicy::LeaveToPeer,
        peer_response_headers: config.peer_response_headers,
        // Nobody forwards to a gateway, so that it need not wait to be taken for a member.
        has_joined: watch::Sender::new(true).subscribe(),
        nearest_peer: config.upstreams.iter().find(|upstream| upstream.is_local).map(|local| local.server.clone()),
        is_view_recent: Some(Box::new(move || upstreams.is_discovery_recent())),
        not_vouched: Some(Box::new(move |server| compared.not_vouched_reason(server))),
    }
}

/// Ready once every upstream was heard or tried, and as long as one of them can be asked for every kind of user.
fn health_checks(way: &UpstreamClient, draining: CancellationToken) -> Vec<HealthCheck> {
    let first_sync = way.cluster.milestones().first_sync.clone();
    let (upstreams, cluster) = (way.upstreams.clone(), way.cluster.clone());
    vec![
        HealthCheck::new("upstreams-heard", HealthPages::ReadyOnly, move || first_sync.check().map_err(str::to_owned)),
        HealthCheck::with_details("upstreams", HealthPages::ReadyOnly, move || {
            check_upstreams(&upstreams, &cluster.view())
        }),
        HealthCheck::new("shutdown", HealthPages::ReadyOnly, move || {
            if draining.is_cancelled() { Err("process is shutting down".to_owned()) } else { Ok(()) }
        }),
    ]
}

/// Fails unless there is an upstream that is ready and reads users as the gateway names them. What requests are routed by
/// decides: the inspector may have found an upstream ready a moment before that.
fn check_upstreams(upstreams: &Upstreams, view: &View) -> Result<Vec<String>, String> {
    let live = view.members().iter().filter(|member| member.state == MemberState::Live);
    let (mut ready, mut refused) = (0, Vec::new());
    for member in live {
        match upstreams.not_vouched_reason(member.server.as_str()) {
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
    Ok([count].into_iter().chain(refused).chain(peering::readiness::readiness_details(view)).collect())
}
