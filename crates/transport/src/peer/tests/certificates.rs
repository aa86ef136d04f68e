//! Certificates of peers: checked, shown, and read again.

use super::*;

#[tokio::test]
async fn a_peer_of_another_authority_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(&folder.path().join("ours"));
    let foreign = Certificates::new(&folder.path().join("theirs"));
    let tasks = Tasks::new();
    let peer = ScriptedPeer::answering(foreign.server(), &tasks, ok).await;
    let refused = pool(certificates.connector(), &peer).open(ENOUGH).await.unwrap_err();
    assert_eq!(refused.reason(), "tls");
    assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
}

#[tokio::test]
async fn a_peer_whose_certificate_is_for_another_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(folder.path());
    let tasks = Tasks::new();
    let files = certificates.client();
    let (tls, authority) = server_of(folder.path(), "peer.example", 2100);
    std::fs::write(folder.path().join("ca.crt"), authority).unwrap();
    let peer = ScriptedPeer::answering(tls, &tasks, ok).await;
    let connector = Connector::new(Watched::fixed(files.read().unwrap()), Dialer::direct());
    let refused = pool(Arc::new(connector), &peer).open(ENOUGH).await.unwrap_err();
    assert!(refused.to_string().contains("not valid for name \"kubernetes.default.svc\""), "{refused}");
}

/// A server whose certificate is for this name, and the PEM of its authority, which is valid until this year.
fn server_of(folder: &Path, name: &str, valid_until: i32) -> (rustls::ServerConfig, String) {
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.not_before = rcgen::date_time_ymd(2000, 1, 1);
    authority.not_after = rcgen::date_time_ymd(valid_until, 1, 1);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &rcgen::Issuer::from_params(&authority, &authority_key)).unwrap();
    let [crt_file, key_file] = ["other.crt", "other.key"].map(|file| folder.join(file));
    std::fs::write(&crt_file, leaf.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    (crate::server::serving(&crt_file, &key_file).unwrap(), pem)
}

#[tokio::test]
async fn peer_of_an_expired_authority_is_refused_also_beside_a_valid_one() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(folder.path());
    let tasks = Tasks::new();
    let files = certificates.client();
    let (tls, expired) = server_of(folder.path(), "kubernetes.default.svc", 2020);
    let valid = std::fs::read_to_string(folder.path().join("ca.crt")).unwrap();
    let peer = ScriptedPeer::answering(tls, &tasks, ok).await;
    for bundle in [expired.clone(), format!("{valid}{expired}")] {
        std::fs::write(folder.path().join("ca.crt"), bundle).unwrap();
        let connector = Connector::new(Watched::fixed(files.read().unwrap()), Dialer::direct());
        let refused = pool(Arc::new(connector), &peer).open(ENOUGH).await.unwrap_err().to_string();
        assert!(
            refused.contains("has expired or is not yet valid: it is valid from Jan  1 00:00:00 2000"),
            "{refused}"
        );
    }
    // A valid authority beside an expired one still vouches.
    let peer = ScriptedPeer::answering(certificates.server(), &tasks, ok).await;
    let connector = Connector::new(Watched::fixed(files.read().unwrap()), Dialer::direct());
    assert!(pool(Arc::new(connector), &peer).open(ENOUGH).await.is_ok());
}

#[tokio::test]
async fn changed_files_are_used_for_new_connections_and_retire_the_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(folder.path());
    let tasks = Tasks::new();
    let peer = ScriptedPeer::answering(certificates.server(), &tasks, ok).await;
    let watched = certificates.client().watch(&tasks).unwrap();
    let first = watched.get().generation;
    let pool = pool(Arc::new(Connector::new(watched.clone(), Dialer::direct())), &peer);
    let under_way = ask(&pool, "/long").await;
    text(ask(&pool, "/a").await).await;
    assert_eq!((pool.idle(), peer.connections()), (1, 2));

    // The same authority under another file, which is a change all the same.
    let file = folder.path().join("ca.crt");
    replace(&file, &(std::fs::read_to_string(&file).unwrap() + "\n"));
    tokio::time::pause();
    while watched.get().generation == first {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::resume();
    assert!(pool.take().is_none());
    assert_eq!(text(under_way).await, "GET /long HTTP/1.1 on 0", "what is under way is finished");
    assert_eq!(pool.idle(), 0, "and its connection is not kept");
    assert_eq!(text(ask(&pool, "/b").await).await, "GET /b HTTP/1.1 on 2");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(folder.path());
    let good = certificates.client();
    let own = good.own.clone().unwrap();
    let other = Authority::open(&folder.path().join("other"), "ca").unwrap();
    let stranger = other.issue("stranger", "stranger", None, &Purpose::Client).unwrap();
    let empty = folder.path().join("empty.crt");
    std::fs::write(&empty, "").unwrap();
    let check = |files: ClientFiles, expected: &str| {
        let error = files.read().unwrap_err().to_string();
        assert!(error.replace(&folder.path().display().to_string(), "").starts_with(expected), "{error}");
    };
    let with = |own: Pair| ClientFiles { own: Some(own), ..good.clone() };
    check(
        ClientFiles { authorities: empty.clone(), own: None },
        "cannot use the certificate authorities /empty.crt: no PEM block of type CERTIFICATE",
    );
    check(
        ClientFiles { authorities: own.certificate.clone(), own: None },
        "cannot use the certificate authorities /proxy-client.crt: certificate 1 (subject \"CN=proxy-client\") is not a certificate \
         authority: its basicConstraints say CA:FALSE; give the certificate of its issuer \"CN=unskew-ca\" here",
    );
    check(with(Pair { certificate: empty.clone(), ..own.clone() }), "cannot read the client certificate /empty.crt");
    check(with(Pair { key: empty, ..own.clone() }), "cannot read the private key /empty.crt");
    check(
        with(Pair { key: stranger.key, ..own }),
        "the client certificate /proxy-client.crt and the key /other/stranger.key do not fit",
    );
}

/// By rename, as secrets are replaced.
fn replace(file: &Path, content: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(new, file).unwrap();
}
