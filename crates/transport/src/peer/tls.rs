//! The client side of TLS: whom we believe and what we show, as files say it now.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::WantsClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder};
use tasks::Tasks;

use crate::pki::CertificateFiles;
use crate::{ClientCaBundle, Reloading};

/// What HTTP/1.1 and HTTP/2 are called in a handshake.
pub(super) const ALPN_HTTP1: &[u8] = b"http/1.1";
pub(super) const ALPN_HTTP2: &[u8] = b"h2";

/// Where it is written whom we believe and what we show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// The certificates that may sign the other side's, PEM. Nobody else is believed, the system's authorities least of all.
    pub ca_bundle: PathBuf,
    /// Our own certificate and its key, PEM, if we show one.
    pub client_certificate: Option<CertificateFiles>,
}

/// Whom we believe and what we show, ready for handshakes.
#[derive(Debug)]
pub struct ClientTls {
    /// For connections that carry one request at a time, or are handed over: HTTP/1.1 and nothing else.
    pub(super) http1_config: Arc<ClientConfig>,
    /// The same certificates, for connections that answers share if the other side can: HTTP/2, or else HTTP/1.1.
    pub(super) http2_config: Arc<ClientConfig>,
    /// Different for every reading of the files: connections of an earlier one are not used again.
    pub(super) generation: u64,
}

/// Why the files cannot be used. Each names the file.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// The bundle of authorities cannot be read, is empty, or holds a certificate that is no authority.
    #[error("cannot use the certificate authorities {file}: {reason}")]
    CaBundle {
        /// Which file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Our certificate cannot be read.
    #[error("cannot read the client certificate {file}: {reason}")]
    Certificate {
        /// Which file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Our private key cannot be read.
    #[error("cannot read the private key {file}: {reason}")]
    Key {
        /// Which file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// They do not belong together.
    #[error("the client certificate {certificate} and the key {key} do not fit: {reason}")]
    Mismatch {
        /// The certificate's file.
        certificate: String,
        /// The key's file.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

impl ClientTlsFiles {
    /// Reads the files now, and again whenever one of them changes. A change that cannot be used keeps what there was.
    pub fn start_reloading(self, tasks: &Tasks) -> Result<Reloading<ClientTls>, ClientTlsError> {
        let mut files = vec![self.ca_bundle.clone()];
        files.extend(self.client_certificate.iter().flat_map(|own| [own.certificate.clone(), own.key.clone()]));
        Reloading::start(files, move || self.load(), tasks)
    }

    /// Reads the files once.
    pub fn load(&self) -> Result<ClientTls, ClientTlsError> {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports TLS 1.2 and 1.3")
            .dangerous()
            .with_custom_certificate_verifier(read_ca_bundle(&self.ca_bundle)?.into_server_verifier());
        let mut config = match &self.client_certificate {
            None => builder.with_no_client_auth(),
            Some(own) => with_client_certificate(builder, own)?,
        };
        config.alpn_protocols = vec![ALPN_HTTP1.to_vec()];
        let mut sharing = config.clone();
        sharing.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()];
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
        Ok(ClientTls { http1_config: Arc::new(config), http2_config: Arc::new(sharing), generation })
    }
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
    let certificate = files.certificate.display().to_string();
    let key = files.key.display().to_string();
    let chain = read_certificates(&files.certificate)
        .map_err(|reason| ClientTlsError::Certificate { file: certificate.clone(), reason })?;
    let private = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| ClientTlsError::Key { file: key.clone(), reason: error.to_string() })?;
    builder.with_client_auth_cert(chain, private).map_err(|error| ClientTlsError::Mismatch {
        certificate,
        key,
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
