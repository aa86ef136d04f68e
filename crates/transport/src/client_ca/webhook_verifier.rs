//! Verifies the certificates of servers that an API object names, such as webhooks: by the object's CA bundle, or by the
//! system's CAs.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, RootCertStore};
use webpki::EndEntityCert;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::ClientCaBundle;
use super::authority_certificate::AuthorityInfo;
use super::handshake_verifier::{CertificateCheck, handshake_verifier};
use super::server_verifier::ValidAuthorities;

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
struct ObjectBundle {
    authorities: Option<ValidAuthorities>,
    certificates: Vec<CertificateDer<'static>>,
}

/// Returns the verifier for a bundle in PEM. Certificates that cannot be parsed are ignored, as in Go's x509.
pub(crate) fn bundle_verifier(pem: &[u8]) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .filter(|certificate| X509Certificate::from_der(certificate).is_ok())
        .collect();
    if certificates.is_empty() {
        return Err("no PEM block of type CERTIFICATE".to_owned());
    }
    let (mut trust_anchors, mut authority_info) = (Vec::new(), Vec::new());
    for certificate in &certificates {
        if let (Ok(info), Ok(anchor)) =
            (AuthorityInfo::from_certificate(certificate), webpki::anchor_from_trusted_cert(certificate))
        {
            trust_anchors.push(anchor.to_owned());
            authority_info.push(info);
        }
    }
    let authorities = (!trust_anchors.is_empty()).then(|| {
        let certificates = certificates.clone();
        ValidAuthorities::new(ClientCaBundle { trust_anchors, authority_info, certificates, generation: 0 })
    });
    Ok(handshake_verifier(ObjectBundle { authorities, certificates }))
}

/// Accepts every certificate or none.
#[derive(Debug)]
struct FixedAnswer {
    accepts: bool,
}

/// Returns a verifier that accepts every certificate, for `insecureSkipTLSVerify`, or none.
pub(crate) fn fixed_verifier(accepts: bool) -> Arc<dyn ServerCertVerifier> {
    handshake_verifier(FixedAnswer { accepts })
}

impl CertificateCheck for FixedAnswer {
    fn check(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _now: UnixTime,
    ) -> Result<(), rustls::Error> {
        match self.accepts {
            true => Ok(()),
            false => Err(CertificateError::UnknownIssuer.into()),
        }
    }
}

/// Returns the verifier for the system's CAs.
pub(crate) fn system_verifier() -> Result<Arc<dyn ServerCertVerifier>, String> {
    let pem = SYSTEM_BUNDLES.iter().find_map(|file| std::fs::read(file).ok());
    let pem = pem.ok_or("the system has no certificate authorities")?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    let provider = Arc::new(aws_lc_rs::default_provider());
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(built.map_err(|error| error.to_string())?)
}

impl CertificateCheck for ObjectBundle {
    fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        if self.certificates.iter().any(|trusted| trusted.as_ref() == end_entity.as_ref()) {
            return check_trusted_leaf(end_entity, server_name, now);
        }
        match &self.authorities {
            Some(authorities) => authorities.check(end_entity, intermediates, server_name, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }
}

/// Checks name and validity period of a certificate that the bundle holds itself.
fn check_trusted_leaf(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<(), rustls::Error> {
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
    Ok(())
}
