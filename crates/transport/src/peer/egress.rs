//! Parses kube-apiserver's EgressSelectorConfiguration, of which peer connections use the selection `controlplane`.

use std::path::PathBuf;

use http::Uri;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::Value;

use super::dial::{Egress, ProxyTls};
use super::tls::ClientTlsFiles;
use crate::pki::CertificateFiles;

const API_VERSIONS: [&str; 2] = ["apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"];
const KIND: &str = "EgressSelectorConfiguration";
/// The selection names that kube-apiserver accepts; peers use the first.
const SELECTION_NAMES: [&str; 3] = ["controlplane", "etcd", "cluster"];

/// Why a configuration is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// The file does not match the schema.
    #[error("not an {KIND}: {0}")]
    Malformed(String),
    /// The file has another kind or API version.
    #[error("unsupported kind {kind} of {version}; expected {KIND} of {} or {}", API_VERSIONS[0], API_VERSIONS[1])]
    UnsupportedKind {
        /// The `kind` field.
        kind: String,
        /// The `apiVersion` field.
        version: String,
    },
    /// A selection is invalid.
    #[error("egressSelections[{index}].{field}: {reason}")]
    InvalidSelection {
        /// The position in the list.
        index: usize,
        /// The path of the field within the selection.
        field: &'static str,
        /// The cause.
        reason: String,
    },
}

/// Returns the route that a configuration sets for connections to peers; direct if it has no `controlplane` selection.
pub fn parse_controlplane_egress(configuration: Value) -> Result<Egress, EgressError> {
    let configuration: EgressSelectorConfiguration =
        serde_json::from_value(configuration).map_err(|error| EgressError::Malformed(error.to_string()))?;
    let EgressSelectorConfiguration { api_version, kind, egress_selections } = configuration;
    if kind != KIND || !API_VERSIONS.contains(&&*api_version) {
        return Err(EgressError::UnsupportedKind { kind, version: api_version });
    }
    let mut found = None;
    let mut seen = Vec::new();
    for (index, selection) in egress_selections.into_iter().enumerate() {
        let fault = |(field, reason)| EgressError::InvalidSelection { index, field, reason };
        let name = selection.name.to_ascii_lowercase();
        if !SELECTION_NAMES.contains(&&*name) {
            return Err(fault(("name", format!("{name:?} is not one of {}", SELECTION_NAMES.join(", ")))));
        }
        if seen.contains(&name) {
            return Err(fault(("name", format!("{name:?} is listed twice"))));
        }
        let egress = selection.connection.into_egress().map_err(fault);
        // Selections that this server does not use are not validated further.
        if name == SELECTION_NAMES[0] {
            found = Some(egress?);
        }
        seen.push(name);
    }
    Ok(found.unwrap_or(Egress::Direct))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EgressSelectorConfiguration {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    egress_selections: Vec<EgressSelection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EgressSelection {
    name: String,
    connection: EgressConnectionConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EgressConnectionConfig {
    #[serde(default)]
    proxy_protocol: String,
    transport: Option<EgressTransport>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EgressTransport {
    tcp: Option<TcpTransport>,
    uds: Option<UdsTransport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TcpTransport {
    #[serde(default)]
    url: String,
    tls_config: Option<EgressTlsConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UdsTransport {
    #[serde(default)]
    uds_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EgressTlsConfig {
    #[serde(default)]
    ca_bundle: String,
    #[serde(default)]
    client_key: String,
    #[serde(default)]
    client_cert: String,
    #[serde(default)]
    tls_server_name: String,
}

/// A field path and what is wrong with it.
type EgressFieldError = (&'static str, String);

impl EgressConnectionConfig {
    fn into_egress(self) -> Result<Egress, EgressFieldError> {
        match &*self.proxy_protocol.to_ascii_lowercase() {
            "direct" if self.transport.is_none() => Ok(Egress::Direct),
            "direct" => Err(("connection.transport", "must be absent if proxyProtocol is Direct".to_owned())),
            "httpconnect" => self.into_proxy_egress(),
            "grpc" => Err((
                "connection.proxyProtocol",
                "GRPC is not supported; use HTTPConnect, which konnectivity offers too (--mode=http-connect)"
                    .to_owned(),
            )),
            other => Err(("connection.proxyProtocol", format!("{other:?} is neither Direct nor HTTPConnect"))),
        }
    }

    fn into_proxy_egress(self) -> Result<Egress, EgressFieldError> {
        match self.transport {
            Some(EgressTransport { tcp: None, uds: Some(UdsTransport { uds_name }) }) => {
                let path = PathBuf::from(uds_name);
                if !path.is_absolute() {
                    return Err(("connection.transport.uds.udsName", "must be an absolute path".to_owned()));
                }
                Ok(Egress::Unix(path))
            }
            Some(EgressTransport { tcp: Some(tcp), uds: None }) => tcp.into_egress(),
            Some(EgressTransport { tcp: None, uds: None } | EgressTransport { tcp: Some(_), uds: Some(_) }) | None => {
                Err(("connection.transport", "HTTPConnect requires exactly one of tcp and uds".to_owned()))
            }
        }
    }
}

impl TcpTransport {
    fn into_egress(self) -> Result<Egress, EgressFieldError> {
        const URL: &str = "connection.transport.tcp.url";
        let url: Uri = self.url.parse().map_err(|error| (URL, format!("{:?}: {error}", self.url)))?;
        let (scheme, default_port) = if self.tls_config.is_some() { ("https", 443) } else { ("http", 80) };
        if url.scheme_str() != Some(scheme) {
            let with = if self.tls_config.is_some() { "with" } else { "without" };
            return Err((URL, format!("{with} tlsConfig it must begin with {scheme}://")));
        }
        let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port_u16().unwrap_or(default_port);
        let tls = self.tls_config.map(|tls| tls.into_proxy_tls(&host)).transpose()?;
        Ok(Egress::Tcp { host, port, tls })
    }
}

impl EgressTlsConfig {
    fn into_proxy_tls(self, host: &str) -> Result<ProxyTls, EgressFieldError> {
        let Self { ca_bundle, client_key, client_cert, tls_server_name } = self;
        if ca_bundle.is_empty() {
            let reason = "is required; the system's certificate authorities are not used".to_owned();
            return Err(("connection.transport.tcp.tlsConfig.caBundle", reason));
        }
        let own = match (client_cert.is_empty(), client_key.is_empty()) {
            (true, true) => None,
            (false, false) => Some(CertificateFiles { certificate: client_cert.into(), key: client_key.into() }),
            (true, false) | (false, true) => {
                let reason = "clientCert and clientKey must be set together".to_owned();
                return Err(("connection.transport.tcp.tlsConfig", reason));
            }
        };
        let name = if tls_server_name.is_empty() { host.to_owned() } else { tls_server_name };
        let server_name = ServerName::try_from(name)
            .map_err(|error| ("connection.transport.tcp.tlsConfig.tlsServerName", error.to_string()))?;
        Ok(ProxyTls { files: ClientTlsFiles { ca_bundle: ca_bundle.into(), client_certificate: own }, server_name })
    }
}

#[cfg(test)]
mod tests;
