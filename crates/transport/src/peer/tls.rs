//! Client-side TLS configuration, reloaded when its files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::WantsClientCert;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder};
use tasks::Tasks;

use crate::client_ca::{bundle_verifier, fixed_verifier, system_verifier};
use crate::pki::CertificateFiles;
use crate::{ClientCaBundle, Reloading};

/// ALPN protocol names.
pub(super) const ALPN_HTTP1: &[u8] = b"http/1.1";
pub(super) const ALPN_HTTP2: &[u8] = b"h2";

/// The files of a client's TLS configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// The CA bundle, PEM. The system's CAs are not trusted.
    pub ca_bundle: PathBuf,
    /// Client certificate and key, PEM, if the server requests them.
    pub client_certificate: Option<CertificateFiles>,
}

/// A loaded client TLS configuration.
#[derive(Debug)]
pub struct ClientTls {
    /// Offers HTTP/1.1 only; for exclusive connections and upgrades.
    pub(super) http1_config: Arc<ClientConfig>,
    /// Same certificates; offers HTTP/2, then HTTP/1.1.
    pub(super) http2_config: Arc<ClientConfig>,
    /// Unique per load of the files; connections of an earlier generation are not reused.
    pub(super) generation: u64,
}

/// Why the files cannot be used. Each error names the file.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// The CA bundle is unreadable, empty, or contains a certificate that is not a CA.
    #[error("cannot use the certificate authorities {file}: {reason}")]
    CaBundle {
        /// The bundle's path.
        file: String,
        /// The cause.
        reason: String,
    },
    /// The client certificate cannot be read.
    #[error("cannot read the client certificate {file}: {reason}")]
    Certificate {
        /// The certificate's path.
        file: String,
        /// The cause.
        reason: String,
    },
    /// The private key cannot be read.
    #[error("cannot read the private key {file}: {reason}")]
    Key {
        /// The key's path.
        file: String,
        /// The cause.
        reason: String,
    },
    /// The key does not belong to the certificate.
    #[error("the client certificate {certificate} and the key {key} do not match: {reason}")]
    Mismatch {
        /// The certificate's path.
        certificate: String,
        /// The key's path.
        key: String,
        /// The cause.
        reason: String,
    },
}

impl ClientTlsFiles {
    /// Loads the files now and whenever one of them changes. If a changed file is unusable, the former configuration
    /// stays.
    pub fn start_reloading(self, tasks: &Tasks) -> Result<Reloading<ClientTls>, ClientTlsError> {
        let mut files = vec![self.ca_bundle.clone()];
        files.extend(self.client_certificate.iter().flat_map(|own| [own.certificate.clone(), own.key.clone()]));
        Reloading::start(files, move || self.load(), tasks)
    }

    /// Loads the files once.
    pub fn load(&self) -> Result<ClientTls, ClientTlsError> {
        let builder = client_config(read_ca_bundle(&self.ca_bundle)?.into_server_verifier());
        let config = match &self.client_certificate {
            None => builder.with_no_client_auth(),
            Some(own) => with_client_certificate(builder, own)?,
        };
        Ok(ClientTls::new(config))
    }
}

impl ClientTls {
    fn new(mut config: ClientConfig) -> Self {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        config.alpn_protocols = vec![ALPN_HTTP1.to_vec()];
        let mut sharing = config.clone();
        sharing.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()];
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
        Self { http1_config: Arc::new(config), http2_config: Arc::new(sharing), generation }
    }

    /// For a client that offers HTTP/2, then HTTP/1.1.
    pub fn http2_config(&self) -> Arc<ClientConfig> {
        self.http2_config.clone()
    }

    /// Trusts what an API object says of a server, and shows the client certificate, if there is one.
    pub fn for_object(trust: ServerTrust<'_>, client: Option<&ClientCertificate>) -> Result<Self, String> {
        let builder = client_config(match trust {
            ServerTrust::Bundle(pem) => bundle_verifier(pem)?,
            ServerTrust::System => system_verifier()?,
            ServerTrust::Anything => fixed_verifier(true),
            ServerTrust::Nothing => fixed_verifier(false),
        });
        Ok(Self::new(match client {
            None => builder.with_no_client_auth(),
            Some(ClientCertificate { chain, key }) => builder
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(|error| format!("client certificate: {error}"))?,
        }))
    }
}

/// The certificates that an API object trusts.
#[derive(Clone, Copy, Debug)]
pub enum ServerTrust<'a> {
    /// A bundle in PEM.
    Bundle(&'a [u8]),
    /// The system's CAs.
    System,
    /// Any certificate: the connection is encrypted, and the server is not verified.
    Anything,
    /// No certificate: no connection is ever opened.
    Nothing,
}

/// A loaded client certificate.
pub struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl std::fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

impl ClientCertificate {
    /// Loads the files now and whenever one of them changes. If a changed file is unusable, the former certificate stays.
    pub fn start_reloading(files: CertificateFiles, tasks: &Tasks) -> Result<Reloading<Self>, ClientTlsError> {
        let watched = vec![files.certificate.clone(), files.key.clone()];
        Reloading::start(watched, move || Self::load(&files), tasks)
    }

    /// Reads a certificate chain and its key in PEM.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|error| format!("client certificate: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("client key: {error}"))?;
        Ok(Self { chain, key })
    }

    fn load(files: &CertificateFiles) -> Result<Self, ClientTlsError> {
        let name = |file: &Path| file.display().to_string();
        let chain = read_certificates(&files.certificate)
            .map_err(|reason| ClientTlsError::Certificate { file: name(&files.certificate), reason })?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| ClientTlsError::Key { file: name(&files.key), reason: error.to_string() })?;
        Ok(Self { chain, key })
    }
}

fn client_config(verifier: Arc<dyn ServerCertVerifier>) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
}

fn read_ca_bundle(file: &Path) -> Result<ClientCaBundle, ClientTlsError> {
    let name = file.display().to_string();
    let read = std::fs::read(file).map_err(|error| error.to_string());
    read.and_then(|pem| ClientCaBundle::from_pem(&pem, &name))
        .map_err(|reason| ClientTlsError::CaBundle { file: name, reason })
}

fn with_client_certificate(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    files: &CertificateFiles,
) -> Result<ClientConfig, ClientTlsError> {
    let ClientCertificate { chain, key } = ClientCertificate::load(files)?;
    builder.with_client_auth_cert(chain, key).map_err(|error| ClientTlsError::Mismatch {
        certificate: files.certificate.display().to_string(),
        key: files.key.display().to_string(),
        reason: error.to_string(),
    })
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        return Err("no PEM block of type CERTIFICATE".to_owned());
    }
    Ok(certificates)
}
