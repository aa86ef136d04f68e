//! Keys and certificates of our own, for a server that was given none and for the lab.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
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
pub struct CertificateFiles {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM, readable by its owner alone.
    pub key: PathBuf,
}

/// What a certificate is for.
#[derive(Clone, Debug)]
pub enum CertificateUsage {
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
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    dir: PathBuf,
    certificate: PathBuf,
}

/// How long certificates hold. A lab is thrown away and a server's own are made anew when they are deleted.
const VALID_YEARS: i32 = 10;
/// How long others may take to make what we need, which are milliseconds, and how often we look.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(2);
/// What peers check in each other's certificate, and what clients in a cluster call the server.
const SERVER_NAMES: [&str; 5] =
    ["kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "kubernetes.default", "kubernetes", "localhost"];

impl CertificateAuthority {
    /// The authority called `name` in `folder`: found there, or made.
    pub fn open_or_create(folder: &Path, name: &str) -> Result<Self, PkiError> {
        std::fs::create_dir_all(folder).map_err(|source| file_error(folder, source))?;
        let pair = CertificateFiles::in_dir(folder, name);
        create_once(folder, || pair.exists(), || create_authority(name, &pair))?;
        let key = KeyPair::from_pem(&read_pem(&pair.key)?).map_err(|source| certificate_error(&pair.key, source))?;
        // Signing needs the authority's name and key only, and the name follows from ours.
        let issuer = Issuer::new(ca_params(name), key);
        Ok(Self { issuer, dir: folder.to_owned(), certificate: pair.certificate })
    }

    /// The authority's own certificate.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// The certificate called `name` in the same folder: found there, or issued to this subject.
    pub fn open_or_issue(
        &self,
        name: &str,
        common_name: &str,
        organization: Option<&str>,
        usage: &CertificateUsage,
    ) -> Result<CertificateFiles, PkiError> {
        let pair = CertificateFiles::in_dir(&self.dir, name);
        let params = certificate_params(common_name, organization);
        create_once(&self.dir, || pair.exists(), || self.issue_new(&pair, params, usage))?;
        Ok(pair)
    }

    fn issue_new(
        &self,
        pair: &CertificateFiles,
        mut params: CertificateParams,
        purpose: &CertificateUsage,
    ) -> Result<(), PkiError> {
        let fault = |source| certificate_error(&pair.certificate, source);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        match purpose {
            CertificateUsage::Client => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            CertificateUsage::Serving { addresses, names } => {
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
        pair.write(&key, &certificate)
    }
}

impl CertificateFiles {
    fn in_dir(folder: &Path, name: &str) -> Self {
        Self { certificate: folder.join(format!("{name}.crt")), key: folder.join(format!("{name}.key")) }
    }

    fn exists(&self) -> bool {
        self.certificate.exists() && self.key.exists()
    }

    fn write(&self, key: &KeyPair, certificate: &Certificate) -> Result<(), PkiError> {
        // The key first: a certificate without its key would be taken for a finished pair.
        write_secret(&self.key, &key.serialize_pem()).map_err(|source| file_error(&self.key, source))?;
        write_secret(&self.certificate, &certificate.pem()).map_err(|source| file_error(&self.certificate, source))
    }
}

/// A signing key without a certificate, for service account tokens: found in the file, or made.
pub fn ensure_signing_key(file: &Path) -> Result<(), PkiError> {
    let make = || {
        let key = KeyPair::generate().map_err(|source| certificate_error(file, source))?;
        write_secret(file, &key.serialize_pem()).map_err(|source| file_error(file, source))
    };
    create_once(file.parent().unwrap_or(Path::new(".")), || file.exists(), make)
}

/// Makes what is missing in a folder. Several servers of one machine may find the folder empty at once, and must end up with the
/// same keys.
fn create_once(
    folder: &Path,
    exists: impl Fn() -> bool,
    create: impl FnOnce() -> Result<(), PkiError>,
) -> Result<(), PkiError> {
    if exists() {
        return Ok(());
    }
    let _turn = lock_dir(folder)?;
    // By somebody else, while we waited.
    if exists() { Ok(()) } else { create() }
}

/// A turn to make something in a folder, until it is dropped.
fn lock_dir(folder: &Path) -> Result<File, PkiError> {
    let file = folder.join("LOCK");
    let fault = |source| file_error(&file, source);
    let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(&file).map_err(fault)?;
    let ends = Instant::now() + LOCK_TIMEOUT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if Instant::now() < ends => std::thread::sleep(LOCK_RETRY_INTERVAL),
            Err(TryLockError::WouldBlock) => {
                let reason = format!("another process has been making keys here for {LOCK_TIMEOUT:?}");
                return Err(fault(std::io::Error::new(std::io::ErrorKind::WouldBlock, reason)));
            }
            Err(TryLockError::Error(source)) => return Err(fault(source)),
        }
    }
}

fn create_authority(name: &str, pair: &CertificateFiles) -> Result<(), PkiError> {
    let fault = |source| certificate_error(&pair.certificate, source);
    let key = KeyPair::generate().map_err(fault)?;
    let certificate = ca_params(name).self_signed(&key).map_err(fault)?;
    pair.write(&key, &certificate)
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = certificate_params(&format!("unskew-{name}"), None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
    params
}

fn certificate_params(common_name: &str, organization: Option<&str>) -> CertificateParams {
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
pub fn write_secret(file: &Path, content: &str) -> std::io::Result<()> {
    // Others may be writing the same.
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let mut written = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    written.write_all(content.as_bytes())?;
    written.sync_all()?;
    std::fs::rename(&new, file)
}

fn read_pem(file: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(file).map_err(|source| file_error(file, source))
}

fn file_error(file: &Path, source: std::io::Error) -> PkiError {
    PkiError::File { file: file.display().to_string(), source }
}

fn certificate_error(file: &Path, source: rcgen::Error) -> PkiError {
    PkiError::Certificate { file: file.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_first_starts_share_one_set_of_keys() {
        let folder = tempfile::tempdir().unwrap();
        let folder = &folder.path().join("pki");
        let open = || {
            let authority = CertificateAuthority::open_or_create(folder, "ca").unwrap();
            let pair = authority.open_or_issue("admin", "admin", None, &CertificateUsage::Client).unwrap();
            ensure_signing_key(&folder.join("sa.key")).unwrap();
            let files = [authority.certificate(), &pair.certificate, &pair.key, &folder.join("sa.key")];
            files.map(|file| std::fs::read_to_string(file).unwrap())
        };
        let found: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|files| *files == open()));
        let left: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().ends_with("new")), "{left:?}");
    }
}
