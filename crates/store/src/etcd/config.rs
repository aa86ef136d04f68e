//! The values of the `--etcd-*` flags, and their validation.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::TlsConnector;
use transport::ClientCaBundle;

use super::connection::EtcdAddress;

/// The port for URLs without one: etcd's default.
const DEFAULT_PORT: u16 = 2379;

/// The values of the `--etcd-*` flags.
#[derive(Clone, Debug)]
pub struct Config {
    /// `--etcd-servers`: URLs of the members of one cluster, in order of preference.
    pub servers: Vec<String>,
    /// `--etcd-cafile`: the CA bundle that signs the members' server certificates. Required for https.
    pub ca_file: Option<PathBuf>,
    /// `--etcd-certfile`: the client certificate; requires `--etcd-keyfile`.
    pub cert_file: Option<PathBuf>,
    /// `--etcd-keyfile`: the private key of the client certificate.
    pub key_file: Option<PathBuf>,
    /// Defaults to [`Timeouts::default`].
    pub timeouts: Timeouts,
}

/// Time limits for etcd.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For opening a connection, including the first response.
    pub connect: Duration,
    /// For a request, over all members that it is sent to.
    pub request: Duration,
    /// Idle time after which a connection in use is tested with a PING.
    pub keep_alive_interval: Duration,
    /// For the reply to that PING; then the connection is closed.
    pub keep_alive_timeout: Duration,
}

impl Default for Timeouts {
    /// The keepalive is kube-apiserver's. The request timeout is about twice the 7 s that etcd waits for consensus with
    /// its default election timeout, so that etcd reports the outcome of a write before this client stops waiting.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            request: Duration::from_secs(15),
            keep_alive_interval: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(10),
        }
    }
}

/// An unusable `--etcd-*` flag.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// `--etcd-servers` is empty.
    #[error("--etcd-servers names no server")]
    NoServers,
    /// A server URL is malformed.
    #[error("--etcd-servers: {url:?} is not a URL like https://10.0.0.1:2379: {reason}")]
    InvalidUrl {
        /// The URL as given.
        url: String,
        /// What is wrong with the URL.
        reason: String,
    },
    /// https without a CA bundle.
    #[error("--etcd-servers has https URLs, which need a CA bundle: set --etcd-cafile")]
    NoCa,
    /// A TLS file that no URL uses.
    #[error("{flag} is given, but --etcd-servers has only http URLs")]
    UnusedTls {
        /// The flag that has no effect.
        flag: &'static str,
    },
    /// A client certificate without its key, or the reverse.
    #[error("--etcd-certfile and --etcd-keyfile must be given together")]
    IncompleteClientCertificate,
    /// A file cannot be read.
    #[error("{flag}: cannot read {path}")]
    UnreadableFile {
        /// The flag that names the file.
        flag: &'static str,
        /// The path as given.
        path: PathBuf,
        /// The read error.
        #[source]
        source: io::Error,
    },
    /// A file does not hold a usable certificate or key.
    #[error("{flag}: {path} is not usable: {reason}")]
    InvalidContent {
        /// The flag that names the file.
        flag: &'static str,
        /// The path as given.
        path: PathBuf,
        /// What is wrong with the content.
        reason: String,
    },
}

const CA_FLAG: &str = "--etcd-cafile";
const CERT_FLAG: &str = "--etcd-certfile";
const KEY_FLAG: &str = "--etcd-keyfile";

impl Config {
    /// A configuration for plain http with the default timeouts.
    pub fn new(servers: Vec<String>) -> Self {
        Self { servers, ca_file: None, cert_file: None, key_file: None, timeouts: Timeouts::default() }
    }

    pub(super) fn addresses(&self) -> Result<Vec<EtcdAddress>, ConfigError> {
        if self.servers.is_empty() {
            return Err(ConfigError::NoServers);
        }
        let address =
            |url: &String| parse_address(url).map_err(|reason| ConfigError::InvalidUrl { url: url.clone(), reason });
        self.servers.iter().map(address).collect()
    }

    /// The TLS connector for https members; `None` if all URLs are http.
    pub(super) fn tls(&self) -> Result<Option<TlsConnector>, ConfigError> {
        let files = [(CA_FLAG, &self.ca_file), (CERT_FLAG, &self.cert_file), (KEY_FLAG, &self.key_file)];
        if !self.addresses()?.iter().any(|address| address.tls_name.is_some()) {
            let unused = files.iter().find(|(_, file)| file.is_some());
            return unused.map_or(Ok(None), |&(flag, _)| Err(ConfigError::UnusedTls { flag }));
        }
        let ca_file = self.ca_file.as_deref().ok_or(ConfigError::NoCa)?;
        let authorities = ClientCaBundle::from_pem(&read_file(CA_FLAG, ca_file)?, &ca_file.display().to_string())
            .map_err(|reason| content_error(CA_FLAG, ca_file, &reason))?;
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| content_error(CA_FLAG, ca_file, &error))?
            .dangerous()
            .with_custom_certificate_verifier(authorities.into_server_verifier());
        let mut config = match (&self.cert_file, &self.key_file) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert_file), Some(key_file)) => {
                let key = read_private_key(key_file)?;
                let chain = read_certificates(CERT_FLAG, cert_file)?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| content_error(CERT_FLAG, cert_file, &error))?
            }
            _ => return Err(ConfigError::IncompleteClientCertificate),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some(TlsConnector::from(Arc::new(config))))
    }
}

fn parse_address(url: &str) -> Result<EtcdAddress, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let is_tls = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        Some(scheme) if *scheme == Scheme::HTTP => false,
        _ => return Err("it must begin with http:// or https://".to_owned()),
    };
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err("it must not have a path or a query".to_owned());
    }
    let authority = uri.authority().ok_or("it names no host")?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = authority.port_u16().unwrap_or(DEFAULT_PORT);
    let tls_name = match is_tls {
        true => Some(ServerName::try_from(host.clone()).map_err(|error| format!("{error}"))?),
        false => None,
    };
    Ok(EtcdAddress { origin: uri, host, port, tls_name })
}

fn read_certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let text = read_file(flag, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| content_error(flag, path, &error))?;
    match found.is_empty() {
        true => Err(content_error(flag, path, &"it holds no PEM certificate")),
        false => Ok(found),
    }
}

fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    PrivateKeyDer::from_pem_slice(&read_file(KEY_FLAG, path)?).map_err(|error| content_error(KEY_FLAG, path, &error))
}

fn read_file(flag: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::UnreadableFile { flag, path: path.to_owned(), source })
}

fn content_error(flag: &'static str, path: &Path, reason: &dyn ToString) -> ConfigError {
    ConfigError::InvalidContent { flag, path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests;
