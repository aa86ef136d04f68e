//! etcd that wants certificates and shows one.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use store::etcd::{Config, Etcd, Timeouts};
use store::{Error, Key, Store};
use tasks::Tasks;
use tempfile::TempDir;

use crate::conformance::stage::{events_through, put, put_event, revision, watch, within};
use crate::etcd::{Cluster, Release, Tls};

/// An authority and what it has signed, in a folder.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { issuer, folder: tempfile::tempdir().unwrap() };
        std::fs::write(authority.ca(), authority.issuer.pem()).unwrap();
        authority
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate and its key, good for both sides of a connection to this machine.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let write = |kind: &str, pem: String| {
            let path = self.folder.path().join(format!("{name}.{kind}.pem"));
            std::fs::write(&path, pem).unwrap();
            path
        };
        (write("cert", certificate.pem()), write("key", key.serialize_pem()))
    }

    /// What a client of this authority holds.
    fn client(&self) -> Tls {
        let (cert, key) = self.sign("client");
        Tls { ca: self.ca(), cert, key }
    }
}

async fn start(release: Release, authority: &Authority) -> Cluster {
    let (cert, key) = authority.sign("server");
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let flags = [flag("cert-file", &cert), flag("key-file", &key), flag("trusted-ca-file", &authority.ca())];
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.push("--client-cert-auth");
    Cluster::start(release, 1, &flags, Some(authority.client())).await
}

async fn check_served(release: Release) {
    let authority = Authority::new("ours");
    let cluster = start(release, &authority).await;
    let store = cluster.client().await;
    let from = revision(&store).await.unwrap().next();
    let key = Key::from_static(b"a");
    let mut watch = watch(&store, key.clone(), from).await.unwrap();
    let written = put(&store, key.clone(), "1").await.unwrap();
    assert_eq!(events_through(&mut watch, written).await.unwrap(), [put_event(key, "1", written)]);
}

#[tokio::test]
async fn an_old_etcd_with_certificates_is_served() {
    check_served(Release::Old).await;
}

#[tokio::test]
async fn a_new_etcd_with_certificates_is_served() {
    check_served(Release::New).await;
}

/// Why a client with these files gets nothing.
async fn refusal(cluster: &Cluster, change: impl FnOnce(&mut Config)) -> String {
    let timeouts = Timeouts { request: std::time::Duration::from_secs(2), ..Timeouts::default() };
    let mut config = Config { timeouts, ..Config::new(cluster.urls()) };
    change(&mut config);
    let store = Etcd::open(&config, Tasks::new()).await.unwrap();
    match within("revision", store.revision()).await.unwrap() {
        Err(Error::Unavailable { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_stranger_is_told_why() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("another"));
    let cluster = start(Release::New, &authority).await;
    let distrusting = refusal(&cluster, |config| config.ca_file = Some(stranger.ca())).await;
    assert!(distrusting.contains("invalid peer certificate: UnknownIssuer"), "{distrusting}");
    let nameless = refusal(&cluster, |config| config.ca_file = Some(authority.ca())).await;
    assert!(nameless.contains("--etcd-certfile"), "{nameless}");
    let foreign = refusal(&cluster, |config| {
        let Tls { cert, key, .. } = stranger.client();
        (config.ca_file, config.cert_file, config.key_file) = (Some(authority.ca()), Some(cert), Some(key));
    })
    .await;
    assert!(foreign.contains("--etcd-certfile"), "{foreign}");
}

#[tokio::test]
async fn an_address_that_the_certificate_is_not_for_is_told() {
    let authority = Authority::new("ours");
    let cluster = start(Release::New, &authority).await;
    let other = refusal(&cluster, |config| {
        let Tls { ca, cert, key } = authority.client();
        (config.ca_file, config.cert_file, config.key_file) = (Some(ca), Some(cert), Some(key));
        config.servers = vec![cluster.url(0).replace("127.0.0.1", "localhost")];
    })
    .await;
    assert!(other.contains("not valid for name"), "{other}");
}
