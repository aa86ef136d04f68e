//! What was typed or found, checked.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use access::authenticate::{Bundles, FrontProxy, HeaderNames};
use edge::merged::Merge;
use edge::pipeline::Limits;
use gateway::{Cidr, Upstream};
use peering::forward::QueueLimits;
use rustls::pki_types::ServerName;
use transport::peer::ClientFiles;
use transport::pki::Pair;

use super::kubeadm::Found;
use crate::flags::{FlagError, Values};
use crate::settings::{is_json, merge_of};

/// Everything that `unskew gateway` needs to know before it binds a port.
pub(crate) struct Config {
    pub(crate) bind: IpAddr,
    pub(crate) port: u16,
    /// The serving certificate; `None`: one of our own.
    pub(crate) serving: Option<Pair>,
    pub(crate) cert_dir: PathBuf,
    pub(crate) upstreams: Vec<Upstream>,
    /// The networks in which the service `kubernetes` may name others; `None`: it is not asked.
    pub(crate) networks: Option<Vec<Cidr>>,
    /// The connections with our front-proxy certificate.
    pub(crate) vouching: ClientFiles,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) forget_after: Duration,
    pub(crate) in_flight_max: Option<usize>,
    pub(crate) bandwidth_max: Option<NonZeroU64>,
    pub(crate) queue: QueueLimits,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) front_proxy: Option<(PathBuf, FrontProxy)>,
    /// Headers, beside the standard ones, in which upstreams or proxies name users.
    pub(crate) claims: Option<HeaderNames>,
    /// Reads from which headers the local upstream reads users; `None` if its manifest was not found.
    pub(crate) local_header_names: Option<gateway::vouching::Manifest>,
    pub(crate) merge: Merge,
    pub(crate) tells: bool,
    pub(crate) limits: Limits,
    pub(crate) shutdown_delay: Duration,
    pub(crate) access_log: Option<PathBuf>,
    pub(crate) log_json: bool,
    pub(crate) verbosity: u8,
}

impl Config {
    pub(crate) fn from_flags(flags: &Values, found: &Found) -> Result<Self, FlagError> {
        let duration = |name: &str| flags.parsed(name, api::duration::parse);
        let number = |name: &str| flags.parsed(name, str::parse::<usize>);
        let needed = |name: &'static str| {
            let missing =
                || FlagError::Refused(format!("--{name} is needed: it was not given, and kubeadm has none here"));
            found.path(flags, name).ok_or_else(missing)
        };
        let own = Pair { certificate: needed("proxy-client-cert-file")?, key: needed("proxy-client-key-file")? };
        Ok(Self {
            bind: flags.parsed("bind-address", str::parse)?,
            port: flags.parsed("secure-port", str::parse)?,
            serving: serving(flags, found)?,
            cert_dir: PathBuf::from(flags.text("cert-dir")),
            upstreams: upstreams(flags, found)?,
            networks: networks(flags, found)?,
            vouching: ClientFiles { authorities: needed("upstream-ca-file")?, own: Some(own) },
            server_name: flags.parsed("upstream-server-name", |name| ServerName::try_from(name.to_owned()))?,
            forget_after: duration("upstream-forget-after")?,
            in_flight_max: Some(number("upstream-max-requests-inflight")?).filter(|limit| *limit > 0),
            bandwidth_max: NonZeroU64::new(flags.parsed("upstream-max-bandwidth", str::parse)?),
            queue: QueueLimits {
                length_max: number("upstream-max-requests-queued")?,
                user_max: number("upstream-max-requests-queued-per-user")?,
                wait_max: duration("upstream-queue-timeout")?,
            },
            state_dir: flags.given("state-dir").map(PathBuf::from),
            client_ca: found.path(flags, "client-ca-file"),
            front_proxy: front_proxy(flags)?,
            claims: Some(header_names(flags)).filter(|names| *names != HeaderNames::standard()),
            local_header_names: found.local_header_names(),
            merge: flags.parsed("merge-discovery", merge_of)?,
            tells: flags.is("peer-response-headers"),
            limits: Limits {
                reads: number("max-requests-inflight")?,
                writes: number("max-mutating-requests-inflight")?,
                request_timeout: duration("request-timeout")?,
            },
            shutdown_delay: duration("shutdown-delay-duration")?,
            access_log: flags.given("access-log-path").map(PathBuf::from),
            log_json: flags.parsed("logging-format", is_json)?,
            verbosity: flags.parsed("v", str::parse)?,
        })
    }
}

fn upstreams(flags: &Values, found: &Found) -> Result<Vec<Upstream>, FlagError> {
    let mut upstreams: Vec<Upstream> = Vec::new();
    let typed = found.list(flags, "upstream");
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
        return Err(FlagError::Refused("--upstream is needed: it was not given, and kubeadm has none here".to_owned()));
    }
    Ok(upstreams)
}

fn networks(flags: &Values, found: &Found) -> Result<Option<Vec<Cidr>>, FlagError> {
    let texts = found.list(flags, "upstream-cidr");
    let invalid =
        |value: &str, reason: String| FlagError::Invalid { flag: "upstream-cidr", value: value.to_owned(), reason };
    let parse =
        |text: &String| text.parse().map_err(|error: gateway::slices::CidrError| invalid(text, error.to_string()));
    let networks: Vec<Cidr> = texts.iter().map(parse).collect::<Result<_, _>>()?;
    match found.list(flags, "upstream-discovery").first().map(String::as_str) {
        None | Some("none") => Ok(None),
        Some("endpointslices") if networks.is_empty() => {
            Err(FlagError::Refused("--upstream-discovery=endpointslices needs --upstream-cidr".to_owned()))
        }
        Some("endpointslices") => Ok(Some(networks)),
        Some(other) => Err(FlagError::Invalid {
            flag: "upstream-discovery",
            value: other.to_owned(),
            reason: "allowed values: none, endpointslices".to_owned(),
        }),
    }
}

fn serving(flags: &Values, found: &Found) -> Result<Option<Pair>, FlagError> {
    match (found.path(flags, "tls-cert-file"), found.path(flags, "tls-private-key-file")) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(Pair { certificate, key })),
        (Some(_), None) | (None, Some(_)) => {
            Err(FlagError::Refused("--tls-cert-file and --tls-private-key-file must be given together".to_owned()))
        }
    }
}

fn header_names(flags: &Values) -> HeaderNames {
    HeaderNames {
        user: flags.entries("requestheader-username-headers"),
        uid: flags.entries("requestheader-uid-headers"),
        group: flags.entries("requestheader-group-headers"),
        extra_prefix: flags.entries("requestheader-extra-headers-prefix"),
    }
}

fn front_proxy(flags: &Values) -> Result<Option<(PathBuf, FrontProxy)>, FlagError> {
    let Some(file) = flags.given("requestheader-client-ca-file") else { return Ok(None) };
    let allowed_names = flags.entries("requestheader-allowed-names");
    let rules = FrontProxy { allowed_names, headers: header_names(flags) };
    // Whether the bundles overlap is known once they are read.
    rules.check(Bundles::Apart).map_err(|error| FlagError::Refused(error.to_string()))?;
    Ok(Some((file.into(), rules)))
}
