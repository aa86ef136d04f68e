//! The egress selector's configuration: the file that a real kube-apiserver reads, of which peers use `controlplane`.

use std::path::PathBuf;

use http::Uri;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::Value;

use super::dial::{Egress, ProxyTls};
use super::tls::ClientFiles;
use crate::pki::Pair;

const VERSIONS: [&str; 2] = ["apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"];
const KIND: &str = "EgressSelectorConfiguration";
/// The names that kube-apiserver accepts; ours is the first.
const NAMES: [&str; 3] = ["controlplane", "etcd", "cluster"];

/// Why a configuration cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// It is not of the form.
    #[error("it is no {KIND}: {0}")]
    Form(String),
    /// It is of another kind or version.
    #[error("it is a {kind} of {version}; wanted is an {KIND} of {} or {}", VERSIONS[0], VERSIONS[1])]
    Kind {
        /// What it says.
        kind: String,
        /// What it says.
        version: String,
    },
    /// An entry cannot be followed.
    #[error("egressSelections[{index}].{field}: {reason}")]
    Entry {
        /// Which entry.
        index: usize,
        /// Which field of it.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// The way that a configuration gives for connections to peers; direct if it does not speak of them.
pub fn controlplane(configuration: Value) -> Result<Egress, EgressError> {
    let configuration: Configuration =
        serde_json::from_value(configuration).map_err(|error| EgressError::Form(error.to_string()))?;
    let Configuration { api_version, kind, egress_selections } = configuration;
    if kind != KIND || !VERSIONS.contains(&&*api_version) {
        return Err(EgressError::Kind { kind, version: api_version });
    }
    let mut found = None;
    let mut seen = Vec::new();
    for (index, selection) in egress_selections.into_iter().enumerate() {
        let fault = |(field, reason)| EgressError::Entry { index, field, reason };
        let name = selection.name.to_ascii_lowercase();
        if !NAMES.contains(&&*name) {
            return Err(fault(("name", format!("{name:?} is none of {}", NAMES.join(", ")))));
        }
        if seen.contains(&name) {
            return Err(fault(("name", format!("{name:?} is there twice"))));
        }
        let egress = selection.connection.egress().map_err(fault);
        // What is meant for others is checked by others.
        if name == NAMES[0] {
            found = Some(egress?);
        }
        seen.push(name);
    }
    Ok(found.unwrap_or(Egress::Direct))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    egress_selections: Vec<Selection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Selection {
    name: String,
    connection: Connection,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Connection {
    #[serde(default)]
    proxy_protocol: String,
    transport: Option<Transport>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transport {
    tcp: Option<Tcp>,
    uds: Option<Uds>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tcp {
    #[serde(default)]
    url: String,
    tls_config: Option<Tls>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Uds {
    #[serde(default)]
    uds_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tls {
    #[serde(default)]
    ca_bundle: String,
    #[serde(default)]
    client_key: String,
    #[serde(default)]
    client_cert: String,
    #[serde(default)]
    tls_server_name: String,
}

/// A field and what is wrong with it.
type Fault = (&'static str, String);

impl Connection {
    fn egress(self) -> Result<Egress, Fault> {
        match &*self.proxy_protocol.to_ascii_lowercase() {
            "direct" if self.transport.is_none() => Ok(Egress::Direct),
            "direct" => Err(("connection.transport", "a direct connection has none".to_owned())),
            "httpconnect" => self.proxy(),
            "grpc" => Err((
                "connection.proxyProtocol",
                "GRPC is not supported; use HTTPConnect, which konnectivity offers too (--mode=http-connect)"
                    .to_owned(),
            )),
            other => Err(("connection.proxyProtocol", format!("{other:?} is none of Direct and HTTPConnect"))),
        }
    }

    fn proxy(self) -> Result<Egress, Fault> {
        match self.transport {
            Some(Transport { tcp: None, uds: Some(Uds { uds_name }) }) => {
                let path = PathBuf::from(uds_name);
                if !path.is_absolute() {
                    return Err(("connection.transport.uds.udsName", "an absolute path is needed".to_owned()));
                }
                Ok(Egress::Unix(path))
            }
            Some(Transport { tcp: Some(tcp), uds: None }) => tcp.egress(),
            Some(Transport { tcp: None, uds: None } | Transport { tcp: Some(_), uds: Some(_) }) | None => {
                Err(("connection.transport", "HTTPConnect needs one of tcp and uds".to_owned()))
            }
        }
    }
}

impl Tcp {
    fn egress(self) -> Result<Egress, Fault> {
        const URL: &str = "connection.transport.tcp.url";
        let url: Uri = self.url.parse().map_err(|error| (URL, format!("{:?}: {error}", self.url)))?;
        let (scheme, default_port) = if self.tls_config.is_some() { ("https", 443) } else { ("http", 80) };
        if url.scheme_str() != Some(scheme) {
            let with = if self.tls_config.is_some() { "with" } else { "without" };
            return Err((URL, format!("{with} tlsConfig it must begin with {scheme}://")));
        }
        let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port_u16().unwrap_or(default_port);
        let tls = self.tls_config.map(|tls| tls.proxy_tls(&host)).transpose()?;
        Ok(Egress::Tcp { host, port, tls })
    }
}

impl Tls {
    fn proxy_tls(self, host: &str) -> Result<ProxyTls, Fault> {
        let Self { ca_bundle, client_key, client_cert, tls_server_name } = self;
        if ca_bundle.is_empty() {
            let reason = "is needed: the system's certificate authorities are not used".to_owned();
            return Err(("connection.transport.tcp.tlsConfig.caBundle", reason));
        }
        let own = match (client_cert.is_empty(), client_key.is_empty()) {
            (true, true) => None,
            (false, false) => Some(Pair { certificate: client_cert.into(), key: client_key.into() }),
            (true, false) | (false, true) => {
                let reason = "clientCert and clientKey go together".to_owned();
                return Err(("connection.transport.tcp.tlsConfig", reason));
            }
        };
        let name = if tls_server_name.is_empty() { host.to_owned() } else { tls_server_name };
        let server_name = ServerName::try_from(name)
            .map_err(|error| ("connection.transport.tcp.tlsConfig.tlsServerName", error.to_string()))?;
        Ok(ProxyTls { files: ClientFiles { authorities: ca_bundle.into(), own }, server_name })
    }
}

#[cfg(test)]
mod tests;
