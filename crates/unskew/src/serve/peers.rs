//! The flags of peering.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use kinds::FeatureGates;
use membership::presence::PresenceTimings;
use object::decode::{self, BodyEncoding};
use server::{PeerCertificates, PeerConfig};
use transport::peer::{ClientTlsFiles, Egress, egress};
use transport::pki::CertificateFiles;

use crate::flags::{FlagError, FlagValues};
use crate::shared_flags::parse_merge_discovery;

/// The feature gate of forwarding and merged discovery.
const PROXY_GATE: &str = "UnknownVersionInteroperabilityProxy";
/// The feature gate of identity leases.
const IDENTITY_GATE: &str = "APIServerIdentity";

pub(super) fn parse_peers(flags: &FlagValues, gates: &FeatureGates) -> Result<PeerConfig, FlagError> {
    let is_proxy_on = gates.enabled(PROXY_GATE);
    for flag in ["peer-ca-file", "peer-advertise-ip", "peer-advertise-port"] {
        if !is_proxy_on && flags.given_value(flag).is_some() {
            return Err(FlagError::Rejected(format!("--{flag} requires {PROXY_GATE} feature to be turned on")));
        }
    }
    let duration = |name: &str| flags.parse_value(name, api::duration::parse);
    let seconds = |name: &str| flags.parse_value(name, str::parse::<u64>).map(Duration::from_secs);
    let record_ttl = duration("peer-endpoint-ttl")?;
    Ok(PeerConfig {
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
        timings: PresenceTimings {
            lease_duration: seconds("identity-lease-duration-seconds")?,
            lease_interval: seconds("identity-lease-renew-interval-seconds")?,
            record_ttl,
            // As kube-apiserver: the record is renewed after two thirds of its TTL.
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

fn parse_egress(file: &str) -> Result<Egress, String> {
    if file.is_empty() {
        return Ok(Egress::Direct);
    }
    let content = std::fs::read(file).map_err(|error| error.to_string())?;
    let value = decode::decode_value(&content, BodyEncoding::Yaml)?.value;
    egress::parse_controlplane_egress(value).map_err(|error| error.to_string())
}
