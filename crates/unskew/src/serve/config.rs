//! What was typed, checked and typed in the other sense.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::Authorizer;
use catalogue::{Gates, Release, RuntimeConfig, Surface};
use edge::pipeline::Limits;

use super::audit::Audit;
use super::authentication::Authentication;
use super::controllers::ControllerFlags;
use super::peers::PeerFlags;
use crate::flags::{FlagError, Values};
use crate::settings::is_json;

/// Everything that `unskew serve` needs to know before it binds a port.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) bind: IpAddr,
    pub(crate) port: u16,
    pub(crate) advertise: Option<IpAddr>,
    pub(crate) serving: Option<(PathBuf, PathBuf)>,
    pub(crate) cert_dir: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) storage: Storage,
    pub(crate) prefix: String,
    pub(crate) compaction_interval: Duration,
    pub(crate) authentication: Authentication,
    pub(crate) authorizer: Authorizer,
    pub(crate) peers: PeerFlags,
    pub(crate) audit: Option<Audit>,
    pub(crate) controllers: ControllerFlags,
    pub(crate) surface: Arc<Surface>,
    /// The address of the service `kubernetes`.
    pub(crate) service_ip: Option<IpAddr>,
    pub(crate) gates: Gates,
    pub(crate) request_timeout: Duration,
    pub(crate) watch_seconds_min: u64,
    pub(crate) shutdown_delay: Duration,
    pub(crate) reads_max: usize,
    pub(crate) writes_max: usize,
    pub(crate) logging: Logging,
    /// What should be said once at the start.
    pub(crate) notices: Vec<String>,
    /// Given, and without a meaning here.
    pub(crate) without_meaning: Vec<&'static str>,
}

/// Where objects are kept.
#[derive(Debug)]
pub(crate) enum Storage {
    Sqlite(PathBuf),
    Etcd(store::etcd::Config),
}

/// How the log looks and how much is in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logging {
    pub(crate) json: bool,
    pub(crate) verbosity: u8,
}

impl Config {
    pub(crate) fn from_flags(flags: &Values) -> Result<Self, FlagError> {
        let path = |name: &str| flags.given(name).map(PathBuf::from);
        let number = |name: &str| flags.parsed(name, str::parse::<usize>);
        let duration = |name: &str| flags.parsed(name, api::duration::parse);
        flags.parsed("storage-media-type", only_json)?;
        let release = match flags.given("emulated-version") {
            None => Release::NEWEST,
            Some(_) => flags.parsed("emulated-version", str::parse)?,
        };
        let gates = flags.parsed("feature-gates", |_| Gates::parse(release, &flags.list("feature-gates").join(",")))?;
        let runtime = flags
            .parsed("runtime-config", |_| RuntimeConfig::parse(release, &flags.list("runtime-config").join(",")))?;
        let authorizer =
            flags.parsed("authorization-mode", |_| Authorizer::parse(&flags.list("authorization-mode").join(",")))?;
        let peers = PeerFlags::from_flags(flags, &gates)?;
        let notices = authorizer.notice().into_iter().chain(Audit::notice(flags));
        let mut notices: Vec<String> = notices.map(str::to_owned).collect();
        notices.extend(gates.notices().iter().map(ToString::to_string));
        Ok(Self {
            bind: flags.parsed("bind-address", str::parse)?,
            port: flags.parsed("secure-port", str::parse)?,
            advertise: match flags.given("advertise-address") {
                None => None,
                Some(_) => Some(flags.parsed("advertise-address", str::parse)?),
            },
            serving: pair(flags, "tls-cert-file", "tls-private-key-file")?,
            cert_dir: PathBuf::from(flags.text("cert-dir")),
            client_ca: path("client-ca-file"),
            storage: storage(flags),
            prefix: flags.text("etcd-prefix").trim_end_matches('/').to_owned(),
            compaction_interval: duration("etcd-compaction-interval")?,
            authentication: Authentication::from_flags(flags, &gates, &peers.certificates, &mut notices)?,
            authorizer,
            peers,
            audit: Audit::from_flags(flags)?,
            controllers: ControllerFlags::from_flags(flags)?,
            service_ip: flags
                .parsed("service-cluster-ip-range", |_| first_address(&flags.list("service-cluster-ip-range")))?,
            surface: Arc::new(Surface::new(&gates, &runtime)),
            gates,
            request_timeout: duration("request-timeout")?,
            watch_seconds_min: flags.parsed("min-request-timeout", str::parse)?,
            shutdown_delay: duration("shutdown-delay-duration")?,
            reads_max: number("max-requests-inflight")?,
            writes_max: number("max-mutating-requests-inflight")?,
            logging: Logging {
                json: flags.parsed("logging-format", is_json)?,
                verbosity: flags.parsed("v", str::parse)?,
            },
            notices,
            without_meaning: flags.without_meaning(),
        })
    }
}

impl Config {
    /// How much the pipeline takes on.
    pub(crate) fn limits(&self) -> Limits {
        Limits { reads: self.reads_max, writes: self.writes_max, request_timeout: self.request_timeout }
    }

    /// What the handlers are told.
    pub(crate) fn local(&self, address: SocketAddr) -> apiserver::Config {
        apiserver::Config {
            git_version: format!("v{}.0+unskew.{}", self.surface.release(), env!("CARGO_PKG_VERSION")),
            address: address.to_string(),
            watch_seconds_min: self.watch_seconds_min,
            gates: self.gates.clone(),
        }
    }
}

/// The first address that a service can have: the one after the network's own.
fn first_address(ranges: &[String]) -> Result<Option<IpAddr>, String> {
    let Some(range) = ranges.first() else { return Ok(None) };
    let invalid = || format!("invalid CIDR address: {range}");
    let (address, length) = range.split_once('/').ok_or_else(invalid)?;
    let address: IpAddr = address.parse().map_err(|_| invalid())?;
    let length: u32 = length.parse().map_err(|_| invalid())?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let host_bits = u32::checked_sub(bits, length).ok_or_else(invalid)?;
    // Of a range of one address there is no second one.
    let first = |number: u128| (number >> host_bits.min(127) << host_bits.min(127)) + u128::from(host_bits > 0);
    Ok(Some(match address {
        IpAddr::V4(address) => {
            let number = u32::try_from(first(u32::from(address).into())).map_err(|_| invalid())?;
            IpAddr::from(number.to_be_bytes())
        }
        IpAddr::V6(address) => IpAddr::from(first(address.into()).to_be_bytes()),
    }))
}

fn storage(flags: &Values) -> Storage {
    let servers = flags.list("etcd-servers");
    if servers.is_empty() {
        return Storage::Sqlite(PathBuf::from(flags.text("sqlite-file")));
    }
    let path = |name: &str| flags.given(name).map(PathBuf::from);
    Storage::Etcd(store::etcd::Config {
        ca_file: path("etcd-cafile"),
        cert_file: path("etcd-certfile"),
        key_file: path("etcd-keyfile"),
        ..store::etcd::Config::new(servers)
    })
}

/// Two files that go together, or neither.
fn pair(flags: &Values, certificate: &'static str, key: &'static str) -> Result<Option<(PathBuf, PathBuf)>, FlagError> {
    match (flags.given(certificate), flags.given(key)) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some((certificate.into(), key.into()))),
        (Some(_), None) => Err(FlagError::Invalid {
            flag: key,
            value: String::new(),
            reason: format!("it must be given together with --{certificate}"),
        }),
        (None, Some(_)) => Err(FlagError::Invalid {
            flag: certificate,
            value: String::new(),
            reason: format!("it must be given together with --{key}"),
        }),
    }
}

fn only_json(media_type: &str) -> Result<(), &'static str> {
    match media_type {
        "application/json" => Ok(()),
        _ => Err("only application/json is built"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_services_begins_after_its_network() {
        let first = |range: &str| match first_address(&[range.to_owned()]) {
            Ok(address) => address.unwrap().to_string(),
            Err(error) => error,
        };
        assert_eq!(first("10.96.0.0/12"), "10.96.0.1");
        assert_eq!(first("10.0.0.77/24"), "10.0.0.1");
        assert_eq!(first("10.0.0.7/32"), "10.0.0.7");
        assert_eq!(first("0.0.0.0/0"), "0.0.0.1");
        assert_eq!(first("fd00::/108"), "fd00::1");
        for wrong in ["10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/129", "10.0.0.0/-1"] {
            assert_eq!(first(wrong), format!("invalid CIDR address: {wrong}"));
        }
        assert_eq!(first_address(&[]), Ok(None));
    }
}
