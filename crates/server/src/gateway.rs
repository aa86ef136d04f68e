//! The mixed-version proxy in front of stock kube-apiservers: started from its configuration, and stopped in order.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::authentication::FrontProxyHeaderNames;
use access::user::AUTHENTICATED_GROUP;
use anyhow::Context as _;
use api::media::AggregatedVersion;
use edge::access_log::AccessLog;
use edge::certificate_verification::CaBundles;
use edge::health::{HealthCheck, HealthChecks, HealthPages};
use edge::merged_discovery::{MergeDiscovery, MergedPages};
use edge::openapi::MergedOpenApi;
use edge::peer_fetch::PeerFetch;
use edge::peer_routing::RouteMismatchPolicy;
use edge::pipeline::{Pipeline, RequestLimits};
use forward::{CorsHeaders, ForwardLimits, ForwardedUser, Forwarder, ForwarderConfig, QueueLimits, VouchingPolicy};
use gateway::upstream_members::UpstreamMembers;
use gateway::vouching::SETTINGS_READER;
use gateway::{
    AnyUpstream, Cidr, EndpointSlicePoller, GatewayAccessControl, PageAccessReviews, StateDir, Upstream,
    UpstreamClient, Upstreams, VouchingDecider,
};
use membership::MembershipConfig;
use membership::members::MemberState;
use membership::metrics::{Metrics, ViewMetrics};
use membership::view::Peering;
use membership::{Cluster, ClusterSources, ServerId, View};
use rustls::pki_types::ServerName;
use tasks::Tasks;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transport::peer::{ClientTlsFiles, Connector, Dialer};
use transport::pki::{CertificateAuthority, CertificateFiles, CertificateUsage};
use transport::serving::Acceptor;
use transport::{Reloading, TlsPolicy};

use crate::authentication::{FrontProxyConfig, start_ca_bundle};
use crate::may_be_built_in;
use crate::{bind_listener, check_draining, stop_tasks};

/// The configuration of one gateway.
pub struct Config {
    /// The IP address to listen on.
    pub bind_ip: IpAddr,
    /// The port to listen on; 0 picks a free one.
    pub port: u16,
    /// The serving certificate; `None`: generated below `cert_dir`.
    pub serving_certificate: Option<CertificateFiles>,
    /// TLS versions and cipher suites to offer.
    pub tls_policy: TlsPolicy,
    /// Where a generated serving certificate is kept.
    pub cert_dir: PathBuf,
    /// The kube-apiservers behind the gateway.
    pub upstreams: Vec<Upstream>,
    /// The networks in which the service `kubernetes` may name more upstreams; `None`: it is not read.
    pub upstream_networks: Option<Vec<Cidr>>,
    /// The upstreams' authorities, and the gateway's front-proxy certificate.
    pub front_proxy_files: ClientTlsFiles,
    /// The name that every upstream's serving certificate must have.
    pub upstream_server_name: ServerName<'static>,
    /// How long an upstream may fail before requests for what only it serves get 404 and not 503.
    pub forget_after: Duration,
    /// Requests in flight to one upstream; `None`: no limit.
    pub in_flight_max: Option<usize>,
    /// Bytes of bodies per second to and from one upstream; `None`: no limit.
    pub bandwidth_max: Option<NonZeroU64>,
    /// Limits of the queue of requests that wait for an upstream.
    pub queue_limits: QueueLimits,
    /// Where discovery documents of upstreams survive a restart; `None`: nowhere.
    pub state_dir: Option<PathBuf>,
    /// The authorities of client certificates; `None`: certificates are not accepted.
    pub client_ca: Option<PathBuf>,
    /// The front proxies before the gateway; `None`: there are none.
    pub front_proxy: Option<FrontProxyConfig>,
    /// Headers, beside the standard ones, in which upstreams or front proxies name users.
    pub identity_headers: Option<FrontProxyHeaderNames>,
    /// Reads the header names of the local upstream from its manifest; `None` if there is no manifest.
    pub local_header_names: Option<gateway::vouching::ManifestReader>,
    /// `--merge-discovery`.
    pub merge_discovery: MergeDiscovery,
    /// `--peer-response-headers`: responses name the upstream and the routing rule.
    pub peer_response_headers: bool,
    /// Limits of requests in flight and of their duration.
    pub limits: RequestLimits,
    /// How long the gateway still serves, not ready, after a stop.
    pub shutdown_delay: Duration,
    /// The access log, `-` for standard output; `None`: there is none.
    pub access_log: Option<PathBuf>,
}

/// The user as which the gateway sends its own requests; docs/deploy/gateway-rbac.yaml grants what it needs.
const GATEWAY_USER: &str = "unskew:gateway";
/// The gateway's own identity; no upstream has it.
const GATEWAY_IDENTITY: &str = "apiserver-gateway";

/// A running gateway.
pub struct Gateway {
    address: SocketAddr,
    shutdown_delay: Duration,
    upstream_client: UpstreamClient,
    tasks: Tasks,
    connections: Tasks,
    /// Cancelled first: the gateway is not ready from then on.
    draining: CancellationToken,
    /// Cancelled to stop accepting connections.
    closing: CancellationToken,
}

impl Gateway {
    /// Starts a gateway and returns when it listens.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let listener = bind_listener(config.bind_ip, config.port).await?;
        let address = listener.local_addr()?;
        let tasks = Tasks::new();
        let serving = start_serving_certificate(&config, &tasks)?;
        let bundles = start_client_authorities(&config, &tasks)?;
        let registry = prometheus::Registry::new();
        let forward_metrics = forward::Metrics::new(&registry);
        let metrics = Metrics::new(&registry, forward_metrics.transport_failures.clone());
        let forwarder = start_forwarder(&config, forward_metrics, &tasks)?;
        let upstream_client = start_upstreams(&config, forwarder, &registry, &metrics, &tasks)?;
        let draining = CancellationToken::new();
        let reviews = PageAccessReviews::new(upstream_client.clone());
        let access_control = GatewayAccessControl {
            ca_bundles: bundles,
            front_proxy: config.front_proxy.as_ref().map(|front_proxy| front_proxy.rules.clone()),
            identity_headers: config.identity_headers.clone(),
            page_reviews: reviews,
        };
        let health = HealthChecks::new(health_checks(&upstream_client, draining.clone()));
        let request_metrics = edge::metrics::Metrics::new(&registry);
        let pipeline =
            Pipeline::new(access_control, AnyUpstream(upstream_client.clone()), health, request_metrics, config.limits);
        let access_log = start_access_log(&config, &registry, &tasks)?;
        let peers = build_peer_routing(&config, &upstream_client, metrics);
        let pipeline = Arc::new(pipeline.with_access_log(access_log).with_peer_routing(Some(peers)));
        let (connections, closing) = (Tasks::new(), CancellationToken::new());
        let accepting =
            edge::listener::run(Acceptor::new(listener)?, serving, pipeline, connections.clone(), closing.clone());
        tasks.spawn_once("listener", accepting);
        Ok(Self {
            address,
            shutdown_delay: config.shutdown_delay,
            upstream_client,
            tasks,
            connections,
            draining,
            closing,
        })
    }

    /// The address that the gateway listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` or a failure, then stops in order.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let outcome = tokio::select! {
            failure = self.tasks.wait_for_failure() => Err(anyhow::anyhow!("{} {:?}", failure.task, failure.kind)),
            () = stop => Ok(()),
        };
        // Become not ready, so that load balancers choose another gateway; stop accepting; drain connections; stop tasks.
        self.draining.cancel();
        tokio::time::sleep(self.shutdown_delay).await;
        self.closing.cancel();
        self.upstream_client.forwarder.end_streams();
        for (what, family) in [("connections", &self.connections), ("tasks", &self.tasks)] {
            stop_tasks(what, family).await;
        }
        outcome
    }
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

/// Starts to follow the serving certificate, generated if none is configured.
fn start_serving_certificate(config: &Config, tasks: &Tasks) -> anyhow::Result<Reloading<rustls::ServerConfig>> {
    let CertificateFiles { certificate, key } = match &config.serving_certificate {
        Some(pair) => pair.clone(),
        None => {
            let own = CertificateAuthority::open_or_create(&config.cert_dir, "ca")
                .context("cannot generate a serving certificate (--cert-dir)")?;
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
    let policy = config.tls_policy.clone();
    let load = move || transport::server::server_config(&certificate, &key, &policy);
    Ok(Reloading::start(files, load, tasks)?)
}

/// Starts to follow the CA bundles of clients and front proxies. Rejects bundles by which users could pose as front proxies.
fn start_client_authorities(config: &Config, tasks: &Tasks) -> anyhow::Result<CaBundles> {
    let client = config.client_ca.as_ref().map(|file| start_ca_bundle("--client-ca-file", file, tasks)).transpose()?;
    let client_ca = client.as_ref().map(Reloading::get);
    let start = |front_proxy: &FrontProxyConfig| front_proxy.start_authorities(client_ca.as_deref(), tasks);
    Ok(CaBundles { front_proxy: config.front_proxy.as_ref().map(start).transpose()?, client })
}

/// Starts inspecting the upstreams, and the forwarder to them.
fn start_upstreams(
    config: &Config,
    forwarder: Forwarder,
    registry: &prometheus::Registry,
    metrics: &Metrics,
    tasks: &Tasks,
) -> anyhow::Result<UpstreamClient> {
    let kept = match &config.state_dir {
        None => StateDir::none(),
        Some(folder) => StateDir::open(folder).with_context(|| format!("--state-dir: {}", folder.display()))?,
    };
    let members = UpstreamMembers::new(kept);
    let fetch = Arc::new(PeerFetch::new(forwarder.clone()));
    let settings = gateway::UpstreamsConfig { forget_after: config.forget_after };
    let removed = config.identity_headers.clone().unwrap_or_else(FrontProxyHeaderNames::standard);
    let reader = ForwardedUser::new(SETTINGS_READER, "", [AUTHENTICATED_GROUP], []).expect("the name is ASCII");
    let reader = Arc::new(PeerFetch { forwarder: forwarder.clone(), user: reader });
    let vouching =
        VouchingDecider::new(removed, config.local_header_names.clone(), Arc::new(forwarder.clone()), reader);
    let own_metrics = gateway::metrics::Metrics::new(registry);
    let upstreams = Upstreams::new(settings, members.clone(), fetch, vouching, own_metrics, tasks);
    upstreams.set_upstreams(&config.upstreams);
    let sources = ClusterSources { members: members.feeds(), progress: upstreams.clone(), definitions: None };
    // A gateway serves nothing itself, and definitions in storage are the upstreams' own concern.
    let local = watch::Sender::new(Arc::new(discovery::GroupDiscoveryList::new(Vec::new()))).subscribe();
    let shared = watch::Sender::default().subscribe();
    let (cluster, outputs) = Cluster::start(membership_config()?, sources, local, shared, metrics, tasks);
    let (cluster, refetching) = (Arc::new(cluster), upstreams.clone());
    tasks.spawn("upstream-doubts", |stop| refetching.refetch_stale(outputs.stale_members, stop));
    edge::peer_routing::start_forgetting_departed(forwarder.clone(), cluster.views(), tasks);
    registry.register(Box::new(ViewMetrics::new(cluster.views()))).expect("each name is registered once");
    let upstream_client = UpstreamClient { cluster, forwarder, upstreams };
    if let Some(networks) = config.upstream_networks.clone() {
        let slices = EndpointSlicePoller {
            upstream_client: upstream_client.clone(),
            user: upstream_client.forwarder.own_user().clone(),
            configured: config.upstreams.clone(),
            networks,
        };
        let upstreams = upstream_client.upstreams.clone();
        tasks.spawn("upstream-discovery", |stop| slices.run(upstreams, stop));
    }
    Ok(upstream_client)
}

fn start_forwarder(config: &Config, metrics: forward::Metrics, tasks: &Tasks) -> anyhow::Result<Forwarder> {
    let connector = |files: ClientTlsFiles| {
        let tls = files
            .start_reloading(tasks)
            .context("--upstream-ca-file, --proxy-client-cert-file, --proxy-client-key-file")?;
        anyhow::Ok(Arc::new(
            Connector::new(tls, Dialer::direct()).with_server_name(config.upstream_server_name.clone()),
        ))
    };
    let user = ForwardedUser::new(GATEWAY_USER, "", [AUTHENTICATED_GROUP], []).expect("the name is ASCII");
    let bare = ClientTlsFiles { client_certificate: None, ..config.front_proxy_files.clone() };
    let forwarder_config = ForwarderConfig {
        front_proxy_connector: connector(config.front_proxy_files.clone())?,
        passthrough_connector: Some(connector(bare)?),
        own_user: user,
        cors_headers: CorsHeaders::PassThrough,
        vouching_policy: VouchingPolicy::AllowedPeers,
    };
    let limits = ForwardLimits {
        in_flight_max: config.in_flight_max,
        bandwidth_max: config.bandwidth_max,
        queue: config.queue_limits,
        ..ForwardLimits::default()
    };
    Ok(Forwarder::new(forwarder_config, limits, metrics, tasks))
}

/// A gateway follows the cluster of its upstreams and is no member of it.
fn membership_config() -> anyhow::Result<MembershipConfig> {
    Ok(MembershipConfig {
        server: ServerId::from_name(GATEWAY_IDENTITY).context("the gateway's name is one of a server")?,
        peering: Peering::Enabled,
        unimplemented: Vec::new(),
        timeouts: membership::members::MemberTimeouts::default(),
        first_sync_timeout: MembershipConfig::FIRST_SYNC_TIMEOUT,
        may_be_built_in,
    })
}

fn build_peer_routing(
    config: &Config,
    upstream_client: &UpstreamClient,
    metrics: Metrics,
) -> edge::peer_routing::PeerRouting {
    let (upstreams, compared_upstreams) = (upstream_client.upstreams.clone(), upstream_client.upstreams.clone());
    edge::peer_routing::PeerRouting {
        cluster: upstream_client.cluster.clone(),
        forwarder: Some(upstream_client.forwarder.clone()),
        metrics,
        merged_pages: MergedPages {
            merge_discovery: config.merge_discovery,
            oldest_version: AggregatedVersion::V2Beta1,
        },
        merged_openapi: Some(MergedOpenApi::new(None, Arc::new(PeerFetch::new(upstream_client.forwarder.clone())))),
        mismatch_policy: RouteMismatchPolicy::LeaveToPeer,
        peer_response_headers: config.peer_response_headers,
        // No server forwards to a gateway, so that it does not wait until it has joined.
        has_joined: watch::Sender::new(true).subscribe(),
        nearest_peer: config.upstreams.iter().find(|upstream| upstream.is_local).map(|local| local.server.clone()),
        is_view_recent: Some(Box::new(move || upstreams.is_discovery_recent())),
        not_vouched: Some(Box::new(move |server| compared_upstreams.not_vouched_reason(server))),
    }
}

/// The gateway is ready once every upstream was contacted or timed out, and while one is ready for requests of all users.
fn health_checks(upstream_client: &UpstreamClient, draining: CancellationToken) -> Vec<HealthCheck> {
    let first_sync = upstream_client.cluster.milestones().first_sync.clone();
    let (upstreams, cluster) = (upstream_client.upstreams.clone(), upstream_client.cluster.clone());
    vec![
        HealthCheck::new("upstreams-heard", HealthPages::ReadyOnly, move || first_sync.check().map_err(str::to_owned)),
        HealthCheck::with_details("upstreams", HealthPages::ReadyOnly, move || {
            check_upstreams(&upstreams, &cluster.view())
        }),
        check_draining(draining),
    ]
}

/// Fails unless an upstream is ready and reads users from the headers that the gateway writes. Reads the view by which requests
/// are routed, because the inspector may be a moment ahead of it.
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
    Ok([count].into_iter().chain(refused).chain(membership::readiness::readiness_details(view)).collect())
}
