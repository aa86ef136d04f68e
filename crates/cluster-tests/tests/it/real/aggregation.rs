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
use cluster_tests::{Client, ControlPlane, Etcd, TestStore};
use serde_json::{Value, json};

use crate::block_on;

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FLUNDERS: &str = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders";
/// For a Go program with informers, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Starts the sample server with the administrator's kubeconfig of one of our servers.
fn start_sample(folder: &Path, kubeconfig: &Path, etcd: &Etcd, port: u16) -> SpawnedProcess {
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
    SpawnedProcess::start(command, &folder.join("sample-apiserver.log")).0
}

/// A config map that a flunder owns.
fn owned_config_map(name: &str, owner: &str, uid: &str) -> Value {
    let owner = json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "name": owner, "uid": uid});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [owner]}})
}

fn api_service(version: &str, port: u16, priority: u32) -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.wardle.example.com")},
        "spec": {"group": "wardle.example.com", "version": version, "groupPriorityMinimum": 2000, "versionPriority": priority,
            "service": {"namespace": "default", "name": "wardle", "port": port}, "insecureSkipTLSVerify": true}})
}

/// Waits until the sample server is available and kubectl knows its kinds and their fields.
fn wait_until_known(b: &Client, kubeconfig: &Path, log: &dyn Fn() -> String) {
    for version in ["v1alpha1", "v1beta1"] {
        wait_within(LIMIT, "the sample server is available", async || {
            let found = b.get(&format!("{API_SERVICES}/{version}.wardle.example.com")).await.json();
            let message = found["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
            if message == "all checks passed" { Ok(()) } else { Err(format!("{message}\n{}", log())) }
        });
    }
    wait_within(LIMIT, "kubectl knows flunders and fischers", async || {
        let listed = kubectl(kubeconfig, &["api-resources", "--api-group=wardle.example.com", "-o", "name"]);
        let listed = listed.expect_success();
        let is_complete = listed == "fischers.wardle.example.com\nflunders.wardle.example.com\n";
        if is_complete { Ok(()) } else { Err(listed) }
    });
    wait_within(LIMIT, "kubectl explains flunders", async || {
        let explained = ["flunder.spec.reference", "--output=plaintext-openapiv2"];
        let pages = [&explained[..1], &explained].map(|args| kubectl(kubeconfig, &[&["explain"], args].concat()));
        let is_known = pages.iter().all(|page| page.stdout.contains("reference"));
        if is_known { Ok(()) } else { Err(format!("{pages:?}")) }
    });
}

/// One whose owner exists, two whose owner does not.
fn create_owned_config_maps(a: &Client, uid: &str) {
    block_on(async {
        for (name, owner, uid) in [("owned", "one", uid), ("orphan", "none", "0a1b2c3d-0000-4000-8000-000000000000")] {
            assert_eq!(a.create(CONFIG_MAPS, &owned_config_map(name, owner, uid)).await.status, 201);
        }
        let unowned = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "last", "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "0a1b2c3d-0000-4000-8000-000000000001"}]}});
        assert_eq!(a.create(CONFIG_MAPS, &unowned).await.status, 201);
    });
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
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = || start_sample(plane.folder(), &plane.server("a").kubeconfig(), &own_etcd, port);
    let mut sample = start();
    let log = || std::fs::read_to_string(plane.folder().join("sample-apiserver.log")).unwrap_or_default();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "wardle"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    block_on(async {
        assert_eq!(a.create("/api/v1/namespaces/default/services", &service).await.status, 201);
        for (version, priority) in [("v1alpha1", 200), ("v1beta1", 100)] {
            assert_eq!(a.create(API_SERVICES, &api_service(version, port, priority)).await.status, 201);
        }
    });
    wait_until_known(&b, kubeconfig.as_ref(), &log);
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
    let uid = block_on(a.get(&format!("{FLUNDERS}/one"))).json()["metadata"]["uid"].as_str().unwrap().to_owned();
    sample.signal(rustix::process::Signal::KILL);
    sample.wait(LIMIT);
    kubectl(&kubeconfig, &["delete", "namespace", "shop", "--wait=false"]).expect_success();
    wait_within(LIMIT, "the namespace is held", async || {
        let namespace = a.get("/api/v1/namespaces/shop").await.json().to_string();
        if namespace.contains("wardle.example.com/v1alpha1") { Ok(()) } else { Err(namespace) }
    });
    assert_eq!(block_on(b.get(FLUNDERS)).status, 503);
    create_owned_config_maps(&a, &uid);
    let status_of = async |name: &str| a.get(&format!("{CONFIG_MAPS}/{name}")).await.status.as_u16();
    wait_within(LIMIT, "the collector has looked at what came last", async || {
        if status_of("last").await == 404 { Ok(()) } else { Err("it is there".to_owned()) }
    });
    assert_eq!(block_on(status_of("orphan")), 200, "whether its owner is absent is not known");
    let _sample = start();
    wait_within(LIMIT, "the orphan and the namespace are deleted once the server is back", async || {
        let namespace = a.get("/api/v1/namespaces/shop").await;
        let statuses = [status_of("orphan").await, namespace.status.as_u16()];
        if statuses == [404, 404] { Ok(()) } else { Err(format!("{statuses:?} {}", namespace.json())) }
    });
    assert_eq!(block_on(status_of("owned")), 200);
    assert_eq!(block_on(b.get(&format!("{FLUNDERS}/one"))).status, 200);
}
