//! What the etcd flags say, checked.

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

/// The port of an URL that names none: etcd's.
const DEFAULT_PORT: u16 = 2379;

/// Which etcd to use, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// `--etcd-servers`: URLs of the members of one cluster, in order of preference.
    pub servers: Vec<String>,
    /// `--etcd-cafile`: who signed the certificates of the servers. Needed for https.
    pub ca_file: Option<PathBuf>,
    /// `--etcd-certfile`: who we are; with `--etcd-keyfile`.
    pub cert_file: Option<PathBuf>,
    /// `--etcd-keyfile`: the key of our certificate.
    pub key_file: Option<PathBuf>,
    /// How long to wait for what.
    pub timeouts: Timeouts,
}

/// How long to wait for etcd.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a connection to one etcd and its first answer.
    pub connect: Duration,
    /// For a request, over all etcds that are asked.
    pub request: Duration,
    /// The silence after which a connection in use is tested.
    pub keep_alive_interval: Duration,
    /// For the answer to that test; then the connection is given up.
    pub keep_alive_timeout: Duration,
}

impl Default for Timeouts {
    /// The keep-alive is kube-apiserver's. A request may take twice as long as etcd itself waits for consensus (7 s with its
    /// usual election timeout), so that etcd's word on a write comes before we stop waiting for it.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            request: Duration::from_secs(15),
            keep_alive_interval: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(10),
        }
    }
}

/// A flag that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is nobody to ask.
    #[error("--etcd-servers names no server")]
    NoServers,
    /// An URL that we cannot connect to.
    #[error("--etcd-servers: {url:?} is not a URL like https://10.0.0.1:2379: {reason}")]
    InvalidUrl {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// https without a way to know whom to trust.
    #[error("--etcd-servers has https URLs, which need --etcd-cafile to know whom to trust")]
    NoCa,
    /// A certificate for nobody to see.
    #[error("{flag} is given, but --etcd-servers has only http URLs")]
    UnusedTls {
        /// The flag that has no effect.
        flag: &'static str,
    },
    /// Half of an identity.
    #[error("--etcd-certfile and --etcd-keyfile must be given together")]
    IncompleteClientCertificate,
    /// A file that cannot be read.
    #[error("{flag}: cannot read {path}")]
    UnreadableFile {
        /// Which flag named it.
        flag: &'static str,
        /// As it was given.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file without what it is for.
    #[error("{flag}: {path} is no use: {reason}")]
    InvalidContent {
        /// Which flag named it.
        flag: &'static str,
        /// As it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

const CA_FLAG: &str = "--etcd-cafile";
const CERT_FLAG: &str = "--etcd-certfile";
const KEY_FLAG: &str = "--etcd-keyfile";

impl Config {
    /// Plain http, without certificates, with the usual timeouts.
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

    /// What https connections are made with; `None` if there are none.
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
        return Err("it must end after the port".to_owned());
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
