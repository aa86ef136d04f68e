//! The flags that are about the other servers, and what becomes of them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use apiserver::ports::PublishedTrust;
use catalogue::{Gates, Surface};
use discovery::Groups;
use edge::health::{Check, Pages};
use edge::merged::{Merge, MergedPages};
use edge::peers::MisfitPolicy;
use object::decode::{self, Encoding};
use peering::cluster::{Cluster, Ports};
use peering::forward::{ForwardLimits, Forwarder, IdentityHeaders, Ways};
use peering::membership::MembershipConfig;
use peering::metrics::{Metrics, ViewMetrics};
use peering::presence::{Extent, Pace, PresenceConfig};
use peering::readiness::Milestone;
use peering::view::Peering;
use peering::{Address, HolderIdentity, ServerId};
use tasks::Tasks;
use tokio::sync::watch;
use transport::peer::{ClientFiles, Connector, Dialer, Egress, egress};
use transport::pki::Pair;

use super::config::Storage;
use crate::flags::{FlagError, Values};
use crate::settings::{may_be_built_in, merge_of};

/// The gate of everything that is about other servers, but for the lease.
const PROXY_GATE: &str = "UnknownVersionInteroperabilityProxy";
/// The gate of the lease.
const IDENTITY_GATE: &str = "APIServerIdentity";
/// Somewhere that is never reached: no packet is sent to learn by which interface one would be.
const ELSEWHERE: &str = "192.0.2.1:9";

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
    pub(crate) certificates: Certificates,
    egress: Egress,
    pace: Pace,
    linger: Duration,
    publishes: bool,
    merge: Merge,
    tells: bool,
    in_flight_max: Option<usize>,
    bandwidth_max: Option<NonZeroU64>,
}

/// By which certificates servers know each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Certificates {
    /// These.
    Given(ClientFiles),
    /// Our own: nothing was said about any certificate at all.
    Own,
    /// Some were given, and these flags were not.
    Missing(Vec<&'static str>),
}

impl PeerFlags {
    pub(super) fn from_flags(flags: &Values, gates: &Gates) -> Result<Self, FlagError> {
        let is_proxy_on = gates.enabled(PROXY_GATE);
        for flag in ["peer-ca-file", "peer-advertise-ip", "peer-advertise-port"] {
            if !is_proxy_on && flags.given(flag).is_some() {
                return Err(FlagError::Refused(format!("--{flag} requires {PROXY_GATE} feature to be turned on")));
            }
        }
        let duration = |name: &str| flags.parsed(name, api::duration::parse);
        let seconds = |name: &str| flags.parsed(name, str::parse::<u64>).map(Duration::from_secs);
        let record_ttl = duration("peer-endpoint-ttl")?;
        Ok(Self {
            is_proxy_on,
            is_identity_on: gates.enabled(IDENTITY_GATE),
            hostname: flags.given("hostname-override").map(str::to_owned),
            advertise_ip: flags.given("peer-advertise-ip").map(str::to_owned),
            advertise_port: match flags.given("peer-advertise-port") {
                None => None,
                Some(_) => Some(flags.parsed("peer-advertise-port", str::parse)?),
            },
            certificates: certificates(flags),
            egress: flags.parsed("egress-selector-config-file", egress_of)?,
            pace: Pace {
                lease_duration: seconds("identity-lease-duration-seconds")?,
                lease_interval: seconds("identity-lease-renew-interval-seconds")?,
                record_ttl,
                // As kube-apiserver: a record is written anew when two thirds of its life are over.
                record_interval: record_ttl * 2 / 3,
                ..Pace::default()
            },
            linger: duration("peer-linger")?,
            publishes: flags.is("publish-discovery"),
            merge: flags.parsed("merge-discovery", merge_of)?,
            tells: flags.is("peer-response-headers"),
            in_flight_max: match flags.parsed("peer-max-requests-inflight", str::parse)? {
                0 => None,
                limit => Some(limit),
            },
            bandwidth_max: NonZeroU64::new(flags.parsed("peer-max-bandwidth", str::parse)?),
        })
    }

    /// Why this server neither asks nor forwards, although the gate is on.
    pub(super) fn disabled(&self) -> Option<String> {
        match &self.certificates {
            Certificates::Given(_) | Certificates::Own => None,
            Certificates::Missing(flags) => Some(format!("--{} not given", flags.join(", --"))),
        }
    }

    /// Where peers reach us: each part falls back on its own.
    fn address(&self, advertised: SocketAddr) -> anyhow::Result<Address> {
        let host = self.advertise_ip.clone().unwrap_or_else(|| advertised.ip().to_string());
        let port = self.advertise_port.unwrap_or(advertised.port());
        Address::new(&host, port)
            .with_context(|| format!("--peer-advertise-ip and --peer-advertise-port: {host}:{port} is no address"))
    }

    /// Who we are.
    pub(super) fn identity(&self, storage: &Storage, port: u16) -> ServerId {
        self.server(storage, &self.hostname.clone().unwrap_or_else(hostname), port)
    }

    /// How long others wait for us to renew our lease.
    pub(super) fn lease_duration(&self) -> Duration {
        self.pace.lease_duration
    }

    /// Who we are. Several servers share a machine and a SQLite file, so there the port tells them apart.
    fn server(&self, storage: &Storage, hostname: &str, port: u16) -> ServerId {
        match (&self.hostname, storage) {
            (None, Storage::Sqlite(_)) => ServerId::from_hostname_and_port(hostname, port),
            (Some(_), _) | (None, Storage::Etcd(_)) => ServerId::from_hostname(hostname),
        }
    }
}

/// What the cluster is made of beside its flags.
pub(super) struct Surroundings<'a> {
    pub(super) flags: &'a PeerFlags,
    pub(super) storage: &'a Storage,
    pub(super) surface: &'a Surface,
    pub(super) cert_dir: &'a Path,
    pub(super) advertised: SocketAddr,
    pub(super) ports: apiserver::ports::Ports,
    pub(super) registry: &'a prometheus::Registry,
    pub(super) tasks: &'a Tasks,
}

/// This server's part in its cluster, started.
pub(super) struct Started {
    pub(super) cluster: Arc<Cluster>,
    pub(super) joined: watch::Sender<bool>,
    /// What the pipeline needs; `None` with the gate off.
    pub(super) peers: Option<edge::peers::Peers>,
    forwarder: Option<Forwarder>,
}

impl Started {
    /// Ends watches that others serve for us: nothing else would before the grace is over.
    pub(super) fn end_streams(&self) {
        if let Some(forwarder) = &self.forwarder {
            forwarder.end_streams();
        }
    }

    /// What must have happened before this server is ready, and what should be known of the others.
    pub(super) fn checks(&self) -> Vec<Check> {
        let check = |milestone: &Milestone| {
            let milestone = milestone.clone();
            Check::new(milestone.check_name(), Pages::All, move || milestone.check().map_err(str::to_owned))
        };
        let milestones = self.cluster.milestones();
        let Some(peers) = &self.peers else {
            return [&milestones.identity_lease, &milestones.lease_sweep].map(check).into();
        };
        let cluster = peers.cluster.clone();
        let others = move || Ok(peering::readiness::details(&cluster.view()));
        let hooks = milestones.all().into_iter().map(check);
        hooks.chain([Check::detailed("peers", Pages::ReadyOnly, others)]).collect()
    }
}

/// Starts to follow the cluster, without being seen in it; `None` with both gates off.
pub(super) fn start(around: Surroundings<'_>) -> anyhow::Result<Option<Started>> {
    let Surroundings { flags, storage, surface, cert_dir, advertised, ports, registry, tasks } = around;
    if !flags.is_identity_on {
        return Ok(None);
    }
    let metrics = Metrics::new(registry);
    let hostname = flags.hostname.clone().unwrap_or_else(hostname);
    let server = flags.server(storage, &hostname, advertised.port());
    tell_if_disabled(flags, &metrics);
    let forwarder = match (flags.is_proxy_on, client_files(&flags.certificates, cert_dir)) {
        (true, Some(files)) => Some(forwarder(flags, files, ports.trust.clone(), &metrics, tasks)?),
        (true, None) | (false, _) => None,
    };
    let config = peering::Config {
        membership: MembershipConfig {
            server: server.clone(),
            peering: if forwarder.is_some() { Peering::Enabled } else { Peering::Disabled },
            unbuilt: apiserver::unbuilt(surface),
            patience: peering::members::Patience { linger: flags.linger, ..Default::default() },
            first_sync_timeout: MembershipConfig::FIRST_SYNC_TIMEOUT,
            may_be_built_in,
        },
        presence: PresenceConfig {
            holder: HolderIdentity::new(&server, fastrand::u128(..)),
            server,
            hostname,
            address: flags.address(advertised)?,
            extent: if flags.is_proxy_on { Extent::Full } else { Extent::LeaseOnly },
            unbuilt: apiserver::unbuilt(surface),
            publishes: flags.publishes,
            linger: flags.linger,
            pace: flags.pace,
            clock: jiff::Timestamp::now,
            seed: fastrand::u64(..),
        },
        ask: peering::askers::AskConfig { linger: flags.linger, seed: fastrand::u64(..), ..Default::default() },
    };
    let ports = Ports {
        leases: Arc::new(ports.leases),
        records: Arc::new(ports.records),
        documents: Arc::new(ports.documents),
        progress: Arc::new(ports.progress),
        definitions: Some(Arc::new(ports.definitions)),
        fetch: forwarder.clone().map(|forwarder| Arc::new(forwarder) as _),
    };
    // Neither changes as long as definitions in storage bring no resources of their own.
    let local = watch::Sender::new(whole(surface)).subscribe();
    let shared = watch::Sender::default().subscribe();
    let cluster = Arc::new(Cluster::start(config, &ports, local, shared, &metrics, tasks));
    if let Some(forwarder) = &forwarder {
        forwarder.follow(cluster.views(), tasks);
    }
    let joined = watch::Sender::new(false);
    let peers = flags.is_proxy_on.then(|| {
        registry.register(Box::new(ViewMetrics::new(cluster.views()))).expect("each name is registered once");
        edge::peers::Peers {
            cluster: cluster.clone(),
            forwarder: forwarder.clone(),
            metrics,
            merged: MergedPages { merge: flags.merge, oldest: apiserver::oldest_aggregated(surface.release()) },
            misfits: MisfitPolicy::RefuseHere,
            tells: flags.tells,
            joined: joined.subscribe(),
            nearest: None,
            is_recent: None,
            not_vouched: None,
        }
    });
    Ok(Some(Started { cluster, joined, peers, forwarder }))
}

/// How often this server looks, in memory, whether another one on the same storage reads identity from other headers.
const TRUST_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps headers that any server on the same storage reads as identity out of forwarded requests: that server would believe
/// what a client wrote there, because it believes our certificate.
fn remove_peer_identity(forwarder: Forwarder, trust: PublishedTrust, tasks: &Tasks) {
    tasks.spawn("peer-identity-headers", |stop| async move {
        let mut last = None;
        loop {
            let published = trust.config_map();
            if published != last {
                match published.as_deref().map(gateway::vouching::header_names_in) {
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
            if stop.run_until_cancelled(tokio::time::sleep(TRUST_INTERVAL)).await.is_none() {
                return;
            }
        }
    });
}

fn tell_if_disabled(flags: &PeerFlags, metrics: &Metrics) {
    if let Some(reason) = flags.disabled().filter(|_| flags.is_proxy_on) {
        tracing::error!(reason, "peering is disabled: this server neither asks nor forwards to the others");
        metrics.disabled.with_label_values(&["certificates"]).set(1);
    }
}

fn forwarder(
    flags: &PeerFlags,
    files: ClientFiles,
    trust: PublishedTrust,
    metrics: &Metrics,
    tasks: &Tasks,
) -> anyhow::Result<Forwarder> {
    let tls = files.watch(tasks).context("--peer-ca-file, --proxy-client-cert-file, --proxy-client-key-file")?;
    let dialer = Dialer::start(&flags.egress, tasks).context("--egress-selector-config-file")?;
    let PeerFlags { in_flight_max, bandwidth_max, .. } = *flags;
    let limits = ForwardLimits { in_flight_max, bandwidth_max, ..ForwardLimits::default() };
    let ways = Ways::of_server(Arc::new(Connector::new(tls, dialer)));
    let forwarder = Forwarder::new(ways, limits, metrics.clone(), tasks);
    remove_peer_identity(forwarder.clone(), trust, tasks);
    Ok(forwarder)
}

fn client_files(certificates: &Certificates, cert_dir: &Path) -> Option<ClientFiles> {
    match certificates {
        Certificates::Given(files) => Some(files.clone()),
        Certificates::Own => Some(ClientFiles {
            authorities: cert_dir.join("ca.crt"),
            own: Some(Pair {
                certificate: cert_dir.join(format!("{FRONT_PROXY_CLIENT}.crt")),
                key: cert_dir.join(format!("{FRONT_PROXY_CLIENT}.key")),
            }),
        }),
        Certificates::Missing(_) => None,
    }
}

/// What our own front-proxy certificate is called, file and name alike; kubeadm's name.
pub(super) const FRONT_PROXY_CLIENT: &str = "front-proxy-client";
/// What our own authority of front proxies is called; kubeadm's name.
pub(super) const FRONT_PROXY_CA: &str = "front-proxy-ca";

fn certificates(flags: &Values) -> Certificates {
    let names = ["peer-ca-file", "proxy-client-cert-file", "proxy-client-key-file", "requestheader-client-ca-file"];
    let path = |name: &str| flags.given(name).map(PathBuf::from);
    let [authorities, certificate, key, front_proxy] = names.map(path);
    let is_bare = ["tls-cert-file", "client-ca-file"].iter().all(|name| flags.given(name).is_none());
    match (authorities, certificate, key, front_proxy) {
        (Some(authorities), Some(certificate), Some(key), Some(_)) => {
            Certificates::Given(ClientFiles { authorities, own: Some(Pair { certificate, key }) })
        }
        (None, None, None, None) if is_bare => Certificates::Own,
        _ => Certificates::Missing(names.into_iter().filter(|name| flags.given(name).is_none()).collect()),
    }
}

/// What this server serves itself, all groups in one document.
fn whole(surface: &Surface) -> Arc<Groups> {
    let (core, apis) = (surface.groups_core(), surface.groups_apis());
    Arc::new(Groups::concat(&[&core, &apis]))
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The address at which this server is told to others when it listens on all: that of the interface which leads outside.
pub(super) fn reachable(bind: IpAddr) -> IpAddr {
    if !bind.is_unspecified() {
        return bind;
    }
    let outward = UdpSocket::bind((bind, 0)).and_then(|socket| {
        socket.connect(ELSEWHERE)?;
        socket.local_addr()
    });
    outward.map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
}

fn egress_of(file: &str) -> Result<Egress, String> {
    if file.is_empty() {
        return Ok(Egress::Direct);
    }
    let content = std::fs::read(file).map_err(|error| error.to_string())?;
    let value = decode::value(&content, Encoding::Yaml)?.value;
    egress::controlplane(value).map_err(|error| error.to_string())
}
