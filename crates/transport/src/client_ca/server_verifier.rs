//! Verifies server certificates during the handshake, against the CAs that are valid at that moment.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};

use super::ClientCaBundle;

/// Wraps rustls' verifier. While some CAs are outside their validity period, it verifies against the remaining ones.
#[derive(Debug)]
struct ValidAuthoritiesVerifier {
    bundle: ClientCaBundle,
    verifier_for_all: Arc<WebPkiServerVerifier>,
}

impl ClientCaBundle {
    /// Returns a server certificate verifier for `ClientConfig`. CAs that expire later lose trust without a reload.
    pub fn into_server_verifier(self) -> Arc<dyn ServerCertVerifier> {
        let all = webpki_verifier(self.trust_anchors.clone());
        Arc::new(ValidAuthoritiesVerifier { bundle: self, verifier_for_all: all })
    }
}

fn webpki_verifier(anchors: Vec<TrustAnchor<'static>>) -> Arc<WebPkiServerVerifier> {
    let roots = Arc::new(RootCertStore { roots: anchors });
    let built = WebPkiServerVerifier::builder_with_provider(roots, Arc::new(aws_lc_rs::default_provider())).build();
    built.expect("the bundle is not empty and there is no CRL")
}

impl ServerCertVerifier for ValidAuthoritiesVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verify = |verifier: &WebPkiServerVerifier| {
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        };
        let valid = self.bundle.valid_at(now);
        if valid.len() == self.bundle.trust_anchors.len() {
            return verify(&self.verifier_for_all);
        }
        let verified = match valid.is_empty() {
            true => Err(CertificateError::UnknownIssuer.into()),
            false => verify(&webpki_verifier(valid.into_owned())),
        };
        verified.map_err(|error| {
            let invalid =
                self.bundle.invalid_authority(now, |anchor| verify(&webpki_verifier(vec![anchor.clone()])).is_ok());
            invalid.map_or(error, |fault| CertificateError::Other(OtherError(Arc::new(fault))).into())
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier_for_all.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier_for_all.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier_for_all.supported_verify_schemes()
    }
}
