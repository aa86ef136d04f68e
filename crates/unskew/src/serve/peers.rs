//! The flags that are about the other servers, and what becomes of them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::storage_ports::PublishedClusterAuthentication;
use catalogue::{FeatureGates, ServedResources};
use discovery::GroupDiscoveryList;
use edge::health::{HealthCheck, HealthPages};
use edge::merged_discovery::{MergeDiscovery, MergedPages};
use edge::peer_routing::RouteMismatchPolicy;
use object::decode::{self, BodyEncoding};
use peering::cluster::{Cluster, ClusterPorts};
use peering::forward::{ForwardLimits, Forwarder, ForwarderConfig, IdentityHeaders};
use peering::membership::MembershipConfig;
use peering::metrics::{Metrics, ViewMetrics};
use peering::presence::{PresenceConfig, PresenceScope, PresenceTimings};
use peering::readiness::Milestone;
use peering::view::Peering;
use peering::{Address, HolderIdentity, ServerId};
use tasks::Tasks;
use tokio::sync::watch;
use transport::peer::{ClientTlsFiles, Connector, Dialer, Egress, egress};
use transport::pki::CertificateFiles;

use super::config::StorageConfig;
use crate::flags::{FlagError, FlagValues};
use crate::shared_flags::{may_be_built_in, parse_merge_discovery};

/// The gate of everything that is about other servers, but for the lease.
const PROXY_GATE: &str = "UnknownVersionInteroperabilityProxy";
/// The gate of the lease.
const IDENTITY_GATE: &str = "APIServerIdentity";
/// Somewhere that is never reached: no packet is sent to learn by which interface one would be.
const ROUTE_LOOKUP_ADDRESS: &str = "192.0.2.1:9";

/// What the flags say about the other servers.
#[derive(Clone, Debug)]
pub(crate) struct PeerFlags {
    /// Whether this server takes part; without, it has a lease at most.
    pub(crate) is_proxy_on: bool,
    /// Whether it has a lease.
    pub(crate) is_identity_on: bool,
    hostname: Option<String>,
    advertise_ip: Option<String>,
    advertise_port: Option<u16>,
    pub(crate) certificates: PeerCertificates,
    egress: Egress,
    pace: PresenceTimings,
    linger: Duration,
    publish_discovery: bool,
    merge_discovery: MergeDiscovery,
    peer_response_headers: bool,
    in_flight_max: Option<usize>,
    bandwidth_max: Option<NonZeroU64>,
}

/// By which certificates servers know each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerCertificates {
    /// These.
    Given(ClientTlsFiles),
    /// Our own: nothing was said about any certificate at all.
    Generated,
    /// Some were given, and these flags were not.
    Missing(Vec<&'static str>),
}

impl PeerFlags {
    pub(super) fn from_flags(flags: &FlagValues, gates: &FeatureGates) -> Result<Self, FlagError> {
        let is_proxy_on = gates.enabled(PROXY_GATE);
        for flag in ["peer-ca-file", "peer-advertise-ip", "peer-advertise-port"] {
            if !is_proxy_on && flags.given_value(flag).is_some() {
                return Err(FlagError::Rejected(format!("--{flag} requires {PROXY_GATE} feature to be turned on")));
            }
        }
        let duration = |name: &str| flags.parse_value(name, api::duration::parse);
        let seconds = |name: &str| flags.parse_value(name, str::parse::<u64>).map(Duration::from_secs);
        let record_ttl = duration("peer-endpoint-ttl")?;
        Ok(Self {
            is_proxy_on,
            is_identity_on: gates.enabled(IDENTITY_GATE),
            hostname: flags.given_value("hostname-override").map(str::to_owned),
            advertise_ip: flags.given_value("peer-advertise-ip").map(str::to_owned),
            advertise_port: match flags.given_value("peer-advertise-port") {
                None => None,
                Some(_) => Some(flags.parse_value("peer-advertise-port", str::parse)?),
            },
            certificates: parse_peer_certificates(flags),
            egress: flags.parse_value("egress-selector-config-file", parse_egress)?,
            pace: PresenceTimings {
                lease_duration: seconds("identity-lease-duration-seconds")?,
                lease_interval: seconds("identity-lease-renew-interval-seconds")?,
                record_ttl,
                // As kube-apiserver: a record is written anew when two thirds of its life are over.
                record_interval: record_ttl * 2 / 3,
                ..PresenceTimings::default()
            },
            linger: duration("peer-linger")?,
            publish_discovery: flags.is_true("publish-discovery"),
            merge_discovery: flags.parse_value("merge-discovery", parse_merge_discovery)?,
            peer_response_headers: flags.is_true("peer-response-headers"),
            in_flight_max: match flags.parse_value("peer-max-requests-inflight", str::parse)? {
                0 => None,
                limit => Some(limit),
            },
            bandwidth_max: NonZeroU64::new(flags.parse_value("peer-max-bandwidth", str::parse)?),
        })
    }

    /// Why this server neither asks nor forwards, although the gate is on.
    pub(super) fn disabled_reason(&self) -> Option<String> {
        match &self.certificates {
            PeerCertificates::Given(_) | PeerCertificates::Generated => None,
            PeerCertificates::Missing(flags) => Some(format!("--{} not given", flags.join(", --"))),
        }
    }

    /// Where peers reach us: each part falls back on its own.
    fn advertised_address(&self, advertised: SocketAddr) -> anyhow::Result<Address> {
        let host = self.advertise_ip.clone().unwrap_or_else(|| advertised.ip().to_string());
        let port = self.advertise_port.unwrap_or(advertised.port());
        Address::new(&host, port)
            .with_context(|| format!("--peer-advertise-ip and --peer-advertise-port: {host}:{port} is no address"))
    }

    /// Who we are.
    pub(super) fn server_id(&self, storage: &StorageConfig, port: u16) -> ServerId {
        self.server_id_for_hostname(storage, &self.hostname.clone().unwrap_or_else(hostname), port)
    }

    /// How long others wait for us to renew our lease.
    pub(super) fn lease_duration(&self) -> Duration {
        self.pace.lease_duration
    }

    /// Who we are. Several servers share a machine and a SQLite file, so there the port tells them apart.
    fn server_id_for_hostname(&self, storage: &StorageConfig, hostname: &str, port: u16) -> ServerId {
        match (&self.hostname, storage) {
            (None, StorageConfig::Sqlite(_)) => ServerId::from_hostname_and_port(hostname, port),
            (Some(_), _) | (None, StorageConfig::Etcd(_)) => ServerId::from_hostname(hostname),
        }
    }
}

/// What the cluster is made of beside its flags.
pub(super) struct PeersContext<'a> {
    pub(super) flags: &'a PeerFlags,
    pub(super) storage: &'a StorageConfig,
    pub(super) served_resources: &'a ServedResources,
    pub(super) cert_dir: &'a Path,
    pub(super) advertised: SocketAddr,
    pub(super) ports: apiserver::storage_ports::PeeringStorage,
    pub(super) registry: &'a prometheus::Registry,
    pub(super) tasks: &'a Tasks,
}

/// This server's part in its cluster, started.
pub(super) struct StartedPeers {
    pub(super) cluster: Arc<Cluster>,
    pub(super) joined: watch::Sender<bool>,
    /// What the pipeline needs; `None` with the gate off.
    pub(super) peers: Option<edge::peer_routing::PeerRouting>,
    forwarder: Option<Forwarder>,
}

impl StartedPeers {
    /// Ends watches that others serve for us: nothing else would before the grace is over.
    pub(super) fn end_streams(&self) {
        if let Some(forwarder) = &self.forwarder {
            forwarder.end_streams();
        }
    }

    /// What must have happened before this server is ready, and what should be known of the others.
    pub(super) fn health_checks(&self) -> Vec<HealthCheck> {
        let check = |milestone: &Milestone| {
            let milestone = milestone.clone();
            HealthCheck::new(milestone.check_name(), HealthPages::All, move || milestone.check().map_err(str::to_owned))
        };
        let milestones = self.cluster.milestones();
        let Some(peers) = &self.peers else {
            return [&milestones.identity_lease, &milestones.lease_cleanup].map(check).into();
        };
        let cluster = peers.cluster.clone();
        let others = move || Ok(peering::readiness::readiness_details(&cluster.view()));
        let hooks = milestones.all().into_iter().map(check);
        hooks.chain([HealthCheck::with_details("peers", HealthPages::ReadyOnly, others)]).collect()
    }
}

/// Starts to follow the cluster, without being seen in it; `None` with both gates off.
pub(super) fn start(context: PeersContext<'_>) -> anyhow::Result<Option<StartedPeers>> {
    let PeersContext { flags, storage, served_resources: surface, cert_dir, advertised, ports, registry, tasks } =
        context;
    if !flags.is_identity_on {
        return Ok(None);
    }
    let metrics = Metrics::new(registry);
    let hostname = flags.hostname.clone().unwrap_or_else(hostname);
    let server = flags.server_id_for_hostname(storage, &hostname, advertised.port());
    report_if_disabled(flags, &metrics);
    let forwarder = match (flags.is_proxy_on, client_files(&flags.certificates, cert_dir)) {
        (true, Some(files)) => {
            Some(build_forwarder(flags, files, ports.cluster_authentication.clone(), &metrics, tasks)?)
        }
        (true, None) | (false, _) => None,
    };
    let config = peering::ClusterConfig {
        membership: MembershipConfig {
            server: server.clone(),
            peering: if forwarder.is_some() { Peering::Enabled } else { Peering::Disabled },
            unimplemented: apiserver::unimplemented_resources(surface),
            timeouts: peering::members::MemberTimeouts { linger: flags.linger, ..Default::default() },
            first_sync_timeout: MembershipConfig::FIRST_SYNC_TIMEOUT,
            may_be_built_in,
        },
        presence: PresenceConfig {
            holder: HolderIdentity::new(&server, fastrand::u128(..)),
            server,
            hostname,
            address: flags.advertised_address(advertised)?,
            scope: if flags.is_proxy_on { PresenceScope::Full } else { PresenceScope::LeaseOnly },
            unimplemented: apiserver::unimplemented_resources(surface),
            publishes_document: flags.publish_discovery,
            linger: flags.linger,
            timings: flags.pace,
            clock: jiff::Timestamp::now,
            seed: fastrand::u64(..),
        },
        discovery_fetch: peering::discovery_fetch::DiscoveryFetchConfig {
            linger: flags.linger,
            seed: fastrand::u64(..),
            ..Default::default()
        },
    };
    let ports = ClusterPorts {
        leases: Arc::new(ports.leases),
        records: Arc::new(ports.records),
        documents: Arc::new(ports.documents),
        progress: Arc::new(ports.progress),
        definitions: Some(Arc::new(ports.definitions)),
        fetch: forwarder.clone().map(|forwarder| Arc::new(forwarder) as _),
    };
    // Neither changes as long as definitions in storage bring no resources of their own.
    let local = watch::Sender::new(local_discovery_groups(surface)).subscribe();
    let shared = watch::Sender::default().subscribe();
    let cluster = Arc::new(Cluster::start(config, &ports, local, shared, &metrics, tasks));
    if let Some(forwarder) = &forwarder {
        forwarder.start_forgetting_departed(cluster.views(), tasks);
    }
    let joined = watch::Sender::new(false);
    let peers = flags.is_proxy_on.then(|| {
        registry.register(Box::new(ViewMetrics::new(cluster.views()))).expect("each name is registered once");
        edge::peer_routing::PeerRouting {
            cluster: cluster.clone(),
            forwarder: forwarder.clone(),
            metrics,
            merged_pages: MergedPages {
                merge_discovery: flags.merge_discovery,
                oldest_version: apiserver::oldest_aggregated_version(surface.release()),
            },
            mismatch_policy: RouteMismatchPolicy::RejectLocally,
            peer_response_headers: flags.peer_response_headers,
            has_joined: joined.subscribe(),
            nearest_peer: None,
            is_view_recent: None,
            not_vouched: None,
        }
    });
    Ok(Some(StartedPeers { cluster, joined, peers, forwarder }))
}

/// How often this server looks, in memory, whether another one on the same storage reads identity from other headers.
const IDENTITY_HEADERS_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps headers that any server on the same storage reads as identity out of forwarded requests: that server would believe
/// what a client wrote there, because it believes our certificate.
fn start_removing_peer_identity_headers(
    forwarder: Forwarder,
    cluster_authentication: PublishedClusterAuthentication,
    tasks: &Tasks,
) {
    tasks.spawn("peer-identity-headers", |stop| async move {
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

fn report_if_disabled(flags: &PeerFlags, metrics: &Metrics) {
    if let Some(reason) = flags.disabled_reason().filter(|_| flags.is_proxy_on) {
        tracing::error!(reason, "peering is disabled: this server neither asks nor forwards to the others");
        metrics.disabled.with_label_values(&["certificates"]).set(1);
    }
}

fn build_forwarder(
    flags: &PeerFlags,
    files: ClientTlsFiles,
    trust: PublishedClusterAuthentication,
    metrics: &Metrics,
    tasks: &Tasks,
) -> anyhow::Result<Forwarder> {
    let tls =
        files.start_reloading(tasks).context("--peer-ca-file, --proxy-client-cert-file, --proxy-client-key-file")?;
    let dialer = Dialer::start(&flags.egress, tasks).context("--egress-selector-config-file")?;
    let PeerFlags { in_flight_max, bandwidth_max, .. } = *flags;
    let limits = ForwardLimits { in_flight_max, bandwidth_max, ..ForwardLimits::default() };
    let ways = ForwarderConfig::for_server(Arc::new(Connector::new(tls, dialer)));
    let forwarder = Forwarder::new(ways, limits, metrics.clone(), tasks);
    start_removing_peer_identity_headers(forwarder.clone(), trust, tasks);
    Ok(forwarder)
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

/// What our own front-proxy certificate is called, file and name alike; kubeadm's name.
pub(super) const FRONT_PROXY_CLIENT: &str = "front-proxy-client";
/// What our own authority of front proxies is called; kubeadm's name.
pub(super) const FRONT_PROXY_CA: &str = "front-proxy-ca";

fn parse_peer_certificates(flags: &FlagValues) -> PeerCertificates {
    let names = ["peer-ca-file", "proxy-client-cert-file", "proxy-client-key-file", "requestheader-client-ca-file"];
    let path = |name: &str| flags.given_value(name).map(PathBuf::from);
    let [authorities, certificate, key, front_proxy] = names.map(path);
    let is_bare = ["tls-cert-file", "client-ca-file"].iter().all(|name| flags.given_value(name).is_none());
    match (authorities, certificate, key, front_proxy) {
        (Some(authorities), Some(certificate), Some(key), Some(_)) => PeerCertificates::Given(ClientTlsFiles {
            ca_bundle: authorities,
            client_certificate: Some(CertificateFiles { certificate, key }),
        }),
        (None, None, None, None) if is_bare => PeerCertificates::Generated,
        _ => PeerCertificates::Missing(names.into_iter().filter(|name| flags.given_value(name).is_none()).collect()),
    }
}

/// What this server serves itself, all groups in one document.
fn local_discovery_groups(served_resources: &ServedResources) -> Arc<GroupDiscoveryList> {
    let (core, apis) = (served_resources.discovery_of_core(), served_resources.discovery_of_apis());
    Arc::new(GroupDiscoveryList::concat(&[&core, &apis]))
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The address at which this server is told to others when it listens on all: that of the interface which leads outside.
pub(super) fn advertisable_ip(bind: IpAddr) -> IpAddr {
    if !bind.is_unspecified() {
        return bind;
    }
    let outward = UdpSocket::bind((bind, 0)).and_then(|socket| {
        socket.connect(ROUTE_LOOKUP_ADDRESS)?;
        socket.local_addr()
    });
    outward.map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
}

fn parse_egress(file: &str) -> Result<Egress, String> {
    if file.is_empty() {
        return Ok(Egress::Direct);
    }
    let content = std::fs::read(file).map_err(|error| error.to_string())?;
    let value = decode::decode_value(&content, BodyEncoding::Yaml)?.value;
    egress::parse_controlplane_egress(value).map_err(|error| error.to_string())
}
