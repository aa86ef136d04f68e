//! `unskew inventory`: what is at rest, in SQLite and etcd, of our servers and of a real kube-apiserver.

use std::path::Path;
use std::time::Duration;

use cluster_tests::lab::run_unskew;
use cluster_tests::wait::wait_within;
use cluster_tests::{ControlPlane, Etcd, RunningLab, RunningServer, TestStore};
use serde_json::{Value, json};

use super::{CONFIG_MAPS_PATH, block_on, config_map};

const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1beta1/volumeattributesclasses";

#[track_caller]
fn inventory(home: &Path, flags: &[&str]) -> Value {
    let mut args = vec!["inventory", "--output", "json"];
    args.extend(flags);
    let text = run_unskew(home, &args).expect_success();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The forms of a resource as `version encoding provider:key count`.
fn forms(inventory: &Value, resource: &str) -> Vec<String> {
    let resources = inventory["resources"].as_array().unwrap().iter();
    let found =
        resources.filter(|found| found["resource"] == resource).flat_map(|found| found["forms"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let form = |form: &Value| {
        let encryption = match form["encryption"].is_null() {
            true => "plain".to_owned(),
            false => format!("{}:{}", text(&form["encryption"]["provider"]), text(&form["encryption"]["key"])),
        };
        let media_type = text(&form["mediaType"]);
        format!("{} {media_type} {encryption} {}", text(&form["apiVersion"]), form["objects"])
    };
    found.map(form).collect()
}

#[test]
fn inventory_shows_what_servers_of_two_releases_stored() {
    ControlPlane::for_each_store(|mut plane| {
        let class = |name: &str| {
            json!({"kind": "VolumeAttributesClass", "apiVersion": "storage.k8s.io/v1beta1", "metadata": {"name": name},
                   "driverName": "d", "parameters": {"iops": "1"}})
        };
        plane.start("old", &["--emulated-version=1.34", "--runtime-config=storage.k8s.io/v1beta1=true"]);
        assert_eq!(block_on(plane.admin("old").create(CLASSES_PATH, &class("one"))).status, 201);
        assert_eq!(block_on(plane.admin("old").create(CONFIG_MAPS_PATH, &config_map("kept"))).status, 201);
        plane.stop("old");
        plane.start("new", &["--emulated-version=1.36", "--runtime-config=storage.k8s.io/v1beta1=true"]);
        assert_eq!(block_on(plane.admin("new").create(CLASSES_PATH, &class("two"))).status, 201);

        let home = tempfile::tempdir().unwrap();
        let file = plane.folder().join("unskew-data/store.db").display().to_string();
        let flag = match plane.store() {
            TestStore::Sqlite => format!("--sqlite-file={file}"),
            TestStore::Etcd(etcd) => {
                etcd.put("/registry/pods/default/damaged", b"\x00\x01");
                etcd.put("/registry/secrets/default/sealed", b"k8s:enc:kms:v2:vault:xyz");
                format!("--etcd-servers={}", etcd.url())
            }
        };
        let found = inventory(home.path(), &[&flag]);
        assert_eq!(
            forms(&found, "volumeattributesclasses"),
            ["storage.k8s.io/v1 application/json plain 1", "storage.k8s.io/v1beta1 application/json plain 1"]
        );
        assert!(forms(&found, "configmaps")[0].starts_with("v1 application/json plain "), "{found}");
        if let TestStore::Etcd(_) = plane.store() {
            assert_eq!(forms(&found, "secrets"), ["- - kms:vault 1"]);
            let pods = found["resources"].as_array().unwrap().iter().find(|found| found["resource"] == "pods").unwrap();
            assert_eq!(pods["undecodable"]["keys"][0]["key"], "/registry/pods/default/damaged");
            assert!(found["notKnown"].to_string().contains("KMS"), "{found}");
        }
        let table = run_unskew(home.path(), &["inventory", &flag]).expect_success();
        let is_beta =
            |line: &str| line.starts_with("volumeattributesclasses.storage.k8s.io") && line.contains("v1beta1");
        assert!(table.lines().any(is_beta), "{table}");
        assert_eq!(block_on(plane.admin("new").create(CONFIG_MAPS_PATH, &config_map("after"))).status, 201);
    });
}

#[test]
fn inventory_of_a_lab_needs_no_flags_and_says_what_the_api_hides() {
    let home = tempfile::tempdir().unwrap();
    let lab = RunningLab::start(home.path(), &["--servers=1.36"]);
    let running = lab.run_command(&["inventory"]).expect_success();
    assert!(running.contains("namespaces") && running.contains("store.db at revision"), "{running}");
    let kubeconfig = lab.kubeconfig().display().to_string();
    let counted = inventory(home.path(), &["--kubeconfig", &kubeconfig]);
    assert_eq!(forms(&counted, "namespaces"), ["- - plain 4"]);
    assert!(counted["notKnown"][0].as_str().unwrap().starts_with("How objects are stored"), "{counted}");
    wait_within(Duration::from_secs(30), "the lab shows what is stored", async || {
        let status = lab.status();
        let stored = status["storedVersions"].as_array().cloned().unwrap_or_default();
        let namespaces = stored.iter().find(|stored| stored["name"] == "core.namespaces").cloned().unwrap_or_default();
        if namespaces["versions"] == json!([["v1", 4]]) { Ok(()) } else { Err(status.to_string()) }
    });
    let status = lab.run_command(&["status"]).expect_success();
    assert!(status.contains(", none in another version than servers write"), "{status}");
    let folder = lab.folder().to_owned();
    assert_eq!(lab.interrupt(), Some(0));
    let flag = format!("--data-dir={}", folder.display());
    let stopped = run_unskew(home.path(), &["inventory", &flag]).expect_success();
    assert!(stopped.contains("namespaces"), "{stopped}");
    assert!(!folder.join("store.db-wal").exists(), "reading leaves no file behind");
}

#[test]
fn inventory_of_missing_storage_is_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    let refused = run_unskew(home.path(), &["inventory"]).expect_failure();
    assert!(refused.contains("there is no lab in") && refused.contains("--etcd-servers"), "{refused}");
    let refused = run_unskew(home.path(), &["inventory", "--sqlite-file=missing.db"]).expect_failure();
    assert!(refused.contains("missing.db"), "{refused}");
    let refused = run_unskew(home.path(), &["inventory", "--etcd-servers=http://127.0.0.1:1"]).expect_failure();
    assert!(refused.contains("cannot read http://127.0.0.1:1"), "{refused}");
}

/// 32 bytes of `k` in base64.
const KEY: &str = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=";

/// Runs with `cargo xtask real`.
mod real {
    use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease};

    use super::*;

    #[test]
    fn inventory_reads_storage_of_a_real_kube_apiserver() {
        let etcd = Etcd::start();
        let folder = tempfile::tempdir().unwrap();
        // Makes the certificates.
        RunningServer::start(folder.path(), TestStore::Sqlite, &[]).stop();
        let config = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [
            {"resources": ["secrets"], "providers": [{"aescbc": {"keys": [{"name": "k1", "secret": KEY}]}}]},
            {"resources": ["configmaps"], "providers": [{"aesgcm": {"keys": [{"name": "k1", "secret": KEY}]}}]},
            {"resources": ["leases.coordination.k8s.io"], "providers": [{"secretbox": {"keys": [{"name": "k1", "secret": KEY}]}}]},
        ]});
        let file = folder.path().join("encryption.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let flag = format!("--encryption-provider-config={}", file.display());
        let server = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcd, &[&flag]);
        let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}});
        assert_eq!(block_on(server.admin().create("/api/v1/namespaces/default/secrets", &secret)).status, 201);

        let storage = format!("--etcd-servers={}", etcd.url());
        let sealed = inventory(folder.path(), &[&storage]);
        assert_eq!(forms(&sealed, "secrets"), ["- - aescbc:k1 1"]);
        let opened = inventory(folder.path(), &[&storage, &flag]);
        let protobuf = "application/vnd.kubernetes.protobuf";
        assert_eq!(forms(&opened, "secrets"), [format!("v1 {protobuf} aescbc:k1 1")]);
        assert_eq!(forms(&opened, "namespaces"), [format!("v1 {protobuf} plain 4")]);
        assert!(forms(&opened, "configmaps")[0].starts_with(&format!("v1 {protobuf} aesgcm:k1")), "{opened}");
        assert!(
            forms(&opened, "leases")[0].starts_with(&format!("coordination.k8s.io/v1 {protobuf} secretbox:k1")),
            "{opened}"
        );
        assert!(
            opened["resources"].as_array().unwrap().iter().all(|found| found["undecodable"]["count"] == 0),
            "{opened}"
        );
        assert!(opened["resources"].as_array().unwrap().iter().all(|found| found["class"] != "unknown"), "{opened}");
    }
}
