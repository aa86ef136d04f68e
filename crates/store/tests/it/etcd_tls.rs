//! Tests of etcd with TLS and client certificates.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use store::etcd::{Config, EtcdStore, Timeouts};
use store::{Error, Key, Store};
use tasks::Tasks;
use tempfile::TempDir;

use crate::conformance::check_fixture::{events_through, put, put_event, revision, watch, with_timeout};
use crate::etcd_cluster::{EtcdCluster, EtcdRelease, EtcdTls};

/// A certificate authority with its files in a folder.
struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl TestAuthority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { issuer, dir: tempfile::tempdir().unwrap() };
        std::fs::write(authority.ca(), authority.issuer.pem()).unwrap();
        authority
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Signs a certificate for both sides of a local connection; returns the certificate and key files.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let write = |kind: &str, pem: String| {
            let path = self.dir.path().join(format!("{name}.{kind}.pem"));
            std::fs::write(&path, pem).unwrap();
            path
        };
        (write("cert", certificate.pem()), write("key", key.serialize_pem()))
    }

    /// The files of a client that this authority signed.
    fn client(&self) -> EtcdTls {
        let (cert, key) = self.sign("client");
        EtcdTls { ca: self.ca(), cert, key }
    }
}

async fn start_cluster(release: EtcdRelease, authority: &TestAuthority) -> EtcdCluster {
    let (cert, key) = authority.sign("server");
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let flags = [flag("cert-file", &cert), flag("key-file", &key), flag("trusted-ca-file", &authority.ca())];
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.push("--client-cert-auth");
    EtcdCluster::start(release, 1, &flags, Some(authority.client())).await
}

async fn check_tls_cluster(release: EtcdRelease) {
    let authority = TestAuthority::new("ours");
    let cluster = start_cluster(release, &authority).await;
    let store = cluster.client().await;
    let from = revision(&store).await.unwrap().next();
    let key = Key::from_static(b"a");
    let mut watch = watch(&store, key.clone(), from).await.unwrap();
    let written = put(&store, key.clone(), "1").await.unwrap();
    assert_eq!(events_through(&mut watch, written).await.unwrap(), [put_event(key, "1", written)]);
}

#[tokio::test]
async fn store_works_on_old_etcd_with_client_certificates() {
    check_tls_cluster(EtcdRelease::Old).await;
}

#[tokio::test]
async fn store_works_on_new_etcd_with_client_certificates() {
    check_tls_cluster(EtcdRelease::New).await;
}

/// The error of a client with these files.
async fn connection_error(cluster: &EtcdCluster, change: impl FnOnce(&mut Config)) -> String {
    let timeouts = Timeouts { request: std::time::Duration::from_secs(2), ..Timeouts::default() };
    let mut config = Config { timeouts, ..Config::new(cluster.urls()) };
    change(&mut config);
    let store = EtcdStore::open(&config, Tasks::new()).await.unwrap();
    match with_timeout("revision", store.revision()).await.unwrap() {
        Err(Error::Unavailable { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn untrusted_client_certificate_error_names_flag() {
    let (authority, stranger) = (TestAuthority::new("ours"), TestAuthority::new("another"));
    let cluster = start_cluster(EtcdRelease::New, &authority).await;
    let distrusting = connection_error(&cluster, |config| config.ca_file = Some(stranger.ca())).await;
    assert!(distrusting.contains("invalid peer certificate: UnknownIssuer"), "{distrusting}");
    let nameless = connection_error(&cluster, |config| config.ca_file = Some(authority.ca())).await;
    assert!(nameless.contains("--etcd-certfile"), "{nameless}");
    let foreign = connection_error(&cluster, |config| {
        let EtcdTls { cert, key, .. } = stranger.client();
        (config.ca_file, config.cert_file, config.key_file) = (Some(authority.ca()), Some(cert), Some(key));
    })
    .await;
    assert!(foreign.contains("--etcd-certfile"), "{foreign}");
}

#[tokio::test]
async fn server_certificate_for_another_name_is_rejected() {
    let authority = TestAuthority::new("ours");
    let cluster = start_cluster(EtcdRelease::New, &authority).await;
    let other = connection_error(&cluster, |config| {
        let EtcdTls { ca, cert, key } = authority.client();
        (config.ca_file, config.cert_file, config.key_file) = (Some(ca), Some(cert), Some(key));
        config.servers = vec![cluster.url(0).replace("127.0.0.1", "localhost")];
    })
    .await;
    assert!(other.contains("not valid for name"), "{other}");
}
