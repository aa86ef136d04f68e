//! Bundles of certificate authorities, and what certificates are worth before them.
//!
//! Every bundle that a flag or a kubeconfig names is read here. A certificate that is no authority is refused when it is read; an
//! authority outside its own validity stays in the bundle and vouches for nothing, as in Go's x509.
//!
//! kube-apiserver asks for a client certificate, completes the handshake whatever it gets, and judges it per request against
//! two bundles that may change while the connection lives. So the verification of clients stands here, apart from the handshake.

mod authority_certificate;
mod server_verifier;

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::X509Subject;
use authority_certificate::{AuthorityInfo, NotAnAuthorityError};

/// The certificates that may sign those of clients or servers. The generation tells one reading of the file from another, so
/// that a verdict can be kept for as long as it holds.
#[derive(Debug)]
pub struct ClientCaBundle {
    trust_anchors: Vec<TrustAnchor<'static>>,
    /// Of each anchor.
    authority_info: Vec<AuthorityInfo>,
    certificates: Vec<CertificateDer<'static>>,
    generation: u64,
}

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaBundleError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Unreadable {
        /// Which file.
        file: String,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no certificate in it, or one that does not parse or is no authority.
    #[error("{file} holds no usable bundle of certificate authorities: {reason}")]
    Unusable {
        /// Which file.
        file: String,
        /// What is wrong, with the position of the certificate.
        reason: String,
    },
}

/// Why a client certificate is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientCertificateError {
    /// It does not chain to the bundle, is expired, or is not for clients.
    #[error("x509: {reason}")]
    Untrusted {
        /// What the verification says.
        reason: String,
    },
    /// It cannot be parsed.
    #[error("x509: malformed certificate: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
}

impl ClientCaBundle {
    /// Reads a PEM bundle.
    pub fn from_file(file: &Path) -> Result<Self, CaBundleError> {
        let name = file.display().to_string();
        let pem = std::fs::read(file).map_err(|source| CaBundleError::Unreadable { file: name.clone(), source })?;
        Self::from_pem(&pem, &name).map_err(|reason| CaBundleError::Unusable { file: name, reason })
    }

    /// Reads PEM bytes. `file` is what the log calls them if an authority is outside its validity.
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

    /// Different for every reading.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a certificate is in both bundles, so that neither keeps the other's clients out.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.certificates.iter().any(|certificate| other.certificates.contains(certificate))
    }

    /// Verifies a client's chain, its own certificate first.
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

    /// The authorities that vouch for certificates at this time.
    fn valid_at(&self, now: UnixTime) -> Cow<'_, [TrustAnchor<'static>]> {
        if self.authority_info.iter().all(|facts| facts.is_valid_at(now)) {
            return Cow::Borrowed(&self.trust_anchors);
        }
        let pairs = self.trust_anchors.iter().zip(&self.authority_info);
        pairs.filter(|(_, facts)| facts.is_valid_at(now)).map(|(anchor, _)| anchor.clone()).collect()
    }

    /// The authority outside its validity that alone keeps a chain from being believed.
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

/// The authority of a chain is outside its own validity.
#[derive(thiserror::Error)]
#[error("certificate authority {subject:?} has expired or is not yet valid: it is valid from {validity}")]
struct AuthorityOutsideValidity {
    subject: String,
    validity: String,
}

/// rustls shows errors of verifiers that it does not know by `Debug`.
impl std::fmt::Debug for AuthorityOutsideValidity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
