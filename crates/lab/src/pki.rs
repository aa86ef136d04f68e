//! Certificates, keys and kubeconfigs of a lab: one CA for servers and users, one for front proxies.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use serde_json::json;
use transport::ClientCaBundle;
use transport::peer::ClientTlsFiles;
use transport::pki::{self, CertificateAuthority, CertificateFiles, CertificateUsage, PkiError};

/// Common name of the servers' front proxy certificate, the only one they accept.
pub(crate) const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// Paths of the PKI files that a server is started with.
#[derive(Clone, Debug)]
pub struct LabPki {
    /// CA of serving certificates and user certificates.
    pub ca_file: PathBuf,
    /// CA of front proxy certificates; each server is a front proxy to its peers.
    pub front_proxy_ca_file: PathBuf,
    /// Client certificate for requests that a server forwards to a peer.
    pub front_proxy_client: CertificateFiles,
    /// Client certificate of the administrator (`system:masters`).
    pub admin_client: CertificateFiles,
    /// Key that signs service account tokens.
    pub service_account_key_file: PathBuf,
    dir: PathBuf,
}

impl LabPki {
    /// Opens the files in `dir` and creates those that are missing.
    pub fn open_or_create(dir: &Path) -> Result<Self, PkiError> {
        let authority = CertificateAuthority::open_or_create(dir, "ca")?;
        let proxies = CertificateAuthority::open_or_create(dir, "front-proxy-ca")?;
        let accounts = dir.join("sa.key");
        pki::ensure_signing_key(&accounts)?;
        Ok(Self {
            front_proxy_client: proxies.open_or_issue(
                FRONT_PROXY_NAME,
                FRONT_PROXY_NAME,
                None,
                &CertificateUsage::Client,
            )?,
            admin_client: authority.open_or_issue(
                "admin",
                "kubernetes-admin",
                Some("system:masters"),
                &CertificateUsage::Client,
            )?,
            ca_file: authority.certificate().to_owned(),
            front_proxy_ca_file: proxies.certificate().to_owned(),
            service_account_key_file: accounts,
            dir: dir.to_owned(),
        })
    }

    /// Verifies the administrator's certificate against the CA, as it may have expired.
    pub fn check_admin_certificate(&self) -> Result<(), String> {
        let authorities = ClientCaBundle::from_file(&self.ca_file).map_err(|error| error.to_string())?;
        let chain = CertificateDer::pem_file_iter(&self.admin_client.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain.map_err(|error| format!("{}: {error}", self.admin_client.certificate.display()))?;
        let checked = authorities.verify_client(&chain, UnixTime::now());
        checked.map(drop).map_err(|error| {
            let folder = self.dir.display();
            format!("{error}; delete {folder} and start again: objects are kept, kubeconfigs are rewritten")
        })
    }

    /// Opens or issues the serving certificate of a server, valid for 127.0.0.1.
    pub fn serving_certificate(&self, server: &str) -> Result<CertificateFiles, PkiError> {
        let authority = CertificateAuthority::open_or_create(&self.dir, "ca")?;
        let purpose = CertificateUsage::Serving { addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], names: vec![] };
        authority.open_or_issue(&format!("apiserver-{server}"), "kube-apiserver", None, &purpose)
    }

    /// TLS files of a client that acts as the administrator.
    pub fn client_files(&self) -> ClientTlsFiles {
        ClientTlsFiles { ca_bundle: self.ca_file.clone(), client_certificate: Some(self.admin_client.clone()) }
    }

    /// Writes a kubeconfig with inline credentials, readable only by its owner.
    pub fn write_kubeconfig(&self, file: &Path, server: &str) -> std::io::Result<()> {
        let read = |path: &Path| std::fs::read(path).map(|bytes| STANDARD.encode(bytes));
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "unskew", "cluster": {
                "server": server,
                "certificate-authority-data": read(&self.ca_file)?,
            }}],
            "users": [{"name": "admin", "user": {
                "client-certificate-data": read(&self.admin_client.certificate)?,
                "client-key-data": read(&self.admin_client.key)?,
            }}],
            "contexts": [{"name": "unskew", "context": {"cluster": "unskew", "user": "admin"}}],
            "current-context": "unskew",
        });
        pki::write_secret(file, &format!("{config:#}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_created_once_and_reused() {
        let folder = tempfile::tempdir().unwrap();
        let keys = LabPki::open_or_create(folder.path()).unwrap();
        keys.check_admin_certificate().unwrap();
        keys.client_files().load().unwrap();
        let admin = std::fs::read(&keys.admin_client.certificate).unwrap();
        let serving = keys.serving_certificate("a").unwrap();
        assert_ne!(serving, keys.serving_certificate("b").unwrap());
        let again = LabPki::open_or_create(folder.path()).unwrap();
        assert_eq!(std::fs::read(&again.admin_client.certificate).unwrap(), admin);
        let file = folder.path().join("kubeconfig");
        keys.write_kubeconfig(&file, "https://127.0.0.1:1").unwrap();
        let config: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:1");
        assert_eq!(config["users"][0]["user"]["client-certificate-data"], STANDARD.encode(admin));
    }

    #[test]
    fn invalid_admin_certificate_is_reported_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let keys = LabPki::open_or_create(folder.path()).unwrap();
        std::fs::copy(&keys.front_proxy_client.certificate, &keys.admin_client.certificate).unwrap();
        let told = keys.check_admin_certificate().unwrap_err();
        assert!(told.contains("delete") && told.contains("objects are kept"), "{told}");
    }
}
