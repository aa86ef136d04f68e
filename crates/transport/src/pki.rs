//! Creates keys and certificates, for a server without configured ones and for the lab.

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

/// Why keys or certificates could not be created.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The directory or a file in it cannot be read or written.
    #[error("{file}: {source}")]
    File {
        /// The path.
        file: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// A file contains no usable key or certificate, or generating one failed.
    #[error("{file}: {source}")]
    Certificate {
        /// The path.
        file: String,
        /// The error.
        source: rcgen::Error,
    },
}

/// Paths of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM, mode 0600.
    pub key: PathBuf,
}

/// The extended key usage of a certificate.
#[derive(Clone, Debug)]
pub enum CertificateUsage {
    /// Server authentication, with the names in `SERVER_NAMES`; peers verify `kubernetes.default.svc`.
    Serving {
        /// Additional IP addresses.
        addresses: Vec<IpAddr>,
        /// Additional DNS names.
        names: Vec<String>,
    },
    /// Client authentication.
    Client,
}

/// A CA whose certificate and key are in a directory.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    dir: PathBuf,
    certificate: PathBuf,
}

/// Validity of generated certificates. To renew one, delete its files and restart.
const VALID_YEARS: i32 = 10;
/// How long to wait for another process that holds the directory's lock, and how often to retry.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(2);
/// DNS names of every serving certificate: those that peers verify and in-cluster clients use.
const SERVER_NAMES: [&str; 5] =
    ["kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "kubernetes.default", "kubernetes", "localhost"];

impl CertificateAuthority {
    /// Opens the CA called `name` in the directory, or creates it.
    pub fn open_or_create(folder: &Path, name: &str) -> Result<Self, PkiError> {
        std::fs::create_dir_all(folder).map_err(|source| file_error(folder, source))?;
        let pair = CertificateFiles::in_dir(folder, name);
        create_once(folder, || pair.exists(), || create_authority(name, &pair))?;
        let key = KeyPair::from_pem(&read_pem(&pair.key)?).map_err(|source| certificate_error(&pair.key, source))?;
        // Signing needs only the CA's name and key; the name is derived from `name`.
        let issuer = Issuer::new(ca_params(name), key);
        Ok(Self { issuer, dir: folder.to_owned(), certificate: pair.certificate })
    }

    /// Returns the path of the CA certificate.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Opens the certificate called `name` in the same directory, or issues it to this subject.
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
        // Write the key first: a certificate without its key would look like a complete pair.
        write_secret(&self.key, &key.serialize_pem()).map_err(|source| file_error(&self.key, source))?;
        write_secret(&self.certificate, &certificate.pem()).map_err(|source| file_error(&self.certificate, source))
    }
}

/// Creates a signing key for service account tokens, and the folder, unless the file exists.
pub fn ensure_signing_key(file: &Path) -> Result<(), PkiError> {
    let make = || {
        let key = KeyPair::generate().map_err(|source| certificate_error(file, source))?;
        write_secret(file, &key.serialize_pem()).map_err(|source| file_error(file, source))
    };
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|source| file_error(folder, source))?;
    create_once(folder, || file.exists(), make)
}

/// Runs `create` under a directory lock unless the files exist. Servers that start at the same time on one machine
/// therefore end up with the same keys.
fn create_once(
    folder: &Path,
    exists: impl Fn() -> bool,
    create: impl FnOnce() -> Result<(), PkiError>,
) -> Result<(), PkiError> {
    if exists() {
        return Ok(());
    }
    let _turn = lock_dir(folder)?;
    // Another process may have created the files meanwhile.
    if exists() { Ok(()) } else { create() }
}

/// Locks the directory until the returned file is dropped.
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
                let reason = format!("another process has held this lock for {LOCK_TIMEOUT:?}");
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

/// Writes a file with mode 0600 atomically, by rename.
pub fn write_secret(file: &Path, content: &str) -> std::io::Result<()> {
    // Other processes and threads may be writing the same file.
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}.{:?}.new", std::process::id(), std::thread::current().id()));
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
    fn concurrent_writes_of_one_secret_succeed() {
        let folder = tempfile::tempdir().unwrap();
        let file = &folder.path().join("admin.kubeconfig");
        std::thread::scope(|scope| {
            for text in ["a".repeat(10_000), "b".repeat(10_000)] {
                scope.spawn(move || (0..100).for_each(|_| write_secret(file, &text).unwrap()));
            }
        });
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.len() == 10_000 && text.starts_with('a') != text.contains('b'), "whole, of one writer");
    }

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
