//! Checks whether a certificate of a bundle is a CA certificate.

use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

/// Facts about a CA that the trust anchor (name and key) does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuthorityInfo {
    /// In OpenSSL's notation: `O=Example, CN=ca`.
    pub(super) subject: String,
    not_before: ASN1Time,
    not_after: ASN1Time,
}

/// Why a certificate cannot be a trust anchor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotAnAuthorityError {
    #[error("cannot be parsed: {0}")]
    Malformed(String),
    #[error("(subject {subject:?}) is not a certificate authority: {reason}; {remedy}")]
    NotACa { subject: String, reason: &'static str, remedy: String },
}

impl AuthorityInfo {
    /// Extracts the facts, or fails if the certificate may not sign others.
    pub(super) fn from_certificate(certificate: &CertificateDer<'_>) -> Result<Self, NotAnAuthorityError> {
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|error| NotAnAuthorityError::Malformed(error.to_string()))?;
        let subject = parsed.subject().to_string();
        if let Some(reason) = not_an_authority_reason(&parsed) {
            let remedy = remedy(&parsed);
            return Err(NotAnAuthorityError::NotACa { subject, reason, remedy });
        }
        let validity = parsed.validity();
        Ok(Self { subject, not_before: validity.not_before, not_after: validity.not_after })
    }

    /// Reports whether the CA is within its validity period. Both ends are inclusive, as in Go's x509.
    pub(super) fn is_valid_at(&self, now: UnixTime) -> bool {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        (self.not_before.timestamp()..=self.not_after.timestamp()).contains(&now)
    }

    /// Formats the validity period for messages.
    pub(super) fn validity(&self) -> String {
        format!("{} to {}", self.not_before, self.not_after)
    }
}

/// Returns why a certificate may not sign others, by the rules of Go's `Certificate.CheckSignatureFrom`: certificates
/// before version 3 need no basicConstraints, and an empty keyUsage counts as absent.
fn not_an_authority_reason(certificate: &X509Certificate<'_>) -> Option<&'static str> {
    match certificate.basic_constraints() {
        Err(_) => return Some("its basicConstraints cannot be read"),
        Ok(None) if certificate.version() == X509Version::V3 => return Some("it has no basicConstraints"),
        Ok(Some(constraints)) if !constraints.value.ca => return Some("its basicConstraints say CA:FALSE"),
        Ok(None | Some(_)) => {}
    }
    match certificate.key_usage() {
        Err(_) => Some("its keyUsage cannot be read"),
        Ok(Some(usage)) if usage.value.flags != 0 && !usage.value.key_cert_sign() => {
            Some("its keyUsage lacks keyCertSign")
        }
        Ok(None | Some(_)) => None,
    }
}

fn remedy(certificate: &X509Certificate<'_>) -> String {
    if certificate.subject() == certificate.issuer() {
        return "it is self-signed: have a certificate authority sign the server's or client's certificate, and give that \
                authority's certificate here"
            .to_owned();
    }
    format!("give the certificate of its issuer {:?} here", certificate.issuer().to_string())
}
