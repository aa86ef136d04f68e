//! The API servers of a cluster, each asked directly.

use std::fmt;

use ::lab::client::{AdminClient, AdminRequest};
use ::lab::cluster::ClusterAccess;
use anyhow::Context as _;
use kinds::{Release, StockServerVersion};
use serde_json::Value;

const ENDPOINTS: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                         ?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes";

/// The API servers that requests are sent to.
pub(crate) struct ServerList {
    pub(crate) servers: Vec<ApiServer>,
    /// Whether the operator named them, which also says that there are no others.
    pub(crate) is_given: bool,
}

/// One API server.
#[derive(Clone)]
pub(crate) struct ApiServer {
    /// `https://host:port`.
    pub(crate) address: String,
    pub(crate) client: AdminClient,
}

/// What `/version` of a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerVersion {
    Stock(StockServerVersion),
    /// A server of unskew, which stores what its release stores.
    Unskew(Release),
}

impl ServerList {
    /// The servers that the flags name, or else the endpoints of the service `kubernetes`.
    pub(crate) async fn find(access: &ClusterAccess, given: &[String]) -> anyhow::Result<Self> {
        let addresses = match given.is_empty() {
            false => given.to_vec(),
            true => endpoint_addresses(access).await?,
        };
        let server = |address: String| -> anyhow::Result<ApiServer> {
            let client = access.client_of(&address).with_context(|| format!("server {address}"))?;
            Ok(ApiServer { address, client })
        };
        let servers = addresses.into_iter().map(server).collect::<anyhow::Result<_>>()?;
        Ok(Self { servers, is_given: !given.is_empty() })
    }
}

async fn endpoint_addresses(access: &ClusterAccess) -> anyhow::Result<Vec<String>> {
    let response = access.client().request(AdminRequest::get(ENDPOINTS)).await?;
    anyhow::ensure!(response.status.is_success(), "the endpoints of the service kubernetes: {}", response.status);
    Ok(addresses_in(&response.json()))
}

fn addresses_in(slices: &Value) -> Vec<String> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut addresses = Vec::new();
    for slice in items(&slices["items"]) {
        let port = slice["ports"][0]["port"].as_u64().unwrap_or(443);
        for endpoint in items(&slice["endpoints"]) {
            for address in items(&endpoint["addresses"]).iter().filter_map(Value::as_str) {
                let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
                addresses.push(format!("https://{host}:{port}"));
            }
        }
    }
    addresses.sort();
    addresses.dedup();
    addresses
}

impl ApiServer {
    /// Asks the server for its version.
    pub(crate) async fn version(&self) -> Result<ServerVersion, String> {
        let response = self.client.request(AdminRequest::get("/version")).await;
        let response = response.map_err(|error| format!("{}: {error}", self.address))?;
        if !response.status.is_success() {
            return Err(format!("{}: GET /version: {}", self.address, response.status));
        }
        let page = response.json();
        parse_version(&page).ok_or_else(|| format!("{}: /version does not tell its release: {page}", self.address))
    }
}

fn parse_version(page: &Value) -> Option<ServerVersion> {
    let release = |major: &str, minor: &str| -> Option<Release> {
        let digits = |name: &str| page[name].as_str().map(|text| text.trim_end_matches('+').to_owned());
        format!("{}.{}", digits(major)?, digits(minor)?).parse().ok()
    };
    let binary = release("major", "minor")?;
    if page["gitVersion"].as_str().is_some_and(|version| version.contains("+unskew")) {
        return Some(ServerVersion::Unskew(release("emulationMajor", "emulationMinor").unwrap_or(binary)));
    }
    let emulated = release("emulationMajor", "emulationMinor").unwrap_or(binary);
    // Releases before 1.33 do not tell, and cannot be given another one.
    let default_minimum = || Release::ALL.into_iter().rev().find(|earlier| *earlier < emulated);
    let min_compatibility = release("minCompatibilityMajor", "minCompatibilityMinor").or_else(default_minimum)?;
    Some(ServerVersion::Stock(StockServerVersion { binary, emulated, min_compatibility }))
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stock(StockServerVersion { binary, emulated, min_compatibility }) => {
                write!(f, "kube-apiserver {binary}, emulates {emulated}, stays compatible with {min_compatibility}")
            }
            Self::Unskew(release) => write!(f, "unskew, emulates {release}"),
        }
    }
}

impl ServerVersion {
    /// The release that the server acts as.
    pub(crate) fn emulated(self) -> Release {
        match self {
            Self::Stock(server) => server.emulated,
            Self::Unskew(release) => release,
        }
    }

    /// The version in which the server stores a built-in resource, `storage.k8s.io/v1`.
    pub(crate) fn encoding_version(self, group: &str, resource: &str) -> Option<String> {
        let kind = kinds::groups::find_kind(group, resource)?;
        let version = match self {
            Self::Stock(server) => kind.storage_version_of(server),
            Self::Unskew(release) => kind.storage_version(release),
        }?;
        Some(if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn version_page_tells_binary_emulation_and_minimum() {
        let page = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.4", "emulationMajor": "1",
            "emulationMinor": "36", "minCompatibilityMajor": "1", "minCompatibilityMinor": "33"});
        let version = parse_version(&page).unwrap();
        let classes = |version: ServerVersion| version.encoding_version("storage.k8s.io", "volumeattributesclasses");
        assert_eq!(classes(version).as_deref(), Some("storage.k8s.io/v1beta1"));
        let plain = parse_version(&json!({"major": "1", "minor": "36+", "gitVersion": "v1.36.4-eks"})).unwrap();
        assert_eq!(classes(plain).as_deref(), Some("storage.k8s.io/v1"));
        assert_eq!(plain.encoding_version("", "pods").as_deref(), Some("v1"));
        let ours = json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0+unskew.0.1.0"});
        assert_eq!(parse_version(&ours), Some(ServerVersion::Unskew(Release::R34)));
        assert_eq!(parse_version(&json!({"gitVersion": "v1.2"})), None);
    }

    #[test]
    fn addresses_are_those_of_the_endpoint_slices() {
        let slices = json!({"items": [
            {"ports": [{"port": 6443}], "endpoints": [{"addresses": ["10.0.0.2"]}, {"addresses": ["10.0.0.1"]}]},
            {"ports": [{"port": 6443}], "endpoints": [{"addresses": ["fd00::1"]}]},
        ]});
        assert_eq!(addresses_in(&slices), ["https://10.0.0.1:6443", "https://10.0.0.2:6443", "https://[fd00::1]:6443"]);
    }
}
