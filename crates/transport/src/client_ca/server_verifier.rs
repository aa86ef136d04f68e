//! Verifies server certificates during the handshake, against the CAs that are valid at that moment.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::{CertificateError, OtherError, RootCertStore};

use super::ClientCaBundle;
use super::handshake_verifier::{CertificateCheck, handshake_verifier};

/// rustls' verifier. While some CAs are outside their validity period, it verifies against the remaining ones.
#[derive(Debug)]
pub(super) struct ValidAuthorities {
    bundle: ClientCaBundle,
    verifier_for_all: Arc<WebPkiServerVerifier>,
}

impl ClientCaBundle {
    /// Returns a server certificate verifier for `ClientConfig`. CAs that expire later lose trust without a reload.
    pub fn into_server_verifier(self) -> Arc<dyn ServerCertVerifier> {
        handshake_verifier(ValidAuthorities::new(self))
    }
}

impl ValidAuthorities {
    pub(super) fn new(bundle: ClientCaBundle) -> Self {
        let verifier_for_all = webpki_verifier(bundle.trust_anchors.clone());
        Self { bundle, verifier_for_all }
    }
}

fn webpki_verifier(anchors: Vec<TrustAnchor<'static>>) -> Arc<WebPkiServerVerifier> {
    let roots = Arc::new(RootCertStore { roots: anchors });
    let built = WebPkiServerVerifier::builder_with_provider(roots, Arc::new(aws_lc_rs::default_provider())).build();
    built.expect("the bundle is not empty and there is no CRL")
}

impl CertificateCheck for ValidAuthorities {
    fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let verify = |verifier: &WebPkiServerVerifier| {
            verifier.verify_server_cert(end_entity, intermediates, server_name, &[], now).map(drop)
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
}
