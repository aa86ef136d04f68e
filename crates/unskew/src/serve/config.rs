//! From flags to the configuration of a server.

use std::path::PathBuf;
use std::sync::Arc;

use access::Authorizer;
use admission::allocation::AddressRange;
use admission::{Chain, PluginSet, Settings};
use controllers::ControllerSelection;
use edge::audit::Policy;
use edge::pipeline::RequestLimits;
use kinds::{FeatureGates, Release, RuntimeConfig, ServedResources};
use object::decode::{self, BodyEncoding};
use server::{AuditConfig, Config, ControllerConfig, ForwardedRedirects, ServiceRanges, ServiceRouting, StorageConfig};

use super::admission_file::read_plugin_configuration;
use super::authentication::parse_authentication;
use super::peers::parse_peers;
use crate::flags::{FlagError, FlagValues};
use crate::shared_flags::{LoggingConfig, parse_logging, parse_tls_policy};

/// The fewest addresses of a range, as in kube-apiserver: 8 with those that are not allocated.
const SERVICE_ADDRESSES_MIN: u128 = 6;

/// The configuration of a server, and the settings of its process.
#[derive(Debug)]
pub(crate) struct ServeInvocation {
    pub(crate) config: Config,
    pub(crate) logging: LoggingConfig,
    /// Logged once at the start.
    pub(crate) startup_warnings: Vec<String>,
    /// Flags that were given and have no effect.
    pub(crate) ignored_flags: Vec<&'static str>,
}

impl ServeInvocation {
    pub(crate) fn from_flags(flags: &FlagValues) -> Result<Self, FlagError> {
        let path = |name: &str| flags.given_value(name).map(PathBuf::from);
        let number = |name: &str| flags.parse_value(name, str::parse::<usize>);
        flags.refuse_unsupported("ignore-unsupported")?;
        let duration = |name: &str| flags.parse_value(name, api::duration::parse);
        flags.parse_value("storage-media-type", check_json_media_type)?;
        let release = flags.parse_given("emulated-version", str::parse)?.unwrap_or(Release::NEWEST);
        let gates = flags.parse_value("feature-gates", |_| {
            FeatureGates::parse(release, &flags.list_values("feature-gates").join(","))
        })?;
        let runtime = flags.parse_value("runtime-config", |_| {
            RuntimeConfig::parse(release, &flags.list_values("runtime-config").join(","))
        })?;
        let authorizer = flags.parse_value("authorization-mode", |_| {
            Authorizer::parse(&flags.list_values("authorization-mode").join(","))
        })?;
        let peers = parse_peers(flags, &gates)?;
        let notices = authorizer.startup_warning().into_iter().chain(audit_warning(flags));
        let mut notices: Vec<String> = notices.map(str::to_owned).collect();
        notices.extend(gates.warnings().iter().map(ToString::to_string));
        let admission = parse_admission(flags, release, &mut notices)?;
        let config = Config {
            bind_ip: flags.parse_value("bind-address", str::parse)?,
            port: flags.parse_value("secure-port", str::parse)?,
            advertise_ip: flags.parse_given("advertise-address", str::parse)?,
            serving_certificate: parse_file_pair(flags, "tls-cert-file", "tls-private-key-file")?,
            tls_policy: parse_tls_policy(flags)?,
            cert_dir: PathBuf::from(flags.value_or_default("cert-dir")),
            client_ca: path("client-ca-file"),
            storage: parse_storage(flags),
            prefix: flags.value_or_default("etcd-prefix").trim_end_matches('/').to_owned(),
            compaction_interval: duration("etcd-compaction-interval")?,
            authentication: parse_authentication(flags, &gates, &peers.certificates, &mut notices)?,
            authorizer,
            peers,
            audit: parse_audit(flags)?,
            controllers: parse_controllers(flags)?,
            service_ranges: ServiceRanges {
                addresses: flags.parse_value("service-cluster-ip-range", |_| {
                    parse_service_ranges(&flags.list_values("service-cluster-ip-range"))
                })?,
                node_ports: flags.parse_value("service-node-port-range", str::parse)?,
            },
            served_resources: Arc::new(ServedResources::new(&gates, &runtime)),
            gates,
            admission,
            watch_seconds_min: flags.parse_value("min-request-timeout", str::parse)?,
            forwarded_redirects: match flags.is_true("aggregator-reject-forwarding-redirect") {
                true => ForwardedRedirects::Rejected,
                false => ForwardedRedirects::PassedOn,
            },
            service_routing: match flags.is_true("enable-aggregator-routing") {
                true => ServiceRouting::Endpoints,
                false => ServiceRouting::ClusterIp,
            },
            shutdown_delay: duration("shutdown-delay-duration")?,
            limits: RequestLimits {
                reads: number("max-requests-inflight")?,
                writes: number("max-mutating-requests-inflight")?,
                request_timeout: duration("request-timeout")?,
            },
        };
        Ok(Self {
            config,
            logging: parse_logging(flags)?,
            startup_warnings: notices,
            ignored_flags: flags.ignored_flags(),
        })
    }
}

/// One range of service addresses, or one of each IP family.
fn parse_service_ranges(ranges: &[String]) -> Result<Vec<AddressRange>, String> {
    let parsed = ranges.iter().map(|range| range.parse()).collect::<Result<Vec<AddressRange>, _>>()?;
    match &*parsed {
        [] => return Err("at least one range is needed".to_owned()),
        [_] => {}
        [first, second] if first.family() != second.family() => {}
        [_, _] => return Err("the two ranges must be of different IP families".to_owned()),
        _ => return Err("more than two ranges".to_owned()),
    }
    match parsed.iter().find(|range| range.size() < SERVICE_ADDRESSES_MIN) {
        Some(range) => Err(format!("the range {range} must have at least 8 addresses")),
        None => Ok(parsed),
    }
}

/// The admission plugins. Default plugins that this server does not have are named in one notice.
fn parse_admission(
    flags: &FlagValues,
    release: Release,
    notices: &mut Vec<String>,
) -> Result<server::AdmissionConfig, FlagError> {
    let [enable, disable] =
        ["enable-admission-plugins", "disable-admission-plugins"].map(|name| flags.list_values(name));
    let plugins = flags.parse_value("enable-admission-plugins", |_| {
        let enable: Vec<&str> = enable.iter().map(String::as_str).collect();
        let disable: Vec<&str> = disable.iter().map(String::as_str).collect();
        PluginSet::from_flags(release, &enable, &disable, Chain::is_built)
    })?;
    if !plugins.not_built().is_empty() {
        let names = plugins.not_built().join(", ");
        notices.push(format!("admission plugins that this server does not have do not run: {names}"));
    }
    let (configuration, [mutating_credentials, validating_credentials]) = read_plugin_configuration(flags)?;
    let settings = Settings {
        pod_security: configuration.pod_security,
        not_ready_toleration_seconds: flags.parse_value("default-not-ready-toleration-seconds", str::parse)?,
        unreachable_toleration_seconds: flags.parse_value("default-unreachable-toleration-seconds", str::parse)?,
    };
    let limited_resources = configuration.limited_resources;
    Ok(server::AdmissionConfig { plugins, settings, limited_resources, mutating_credentials, validating_credentials })
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

/// Two file flags that must be given together.
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

/// `None` unless both flags are given, as with kube-apiserver.
fn parse_audit(flags: &FlagValues) -> Result<Option<AuditConfig>, FlagError> {
    let (policy, path) = (flags.given_value("audit-policy-file"), flags.given_value("audit-log-path"));
    let (Some(file), Some(path)) = (policy, path) else { return Ok(None) };
    let read = || {
        let content = std::fs::read(file).map_err(|error| error.to_string())?;
        // JSON is YAML too.
        let policy = decode::decode_value(&content, BodyEncoding::Yaml)?.value;
        Policy::from_value(policy).map_err(|error| error.to_string())
    };
    let policy = read().map_err(|reason| FlagError::Rejected(format!("--audit-policy-file: {file}: {reason}")))?;
    Ok(Some(AuditConfig { policy, path: path.into() }))
}

/// The warning about an audit log that records nothing.
fn audit_warning(flags: &FlagValues) -> Option<&'static str> {
    match (flags.given_value("audit-policy-file"), flags.given_value("audit-log-path")) {
        (None, Some(_)) => Some("--audit-log-path: without --audit-policy-file nothing is recorded"),
        (Some(_), None) => Some("--audit-policy-file: without --audit-log-path nothing is recorded"),
        (Some(_), Some(_)) | (None, None) => None,
    }
}

fn parse_controllers(flags: &FlagValues) -> Result<ControllerConfig, FlagError> {
    let list = flags.list_values("controllers");
    Ok(ControllerConfig {
        selection: flags.parse_value("controllers", |_| ControllerSelection::parse(list.iter().map(String::as_str)))?,
        migrates_automatically: flags.is_true("migrate-automatically"),
        migration_linger: flags.parse_value("storage-migration-linger", api::duration::parse)?,
        root_ca_file: flags.given_value("root-ca-file").map(PathBuf::from),
    })
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
    fn service_ranges_are_one_or_one_of_each_family() {
        let ranges = |ranges: &[&str]| {
            let ranges: Vec<String> = ranges.iter().map(|&range| range.to_owned()).collect();
            let parsed = parse_service_ranges(&ranges)?;
            Ok::<_, String>(parsed.iter().map(|range| range.address(0).to_string()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(ranges(&["10.96.0.0/12"]).unwrap(), "10.96.0.1");
        assert_eq!(ranges(&["10.0.0.77/24", "fd00::/108"]).unwrap(), "10.0.0.1 fd00::1");
        for wrong in ["10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/129", "10.0.0.0/-1"] {
            assert_eq!(ranges(&[wrong]).unwrap_err(), format!("invalid CIDR address: {wrong}"));
        }
        assert!(ranges(&["10.0.0.0/24", "10.1.0.0/24"]).is_err());
        assert!(ranges(&["10.0.0.0/30"]).is_err());
    }
}
