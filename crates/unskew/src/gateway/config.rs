//! From flags and kubeadm's files to the configuration of a gateway.

use std::num::NonZeroU64;
use std::path::PathBuf;

use access::authentication::{CaBundleOverlap, FrontProxy, FrontProxyHeaderNames};
use edge::pipeline::RequestLimits;
use forward::QueueLimits;
use gateway::{Cidr, Upstream};
use rustls::pki_types::ServerName;
use server::FrontProxyConfig;
use server::gateway::Config;
use transport::peer::ClientTlsFiles;
use transport::pki::CertificateFiles;

use super::kubeadm::KubeadmValues;
use crate::flags::{FlagError, FlagValues};
use crate::shared_flags::{LoggingConfig, header_names, parse_logging, parse_merge_discovery, parse_tls_policy};

/// The configuration of a gateway, and the log settings of its process.
pub(crate) struct GatewaySettings {
    pub(crate) config: Config,
    pub(crate) logging: LoggingConfig,
}

impl GatewaySettings {
    pub(crate) fn from_flags(flags: &FlagValues, kubeadm: &KubeadmValues) -> Result<Self, FlagError> {
        let duration = |name: &str| flags.parse_value(name, api::duration::parse);
        let number = |name: &str| flags.parse_value(name, str::parse::<usize>);
        let required_path = |name: &'static str| {
            let missing =
                || FlagError::Rejected(format!("--{name} is needed: it was not given, and kubeadm has none here"));
            kubeadm.path_of_flag(flags, name).ok_or_else(missing)
        };
        let own = CertificateFiles {
            certificate: required_path("proxy-client-cert-file")?,
            key: required_path("proxy-client-key-file")?,
        };
        let config = Config {
            bind_ip: flags.parse_value("bind-address", str::parse)?,
            port: flags.parse_value("secure-port", str::parse)?,
            serving_certificate: serving_certificate_files(flags, kubeadm)?,
            tls_policy: parse_tls_policy(flags)?,
            cert_dir: PathBuf::from(flags.value_or_default("cert-dir")),
            upstreams: parse_upstreams(flags, kubeadm)?,
            upstream_networks: parse_networks(flags, kubeadm)?,
            front_proxy_files: ClientTlsFiles {
                ca_bundle: required_path("upstream-ca-file")?,
                client_certificate: Some(own),
            },
            upstream_server_name: flags
                .parse_value("upstream-server-name", |name| ServerName::try_from(name.to_owned()))?,
            forget_after: duration("upstream-forget-after")?,
            in_flight_max: Some(number("upstream-max-requests-inflight")?).filter(|limit| *limit > 0),
            bandwidth_max: NonZeroU64::new(flags.parse_value("upstream-max-bandwidth", str::parse)?),
            queue_limits: QueueLimits {
                length_max: number("upstream-max-requests-queued")?,
                user_max: number("upstream-max-requests-queued-per-user")?,
                wait_max: duration("upstream-queue-timeout")?,
            },
            state_dir: flags.given_value("state-dir").map(PathBuf::from),
            client_ca: kubeadm.path_of_flag(flags, "client-ca-file"),
            front_proxy: parse_front_proxy(flags)?,
            identity_headers: Some(header_names(flags)).filter(|names| *names != FrontProxyHeaderNames::standard()),
            local_header_names: kubeadm.local_header_names(),
            merge_discovery: flags.parse_value("merge-discovery", parse_merge_discovery)?,
            peer_response_headers: flags.is_true("peer-response-headers"),
            limits: RequestLimits {
                reads: number("max-requests-inflight")?,
                writes: number("max-mutating-requests-inflight")?,
                request_timeout: duration("request-timeout")?,
            },
            shutdown_delay: duration("shutdown-delay-duration")?,
            access_log: flags.given_value("access-log-path").map(PathBuf::from),
        };
        Ok(Self { config, logging: parse_logging(flags)? })
    }
}

fn parse_upstreams(flags: &FlagValues, kubeadm: &KubeadmValues) -> Result<Vec<Upstream>, FlagError> {
    let mut upstreams: Vec<Upstream> = Vec::new();
    let typed = kubeadm.list_of_flag(flags, "upstream");
    for text in &typed {
        let invalid = |reason: String| FlagError::Invalid { flag: "upstream", value: text.clone(), reason };
        let upstream: Upstream = text.parse().map_err(|error: gateway::UpstreamError| invalid(error.to_string()))?;
        if upstreams.iter().any(|known| known.server == upstream.server) {
            return Err(invalid("it was given already".to_owned()));
        }
        if upstream.is_local && upstreams.iter().any(|known| known.is_local) {
            return Err(invalid("another one is local already".to_owned()));
        }
        upstreams.push(upstream);
    }
    if upstreams.is_empty() {
        return Err(FlagError::Rejected(
            "--upstream is needed: it was not given, and kubeadm has none here".to_owned(),
        ));
    }
    Ok(upstreams)
}

fn parse_networks(flags: &FlagValues, kubeadm: &KubeadmValues) -> Result<Option<Vec<Cidr>>, FlagError> {
    let texts = kubeadm.list_of_flag(flags, "upstream-cidr");
    let invalid =
        |value: &str, reason: String| FlagError::Invalid { flag: "upstream-cidr", value: value.to_owned(), reason };
    let parse = |text: &String| {
        text.parse().map_err(|error: gateway::endpoint_slices::CidrError| invalid(text, error.to_string()))
    };
    let networks: Vec<Cidr> = texts.iter().map(parse).collect::<Result<_, _>>()?;
    match kubeadm.list_of_flag(flags, "upstream-discovery").first().map(String::as_str) {
        None | Some("none") => Ok(None),
        Some("endpointslices") if networks.is_empty() => {
            Err(FlagError::Rejected("--upstream-discovery=endpointslices needs --upstream-cidr".to_owned()))
        }
        Some("endpointslices") => Ok(Some(networks)),
        Some(other) => Err(FlagError::Invalid {
            flag: "upstream-discovery",
            value: other.to_owned(),
            reason: "allowed values: none, endpointslices".to_owned(),
        }),
    }
}

fn serving_certificate_files(
    flags: &FlagValues,
    kubeadm: &KubeadmValues,
) -> Result<Option<CertificateFiles>, FlagError> {
    match (kubeadm.path_of_flag(flags, "tls-cert-file"), kubeadm.path_of_flag(flags, "tls-private-key-file")) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(CertificateFiles { certificate, key })),
        (Some(_), None) | (None, Some(_)) => {
            Err(FlagError::Rejected("--tls-cert-file and --tls-private-key-file must be given together".to_owned()))
        }
    }
}

fn parse_front_proxy(flags: &FlagValues) -> Result<Option<FrontProxyConfig>, FlagError> {
    let Some(file) = flags.given_value("requestheader-client-ca-file") else { return Ok(None) };
    let allowed_names = flags.list_entries_with_blanks("requestheader-allowed-names");
    let rules = FrontProxy { allowed_names, headers: header_names(flags) };
    // The gateway checks for overlapping CA bundles when it has read them.
    rules.validate(CaBundleOverlap::Disjoint).map_err(|error| FlagError::Rejected(error.to_string()))?;
    Ok(Some(FrontProxyConfig { ca_file: file.into(), rules }))
}
