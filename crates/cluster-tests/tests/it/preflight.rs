//! `unskew preflight`: what another release would do to storage, and that servers of that release do it.

mod objects;
mod pairs;
mod real;

use std::path::Path;

use cluster_tests::lab::run_unskew;
use cluster_tests::process::CommandOutput;
use cluster_tests::{ControlPlane, TestStore};
use serde_json::{Value, json};

use super::{CONFIG_MAPS_PATH, block_on, config_map};

const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const BETA_ON: &str = "--runtime-config=storage.k8s.io/v1beta1=true";

fn run_preflight(home: &Path, flags: &[&str]) -> CommandOutput {
    let mut args = vec!["preflight", "--output", "json"];
    args.extend(flags);
    run_unskew(home, &args)
}

/// The exit code, and the findings as `effect resource`.
#[track_caller]
fn preflight(home: &Path, flags: &[&str]) -> (Option<i32>, Vec<String>) {
    let output = run_preflight(home, flags);
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = report["findings"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (output.code, findings.map(|found| format!("{} {}", text(&found["effect"]), text(&found["resource"]))).collect())
}

fn storage_flag(plane: &ControlPlane<'_>) -> String {
    match plane.store() {
        TestStore::Sqlite => format!("--sqlite-file={}", plane.folder().join("unskew-data/store.db").display()),
        TestStore::Etcd(etcd) => format!("--etcd-servers={}", etcd.url()),
    }
}

#[test]
fn preflight_predicts_what_an_older_server_does() {
    ControlPlane::for_each_store(|mut plane| {
        let home = tempfile::tempdir().unwrap();
        plane.start("new", &["--emulated-version=1.36"]);
        let admin = plane.admin("new");
        assert_eq!(block_on(admin.create(CONFIG_MAPS_PATH, &config_map("kept"))).status, 201);
        let storage = storage_flag(&plane);
        assert_eq!(preflight(home.path(), &["--to=1.34", &storage]), (Some(0), vec![]));
        assert_eq!(preflight(home.path(), &["--to=1.33", BETA_ON, &storage]), (Some(0), vec![]));

        let class = json!({"kind": "VolumeAttributesClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "gold"},
                           "driverName": "d", "parameters": {"iops": "1"}});
        assert_eq!(block_on(admin.create(CLASSES_PATH, &class)).status, 201);
        let resource = "volumeattributesclasses.storage.k8s.io";
        assert_eq!(preflight(home.path(), &["--to=1.34", &storage]), (Some(0), vec![]));
        let invisible = preflight(home.path(), &["--to=1.33", &storage]);
        assert_eq!(invisible, (Some(1), vec![format!("invisible {resource}")]));
        let unreadable = preflight(home.path(), &["--to=1.33", BETA_ON, &storage]);
        assert_eq!(unreadable, (Some(1), vec![format!("unreadable {resource}")]));
        let refused = preflight(home.path(), &["--to=1.34", "--feature-gates=NoSuchGate=true", &storage]);
        assert_eq!(refused, (Some(1), vec!["startRefused ".to_owned()]));
        let table = run_unskew(home.path(), &["preflight", "--to=1.33", "--plan", &storage]);
        assert_eq!(table.code, Some(1));
        assert!(table.stdout.contains("NOT SAFE, 1 finding") && table.stdout.contains("Plan:\n  1. "), "{table:?}");

        plane.stop("new");
        let file = home.path().join("access.log");
        let line = json!({"user": "jane", "verb": "list", "method": "GET", "path": CLASSES_PATH, "status": 200});
        std::fs::write(&file, format!("{line}\n")).unwrap();
        let log = format!("--access-log={}", file.display());
        let clients = preflight(home.path(), &["--to=1.33", &storage, &log]);
        assert_eq!(clients, (Some(1), vec![format!("invisible {resource}"), format!("clientsRefused {resource}")]));
        let manifest = home.path().join("kube-apiserver.yaml");
        let pod = "kind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    command: [kube-apiserver, --cloud-provider=external]\n";
        std::fs::write(&manifest, pod).unwrap();
        let flags = format!("--server-flags={}", manifest.display());
        let refused = preflight(home.path(), &["--to=1.34", &storage, &flags]);
        assert_eq!(refused, (Some(1), vec!["startRefused ".to_owned()]));
        plane.start("old", &["--emulated-version=1.33"]);
        let listed = block_on(plane.admin("old").get(CLASSES_PATH)).status.as_u16();
        // 503 while the newer server may come back, then 404.
        assert!([404, 503].contains(&listed), "predicted: invisible; found {listed}");
        assert_eq!(block_on(plane.admin("old").get(&format!("{CONFIG_MAPS_PATH}/kept"))).status, 200);
        let still = preflight(home.path(), &["--to=1.33", &storage]);
        assert_eq!(still, (Some(1), vec![format!("invisible {resource}")]), "it is still in storage");
    });
}
