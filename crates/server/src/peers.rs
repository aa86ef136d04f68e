//! This server among its peers: identity, membership, forwarding.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::Address;
use apiserver::storage_ports::{PeeringStorage, PublishedClusterAuthentication};
use discovery::GroupDiscoveryList;
use edge::health::{HealthCheck, HealthPages};
use edge::merged_discovery::{MergeDiscovery, MergedPages};
use edge::openapi::{LocalOpenApi, MergedOpenApi};
use edge::peer_fetch::PeerFetch;
use edge::peer_routing::RouteMismatchPolicy;
use forward::{ForwardLimits, Forwarder, ForwarderConfig, IdentityHeaders};
use kinds::ServedResources;
use membership::MembershipConfig;
use membership::exclusion::SharedResources;
use membership::metrics::{Metrics, ViewMetrics};
use membership::participant::{Participant, ParticipantConfig, ParticipantPorts};
use membership::presence::{PresenceConfig, PresenceScope, PresenceTimings};
use membership::readiness::Milestone;
use membership::view::Peering;
use membership::{HolderIdentity, ServerId};
use tasks::Tasks;
use tokio::sync::watch;
use transport::peer::{ClientCertificate, ClientTlsFiles, Connector, Dialer, Egress};
use transport::pki::CertificateFiles;

use crate::config::{Config, StorageConfig};
use crate::may_be_built_in;

/// A documentation address. Connecting a UDP socket to it sends no packet and selects the interface of the default route.
const ROUTE_LOOKUP_ADDRESS: &str = "192.0.2.1:9";

/// This server's part in a cluster of several.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// True if this server forwards requests and is forwarded to; without, it has a lease at most.
    pub is_proxy_on: bool,
    /// True if this server holds an identity lease.
    pub is_identity_on: bool,
    /// `--hostname-override`; `None`: the hostname of the machine.
    pub hostname: Option<String>,
    /// `--peer-advertise-ip`; `None`: the advertised address of the server.
    pub advertise_ip: Option<String>,
    /// `--peer-advertise-port`; `None`: the port of the server.
    pub advertise_port: Option<u16>,
    /// The certificates by which servers authenticate to each other.
    pub certificates: PeerCertificates,
    /// How connections to peers leave this machine.
    pub egress: Egress,
    /// Durations and intervals of lease and endpoint record.
    pub timings: PresenceTimings,
    /// `--peer-linger`: how long requests for a peer that left get 503 and not 404.
    pub linger: Duration,
    /// `--publish-discovery`: the discovery document is written to storage.
    pub publish_discovery: bool,
    /// `--merge-discovery`.
    pub merge_discovery: MergeDiscovery,
    /// `--peer-response-headers`: responses name the server and the routing rule.
    pub peer_response_headers: bool,
    /// Requests in flight to one peer; `None`: no limit.
    pub in_flight_max: Option<usize>,
    /// Bytes of bodies per second to and from one peer; `None`: no limit.
    pub bandwidth_max: Option<NonZeroU64>,
}

/// The certificates by which servers authenticate to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerCertificates {
    /// These files.
    Given(ClientTlsFiles),
    /// Generated below `cert_dir`: no flag names any certificate.
    Generated,
    /// Some files are given and these flags are not: this server does not forward.
    Missing(Vec<&'static str>),
}

impl PeerConfig {
    /// The reason why peering is off although its gate is on; `None` if it is on.
    pub(crate) fn disabled_reason(&self) -> Option<String> {
        match &self.certificates {
            PeerCertificates::Given(_) | PeerCertificates::Generated => None,
            PeerCertificates::Missing(flags) => Some(format!("--{} not given", flags.join(", --"))),
        }
    }

    /// The address that peers connect to. IP and port default to those of the server independently.
    fn advertised_address(&self, advertised: SocketAddr) -> anyhow::Result<Address> {
        let host = self.advertise_ip.clone().unwrap_or_else(|| advertised.ip().to_string());
        let port = self.advertise_port.unwrap_or(advertised.port());
        Address::new(&host, port)
            .with_context(|| format!("--peer-advertise-ip and --peer-advertise-port: {host}:{port} is no address"))
    }

    /// The identity of this server.
    pub(crate) fn server_id(&self, storage: &StorageConfig, port: u16) -> ServerId {
        // Servers on one SQLite file share a machine, so that their identities contain the port.
        match (&self.hostname, storage) {
            (None, StorageConfig::Sqlite(_)) => ServerId::from_hostname_and_port(&self.hostname(), port),
            (Some(_), _) | (None, StorageConfig::Etcd(_)) => ServerId::from_hostname(&self.hostname()),
        }
    }

    fn hostname(&self) -> String {
        let of_machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.hostname.clone().unwrap_or_else(of_machine)
    }

    /// The duration of the identity lease.
    pub(crate) fn lease_duration(&self) -> Duration {
        self.timings.lease_duration
    }
}

/// A started cluster client of this server.
pub(crate) struct StartedPeers {
    pub(crate) participant: Participant,
    pub(crate) joined: watch::Sender<bool>,
    /// Routing for the pipeline, which takes it; `None` with the gate off.
    pub(crate) peers: Option<edge::peer_routing::PeerRouting>,
    forwarder: Option<Forwarder>,
}

impl StartedPeers {
    /// Ends forwarded watches, which otherwise last until the shutdown grace is over.
    pub(crate) fn end_streams(&self) {
        if let Some(forwarder) = &self.forwarder {
            forwarder.end_streams();
        }
    }

    /// Health checks of the milestones of joining, and the peers that readiness shows.
    pub(crate) fn health_checks(&self) -> Vec<HealthCheck> {
        let check = |milestone: &Milestone| {
            let milestone = milestone.clone();
            HealthCheck::new(milestone.check_name(), HealthPages::All, move || milestone.check().map_err(str::to_owned))
        };
        let milestones = self.participant.cluster().milestones();
        let Some(peers) = &self.peers else {
            return [&milestones.identity_lease, &milestones.lease_cleanup].map(check).into();
        };
        let cluster = peers.cluster.clone();
        let others = move || Ok(membership::readiness::readiness_details(&cluster.view()));
        let hooks = milestones.all().into_iter().map(check);
        hooks.chain([HealthCheck::with_details("peers", HealthPages::ReadyOnly, others)]).collect()
    }
}

/// Starts to follow the cluster without joining it; `None` if the gate of identity leases is off.
pub(crate) fn start(
    server_config: &Config,
    advertised: SocketAddr,
    ports: PeeringStorage,
    shared: watch::Receiver<SharedResources>,
    local_openapi: Arc<dyn LocalOpenApi>,
    registry: &prometheus::Registry,
    tasks: &Tasks,
) -> anyhow::Result<Option<StartedPeers>> {
    let Config { peers: config, served_resources, cert_dir, .. } = server_config;
    if !config.is_identity_on {
        return Ok(None);
    }
    let forward_metrics = forward::Metrics::new(registry);
    let metrics = Metrics::new(registry, forward_metrics.transport_failures.clone());
    report_if_disabled(config, &metrics);
    let forwarder = match (config.is_proxy_on, client_files(&config.certificates, cert_dir)) {
        (true, Some(files)) => {
            Some(build_forwarder(config, files, ports.cluster_authentication.clone(), forward_metrics, tasks)?)
        }
        (true, None) | (false, _) => None,
    };
    let peering = if forwarder.is_some() { Peering::Enabled } else { Peering::Disabled };
    let participant_config = participant_config(server_config, peering, advertised)?;
    let ports = ParticipantPorts {
        leases: Arc::new(ports.leases),
        records: Arc::new(ports.records),
        documents: Arc::new(ports.documents),
        progress: Arc::new(ports.progress),
        definitions: Arc::new(ports.definitions),
        fetch: forwarder.clone().map(|forwarder| Arc::new(PeerFetch::new(forwarder)) as _),
    };
    // Constant: custom resources are shared, and in no server's own document.
    let local = watch::Sender::new(local_discovery_groups(served_resources)).subscribe();
    let participant = Participant::start(participant_config, &ports, local, shared, &metrics, tasks);
    let cluster = participant.cluster();
    if let Some(forwarder) = &forwarder {
        edge::peer_routing::start_forgetting_departed(forwarder.clone(), cluster.views(), tasks);
    }
    let joined = watch::Sender::new(false);
    let peers = config.is_proxy_on.then(|| {
        registry.register(Box::new(ViewMetrics::new(cluster.views()))).expect("each name is registered once");
        edge::peer_routing::PeerRouting {
            cluster: cluster.clone(),
            forwarder: forwarder.clone(),
            metrics,
            merged_pages: MergedPages {
                merge_discovery: config.merge_discovery,
                oldest_version: apiserver::oldest_aggregated_version(served_resources.release()),
            },
            merged_openapi: forwarder
                .clone()
                .map(|forwarder| MergedOpenApi::new(Some(local_openapi), Arc::new(PeerFetch::new(forwarder)))),
            mismatch_policy: RouteMismatchPolicy::RejectLocally,
            peer_response_headers: config.peer_response_headers,
            has_joined: joined.subscribe(),
            nearest_peer: None,
            is_view_recent: None,
            not_vouched: None,
        }
    });
    Ok(Some(StartedPeers { participant, joined, peers, forwarder }))
}

fn participant_config(config: &Config, peering: Peering, advertised: SocketAddr) -> anyhow::Result<ParticipantConfig> {
    let Config { peers, storage, served_resources, .. } = config;
    let (server, address) = (peers.server_id(storage, advertised.port()), peers.advertised_address(advertised)?);
    Ok(ParticipantConfig {
        membership: MembershipConfig {
            server: server.clone(),
            peering,
            unimplemented: apiserver::unimplemented_resources(served_resources),
            timeouts: membership::members::MemberTimeouts { linger: peers.linger, ..Default::default() },
            first_sync_timeout: MembershipConfig::FIRST_SYNC_TIMEOUT,
            may_be_built_in,
        },
        presence: PresenceConfig {
            holder: HolderIdentity::new(&server, fastrand::u128(..)),
            server,
            hostname: peers.hostname(),
            address,
            scope: if peers.is_proxy_on { PresenceScope::Full } else { PresenceScope::LeaseOnly },
            unimplemented: apiserver::unimplemented_resources(served_resources),
            publishes_document: peers.publish_discovery,
            linger: peers.linger,
            timings: peers.timings,
            clock: jiff::Timestamp::now,
            seed: fastrand::u64(..),
        },
        discovery_fetch: membership::discovery_fetch::DiscoveryFetchConfig {
            linger: peers.linger,
            seed: fastrand::u64(..),
            ..Default::default()
        },
    })
}

/// The interval of reads, from memory, of the header names that servers on the same storage publish.
const IDENTITY_HEADERS_INTERVAL: Duration = Duration::from_secs(1);

/// Removes from forwarded requests every header that a server on the same storage reads as identity. Peers and extension API servers
/// trust this server's front-proxy certificate, so that they would believe what a client wrote there.
fn start_removing_identity_headers(
    forwarder: Forwarder,
    cluster_authentication: PublishedClusterAuthentication,
    tasks: &Tasks,
) {
    tasks.spawn("identity-headers", |stop| async move {
        let mut last = None;
        loop {
            let published = cluster_authentication.config_map();
            if published != last {
                match published.as_deref().map(gateway::vouching::parse_header_names) {
                    None => {}
                    Some(Ok(names)) => {
                        let whole = names.user.iter().chain(&names.uid).chain(&names.group).map(String::as_str);
                        let prefixes = names.extra_prefix.iter().map(String::as_str);
                        forwarder.set_peer_identity_headers(IdentityHeaders::new(whole, prefixes));
                    }
                    Some(Err(error)) => tracing::warn!(error, "extension-apiserver-authentication unreadable"),
                }
                last = published;
            }
            if stop.run_until_cancelled(tokio::time::sleep(IDENTITY_HEADERS_INTERVAL)).await.is_none() {
                return;
            }
        }
    });
}

/// Removes those headers from requests to extension API servers.
pub(crate) fn start_extension_identity(
    extension_apis: &apiserver::LiveExtensionApis,
    ports: &PeeringStorage,
    tasks: &Tasks,
) {
    if let Some(forwarder) = extension_apis.forwarder() {
        start_removing_identity_headers(forwarder.clone(), ports.cluster_authentication.clone(), tasks);
    }
}

fn report_if_disabled(config: &PeerConfig, metrics: &Metrics) {
    if let Some(reason) = config.disabled_reason().filter(|_| config.is_proxy_on) {
        tracing::error!(reason, "peering is disabled: this server neither asks nor forwards to the others");
        metrics.disabled.with_label_values(&["certificates"]).set(1);
    }
}

fn build_forwarder(
    config: &PeerConfig,
    files: ClientTlsFiles,
    trust: PublishedClusterAuthentication,
    metrics: forward::Metrics,
    tasks: &Tasks,
) -> anyhow::Result<Forwarder> {
    let tls =
        files.start_reloading(tasks).context("--peer-ca-file, --proxy-client-cert-file, --proxy-client-key-file")?;
    let dialer = Dialer::start(&config.egress, tasks).context("--egress-selector-config-file")?;
    let PeerConfig { in_flight_max, bandwidth_max, .. } = *config;
    let limits = ForwardLimits { in_flight_max, bandwidth_max, ..ForwardLimits::default() };
    let forwarder_config = ForwarderConfig::for_server(Arc::new(Connector::new(tls, dialer)));
    let forwarder = Forwarder::new(forwarder_config, limits, metrics, tasks);
    start_removing_identity_headers(forwarder.clone(), trust, tasks);
    Ok(forwarder)
}

/// How extension API servers are reached; `None` without a front-proxy certificate.
pub(crate) fn extension_config(config: &Config, tasks: &Tasks) -> anyhow::Result<Option<apiserver::ExtensionConfig>> {
    let files = client_files(&config.peers.certificates, &config.cert_dir);
    let Some(certificate) = files.and_then(|files| files.client_certificate) else { return Ok(None) };
    let proxy_certificate = ClientCertificate::start_reloading(certificate, tasks)
        .context("--proxy-client-cert-file, --proxy-client-key-file")?;
    Ok(Some(apiserver::ExtensionConfig {
        proxy_certificate,
        redirects: config.forwarded_redirects,
        tasks: tasks.clone(),
    }))
}

fn client_files(certificates: &PeerCertificates, cert_dir: &Path) -> Option<ClientTlsFiles> {
    match certificates {
        PeerCertificates::Given(files) => Some(files.clone()),
        PeerCertificates::Generated => Some(ClientTlsFiles {
            ca_bundle: cert_dir.join("ca.crt"),
            client_certificate: Some(CertificateFiles {
                certificate: cert_dir.join(format!("{FRONT_PROXY_CLIENT}.crt")),
                key: cert_dir.join(format!("{FRONT_PROXY_CLIENT}.key")),
            }),
        }),
        PeerCertificates::Missing(_) => None,
    }
}

/// File name and common name of a generated front-proxy certificate, as kubeadm has them.
pub const FRONT_PROXY_CLIENT: &str = "front-proxy-client";
/// File name of a generated front-proxy CA, as kubeadm has it.
pub const FRONT_PROXY_CA: &str = "front-proxy-ca";

/// The discovery document of this server alone, core and other groups together.
fn local_discovery_groups(served_resources: &ServedResources) -> Arc<GroupDiscoveryList> {
    let (core, apis) = (served_resources.discovery_of_core(), served_resources.discovery_of_apis());
    Arc::new(GroupDiscoveryList::concat(&[&core, &apis]))
}

/// The address to advertise: `bind`, or if that is unspecified the address of the interface of the default route.
pub(crate) fn advertisable_ip(bind: IpAddr) -> IpAddr {
    if !bind.is_unspecified() {
        return bind;
    }
    let outward = UdpSocket::bind((bind, 0)).and_then(|socket| {
        socket.connect(ROUTE_LOOKUP_ADDRESS)?;
        socket.local_addr()
    });
    outward.map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
}
