//! Kubernetes' own sample extension API server beside our servers. `KUBEBUILDER_ASSETS/sample-apiserver` is the program, built from
//! `k8s.io/sample-apiserver`.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cluster_tests::process::SpawnedProcess;
use cluster_tests::tools::{kubectl, required_path};
use cluster_tests::wait::wait_within;
use cluster_tests::watch_reader::WatchReader;
use cluster_tests::{ControlPlane, Etcd, TestStore};
use serde_json::{Value, json};

use crate::block_on;

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const FLUNDERS: &str = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders";
/// For a Go program with informers, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Starts the sample server with the administrator's kubeconfig of one of our servers.
fn start_sample(folder: &Path, kubeconfig: &Path, etcd: &Etcd) -> (SpawnedProcess, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(required_path("KUBEBUILDER_ASSETS").join("sample-apiserver"));
    let kubeconfig = kubeconfig.display();
    command.current_dir(folder).args([
        format!("--etcd-servers={}", etcd.url()),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", folder.join("sample-certificates").display()),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
    ]);
    let (process, _lines) = SpawnedProcess::start(command, &folder.join("sample-apiserver.log"));
    (process, port)
}

fn api_service(version: &str, port: u16, priority: u32) -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.wardle.example.com")},
        "spec": {"group": "wardle.example.com", "version": version, "groupPriorityMinimum": 2000, "versionPriority": priority,
            "service": {"namespace": "default", "name": "wardle", "port": port}, "insecureSkipTLSVerify": true}})
}

#[test]
fn sample_extension_server_is_registered_used_and_watched() {
    let (etcd, own_etcd) = (Etcd::start(), Etcd::start());
    let mut plane = ControlPlane::new(TestStore::Etcd(&etcd));
    for name in ["a", "b"] {
        plane.start(name, &["--controllers=*"]);
    }
    let [a, b] = ["a", "b"].map(|name| plane.admin(name));
    let kubeconfig = plane.server("b").kubeconfig();
    let (mut sample, port) = start_sample(plane.folder(), &plane.server("a").kubeconfig(), &own_etcd);
    let log = || std::fs::read_to_string(plane.folder().join("sample-apiserver.log")).unwrap_or_default();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "wardle"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    block_on(async {
        assert_eq!(a.create("/api/v1/namespaces/default/services", &service).await.status, 201);
        for (version, priority) in [("v1alpha1", 200), ("v1beta1", 100)] {
            assert_eq!(a.create(API_SERVICES, &api_service(version, port, priority)).await.status, 201);
        }
    });
    for version in ["v1alpha1", "v1beta1"] {
        wait_within(LIMIT, "the sample server is available", async || {
            let found = b.get(&format!("{API_SERVICES}/{version}.wardle.example.com")).await.json();
            let message = found["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
            if message == "all checks passed" { Ok(()) } else { Err(format!("{message}\n{}", log())) }
        });
    }
    wait_within(LIMIT, "kubectl knows flunders and fischers", async || {
        let listed = kubectl(&kubeconfig, &["api-resources", "--api-group=wardle.example.com", "-o", "name"]);
        let listed = listed.expect_success();
        let is_complete = listed == "fischers.wardle.example.com\nflunders.wardle.example.com\n";
        if is_complete { Ok(()) } else { Err(listed) }
    });
    wait_within(LIMIT, "kubectl explains flunders", async || {
        let explained = ["flunder.spec.reference", "--output=plaintext-openapiv2"];
        let pages = [&explained[..1], &explained].map(|args| kubectl(&kubeconfig, &[&["explain"], args].concat()));
        let is_known = pages.iter().all(|page| page.stdout.contains("reference"));
        if is_known { Ok(()) } else { Err(format!("{pages:?}")) }
    });
    let theirs = block_on(b.get("/openapi/v3/apis/wardle.example.com/v1alpha1")).json();
    assert!(theirs["paths"].get("/apis/wardle.example.com/v1alpha1/fischers").is_some(), "{theirs}");
    let flunder = |name: &str| {
        json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": {"name": name},
            "spec": {"reference": "x", "referenceType": "Flunder"}})
    };
    let file = plane.folder().join("flunder.json");
    std::fs::write(&file, flunder("one").to_string()).unwrap();
    wait_within(LIMIT, "writes are admitted once the sample server's informers have synced", async || {
        let created = a.create(FLUNDERS, &flunder("zero")).await;
        if created.status == 201 { Ok(()) } else { Err(format!("{}\n{}", created.summary(), log())) }
    });
    block_on(async {
        let mut watch = WatchReader::open(&b, &format!("{FLUNDERS}?watch=true")).await;
        assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "zero");
        kubectl(&kubeconfig, &["create", "-f", &file.display().to_string()]).expect_success();
        assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "one");
    });
    let table = kubectl(&kubeconfig, &["get", "flunders.v1beta1.wardle.example.com"]).expect_success();
    assert!(table.starts_with("NAME") && table.contains("\none "), "{table}");
    kubectl(&kubeconfig, &["create", "namespace", "shop"]).expect_success();
    kubectl(&kubeconfig, &["-n", "shop", "create", "-f", &file.display().to_string()]).expect_success();
    sample.signal(rustix::process::Signal::KILL);
    sample.wait(LIMIT);
    kubectl(&kubeconfig, &["delete", "namespace", "shop", "--wait=false"]).expect_success();
    wait_within(LIMIT, "the namespace is held", async || {
        let namespace = a.get("/api/v1/namespaces/shop").await.json().to_string();
        if namespace.contains("wardle.example.com/v1alpha1") { Ok(()) } else { Err(namespace) }
    });
    assert_eq!(block_on(b.get(FLUNDERS)).status, 503);
}
