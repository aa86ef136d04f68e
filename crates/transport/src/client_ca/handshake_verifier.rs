//! rustls' server verifier made of a check of the certificate and rustls' own check of the handshake's signature.

use std::fmt::Debug;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

/// Decides whether a server's certificate is trusted.
pub(super) trait CertificateCheck: Debug + Send + Sync + 'static {
    /// Returns why the certificate is not trusted for this name at this time.
    fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error>;
}

/// A server must pass the check and hold the key of its certificate.
#[derive(Debug)]
struct HandshakeVerifier<C> {
    check: C,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Returns the verifier for a check.
pub(super) fn handshake_verifier(check: impl CertificateCheck) -> Arc<dyn ServerCertVerifier> {
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    Arc::new(HandshakeVerifier { check, algorithms })
}

impl<C: CertificateCheck> ServerCertVerifier for HandshakeVerifier<C> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check.check(end_entity, intermediates, server_name, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
