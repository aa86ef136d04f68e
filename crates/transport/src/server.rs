//! Server-side TLS configuration.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use crate::TlsPolicy;

/// Why the serving certificate cannot be used. Each error names the file.
#[derive(Debug, thiserror::Error)]
pub enum ServingCertificateError {
    /// The certificate chain cannot be read.
    #[error("cannot read the serving certificate {file}: {reason}")]
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
    #[error("the certificate {certificate} and the key {key} do not match: {reason}")]
    Mismatch {
        /// The certificate's path.
        certificate: String,
        /// The key's path.
        key: String,
        /// The cause.
        reason: String,
    },
}

/// Returns a configuration that serves HTTP/2 and HTTP/1.1 and requests a client certificate without verifying its
/// chain.
pub fn server_config(
    certificate_file: &Path,
    key_file: &Path,
    policy: &TlsPolicy,
) -> Result<ServerConfig, ServingCertificateError> {
    let certificate_name = certificate_file.display().to_string();
    let key_name = key_file.display().to_string();
    let certificate_fault =
        |reason: String| ServingCertificateError::Certificate { file: certificate_name.clone(), reason };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate_file)
        .and_then(Iterator::collect)
        .map_err(|error| certificate_fault(error.to_string()))?;
    if chain.is_empty() {
        return Err(certificate_fault("no PEM block of type CERTIFICATE".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(key_file)
        .map_err(|error| ServingCertificateError::Key { file: key_name.clone(), reason: error.to_string() })?;
    let provider = Arc::new(policy.provider());
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(policy.versions())
        .expect("a policy has a cipher suite for each of its versions")
        .with_client_cert_verifier(Arc::new(AcceptAnyClientCertificate::new(&provider)))
        .with_single_cert(chain, key)
        .map_err(|error| ServingCertificateError::Mismatch {
            certificate: certificate_name.clone(),
            key: key_name,
            reason: error.to_string(),
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Requests a client certificate and accepts any, provided that the client holds its key. The chain is verified per
/// request: a bad certificate results in a 401 with a logged reason instead of a failed handshake.
#[derive(Debug)]
struct AcceptAnyClientCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AcceptAnyClientCertificate {
    fn new(provider: &CryptoProvider) -> Self {
        Self { algorithms: provider.signature_verification_algorithms }
    }
}

impl ClientCertVerifier for AcceptAnyClientCertificate {
    /// Empty, so that clients offer whatever certificate they have.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
