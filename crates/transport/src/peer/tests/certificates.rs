//! Peer certificates: verification, presentation, and reload.

use super::*;

#[tokio::test]
async fn connect_rejects_peer_of_foreign_authority() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(&folder.path().join("ours"));
    let foreign = TestCertificates::new(&folder.path().join("theirs"));
    let tasks = Tasks::new();
    let peer = ScriptedPeer::start_responder(foreign.server_config(), &tasks, ok_response).await;
    let refused = pool(certificates.connector(), &peer).open(TEST_TIMEOUT).await.unwrap_err();
    assert_eq!(refused.reason(), "tls");
    assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
}

#[tokio::test]
async fn connect_rejects_peer_certificate_for_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let files = certificates.client_files();
    let (tls, authority) = server_with_authority_valid_until(folder.path(), "peer.example", 2100);
    std::fs::write(folder.path().join("ca.crt"), authority).unwrap();
    let peer = ScriptedPeer::start_responder(tls, &tasks, ok_response).await;
    let connector = Connector::new(Reloading::fixed(files.load().unwrap()), Dialer::direct());
    let refused = pool(Arc::new(connector), &peer).open(TEST_TIMEOUT).await.unwrap_err();
    assert!(refused.to_string().contains("not valid for name \"kubernetes.default.svc\""), "{refused}");
}

/// Builds a server certificate for `name` and the PEM of its CA, which is valid until the given year.
fn server_with_authority_valid_until(dir: &Path, name: &str, valid_until: i32) -> (rustls::ServerConfig, String) {
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.not_before = rcgen::date_time_ymd(2000, 1, 1);
    authority.not_after = rcgen::date_time_ymd(valid_until, 1, 1);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &rcgen::Issuer::from_params(&authority, &authority_key)).unwrap();
    let [crt_file, key_file] = ["other.crt", "other.key"].map(|file| dir.join(file));
    std::fs::write(&crt_file, leaf.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    (crate::server::server_config(&crt_file, &key_file, &crate::TlsPolicy::default()).unwrap(), pem)
}

#[tokio::test]
async fn peer_of_expired_authority_is_rejected_beside_a_valid_one() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let files = certificates.client_files();
    let (tls, expired) = server_with_authority_valid_until(folder.path(), "kubernetes.default.svc", 2020);
    let valid = std::fs::read_to_string(folder.path().join("ca.crt")).unwrap();
    let peer = ScriptedPeer::start_responder(tls, &tasks, ok_response).await;
    for bundle in [expired.clone(), format!("{valid}{expired}")] {
        std::fs::write(folder.path().join("ca.crt"), bundle).unwrap();
        let connector = Connector::new(Reloading::fixed(files.load().unwrap()), Dialer::direct());
        let refused = pool(Arc::new(connector), &peer).open(TEST_TIMEOUT).await.unwrap_err().to_string();
        assert!(
            refused.contains("has expired or is not yet valid: it is valid from Jan  1 00:00:00 2000"),
            "{refused}"
        );
    }
    // A valid CA in the same bundle is still trusted.
    let peer = ScriptedPeer::start_responder(certificates.server_config(), &tasks, ok_response).await;
    let connector = Connector::new(Reloading::fixed(files.load().unwrap()), Dialer::direct());
    assert!(pool(Arc::new(connector), &peer).open(TEST_TIMEOUT).await.is_ok());
}

#[tokio::test]
async fn reloaded_certificates_retire_old_connections() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let tasks = Tasks::new();
    let peer = ScriptedPeer::start_responder(certificates.server_config(), &tasks, ok_response).await;
    let watched = certificates.client_files().start_reloading(&tasks).unwrap();
    let first = watched.get().generation;
    let pool = pool(Arc::new(Connector::new(watched.clone(), Dialer::direct())), &peer);
    let under_way = send_get(&pool, "/long").await;
    body_text(send_get(&pool, "/a").await).await;
    assert_eq!((pool.idle_count(), peer.connection_count()), (1, 2));

    // The same CA from a rewritten file also counts as a change.
    let file = folder.path().join("ca.crt");
    replace_by_rename(&file, &(std::fs::read_to_string(&file).unwrap() + "\n"));
    tokio::time::pause();
    while watched.get().generation == first {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::resume();
    assert!(pool.take_idle().is_none());
    assert_eq!(body_text(under_way).await, "GET /long HTTP/1.1 on 0", "in-flight requests finish");
    assert_eq!(pool.idle_count(), 0, "their connections are not pooled");
    assert_eq!(body_text(send_get(&pool, "/b").await).await, "GET /b HTTP/1.1 on 2");
}

#[test]
fn unusable_client_files_are_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let good = certificates.client_files();
    let own = good.client_certificate.clone().unwrap();
    let other = CertificateAuthority::open_or_create(&folder.path().join("other"), "ca").unwrap();
    let stranger = other.open_or_issue("stranger", "stranger", None, &CertificateUsage::Client).unwrap();
    let empty = folder.path().join("empty.crt");
    std::fs::write(&empty, "").unwrap();
    let check = |files: ClientTlsFiles, expected: &str| {
        let error = files.load().unwrap_err().to_string();
        assert!(error.replace(&folder.path().display().to_string(), "").starts_with(expected), "{error}");
    };
    let with = |own: CertificateFiles| ClientTlsFiles { client_certificate: Some(own), ..good.clone() };
    check(
        ClientTlsFiles { ca_bundle: empty.clone(), client_certificate: None },
        "cannot use the certificate authorities /empty.crt: no PEM block of type CERTIFICATE",
    );
    check(
        ClientTlsFiles { ca_bundle: own.certificate.clone(), client_certificate: None },
        "cannot use the certificate authorities /proxy-client.crt: certificate 1 (subject \"CN=proxy-client\") is not a certificate \
         authority: its basicConstraints say CA:FALSE; give the certificate of its issuer \"CN=unskew-ca\" here",
    );
    check(
        with(CertificateFiles { certificate: empty.clone(), ..own.clone() }),
        "cannot read the client certificate /empty.crt",
    );
    check(with(CertificateFiles { key: empty, ..own.clone() }), "cannot read the private key /empty.crt");
    check(
        with(CertificateFiles { key: stranger.key, ..own }),
        "the client certificate /proxy-client.crt and the key /other/stranger.key do not match",
    );
}

/// Replaces the file by rename, as mounted secrets are.
fn replace_by_rename(file: &Path, content: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(new, file).unwrap();
}
