//! Storage versions: published before the first write, agreed on across releases, removed with their servers.

mod api;
mod fence;
mod gates;
mod held_writes;
pub(crate) mod history;
mod operations;
mod restarts_under_load;

pub(crate) use history::open_store;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cluster_tests::scripted_members::IDENTITY_LEASES;
use cluster_tests::wait::wait_within;
use cluster_tests::{Client, ControlPlane, WatchReader};
use serde_json::{Value, json};

use crate::block_on;

pub(crate) const STORAGE_VERSIONS_PATH: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
/// 1.33 and 1.34 store it as `v1beta1`, 1.36 as `v1`; it is served as `v1` from 1.34 on.
const CLASSES_STORAGE_VERSION: &str = "storage.k8s.io.volumeattributesclasses";
const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
/// 1.33 serves the version it stores only with this flag.
const FLAGS_1_33: [&str; 2] = ["--emulated-version=1.33", "--runtime-config=storage.k8s.io/v1beta1=true"];
const FLAGS_1_34: [&str; 1] = ["--emulated-version=1.34"];
const FLAGS_1_36: [&str; 1] = ["--emulated-version=1.36"];
/// Leases that expire during a test.
const SHORT_LEASE: [&str; 2] = ["--identity-lease-duration-seconds=3", "--identity-lease-renew-interval-seconds=1"];
/// Longer than anything takes on a loaded machine, including the election of a new collector (15 s).
pub(crate) const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Hostnames of the servers by identity, from their leases.
pub(crate) async fn hostnames(client: &Client) -> BTreeMap<String, String> {
    let leases = client.get(IDENTITY_LEASES).await.json();
    let named = leases["items"].as_array().into_iter().flatten().filter_map(|lease| {
        let hostname = lease["metadata"]["labels"]["kubernetes.io/hostname"].as_str()?;
        Some((lease["metadata"]["name"].as_str()?.to_owned(), hostname.to_owned()))
    });
    named.collect()
}

/// Formats a StorageVersion as `a=v1 b=v1beta1 | common | AllEncodingVersionsEqual AllServersReporting`; servers by
/// hostname, `?` for one without a lease.
pub(crate) async fn summarize_storage_version(client: &Client, name: &str) -> String {
    let answer = client.get(&format!("{STORAGE_VERSIONS_PATH}/{name}")).await;
    if answer.status != 200 {
        return answer.status.as_u16().to_string();
    }
    let (object, names) = (answer.json(), hostnames(client).await);
    let status = &object["status"];
    let entries = status["storageVersions"].as_array().into_iter().flatten().map(|entry| {
        let server = names.get(entry["apiServerID"].as_str().unwrap()).map_or("?", String::as_str);
        let version = entry["encodingVersion"].as_str().unwrap();
        format!("{server}={}", version.rsplit('/').next().unwrap())
    });
    let mut entries: Vec<String> = entries.collect();
    entries.sort();
    let common = status["commonEncodingVersion"].as_str().unwrap_or("none");
    let conditions: Vec<&str> = ["AllEncodingVersionsEqual", "AllServersReporting"]
        .map(|wanted| condition(&object, wanted)["status"].as_str().unwrap_or("-"))
        .into();
    format!("{} | {common} | {}", entries.join(" "), conditions.join(" "))
}

fn condition<'a>(object: &'a Value, wanted: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|condition| condition["type"] == wanted).unwrap_or(&Value::Null)
}

#[track_caller]
pub(crate) fn wait_for_storage_version(limit: Duration, client: &Client, name: &str, expected: &str) -> Duration {
    wait_within(limit, name, async || {
        let found = summarize_storage_version(client, name).await;
        if found == expected { Ok(()) } else { Err(found) }
    })
}

fn volume_attributes_class(name: &str, writer: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
        "metadata": {"name": name, "labels": {"writer": writer}},
        "driverName": "disks.example.com", "parameters": {"iops": "100"},
    })
}

#[test]
fn encoding_versions_agree_once_all_servers_are_upgraded() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &FLAGS_1_33);
        plane.start("b", &FLAGS_1_34);
        plane.start("c", &FLAGS_1_36);
        let c = plane.admin("c");
        assert_eq!(
            block_on(summarize_storage_version(&c, CLASSES_STORAGE_VERSION)),
            "a=v1beta1 b=v1beta1 c=v1 | none | False True"
        );
        assert_eq!(block_on(summarize_storage_version(&c, "core.pods")), "a=v1 b=v1 c=v1 | v1 | True True");
        let object = block_on(c.get(&format!("{STORAGE_VERSIONS_PATH}/{CLASSES_STORAGE_VERSION}"))).json();
        let names = block_on(hostnames(&c));
        let entry = object["status"]["storageVersions"].as_array().unwrap().iter();
        let mut entry = entry.filter(|entry| names[entry["apiServerID"].as_str().unwrap()] == "b");
        let entry = entry.next().unwrap();
        assert_eq!(entry["servedVersions"], json!(["storage.k8s.io/v1"]), "older servers route by the exact list");
        for version in ["storage.k8s.io/v1", "storage.k8s.io/v1beta1"] {
            assert!(entry["decodableVersions"].as_array().unwrap().contains(&json!(version)), "{entry}");
        }
        let equal = condition(&object, "AllEncodingVersionsEqual");
        assert_eq!(equal["reason"], "CommonEncodingVersionUnset");
        assert_eq!(equal["message"], "Common encoding version unset");
        plane.stop("a");
        plane.start("a", &FLAGS_1_36);
        assert_eq!(
            block_on(summarize_storage_version(&c, CLASSES_STORAGE_VERSION)),
            "a=v1 b=v1beta1 c=v1 | none | False True"
        );
        plane.stop("b");
        plane.start("b", &FLAGS_1_36);
        let took = wait_for_storage_version(
            Duration::from_secs(1),
            &c,
            CLASSES_STORAGE_VERSION,
            "a=v1 b=v1 c=v1 | storage.k8s.io/v1 | True True",
        );
        println!("{:?}: agreed {took:?} after the last server was ready", plane.store());
        plane.stop("c");
        plane.start("c", &FLAGS_1_34);
        let a = plane.admin("a");
        wait_for_storage_version(
            Duration::from_secs(1),
            &a,
            CLASSES_STORAGE_VERSION,
            "a=v1 b=v1 c=v1beta1 | none | False True",
        );
    });
}

#[test]
fn entries_of_a_killed_server_are_removed_with_its_lease() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &SHORT_LEASE);
        plane.start("b", &SHORT_LEASE);
        let a = plane.admin("a");
        wait_for_storage_version(CONVERGENCE_TIMEOUT, &a, "core.pods", "a=v1 b=v1 | v1 | True True");
        plane.kill("b");
        let killed = Instant::now();
        wait_for_storage_version(CONVERGENCE_TIMEOUT, &a, "core.pods", "a=v1 | v1 | True True");
        // The lease was renewed at most a second before, and lasts three.
        assert!(killed.elapsed() > Duration::from_millis(1900), "{:?}", killed.elapsed());
        println!("{:?}: gone {:?} after the kill", plane.store(), killed.elapsed());
        plane.start("b", &SHORT_LEASE);
        wait_for_storage_version(CONVERGENCE_TIMEOUT, &a, "core.pods", "a=v1 b=v1 | v1 | True True");
        plane.stop("b");
        wait_for_storage_version(Duration::from_secs(5), &a, "core.pods", "a=v1 | v1 | True True");
    });
}

#[test]
fn another_server_collects_after_the_collector_is_killed() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b", "c"] {
            plane.start(name, &SHORT_LEASE);
        }
        let c = plane.admin("c");
        let leader = || {
            let lease = block_on(c.get(&format!("{IDENTITY_LEASES}/unskew-storage-version-collector"))).json();
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap().split('_').next().unwrap().to_owned();
            block_on(hostnames(&c)).remove(&holder).unwrap()
        };
        assert_eq!(leader(), "a", "the first server leads");
        plane.kill("a");
        wait_for_storage_version(CONVERGENCE_TIMEOUT, &c, "core.pods", "b=v1 c=v1 | v1 | True True");
        assert_ne!(leader(), "a");
    });
}

#[test]
fn server_with_lease_but_no_entry_is_reported_until_lease_expires() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &SHORT_LEASE);
        let a = plane.admin("a");
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": "apiserver-ghost",
                "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "ghost"},
            },
            "spec": {
                "holderIdentity": "apiserver-ghost_1", "leaseDurationSeconds": 6,
                "renewTime": "2026-11-15T10:00:00.000000Z",
            },
        });
        let created = block_on(a.create(IDENTITY_LEASES, &lease));
        assert_eq!(created.status, 201, "{}", created.summary());
        wait_for_storage_version(CONVERGENCE_TIMEOUT, &a, "core.pods", "a=v1 | v1 | True False");
        let object = block_on(a.get(&format!("{STORAGE_VERSIONS_PATH}/core.pods"))).json();
        assert_eq!(condition(&object, "AllServersReporting")["message"], "No entry of apiserver-ghost");
        wait_for_storage_version(CONVERGENCE_TIMEOUT, &a, "core.pods", "a=v1 | v1 | True True");
    });
}

#[test]
fn lost_agreement_is_visible_by_watch_and_resource_version() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &FLAGS_1_34);
        let a = plane.admin("a");
        let path = format!("{STORAGE_VERSIONS_PATH}/{CLASSES_STORAGE_VERSION}");
        let agreed = block_on(a.get(&path)).json();
        let (version, common) = (&agreed["metadata"]["resourceVersion"], &agreed["status"]["commonEncodingVersion"]);
        assert_eq!(common, "storage.k8s.io/v1beta1");
        plane.start("b", &FLAGS_1_36);
        let changed = block_on(async {
            let selector = format!(
                "fieldSelector=metadata.name%3D{CLASSES_STORAGE_VERSION}&resourceVersion={}",
                version.as_str().unwrap()
            );
            let mut watch = WatchReader::open(&a, &format!("{STORAGE_VERSIONS_PATH}?watch=true&{selector}")).await;
            watch.next_event().await
        });
        assert_eq!(changed["type"], "MODIFIED");
        assert_eq!(changed["object"]["status"]["commonEncodingVersion"], Value::Null, "{changed}");
        assert_ne!(&changed["object"]["metadata"]["resourceVersion"], version);
    });
}
