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
    let pair = rcgen::generate_simple_self_signed(vec!["peer.example".to_owned()]).unwrap();
    let files = certificates.client();
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("crt"), pair.cert.pem()).unwrap();
    std::fs::write(other.join("key"), pair.signing_key.serialize_pem()).unwrap();
    std::fs::copy(other.join("crt"), folder.path().join("ca.crt")).unwrap();
    let tls = crate::server::serving(&other.join("crt"), &other.join("key")).unwrap();
    let peer = ScriptedPeer::answering(tls, &tasks, ok).await;
    let connector = Connector::new(Watched::fixed(files.read().unwrap()), Dialer::direct());
    let refused = pool(Arc::new(connector), &peer).open(ENOUGH).await.unwrap_err();
    assert!(refused.to_string().contains("not valid for name \"kubernetes.default.svc\""), "{refused}");
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
        "cannot read the certificate authorities /empty.crt: no PEM block of type CERTIFICATE",
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
