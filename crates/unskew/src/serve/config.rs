//! What was typed, checked and typed in the other sense.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::Authorizer;
use catalogue::{FeatureGates, Release, RuntimeConfig, ServedResources};
use edge::pipeline::RequestLimits;

use super::audit::AuditFlags;
use super::authentication::AuthenticationFlags;
use super::controllers::ControllerFlags;
use super::peers::PeerFlags;
use crate::flags::{FlagError, FlagValues};
use crate::shared_flags::parse_logging_format;

/// Everything that `unskew serve` needs to know before it binds a port.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) bind_ip: IpAddr,
    pub(crate) port: u16,
    pub(crate) advertise_ip: Option<IpAddr>,
    pub(crate) serving_certificate: Option<(PathBuf, PathBuf)>,
    pub(crate) cert_dir: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) storage: StorageConfig,
    pub(crate) prefix: String,
    pub(crate) compaction_interval: Duration,
    pub(crate) authentication: AuthenticationFlags,
    pub(crate) authorizer: Authorizer,
    pub(crate) peers: PeerFlags,
    pub(crate) audit: Option<AuditFlags>,
    pub(crate) controllers: ControllerFlags,
    pub(crate) served_resources: Arc<ServedResources>,
    /// The address of the service `kubernetes`.
    pub(crate) kubernetes_service_ip: Option<IpAddr>,
    pub(crate) gates: FeatureGates,
    pub(crate) request_timeout: Duration,
    pub(crate) watch_seconds_min: u64,
    pub(crate) shutdown_delay: Duration,
    pub(crate) reads_in_flight_max: usize,
    pub(crate) writes_in_flight_max: usize,
    pub(crate) logging: LoggingConfig,
    /// What should be said once at the start.
    pub(crate) startup_warnings: Vec<String>,
    /// Given, and without a meaning here.
    pub(crate) ignored_flags: Vec<&'static str>,
}

/// Where objects are kept.
#[derive(Debug)]
pub(crate) enum StorageConfig {
    Sqlite(PathBuf),
    Etcd(store::etcd::Config),
}

/// How the log looks and how much is in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggingConfig {
    pub(crate) json: bool,
    pub(crate) verbosity: u8,
}

impl Config {
    pub(crate) fn from_flags(flags: &FlagValues) -> Result<Self, FlagError> {
        let path = |name: &str| flags.given_value(name).map(PathBuf::from);
        let number = |name: &str| flags.parse_value(name, str::parse::<usize>);
        let duration = |name: &str| flags.parse_value(name, api::duration::parse);
        flags.parse_value("storage-media-type", check_json_media_type)?;
        let release = match flags.given_value("emulated-version") {
            None => Release::NEWEST,
            Some(_) => flags.parse_value("emulated-version", str::parse)?,
        };
        let gates = flags.parse_value("feature-gates", |_| {
            FeatureGates::parse(release, &flags.list_values("feature-gates").join(","))
        })?;
        let runtime = flags.parse_value("runtime-config", |_| {
            RuntimeConfig::parse(release, &flags.list_values("runtime-config").join(","))
        })?;
        let authorizer = flags.parse_value("authorization-mode", |_| {
            Authorizer::parse(&flags.list_values("authorization-mode").join(","))
        })?;
        let peers = PeerFlags::from_flags(flags, &gates)?;
        let notices = authorizer.startup_warning().into_iter().chain(AuditFlags::startup_warning(flags));
        let mut notices: Vec<String> = notices.map(str::to_owned).collect();
        notices.extend(gates.warnings().iter().map(ToString::to_string));
        Ok(Self {
            bind_ip: flags.parse_value("bind-address", str::parse)?,
            port: flags.parse_value("secure-port", str::parse)?,
            advertise_ip: match flags.given_value("advertise-address") {
                None => None,
                Some(_) => Some(flags.parse_value("advertise-address", str::parse)?),
            },
            serving_certificate: parse_file_pair(flags, "tls-cert-file", "tls-private-key-file")?,
            cert_dir: PathBuf::from(flags.value_or_default("cert-dir")),
            client_ca: path("client-ca-file"),
            storage: parse_storage(flags),
            prefix: flags.value_or_default("etcd-prefix").trim_end_matches('/').to_owned(),
            compaction_interval: duration("etcd-compaction-interval")?,
            authentication: AuthenticationFlags::from_flags(flags, &gates, &peers.certificates, &mut notices)?,
            authorizer,
            peers,
            audit: AuditFlags::from_flags(flags)?,
            controllers: ControllerFlags::from_flags(flags)?,
            kubernetes_service_ip: flags.parse_value("service-cluster-ip-range", |_| {
                first_service_address(&flags.list_values("service-cluster-ip-range"))
            })?,
            served_resources: Arc::new(ServedResources::new(&gates, &runtime)),
            gates,
            request_timeout: duration("request-timeout")?,
            watch_seconds_min: flags.parse_value("min-request-timeout", str::parse)?,
            shutdown_delay: duration("shutdown-delay-duration")?,
            reads_in_flight_max: number("max-requests-inflight")?,
            writes_in_flight_max: number("max-mutating-requests-inflight")?,
            logging: LoggingConfig {
                json: flags.parse_value("logging-format", parse_logging_format)?,
                verbosity: flags.parse_value("v", str::parse)?,
            },
            startup_warnings: notices,
            ignored_flags: flags.ignored_flags(),
        })
    }
}

impl Config {
    /// How much the pipeline takes on.
    pub(crate) fn pipeline_limits(&self) -> RequestLimits {
        RequestLimits {
            reads: self.reads_in_flight_max,
            writes: self.writes_in_flight_max,
            request_timeout: self.request_timeout,
        }
    }

    /// What the handlers are told.
    pub(crate) fn apiserver_config(&self, address: SocketAddr) -> apiserver::Config {
        apiserver::Config {
            git_version: format!("v{}.0+unskew.{}", self.served_resources.release(), env!("CARGO_PKG_VERSION")),
            address: address.to_string(),
            watch_seconds_min: self.watch_seconds_min,
            feature_gates: self.gates.clone(),
        }
    }
}

/// The first address that a service can have: the one after the network's own.
fn first_service_address(ranges: &[String]) -> Result<Option<IpAddr>, String> {
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

fn parse_storage(flags: &FlagValues) -> StorageConfig {
    let servers = flags.list_values("etcd-servers");
    if servers.is_empty() {
        return StorageConfig::Sqlite(PathBuf::from(flags.value_or_default("sqlite-file")));
    }
    let path = |name: &str| flags.given_value(name).map(PathBuf::from);
    StorageConfig::Etcd(store::etcd::Config {
        ca_file: path("etcd-cafile"),
        cert_file: path("etcd-certfile"),
        key_file: path("etcd-keyfile"),
        ..store::etcd::Config::new(servers)
    })
}

/// Two files that go together, or neither.
fn parse_file_pair(
    flags: &FlagValues,
    certificate: &'static str,
    key: &'static str,
) -> Result<Option<(PathBuf, PathBuf)>, FlagError> {
    match (flags.given_value(certificate), flags.given_value(key)) {
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

fn check_json_media_type(media_type: &str) -> Result<(), &'static str> {
    match media_type {
        "application/json" => Ok(()),
        _ => Err("only application/json is built"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_service_address_follows_the_network_address() {
        let first = |range: &str| match first_service_address(&[range.to_owned()]) {
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
        assert_eq!(first_service_address(&[]), Ok(None));
    }
}
