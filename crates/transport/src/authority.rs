//! Bundles of certificate authorities, and what a client certificate is worth before them.
//!
//! kube-apiserver asks for a client certificate, completes the handshake whatever it gets, and judges it per request against
//! two bundles that may change while the connection lives. So the verification stands here, apart from the handshake.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::Subject;

/// The certificates that may sign client certificates. The generation tells one reading of the file from another, so that
/// a verdict can be kept for as long as it holds.
#[derive(Debug)]
pub struct Authorities {
    anchors: Vec<TrustAnchor<'static>>,
    certificates: Vec<CertificateDer<'static>>,
    generation: u64,
}

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Unreadable {
        /// Which file.
        file: String,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no certificate in it, or one that does not parse.
    #[error("{file} holds no usable certificate: {reason}")]
    NoCertificate {
        /// Which file.
        file: String,
        /// What is wrong.
        reason: String,
    },
}

/// Why a client certificate is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
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

impl Authorities {
    /// Reads a PEM bundle.
    pub fn from_file(file: &Path) -> Result<Self, BundleError> {
        let name = file.display().to_string();
        let pem = std::fs::read(file).map_err(|source| BundleError::Unreadable { file: name.clone(), source })?;
        Self::from_pem(&pem).map_err(|reason| BundleError::NoCertificate { file: name, reason })
    }

    /// Reads PEM bytes.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let certificates: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        if certificates.is_empty() {
            return Err("no PEM block of type CERTIFICATE".to_owned());
        }
        let anchors = certificates
            .iter()
            .map(|certificate| webpki::anchor_from_trusted_cert(certificate).map(|anchor| anchor.to_owned()))
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        Ok(Self { anchors, certificates, generation: GENERATION.fetch_add(1, Ordering::Relaxed) })
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
    pub fn verify_client(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<Subject, CertificateError> {
        let malformed = |reason: &str| CertificateError::Malformed { reason: reason.to_owned() };
        let (leaf, intermediates) = chain.split_first().ok_or_else(|| malformed("no certificate"))?;
        let certificate = EndEntityCert::try_from(leaf).map_err(|error| malformed(&error.to_string()))?;
        certificate
            .verify_for_usage(
                aws_lc_rs::default_provider().signature_verification_algorithms.all,
                &self.anchors,
                intermediates,
                now,
                KeyUsage::client_auth(),
                None,
                None,
            )
            .map_err(|error| CertificateError::Untrusted { reason: error.to_string() })?;
        Subject::from_der(certificate.subject()).ok_or_else(|| malformed("its subject does not parse"))
    }
}

#[cfg(test)]
mod tests;
