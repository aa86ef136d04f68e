//! Upstream discovery from the EndpointSlices of the `kubernetes` service, where kube-apiservers list themselves.
//!
//! Any user with write access to EndpointSlices could add addresses, so addresses outside the configured networks are
//! ignored, and the gateway verifies an upstream's certificate before it sends a request.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use api::Address;
use bytes::Bytes;
use edge::RequestRecord;
use edge::response::JSON;
use forward::{Effect, ForwardRequest, ForwardedUser, Lifetime, ResponseOrigin};
use http::Request;
use http::header::ACCEPT;
use http_body_util::{BodyExt as _, Empty, Limited};
use serde::Deserialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::upstream::Upstream;
use crate::upstream_client::UpstreamClient;
use crate::upstreams::Upstreams;

const ENDPOINT_SLICES_PATH: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                    ?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes";
/// Pause after a successful poll; kube-apiservers reconcile their endpoints at the same interval.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a failed poll.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const POLL_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_BYTES_MAX: usize = 1 << 20;
/// Upper limit of upstreams, configured ones included; further endpoints are ignored.
const UPSTREAMS_MAX: usize = 64;

/// An IPv4 or IPv6 network, such as `10.0.0.0/24`. Host bits may be set and are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix_length: u32,
}

/// Text that is not a CIDR.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid CIDR address: {0}")]
pub struct CidrError(String);

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let invalid = || CidrError(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let length: u32 = length.parse().map_err(|_| invalid())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if length <= bits { Ok(Self { address, prefix_length: length }) } else { Err(invalid()) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_length)
    }
}

impl Cidr {
    /// The network around `address` with the prefix length of its address family.
    pub fn containing(address: IpAddr, length_v4: u32, length_v6: u32) -> Self {
        Self { address, prefix_length: if address.is_ipv4() { length_v4 } else { length_v6 } }
    }

    /// True if `address` is in this network; false across address families.
    pub fn contains(&self, address: IpAddr) -> bool {
        let shifted = |bits: u128, width: u32| bits.checked_shr(width - self.prefix_length).unwrap_or(0);
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                shifted(u32::from(network).into(), 32) == shifted(u32::from(address).into(), 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => shifted(network.into(), 128) == shifted(address.into(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Polls the EndpointSlices of the `kubernetes` service.
pub struct EndpointSlicePoller {
    /// Client that sends the poll to any ready upstream.
    pub upstream_client: UpstreamClient,
    /// User that reads the EndpointSlices.
    pub user: ForwardedUser,
    /// Upstreams from flags; always part of the result.
    pub configured: Vec<Upstream>,
    /// Networks that discovered addresses must be in.
    pub networks: Vec<Cidr>,
}

impl EndpointSlicePoller {
    /// Polls until `stop` and passes every changed set of upstreams to `upstreams`.
    pub async fn run(self, upstreams: Arc<Upstreams>, stop: CancellationToken) {
        let mut last = self.configured.clone();
        loop {
            let pause = match stop.run_until_cancelled(self.poll_once()).await {
                None => return,
                Some(Some(found)) => {
                    if found != last {
                        tracing::info!(upstreams = ?addresses_of(&found), "upstreams changed");
                        upstreams.set_upstreams(&found);
                        last = found;
                    }
                    POLL_INTERVAL
                }
                // A failed poll keeps the last known upstreams.
                Some(None) => RETRY_INTERVAL,
            };
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    async fn poll_once(&self) -> Option<Vec<Upstream>> {
        let mut request = Request::get(ENDPOINT_SLICES_PATH).body(Empty::<Bytes>::new()).ok()?;
        request.headers_mut().insert(ACCEPT, JSON);
        let (localhost, lifetime) = (IpAddr::from([127, 0, 0, 1]), Lifetime::Until(Instant::now() + POLL_TIMEOUT));
        let forward_request =
            ForwardRequest::new(&self.user, localhost, Effect::Reads, ResponseOrigin::AnyServer, lifetime);
        let response =
            self.upstream_client.forward_to_any(forward_request, &RequestRecord::default(), request).await.ok()?;
        if response.status() != http::StatusCode::OK {
            tracing::warn!(status = %response.status(), "failed to read the EndpointSlices of the service kubernetes");
            return None;
        }
        let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await.ok()?.to_bytes();
        let addresses = parse_addresses(&body).ok()?;
        Some(self.merge_upstreams(addresses))
    }

    /// Configured upstreams plus discovered addresses in the allowed networks, up to [`UPSTREAMS_MAX`].
    fn merge_upstreams(&self, addresses: Vec<(IpAddr, u16)>) -> Vec<Upstream> {
        let mut upstreams = self.configured.clone();
        for (ip, port) in addresses {
            let is_inside = self.networks.iter().any(|network| network.contains(ip));
            let Some(address) = Address::new(&ip.to_string(), port).filter(|_| is_inside) else { continue };
            let upstream = Upstream::new(address);
            let is_known = upstreams.iter().any(|known| known.server == upstream.server);
            if !is_known && upstreams.len() < UPSTREAMS_MAX {
                upstreams.push(upstream);
            }
        }
        upstreams
    }
}

fn addresses_of(upstreams: &[Upstream]) -> Vec<String> {
    upstreams.iter().map(|upstream| upstream.address.to_string()).collect()
}

#[derive(Deserialize)]
struct EndpointSliceList {
    #[serde(default)]
    items: Vec<EndpointSlice>,
}

#[derive(Deserialize)]
struct EndpointSlice {
    #[serde(default)]
    endpoints: Option<Vec<SliceEndpoint>>,
    #[serde(default)]
    ports: Option<Vec<SlicePort>>,
}

#[derive(Deserialize)]
struct SliceEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
}

#[derive(Deserialize)]
struct SlicePort {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<u16>,
}

/// Address and port of every endpoint with a port named `https`, sorted, without duplicates.
fn parse_addresses(list: &[u8]) -> Result<Vec<(IpAddr, u16)>, serde_json::Error> {
    let list: EndpointSliceList = serde_json::from_slice(list)?;
    let mut all_addresses = Vec::new();
    for slice in list.items {
        let ports = slice.ports.unwrap_or_default();
        let port = ports.iter().find(|port| port.name.as_deref() == Some("https")).and_then(|port| port.port);
        let Some(port) = port else { continue };
        let addresses = slice.endpoints.into_iter().flatten().flat_map(|endpoint| endpoint.addresses);
        all_addresses.extend(addresses.filter_map(|text| Some((text.parse().ok()?, port))));
    }
    all_addresses.sort_unstable();
    all_addresses.dedup();
    Ok(all_addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(network: &str, address: &str, expected: bool) {
        assert_eq!(
            network.parse::<Cidr>().unwrap().contains(address.parse().unwrap()),
            expected,
            "{network} {address}"
        );
    }

    #[test]
    fn cidr_contains_only_its_addresses() {
        check("10.0.0.0/24", "10.0.0.255", true);
        check("10.0.0.0/24", "10.0.1.0", false);
        check("10.0.0.7/32", "10.0.0.7", true);
        check("10.0.0.7/32", "10.0.0.8", false);
        check("0.0.0.0/0", "192.0.2.1", true);
        check("0.0.0.0/0", "fd00::1", false);
        check("fd00::/64", "fd00::1:2:3:4", true);
        check("fd00::/64", "fd00:0:0:1::1", false);
        check("::/0", "fd00::1", true);
        for text in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/129", "a/8", "10.0.0.0/-1"] {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn parse_addresses_reads_https_endpoints() {
        let list = br#"{"items":[
            {"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.2"]},{"addresses":["10.0.0.1"]}],
             "ports":[{"name":"https","port":6443,"protocol":"TCP"}]},
            {"endpoints":null,"ports":null},
            {"endpoints":[{"addresses":["10.0.0.9"]}],"ports":[{"name":"metrics","port":1}]},
            {"endpoints":[{"addresses":["host"]},{}],"ports":[{"name":"https","port":6443}]}
        ]}"#;
        let found = parse_addresses(list).unwrap();
        let shown: Vec<String> = found.iter().map(|(ip, port)| format!("{ip}:{port}")).collect();
        assert_eq!(shown, ["10.0.0.1:6443", "10.0.0.2:6443"]);
    }
}
