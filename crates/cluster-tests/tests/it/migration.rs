//! Storage migration: rewrites of unchanged objects, StorageVersionMigrations and `unskew migrate`.

mod command;
mod refusals;
mod rounds;

use std::time::Duration;

use cluster_tests::tools::kubectl;
use cluster_tests::wait::wait_within;
use cluster_tests::{Client, ControlPlane};
use serde_json::{Value, json};
use store::{Key, KeyRange, Op, Revision, Transaction};

use crate::block_on;
use crate::storage_versions::open_store;

const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const STORED_CLASSES: &str = "/registry/volumeattributesclasses/";
pub(crate) const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
/// Serves migrations; servers of these tests end their writes at once.
pub(crate) const MIGRATOR_FLAGS: [&str; 4] = [
    "--feature-gates=StorageVersionMigrator=true",
    "--runtime-config=storagemigration.k8s.io/v1beta1=true,storage.k8s.io/v1beta1=true",
    "--storage-migration-linger=1s",
    "--controllers=svm",
];
/// Longer than the election of a migrator takes after its leader was killed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

fn class(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": name},
        "driverName": "disks.example.com", "parameters": {"iops": "100"},
    })
}

/// The flags of a server that emulates a release and executes migrations.
fn migrator(release: &'static str) -> Vec<&'static str> {
    [&[release], &MIGRATOR_FLAGS[..]].concat()
}

/// The versions of stored objects below a prefix, at a revision or now, by the end of their keys.
pub(crate) async fn stored_versions(
    plane: &ControlPlane<'_>,
    prefix: &'static str,
    at: Option<u64>,
) -> Vec<(String, String)> {
    let (store, tasks) = open_store(plane).await;
    let range = KeyRange::prefix(prefix);
    let range = at.map_or(range.clone(), |revision| range.at_revision(Revision(revision)));
    let page = store.range(range).await.unwrap();
    let versions = page.entries.iter().map(|entry| {
        let object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        let name = String::from_utf8_lossy(&entry.key[prefix.len()..]).into_owned();
        (name, object["apiVersion"].as_str().unwrap_or("undecodable").to_owned())
    });
    let versions = versions.collect();
    drop(store);
    tasks.stop(Duration::from_secs(5)).await.unwrap();
    versions
}

pub(crate) async fn create_migration(client: &Client, name: &str, group: &str, resource: &str) {
    let migration = json!({
        "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration", "metadata": {"name": name},
        "spec": {"resource": {"group": group, "resource": resource}},
    });
    let created = client.create(MIGRATIONS, &migration).await;
    assert_eq!(created.status, 201, "{}", created.summary());
}

/// The last true condition of a migration and its message.
pub(crate) async fn migration_state(client: &Client, name: &str) -> (String, String) {
    let object = client.get(&format!("{MIGRATIONS}/{name}")).await.json();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let current = conditions.iter().rfind(|condition| condition["status"] == "True");
    let text = |field: &str| current.and_then(|current| current[field].as_str()).unwrap_or_default().to_owned();
    (text("type"), text("message"))
}

#[track_caller]
pub(crate) fn wait_for_state(client: &Client, name: &str, condition: &str, part: &str) -> String {
    wait_within(TIMEOUT, &format!("{name} is {condition}: {part}"), async || {
        let (found, message) = migration_state(client, name).await;
        if found == condition && message.contains(part) { Ok(()) } else { Err(format!("{found}: {message}")) }
    });
    block_on(migration_state(client, name)).1
}

#[test]
fn unchanged_replace_by_kubectl_stores_the_current_version_once() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &["--emulated-version=1.34"]);
        assert_eq!(block_on(plane.admin("a").create(CLASSES, &class("one"))).status, 201);
        plane.stop("a");
        plane.start("a", &["--emulated-version=1.36"]);
        let stored = || block_on(stored_versions(&plane, STORED_CLASSES, None))[0].1.clone();
        assert_eq!(stored(), "storage.k8s.io/v1beta1");
        let kubeconfig = plane.server("a").kubeconfig();
        let run = |args: &[&str]| kubectl(&kubeconfig, args).expect_success();
        let file = plane.folder().join("one.json").display().to_string();
        let replace = || {
            std::fs::write(&file, run(&["get", "volumeattributesclass", "one", "-o", "json"])).unwrap();
            run(&["replace", "-f", &file]);
            block_on(plane.admin("a").get(&format!("{CLASSES}/one"))).json()["metadata"].clone()
        };
        let rewritten = replace();
        assert_eq!(stored(), "storage.k8s.io/v1", "a write that changes nothing moves the object");
        let kept = replace();
        assert_eq!(rewritten["resourceVersion"], kept["resourceVersion"], "it is current, so that nothing is written");
        assert_eq!(rewritten["generation"], kept["generation"]);
    });
}

#[test]
fn migration_holds_names_the_server_and_finishes_after_its_upgrade() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &migrator("--emulated-version=1.36"));
        plane.start("b", &["--emulated-version=1.34"]);
        let (a, b) = (plane.admin("a"), plane.admin("b"));
        for number in 0..5 {
            assert_eq!(block_on(b.create(CLASSES, &class(&format!("c{number}")))).status, 201);
        }
        block_on(create_migration(&a, "classes", "storage.k8s.io", "volumeattributesclasses"));
        let message = wait_for_state(&a, "classes", "Running", "the API servers disagree");
        assert!(message.contains("storage.k8s.io/v1beta1 is written by b (apiserver-"), "{message}");
        let before = block_on(stored_versions(&plane, STORED_CLASSES, None));
        assert!(before.iter().all(|(_, version)| version == "storage.k8s.io/v1beta1"), "{before:?}");
        plane.stop("b");
        plane.start("b", &["--emulated-version=1.36"]);
        let message = wait_for_state(&a, "classes", "Succeeded", "all 5 objects are stored as storage.k8s.io/v1 at");
        assert!(message.ends_with(", 5 were rewritten"), "{message}");
        let after = block_on(stored_versions(&plane, STORED_CLASSES, None));
        assert!(after.iter().all(|(_, version)| version == "storage.k8s.io/v1"), "{after:?}");
        let object = block_on(a.get(&format!("{MIGRATIONS}/classes"))).json();
        assert!(object["status"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 0, "{object}");
    });
}

#[test]
fn migration_with_an_undecodable_object_never_succeeds_and_names_it() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &["--emulated-version=1.34"]);
        assert_eq!(block_on(plane.admin("a").create(CLASSES, &class("one"))).status, 201);
        plane.stop("a");
        block_on(async {
            let (store, tasks) = open_store(&plane).await;
            let key = Key::from_static(b"/registry/volumeattributesclasses/damaged");
            let ops = vec![Op::Put { key, value: (&b"\x00\x01"[..]).into(), ttl: None }];
            store.commit(Transaction { compares: Vec::new(), ops }).await.unwrap();
            drop(store);
            tasks.stop(Duration::from_secs(5)).await.unwrap();
        });
        plane.start("a", &migrator("--emulated-version=1.36"));
        let a = plane.admin("a");
        block_on(create_migration(&a, "classes", "storage.k8s.io", "volumeattributesclasses"));
        block_on(create_migration(&a, "missing", "example.com", "things"));
        wait_for_state(&a, "classes", "Failed", "/registry/volumeattributesclasses/damaged: cannot be decoded");
        wait_for_state(&a, "missing", "Failed", "resource does not exist in discovery");
        let stored = block_on(stored_versions(&plane, STORED_CLASSES, None));
        assert!(stored.contains(&("one".to_owned(), "storage.k8s.io/v1".to_owned())), "the others moved: {stored:?}");
    });
}

/// Sets the condition that kube-controller-manager sets when it begins.
async fn run_by_another_controller(client: &Client, name: &str) {
    let path = format!("{MIGRATIONS}/{name}");
    cluster_tests::wait::eventually("the condition is set", async || {
        let mut object = client.get(&path).await.json();
        object["status"]["conditions"] = json!([{
            "type": "Running", "status": "True", "reason": "MigrationRunning", "message": "The migration is running",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        match client.update(&format!("{path}/status"), &object).await {
            updated if updated.status == 200 => Ok(()),
            updated => Err(updated.summary()),
        }
    })
    .await;
}

#[test]
fn migration_that_another_controller_runs_is_left_alone() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &["--emulated-version=1.36", MIGRATOR_FLAGS[0], MIGRATOR_FLAGS[1], "--controllers="]);
        let a = plane.admin("a");
        block_on(create_migration(&a, "theirs", "", "configmaps"));
        block_on(run_by_another_controller(&a, "theirs"));
        plane.stop("a");
        plane.start("a", &migrator("--emulated-version=1.36"));
        let a = plane.admin("a");
        block_on(create_migration(&a, "ours", "", "secrets"));
        wait_for_state(&a, "ours", "Succeeded", "objects are stored as v1");
        assert_eq!(block_on(migration_state(&a, "theirs")).1, "The migration is running");
    });
}

#[test]
fn migration_is_given_up_when_another_controller_begins_it() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &migrator("--emulated-version=1.36"));
        plane.start("b", &["--emulated-version=1.34"]);
        let a = plane.admin("a");
        assert_eq!(block_on(plane.admin("b").create(CLASSES, &class("one"))).status, 201);
        block_on(create_migration(&a, "classes", "storage.k8s.io", "volumeattributesclasses"));
        wait_for_state(&a, "classes", "Running", "the API servers disagree");
        block_on(run_by_another_controller(&a, "classes"));
        plane.stop("b");
        plane.start("b", &["--emulated-version=1.36"]);
        // It waits for the departure of b as well.
        block_on(create_migration(&a, "ours", "", "configmaps"));
        wait_for_state(&a, "ours", "Succeeded", "objects are stored as v1");
        assert_eq!(block_on(migration_state(&a, "classes")).1, "The migration is running");
        let stored = block_on(stored_versions(&plane, STORED_CLASSES, None));
        assert_eq!(stored, [("one".to_owned(), "storage.k8s.io/v1beta1".to_owned())]);
    });
}

#[test]
fn automatic_migration_moves_objects_after_an_upgrade() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &["--emulated-version=1.34"]);
        assert_eq!(block_on(plane.admin("a").create(CLASSES, &class("one"))).status, 201);
        plane.stop("a");
        plane.start("a", &[migrator("--emulated-version=1.36"), vec!["--migrate-automatically"]].concat());
        wait_within(TIMEOUT, "the object is moved", async || {
            let stored = stored_versions(&plane, STORED_CLASSES, None).await;
            if stored[0].1 == "storage.k8s.io/v1" { Ok(()) } else { Err(format!("{stored:?}")) }
        });
        let created = block_on(plane.admin("a").get(MIGRATIONS)).json();
        let names: Vec<&str> = created["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(names[0].starts_with("unskew-volumeattributesclasses.storage.k8s.io-"), "{names:?}");
    });
}
