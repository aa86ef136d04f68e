//! The server process: start, rejected flags, stop, and durable data.

use std::time::Duration;

use cluster_tests::process::run_command;
use cluster_tests::tools;
use transport::pki::{CertificateAuthority, CertificateUsage};

use crate::*;

fn run_serve(folder: &Path, flags: &[&str]) -> cluster_tests::process::CommandOutput {
    let mut command = std::process::Command::new(tools::unskew_binary());
    command.current_dir(folder).arg("serve").args(flags);
    run_command(command, Duration::from_secs(30))
}

#[test]
fn wrong_flags_exit_with_64_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, complaint) in [
        ("--frobnicate", "unknown flag: --frobnicate"),
        ("--secure-port=many", "--secure-port"),
        ("--emulated-version=1.12", "--emulated-version"),
        ("--feature-gates=NoSuchGate=true", "NoSuchGate"),
        ("--storage-media-type=application/yaml", "only application/json is built"),
        ("--tls-cert-file=x", "--tls-private-key-file"),
        ("--tls-min-version=1.3", "unknown tls version"),
        ("--encryption-provider-config=x", "--ignore-unsupported=encryption-provider-config"),
        ("--oidc-issuer-url=https://x", "--oidc-issuer-url is not supported"),
        ("--authorization-webhook-config-file=x", "--authorization-webhook-config-file is not supported"),
    ] {
        let finished = run_serve(folder.path(), &[flag]);
        assert_eq!(finished.code, Some(64), "{flag}: {finished:?}");
        assert!(finished.stderr.contains(complaint), "{flag}: {}", finished.stderr);
    }
    assert!(
        std::fs::read_dir(folder.path()).unwrap().next().is_none(),
        "no file is created before the flags are valid"
    );
}

#[test]
fn unavailable_port_or_file_exits_with_69() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let port = server.address().rsplit(':').next().unwrap().to_owned();
    let elsewhere = tempfile::tempdir().unwrap();
    let taken = run_serve(elsewhere.path(), &[&format!("--secure-port={port}")]);
    assert_eq!(taken.code, Some(69), "{taken:?}");
    assert!(taken.stderr.contains(&port) && taken.stderr.contains("--secure-port"), "{}", taken.stderr);

    let not_ours = elsewhere.path().join("notes.txt");
    std::fs::write(&not_ours, "shopping list").unwrap();
    let refused = run_serve(elsewhere.path(), &["--secure-port=0", &format!("--sqlite-file={}", not_ours.display())]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&not_ours).unwrap(), "shopping list");
}

#[test]
fn objects_survive_stop_and_kill() {
    let folder = tempfile::tempdir().unwrap();
    let first = start_on_sqlite(folder.path(), &[]);
    let uid = block_on(first.admin().create(CONFIG_MAPS_PATH, &config_map("kept"))).json()["metadata"]["uid"].clone();
    assert_eq!(first.stop(), Some(0));
    let second = start_on_sqlite(folder.path(), &[]);
    let found = block_on(second.admin().get(&format!("{CONFIG_MAPS_PATH}/kept"))).json();
    assert_eq!(found["metadata"]["uid"], uid);
    second.kill();
    let third = start_on_sqlite(folder.path(), &[]);
    assert_eq!(block_on(third.admin().get(&format!("{CONFIG_MAPS_PATH}/kept"))).json(), found);
}

#[test]
fn servers_started_concurrently_share_an_empty_folder() {
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str| start_on_sqlite(folder.path(), &[&format!("--hostname-override={name}")]);
    let servers: Vec<RunningServer> = std::thread::scope(|scope| {
        let starting: Vec<_> = ["a", "b", "c", "d"].map(|name| scope.spawn(move || start(name))).into_iter().collect();
        starting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    block_on(async {
        servers[0].admin().create(CONFIG_MAPS_PATH, &config_map("shared")).await;
        for server in &servers {
            assert_eq!(server.admin().get(&format!("{CONFIG_MAPS_PATH}/shared")).await.status, 200);
        }
    });
}

#[test]
fn acknowledged_write_is_readable_through_another_server() {
    let rounds = if tools::is_soak() { 10_000 } else { 150 };
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        let folder = tempfile::tempdir().unwrap();
        let start = |name: &str| RunningServer::start(folder.path(), store, &[&format!("--hostname-override={name}")]);
        let (a, b) = (start("a"), start("b"));
        let (a, b) = (a.admin(), b.admin());
        block_on(async {
            let path = format!("{CONFIG_MAPS_PATH}/shared");
            let mut object = a.create(CONFIG_MAPS_PATH, &config_map("shared")).await.json();
            for round in 0..rounds {
                object["data"]["round"] = round.to_string().into();
                object = a.update(&path, &object).await.json();
                let (got, listed) = (b.get(&path).await.json(), b.get(CONFIG_MAPS_PATH).await.json());
                assert_eq!(got, object, "{store:?}, round {round}");
                let items = listed["items"].as_array().unwrap();
                let is_listed =
                    items.iter().any(|item| item["metadata"] == object["metadata"] && item["data"] == object["data"]);
                assert!(is_listed, "{store:?}, round {round}: {listed}");
            }
        });
    }
}

#[test]
fn emulated_version_serves_the_resources_of_its_release() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--emulated-version=1.33"]);
    let client = server.admin();
    block_on(async {
        let version = client.get("/version").await.json();
        assert_eq!(version["gitVersion"], "v1.33.0+unskew.0.1.0");
        let classes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
        assert_eq!(client.get(classes).await.status, 404, "the resource appears in 1.34");
        assert_eq!(
            client.get("/apis/storage.k8s.io/v1beta1/volumeattributesclasses").await.status,
            404,
            "the version is off by default"
        );
        assert_eq!(client.get("/apis/apps/v1/deployments").await.status, 200);
    });
}

#[test]
fn kubeadm_and_envtest_command_lines_start_the_server() {
    let folder = tempfile::tempdir().unwrap();
    // A first start creates the certificates and keys that the command lines name.
    start_on_sqlite(folder.path(), &[]).stop();
    let pki = folder.path().join("unskew-data/pki");
    let file = |name: &str| pki.join(name).display().to_string();
    let etcd = Etcd::start();
    let kubeadm = [
        "--advertise-address=127.0.0.1".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        format!("--client-ca-file={}", file("ca.crt")),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--enable-bootstrap-token-auth=true".to_owned(),
        format!("--kubelet-client-certificate={}", file("admin.crt")),
        format!("--kubelet-client-key={}", file("admin.key")),
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname".to_owned(),
        format!("--proxy-client-cert-file={}", file("admin.crt")),
        format!("--proxy-client-key-file={}", file("admin.key")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        format!("--requestheader-client-ca-file={}", file("ca.crt")),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/12".to_owned(),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
    ];
    let envtest = [
        "--advertise-address=127.0.0.1".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        format!("--cert-dir={}", pki.display()),
        "--authorization-mode=RBAC".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--client-ca-file={}", file("ca.crt")),
        "--service-account-issuer=https://127.0.0.1/".to_owned(),
    ];
    for flags in [&kubeadm[..], &envtest[..]] {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = RunningServer::start(folder.path(), TestStore::Etcd(&etcd), &flags);
        assert!(server.log().contains("allow-privileged"), "ignored flags are logged: {}", server.log());
        assert_eq!(server.stop(), Some(0));
    }
}

/// Writes a leaf certificate and its CA; returns both paths.
fn write_leaf_and_authority(dir: &Path) -> (String, String) {
    let authority = CertificateAuthority::open_or_create(&dir.join("given"), "ca").unwrap();
    let leaf = authority.open_or_issue("leaf", "pinned", None, &CertificateUsage::Client).unwrap();
    (leaf.certificate.display().to_string(), authority.certificate().display().to_string())
}

#[test]
fn start_rejects_leaf_certificate_in_ca_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let (leaf, authority) = write_leaf_and_authority(folder.path());
    let mixed = folder.path().join("mixed.crt").display().to_string();
    let both = [&authority, &leaf].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    std::fs::write(&mixed, both).unwrap();
    let key = leaf.replace(".crt", ".key");
    let gateway = ["gateway", "--upstream=https://127.0.0.1:1", "--secure-port=0"];
    let shown = [format!("--proxy-client-cert-file={leaf}"), format!("--proxy-client-key-file={key}")];
    let peers = [format!("--requestheader-client-ca-file={authority}"), shown[0].clone(), shown[1].clone()];
    let etcd = ["--etcd-servers=https://127.0.0.1:1".to_owned()];
    for (command, flag, others) in [
        (&["serve", "--secure-port=0"][..], "--client-ca-file", &[][..]),
        (
            &["serve", "--secure-port=0"],
            "--requestheader-client-ca-file",
            &["--requestheader-allowed-names=x".to_owned()],
        ),
        (&["serve", "--secure-port=0"], "--peer-ca-file", &peers),
        (&["serve", "--secure-port=0"], "--etcd-cafile", &etcd),
        (&gateway, "--upstream-ca-file", &shown),
    ] {
        for (file, position) in [(&leaf, 1), (&mixed, 2)] {
            let mut unskew = std::process::Command::new(tools::unskew_binary());
            unskew.current_dir(folder.path()).args(command).args(others).arg(format!("{flag}={file}"));
            let finished = run_command(unskew, Duration::from_secs(30));
            assert_ne!(finished.code, Some(0), "{flag}: {finished:?}");
            let certificate = format!("certificate {position} (subject \"CN=pinned\") is not a certificate authority");
            for words in [flag, file, &certificate, "give the certificate of its issuer \"CN=unskew-ca\" here"] {
                assert!(finished.stderr.contains(words), "{flag}: no {words:?} in {}", finished.stderr);
            }
        }
    }
}
