//! Keys, certificates and the kubeconfig of a lab: one authority for servers and people, one for front proxies.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use serde_json::json;
use transport::Authorities;
use transport::peer::ClientFiles;
use transport::pki::{self, Authority, Pair, PkiError, Purpose};

/// The name that servers of a lab show each other; no other front proxy is believed.
pub(crate) const PROXY_NAME: &str = "front-proxy-client";

/// Every file that a server is started with.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Signs servers and people.
    pub authority: PathBuf,
    /// Signs front proxies, which the servers are to each other.
    pub proxy_authority: PathBuf,
    /// What a server shows the server that it forwards to.
    pub proxy: Pair,
    /// The administrator's.
    pub admin: Pair,
    /// Signs service account tokens.
    pub accounts: PathBuf,
    folder: PathBuf,
}

impl Keys {
    /// Those in the folder; what is missing is made.
    pub fn open(folder: &Path) -> Result<Self, PkiError> {
        let authority = Authority::open(folder, "ca")?;
        let proxies = Authority::open(folder, "front-proxy-ca")?;
        let accounts = folder.join("sa.key");
        pki::signing_key(&accounts)?;
        Ok(Self {
            proxy: proxies.issue(PROXY_NAME, PROXY_NAME, None, &Purpose::Client)?,
            admin: authority.issue("admin", "kubernetes-admin", Some("system:masters"), &Purpose::Client)?,
            authority: authority.certificate().to_owned(),
            proxy_authority: proxies.certificate().to_owned(),
            accounts,
            folder: folder.to_owned(),
        })
    }

    /// Whether the administrator would be let in now: certificates end.
    pub fn check(&self) -> Result<(), String> {
        let authorities = Authorities::from_file(&self.authority).map_err(|error| error.to_string())?;
        let chain =
            CertificateDer::pem_file_iter(&self.admin.certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain = chain.map_err(|error| format!("{}: {error}", self.admin.certificate.display()))?;
        let checked = authorities.verify_client(&chain, UnixTime::now());
        checked.map(drop).map_err(|error| {
            let folder = self.folder.display();
            format!("{error}; delete {folder} and start again: objects are kept, kubeconfigs become new")
        })
    }

    /// What the server of this name shows its clients: found, or made.
    pub fn serving(&self, server: &str) -> Result<Pair, PkiError> {
        let authority = Authority::open(&self.folder, "ca")?;
        let purpose = Purpose::Serving { addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], names: vec![] };
        authority.issue(&format!("apiserver-{server}"), "kube-apiserver", None, &purpose)
    }

    /// What a client needs to be let in as administrator.
    pub fn client_files(&self) -> ClientFiles {
        ClientFiles { authorities: self.authority.clone(), own: Some(self.admin.clone()) }
    }

    /// Writes a kubeconfig that holds everything itself, readable by its owner alone.
    pub fn write_kubeconfig(&self, file: &Path, server: &str) -> std::io::Result<()> {
        let read = |path: &Path| std::fs::read(path).map(|bytes| STANDARD.encode(bytes));
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "unskew", "cluster": {
                "server": server,
                "certificate-authority-data": read(&self.authority)?,
            }}],
            "users": [{"name": "admin", "user": {
                "client-certificate-data": read(&self.admin.certificate)?,
                "client-key-data": read(&self.admin.key)?,
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
    fn keys_are_made_once_and_belong_together() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::open(folder.path()).unwrap();
        keys.check().unwrap();
        keys.client_files().read().unwrap();
        let admin = std::fs::read(&keys.admin.certificate).unwrap();
        let serving = keys.serving("a").unwrap();
        assert_ne!(serving, keys.serving("b").unwrap());
        let again = Keys::open(folder.path()).unwrap();
        assert_eq!(std::fs::read(&again.admin.certificate).unwrap(), admin);
        let file = folder.path().join("kubeconfig");
        keys.write_kubeconfig(&file, "https://127.0.0.1:1").unwrap();
        let config: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:1");
        assert_eq!(config["users"][0]["user"]["client-certificate-data"], STANDARD.encode(admin));
    }

    #[test]
    fn certificates_that_are_no_longer_good_are_told_with_the_cure() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::open(folder.path()).unwrap();
        std::fs::copy(&keys.proxy.certificate, &keys.admin.certificate).unwrap();
        let told = keys.check().unwrap_err();
        assert!(told.contains("delete") && told.contains("objects are kept"), "{told}");
    }
}
