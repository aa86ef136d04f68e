//! Keys and certificates of our own, for a server that was given none and for the lab.

use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// Why keys and certificates could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The folder or a file in it cannot be written or read.
    #[error("{file}: {source}")]
    File {
        /// Which file.
        file: String,
        /// Why not.
        source: std::io::Error,
    },
    /// What is in a file is no usable key or certificate, or one could not be made.
    #[error("{file}: {source}")]
    Certificate {
        /// Which file.
        file: String,
        /// Why not.
        source: rcgen::Error,
    },
}

/// A certificate and its key, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM, readable by its owner alone.
    pub key: PathBuf,
}

/// What a certificate is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// A server's: every peer checks for `kubernetes.default.svc`, and people use names and addresses.
    Serving {
        /// Further addresses.
        addresses: Vec<IpAddr>,
        /// Further names.
        names: Vec<String>,
    },
    /// A client's.
    Client,
}

/// An authority whose certificate and key lie in a folder.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    certificate: PathBuf,
}

/// How long certificates hold. A lab is thrown away and a server's own are made anew when they are deleted.
const VALID_YEARS: i32 = 10;
/// What peers check in each other's certificate, and what clients in a cluster call the server.
const SERVER_NAMES: [&str; 5] =
    ["kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "kubernetes.default", "kubernetes", "localhost"];

impl Authority {
    /// The authority called `name` in `folder`: found there, or made.
    pub fn open(folder: &Path, name: &str) -> Result<Self, PkiError> {
        std::fs::create_dir_all(folder).map_err(|source| file_fault(folder, source))?;
        let certificate = folder.join(format!("{name}.crt"));
        let key = folder.join(format!("{name}.key"));
        let issuer = if certificate.exists() && key.exists() {
            let pair = KeyPair::from_pem(&read(&key)?).map_err(|source| certificate_fault(&key, source))?;
            // Signing needs the authority's name and key only, and the name follows from ours.
            Issuer::new(authority_parameters(name), pair)
        } else {
            make_authority(name, &certificate, &key)?
        };
        Ok(Self { issuer, folder: folder.to_owned(), certificate })
    }

    /// The authority's own certificate.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// The certificate called `name` in the same folder: found there, or issued to this subject.
    pub fn issue(
        &self,
        name: &str,
        common_name: &str,
        organization: Option<&str>,
        purpose: &Purpose,
    ) -> Result<Pair, PkiError> {
        let pair =
            Pair { certificate: self.folder.join(format!("{name}.crt")), key: self.folder.join(format!("{name}.key")) };
        if pair.certificate.exists() && pair.key.exists() {
            return Ok(pair);
        }
        let fault = |source| certificate_fault(&pair.certificate, source);
        let mut params = parameters(common_name, organization);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        match purpose {
            Purpose::Client => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            Purpose::Serving { addresses, names } => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                let names = SERVER_NAMES.iter().copied().chain(names.iter().map(String::as_str));
                for name in names {
                    params.subject_alt_names.push(SanType::DnsName(name.try_into().map_err(fault)?));
                }
                params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
            }
        }
        let key = KeyPair::generate().map_err(fault)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(fault)?;
        // The key first: a certificate without its key would be taken for a finished pair.
        write_secret(&pair.key, &key.serialize_pem())?;
        write_secret(&pair.certificate, &certificate.pem())?;
        Ok(pair)
    }
}

/// A signing key without a certificate, for service account tokens: found in the file, or made.
pub fn signing_key(file: &Path) -> Result<(), PkiError> {
    if file.exists() {
        return Ok(());
    }
    let key = KeyPair::generate().map_err(|source| certificate_fault(file, source))?;
    write_secret(file, &key.serialize_pem())
}

fn make_authority(name: &str, certificate: &Path, key: &Path) -> Result<Issuer<'static, KeyPair>, PkiError> {
    let fault = |source| certificate_fault(certificate, source);
    let params = authority_parameters(name);
    let pair = KeyPair::generate().map_err(fault)?;
    let signed = params.self_signed(&pair).map_err(fault)?;
    write_secret(key, &pair.serialize_pem())?;
    write_secret(certificate, &signed.pem())?;
    Ok(Issuer::new(params, pair))
}

fn authority_parameters(name: &str) -> CertificateParams {
    let mut params = parameters(&format!("unskew-{name}"), None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
    params
}

fn parameters(common_name: &str, organization: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    params.not_after = rcgen::date_time_ymd(2026 + VALID_YEARS, 12, 31);
    params
}

/// Writes a file that its owner alone may read, whole or not at all.
fn write_secret(file: &Path, content: &str) -> Result<(), PkiError> {
    let fault = |source| file_fault(file, source);
    let new = file.with_extension("new");
    let mut open = std::fs::OpenOptions::new();
    let mut written = open.write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(fault)?;
    written.write_all(content.as_bytes()).and_then(|()| written.sync_all()).map_err(fault)?;
    std::fs::rename(&new, file).map_err(fault)
}

fn read(file: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(file).map_err(|source| file_fault(file, source))
}

fn file_fault(file: &Path, source: std::io::Error) -> PkiError {
    PkiError::File { file: file.display().to_string(), source }
}

fn certificate_fault(file: &Path, source: rcgen::Error) -> PkiError {
    PkiError::Certificate { file: file.display().to_string(), source }
}
