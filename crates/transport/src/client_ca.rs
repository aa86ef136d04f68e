//! CA bundles and certificate verification.
//!
//! Every CA bundle that a flag or a kubeconfig names is loaded here. A certificate that is not a CA is rejected when
//! the bundle is loaded; a CA outside its validity period stays in the bundle but is not trusted, as in Go's x509.
//!
//! kube-apiserver requests a client certificate, completes the handshake whatever it receives, and verifies the
//! certificate per request against two bundles that may change while the connection is open. Client verification is
//! therefore separate from the handshake.

mod authority_certificate;
mod handshake_verifier;
mod server_verifier;
mod webhook_verifier;

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::X509Subject;
use authority_certificate::{AuthorityInfo, NotAnAuthorityError};
pub(crate) use webhook_verifier::{bundle_verifier, fixed_verifier, system_verifier};

/// The CA certificates that clients or servers are verified against. Each load has a new generation, so that callers
/// can cache a verification result until the bundle changes.
#[derive(Debug)]
pub struct ClientCaBundle {
    trust_anchors: Vec<TrustAnchor<'static>>,
    /// One entry per trust anchor.
    authority_info: Vec<AuthorityInfo>,
    certificates: Vec<CertificateDer<'static>>,
    generation: u64,
}

/// Why a CA bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaBundleError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Unreadable {
        /// The bundle's path.
        file: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The file contains no certificate, a malformed one, or one that is not a CA.
    #[error("{file} holds no usable bundle of certificate authorities: {reason}")]
    Unusable {
        /// The bundle's path.
        file: String,
        /// The cause, with the position of the certificate in the file.
        reason: String,
    },
}

/// Why a client certificate is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientCertificateError {
    /// The certificate does not chain to the bundle, is expired, or is not for client authentication.
    #[error("x509: {reason}")]
    Untrusted {
        /// The verification error.
        reason: String,
    },
    /// The certificate cannot be parsed.
    #[error("x509: malformed certificate: {reason}")]
    Malformed {
        /// The parse error.
        reason: String,
    },
}

impl ClientCaBundle {
    /// Loads a PEM bundle from a file.
    pub fn from_file(file: &Path) -> Result<Self, CaBundleError> {
        let name = file.display().to_string();
        let pem = std::fs::read(file).map_err(|source| CaBundleError::Unreadable { file: name.clone(), source })?;
        Self::from_pem(&pem, &name).map_err(|reason| CaBundleError::Unusable { file: name, reason })
    }

    /// Parses a PEM bundle. `file` names the bundle in warnings about CAs outside their validity period.
    pub fn from_pem(pem: &[u8], file: &str) -> Result<Self, String> {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let certificates: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        if certificates.is_empty() {
            return Err("no PEM block of type CERTIFICATE".to_owned());
        }
        let (mut anchors, mut facts) = (Vec::new(), Vec::new());
        for (certificate, position) in certificates.iter().zip(1..) {
            let at = |fault: NotAnAuthorityError| format!("certificate {position} {fault}");
            facts.push(AuthorityInfo::from_certificate(certificate).map_err(at)?);
            let anchor = webpki::anchor_from_trusted_cert(certificate);
            anchors.push(anchor.map_err(|error| at(NotAnAuthorityError::Malformed(error.to_string())))?.to_owned());
        }
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
        let read = Self { trust_anchors: anchors, authority_info: facts, certificates, generation };
        read.log_invalid(file, UnixTime::now());
        Ok(read)
    }

    fn log_invalid(&self, file: &str, now: UnixTime) {
        for (facts, position) in self.authority_info.iter().zip(1..).filter(|(facts, _)| !facts.is_valid_at(now)) {
            let (subject, validity) = (&facts.subject, facts.validity());
            tracing::warn!(
                file,
                position,
                subject,
                validity,
                "certificate authority has expired or is not yet valid; certificates that it signed are refused"
            );
        }
    }

    /// Returns a number that is unique to this load of the bundle.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Reports whether both bundles contain the same certificate, so that clients of one are also trusted by the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.certificates.iter().any(|certificate| other.certificates.contains(certificate))
    }

    /// Verifies a client's certificate chain, leaf first, and returns its subject.
    pub fn verify_client(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<X509Subject, ClientCertificateError> {
        let malformed = |reason: &str| ClientCertificateError::Malformed { reason: reason.to_owned() };
        let (leaf, intermediates) = chain.split_first().ok_or_else(|| malformed("no certificate"))?;
        let certificate = EndEntityCert::try_from(leaf).map_err(|error| malformed(&error.to_string()))?;
        let verify = |anchors: &[TrustAnchor<'_>]| {
            let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
            let usage = KeyUsage::client_auth();
            certificate.verify_for_usage(algorithms, anchors, intermediates, now, usage, None, None).map(drop)
        };
        verify(&self.valid_at(now)).map_err(|error| {
            let invalid = self.invalid_authority(now, |anchor| verify(std::slice::from_ref(anchor)).is_ok());
            ClientCertificateError::Untrusted {
                reason: invalid.map_or_else(|| error.to_string(), |fault| fault.to_string()),
            }
        })?;
        X509Subject::from_der(certificate.subject()).ok_or_else(|| malformed("its subject does not parse"))
    }

    /// Returns the CAs that are within their validity period.
    fn valid_at(&self, now: UnixTime) -> Cow<'_, [TrustAnchor<'static>]> {
        if self.authority_info.iter().all(|facts| facts.is_valid_at(now)) {
            return Cow::Borrowed(&self.trust_anchors);
        }
        let pairs = self.trust_anchors.iter().zip(&self.authority_info);
        pairs.filter(|(_, facts)| facts.is_valid_at(now)).map(|(anchor, _)| anchor.clone()).collect()
    }

    /// Returns the CA that would make the chain valid if it were within its validity period, for the error text.
    fn invalid_authority(
        &self,
        now: UnixTime,
        would_vouch: impl Fn(&TrustAnchor<'static>) -> bool,
    ) -> Option<AuthorityOutsideValidity> {
        let mut pairs = self.trust_anchors.iter().zip(&self.authority_info);
        let (_, facts) = pairs.find(|(anchor, facts)| !facts.is_valid_at(now) && would_vouch(anchor))?;
        Some(AuthorityOutsideValidity { subject: facts.subject.clone(), validity: facts.validity() })
    }
}

/// The chain's CA is outside its validity period.
#[derive(thiserror::Error)]
#[error("certificate authority {subject:?} has expired or is not yet valid: it is valid from {validity}")]
struct AuthorityOutsideValidity {
    subject: String,
    validity: String,
}

/// rustls formats errors of custom verifiers with `Debug`.
impl std::fmt::Debug for AuthorityOutsideValidity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
