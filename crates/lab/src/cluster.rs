//! Status of a cluster that is not a lab, read from its identity leases, `/version` and `/debug/peers`. Read-only.

pub mod object_counts;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use transport::Reloading;
use transport::peer::{ClientTlsFiles, Connector, Dialer};
use transport::pki::CertificateFiles;

use crate::client::{AdminClient, AdminRequest, ClientError};
use crate::status::collect::{fetch_migrations, fetch_storage_versions};
use crate::status::{LabInfo, LabSnapshot, Phase, ServerSnapshot};

/// Identity leases of API servers, by the label that kube-apiserver sets.
const IDENTITY_LEASES_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                      ?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";

/// The `server` field of a gateway's `/debug/peers`.
const GATEWAY_IDENTITY: &str = "apiserver-gateway";

/// Client and credentials for a cluster, from a kubeconfig.
#[derive(Debug)]
pub struct ClusterAccess {
    client: AdminClient,
    address: String,
    connector: Arc<Connector>,
    token: Option<String>,
    /// Inline `*-data` credentials as memfds, kept open because the TLS configuration refers to them by path.
    _memfds: Vec<std::fs::File>,
}

/// Why the status of a cluster cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig lacks a required entry.
    #[error("the kubeconfig has no {0}")]
    Missing(&'static str),
    /// The kubeconfig uses a feature or value that this client does not support.
    #[error("{0}")]
    UnsupportedKubeconfig(String),
    /// The server did not respond.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server responded with an error status.
    #[error("GET {path} failed: {code} {message}")]
    Refused {
        /// Path and query of the request.
        path: String,
        /// HTTP status code.
        code: u16,
        /// `message` of the Status object; empty if the body is none.
        message: String,
    },
}

impl ClusterAccess {
    /// Reads the current context of a parsed kubeconfig; relative paths are relative to `base_dir`.
    pub fn from_kubeconfig(config: &Value, base_dir: &Path) -> Result<Self, ClusterError> {
        let named = |list: &str, name: &Value, inner: &str| -> Value {
            let entries = config[list].as_array().into_iter().flatten();
            entries.filter(|entry| entry["name"] == *name).map(|entry| entry[inner].clone()).next().unwrap_or_default()
        };
        let context = named("contexts", &config["current-context"], "context");
        let cluster = named("clusters", &context["cluster"], "cluster");
        let user = named("users", &context["user"], "user");
        let address = cluster["server"].as_str().ok_or(ClusterError::Missing("server in the current context"))?;
        let (host, port) = host_and_port(address)?;
        for plugin in ["exec", "auth-provider"] {
            if !user[plugin].is_null() {
                return Err(ClusterError::UnsupportedKubeconfig(format!(
                    "the user needs {plugin}, which is not supported"
                )));
            }
        }
        let mut memfds = Vec::new();
        let mut file = |entry: &Value, name: &str| credential_file(entry, name, base_dir, &mut memfds);
        let authorities =
            file(&cluster, "certificate-authority")?.ok_or(ClusterError::Missing("certificate authority"))?;
        let own = match (file(&user, "client-certificate")?, file(&user, "client-key")?) {
            (Some(certificate), Some(key)) => Some(CertificateFiles { certificate, key }),
            _ => None,
        };
        let tls = ClientTlsFiles { ca_bundle: authorities, client_certificate: own }
            .load()
            .map_err(|error| ClusterError::UnsupportedKubeconfig(error.to_string()))?;
        let connector = Arc::new(Connector::new(Reloading::fixed(tls), Dialer::direct()));
        let token = user["token"].as_str().map(str::to_owned);
        let client = AdminClient::new(&connector, &host, port).with_token(token.clone());
        Ok(Self { client, address: address.to_owned(), connector, token, _memfds: memfds })
    }

    /// The client of the address in the kubeconfig.
    pub fn client(&self) -> &AdminClient {
        &self.client
    }

    /// A client of another server, `https://host:port`, with the same credentials.
    pub fn client_of(&self, address: &str) -> Result<AdminClient, ClusterError> {
        let (host, port) = host_and_port(address)?;
        Ok(AdminClient::new(&self.connector, &host, port).with_token(self.token.clone()))
    }
}

/// Returns the path of a credential: the file that the entry names, or a memfd with its inline `*-data`.
fn credential_file(
    entry: &Value,
    name: &str,
    base_dir: &Path,
    memfds: &mut Vec<std::fs::File>,
) -> Result<Option<PathBuf>, ClusterError> {
    use std::os::fd::AsRawFd as _;
    let unusable = |error: &dyn std::fmt::Display| ClusterError::UnsupportedKubeconfig(format!("{name}: {error}"));
    if let Some(data) = entry[format!("{name}-data")].as_str() {
        let bytes = STANDARD.decode(data).map_err(|error| unusable(&error))?;
        let memory = memfd_create("kubeconfig", MemfdFlags::CLOEXEC).map_err(|error| unusable(&error))?;
        let mut memory = std::fs::File::from(memory);
        memory.write_all(&bytes).map_err(|error| unusable(&error))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
        memfds.push(memory);
        return Ok(Some(path));
    }
    Ok(entry[name].as_str().map(|path| base_dir.join(path)))
}

/// Splits `https://host[:port]`; the default port is 443.
fn host_and_port(address: &str) -> Result<(String, u16), ClusterError> {
    let unusable = || ClusterError::UnsupportedKubeconfig(format!("server {address}: https://host:port is expected"));
    let rest = address.strip_prefix("https://").ok_or_else(unusable)?.trim_end_matches('/');
    if rest.contains('/') {
        return Err(unusable());
    }
    match rest.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => Ok((host.trim_matches(['[', ']']).to_owned(), port.parse().map_err(|_| unusable())?)),
        None => Ok((rest.trim_matches(['[', ']']).to_owned(), 443)),
    }
}

/// Reads leases, version, peers and storage versions of the cluster.
pub async fn fetch_snapshot(access: &ClusterAccess) -> Result<LabSnapshot, ClusterError> {
    let client = &access.client;
    let leases = client.request(AdminRequest::get(IDENTITY_LEASES_PATH)).await?;
    if !leases.status.is_success() {
        let message = leases.json()["message"].as_str().unwrap_or_default().to_owned();
        return Err(ClusterError::Refused {
            path: IDENTITY_LEASES_PATH.to_owned(),
            code: leases.status.as_u16(),
            message,
        });
    }
    let version = client.request(AdminRequest::get("/version")).await?.json();
    // kube-apiserver has no `/debug/peers`, and the user may lack the permission to read it.
    let peers = match client.request(AdminRequest::get("/debug/peers")).await {
        Ok(answer) if answer.status.is_success() => answer.json(),
        Ok(_) | Err(_) => Value::Null,
    };
    Ok(LabSnapshot {
        lab: LabInfo { address: access.address.clone(), ..LabInfo::default() },
        servers: servers_from_leases(&leases.json(), &version, &peers, Timestamp::now()),
        storage_versions: fetch_storage_versions(client).await.unwrap_or_default(),
        migrations: fetch_migrations(client).await.unwrap_or_default(),
        ..LabSnapshot::default()
    })
}

/// Builds one row per identity lease, with peer states from `/debug/peers`; for a gateway one row per upstream.
fn servers_from_leases(leases: &Value, version: &Value, peers: &Value, now: Timestamp) -> Vec<ServerSnapshot> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let upstreams = upstreams_of_gateway(peers);
    if !upstreams.is_empty() {
        return upstreams;
    }
    let is_alone = leases["items"].as_array().is_some_and(|leases| leases.len() == 1);
    let server = |lease: &Value| {
        let identity = text(&lease["metadata"]["name"]);
        let mut members = peers["members"].as_array().into_iter().flatten();
        let member = members.find(|member| member["server"] == identity).unwrap_or(&Value::Null);
        let is_queried_server = peers["server"] == identity;
        let has_known_release = is_queried_server || is_alone && peers.is_null();
        let hostname = text(&lease["metadata"]["labels"]["kubernetes.io/hostname"]);
        let age = lease_age_seconds(lease, now);
        let is_valid = age.is_some_and(|age| age <= lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or_default());
        let only = if is_queried_server { &peers["onlyHere"] } else { &member["onlyItServes"] };
        ServerSnapshot {
            name: if hostname.is_empty() { identity.clone() } else { hostname },
            release: if has_known_release { text(&version["gitVersion"]) } else { String::new() },
            phase: if is_valid { Phase::Ready } else { Phase::Stopped },
            phase_seconds: age.and_then(|age| u64::try_from(age).ok()).unwrap_or_default(),
            member_state: match (is_queried_server, &member["state"]) {
                (true, _) => "live".to_owned(),
                (false, Value::String(state)) => state.clone(),
                (false, _) if is_valid => "lease valid".to_owned(),
                (false, _) => "lease expired".to_owned(),
            },
            member_seconds: member["stateSeconds"].as_u64().unwrap_or_default(),
            exclusive_resources: only["items"].as_array().into_iter().flatten().map(resource_path).collect(),
            identity,
            ..ServerSnapshot::default()
        }
    };
    leases["items"].as_array().into_iter().flatten().map(server).collect()
}

/// Upstreams listed by a gateway's `/debug/peers`; empty if `peers` is not from a gateway.
fn upstreams_of_gateway(peers: &Value) -> Vec<ServerSnapshot> {
    if peers["server"] != GATEWAY_IDENTITY {
        return Vec::new();
    }
    let server = |member: &Value| {
        let text = |name: &str| member[name].as_str().unwrap_or_default().to_owned();
        let seconds = member["stateSeconds"].as_u64().unwrap_or_default();
        ServerSnapshot {
            name: text("address"),
            address: text("address"),
            phase: if member["state"] == "live" { Phase::Ready } else { Phase::Stopped },
            phase_seconds: seconds,
            identity: text("server"),
            member_state: text("state"),
            member_seconds: seconds,
            exclusive_resources: member["onlyItServes"]["items"]
                .as_array()
                .into_iter()
                .flatten()
                .map(resource_path)
                .collect(),
            ..ServerSnapshot::default()
        }
    };
    peers["members"].as_array().into_iter().flatten().map(server).collect()
}

/// Seconds since the last renewal; `None` without a valid `renewTime`.
fn lease_age_seconds(lease: &Value, now: Timestamp) -> Option<i64> {
    let renewed: Timestamp = lease["spec"]["renewTime"].as_str()?.parse().ok()?;
    Some(now.duration_since(renewed).as_secs())
}

/// Formats a resource as `group/version/resource/subresource`, without empty parts.
fn resource_path(item: &Value) -> String {
    let parts = ["group", "version", "resource", "subresource"].map(|part| item[part].as_str().unwrap_or_default());
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_address(address: &str, expected: &str) {
        let shown = match host_and_port(address) {
            Ok((host, port)) => format!("{host} {port}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn server_address_is_split_into_host_and_port() {
        check_address("https://10.0.0.1:6443", "10.0.0.1 6443");
        check_address("https://api.example/", "api.example 443");
        check_address("https://[fd00::1]:6443", "fd00::1 6443");
        check_address("https://[fd00::1]", "fd00::1 443");
        check_address("http://x", "server http://x: https://host:port is expected");
        check_address("https://x/k8s/clusters/c-1", "server https://x/k8s/clusters/c-1: https://host:port is expected");
    }

    #[test]
    fn kubeconfig_with_inline_certificates_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let keys = crate::pki::LabPki::open_or_create(folder.path()).unwrap();
        let file = folder.path().join("kubeconfig");
        keys.write_kubeconfig(&file, "https://127.0.0.1:1").unwrap();
        let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        ClusterAccess::from_kubeconfig(&config, folder.path()).unwrap();
        config["users"][0]["user"]["exec"] = json!({"command": "x"});
        let refused = ClusterAccess::from_kubeconfig(&config, folder.path()).unwrap_err();
        assert_eq!(refused.to_string(), "the user needs exec, which is not supported");
        config["current-context"] = "other".into();
        let refused = ClusterAccess::from_kubeconfig(&config, folder.path()).unwrap_err();
        assert_eq!(refused.to_string(), "the kubeconfig has no server in the current context");
    }

    #[test]
    fn servers_are_read_from_identity_leases() {
        let lease = |name: &str, renewed: &str| {
            json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": format!("host-{name}")}},
                   "spec": {"renewTime": renewed, "leaseDurationSeconds": 3600}})
        };
        let leases = json!({"items": [
            lease("a", "2026-11-15T12:00:00.000000Z"),
            lease("b", "2026-11-15T10:00:00.000000Z"),
            lease("c", "2026-11-15T12:00:00.000000Z"),
        ]});
        let peers = json!({"server": "a", "members": [{"server": "c", "state": "mute", "stateSeconds": 3, "onlyItServes":
            {"items": [{"group": "", "version": "v1", "resource": "pods", "subresource": "resize", "verbs": ["get"]}]}}]});
        let now = "2026-11-15T12:00:30Z".parse().unwrap();
        let shown: Vec<String> = servers_from_leases(&leases, &json!({"gitVersion": "v1.36.0"}), &peers, now)
            .iter()
            .map(|s| {
                format!("{} {} {} {} {:?}", s.name, s.release, s.phase_seconds, s.member_state, s.exclusive_resources)
            })
            .collect();
        assert_eq!(
            shown,
            ["host-a v1.36.0 30 live []", "host-b  7230 lease expired []", "host-c  30 mute [\"v1/pods/resize\"]",]
        );
    }

    #[test]
    fn servers_behind_a_gateway_are_its_upstreams() {
        let member = |address: &str, state: &str| {
            let name = format!("apiserver-{address}");
            json!({"server": name, "address": address, "state": state, "stateSeconds": 5, "onlyItServes": {"items": []}})
        };
        let members = [member("10.0.0.1:6443", "live"), member("10.0.0.2:6443", "suspect")];
        let peers = json!({"server": GATEWAY_IDENTITY, "members": members});
        let now = "2026-11-15T12:00:30Z".parse().unwrap();
        let shown: Vec<String> = servers_from_leases(&json!({"items": []}), &json!({}), &peers, now)
            .iter()
            .map(|server| format!("{} {:?} {}", server.name, server.phase, server.member_state))
            .collect();
        assert_eq!(shown, ["10.0.0.1:6443 Ready live", "10.0.0.2:6443 Stopped suspect"]);
    }

    #[test]
    fn single_stock_server_has_the_release_of_its_version_page() {
        let leases = json!({"items": [{"metadata": {"name": "a"}, "spec": {}}]});
        let now = "2026-11-15T12:00:30Z".parse().unwrap();
        let version = json!({"gitVersion": "v1.36.4"});
        assert_eq!(servers_from_leases(&leases, &version, &Value::Null, now)[0].release, "v1.36.4");
    }
}
