//! Verifies the certificates of servers that an API object names, such as webhooks: by the object's CA bundle, or by the
//! system's CAs.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use webpki::EndEntityCert;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::ClientCaBundle;
use super::authority_certificate::AuthorityInfo;

/// Where distributions keep the system's CAs; the first file that exists counts, as in Go's x509.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A bundle of an API object. Like Go's x509 it also trusts a certificate of the bundle itself that is no CA: many
/// webhooks give their self-signed serving certificate.
#[derive(Debug)]
struct ObjectBundleVerifier {
    authorities: Option<Arc<dyn ServerCertVerifier>>,
    certificates: Vec<CertificateDer<'static>>,
    /// Verifies signatures of the handshake, whatever the certificate.
    signatures: Arc<dyn ServerCertVerifier>,
}

/// Returns the verifier for a bundle in PEM. Certificates that cannot be parsed are ignored, as in Go's x509.
pub(crate) fn bundle_verifier(pem: &[u8]) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .filter(|certificate| X509Certificate::from_der(certificate).is_ok())
        .collect();
    let Some(first) = certificates.first() else { return Err("no PEM block of type CERTIFICATE".to_owned()) };
    let (mut trust_anchors, mut authority_info) = (Vec::new(), Vec::new());
    for certificate in &certificates {
        if let (Ok(info), Ok(anchor)) =
            (AuthorityInfo::from_certificate(certificate), webpki::anchor_from_trusted_cert(certificate))
        {
            trust_anchors.push(anchor.to_owned());
            authority_info.push(info);
        }
    }
    let any_anchor = webpki::anchor_from_trusted_cert(first).map_err(|error| error.to_string())?.to_owned();
    let signatures: Arc<dyn ServerCertVerifier> = root_verifier(RootCertStore { roots: vec![any_anchor] })?;
    let authorities = (!trust_anchors.is_empty()).then(|| {
        ClientCaBundle { trust_anchors, authority_info, certificates: certificates.clone(), generation: 0 }
            .into_server_verifier()
    });
    Ok(Arc::new(ObjectBundleVerifier { authorities, certificates, signatures }))
}

/// Accepts every certificate or none. A server must hold the key of its certificate in any case.
#[derive(Debug)]
struct FixedVerifier {
    accepts: bool,
}

/// Returns a verifier that accepts every certificate, for `insecureSkipTLSVerify`, or none.
pub(crate) fn fixed_verifier(accepts: bool) -> Arc<dyn ServerCertVerifier> {
    Arc::new(FixedVerifier { accepts })
}

impl ServerCertVerifier for FixedVerifier {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.accepts {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the verifier for the system's CAs.
pub(crate) fn system_verifier() -> Result<Arc<dyn ServerCertVerifier>, String> {
    let pem = SYSTEM_BUNDLES.iter().find_map(|file| std::fs::read(file).ok());
    let pem = pem.ok_or("the system has no certificate authorities")?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    Ok(root_verifier(roots)?)
}

fn root_verifier(roots: RootCertStore) -> Result<Arc<WebPkiServerVerifier>, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    built.map_err(|error| error.to_string())
}

impl ServerCertVerifier for ObjectBundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.certificates.iter().any(|trusted| trusted.as_ref() == end_entity.as_ref()) {
            return verify_trusted_leaf(end_entity, server_name, now);
        }
        match &self.authorities {
            Some(authorities) => {
                authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}

/// Checks name and validity period of a certificate that the bundle holds itself.
fn verify_trusted_leaf(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, rustls::Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let leaf = EndEntityCert::try_from(certificate).map_err(|_| CertificateError::BadEncoding)?;
    leaf.verify_is_valid_for_subject_name(server_name).map_err(|_| CertificateError::NotValidForName)?;
    Ok(ServerCertVerified::assertion())
}
