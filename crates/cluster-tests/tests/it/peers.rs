//! Servers of different releases act as one: resources that only some serve are available through all.

mod connection_upgrades;
mod faults;
mod forwarding;
mod outages;
pub(crate) mod real;
mod security;

use std::time::{Duration, Instant};

use cluster_tests::wait::{metric_value, wait_within};
use cluster_tests::{Client, ControlPlane, TestStore, WatchReader};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::block_on;

/// `storage.k8s.io/v1` serves it from 1.34 on.
pub(crate) const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
pub(crate) const DEPLOYMENTS_PATH: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Old servers are 1.33; new ones are 1.36 without `apps/v1`.
pub(crate) const OLD_FLAGS: [&str; 1] = ["--emulated-version=1.33"];
pub(crate) const NEW_FLAGS: [&str; 2] = ["--emulated-version=1.36", "--runtime-config=apps/v1=false"];
pub(crate) const MERGED_DISCOVERY_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
pub(crate) const LOCAL_DISCOVERY_ACCEPT: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";

pub(crate) fn volume_attributes_class(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": name},
        "driverName": "disks.example.com", "parameters": {"iops": "100"},
    })
}

pub(crate) fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    })
}

/// Sum of a counter over all label values.
async fn metric_sum(client: &Client, metric: &str) -> u64 {
    let page = client.get("/metrics").await;
    let text = String::from_utf8_lossy(&page.body).into_owned();
    let values = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

async fn merge_patch(client: &Client, path: &str, patch: &Value) -> cluster_tests::client::FullResponse {
    client.send_body(Method::PATCH, path, "application/merge-patch+json", patch.to_string().into()).await
}

/// Exercises all verbs of a resource through one server and returns the number of requests.
pub(crate) async fn check_all_verbs(client: &Client, collection: &str, object: impl Fn(&str) -> Value) -> u64 {
    let mut watch = WatchReader::open(client, &format!("{collection}?watch=true&resourceVersion=0")).await;
    let created = client.create(collection, &object("one")).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.summary());
    let one = format!("{collection}/one");
    let got = client.get(&one).await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.summary());
    assert_eq!(got.json()["metadata"]["uid"], created.json()["metadata"]["uid"]);
    let mut wanted = got.json();
    wanted["metadata"]["labels"] = json!({"step": "updated"});
    assert_eq!(client.update(&one, &wanted).await.status, StatusCode::OK);
    // A stale resourceVersion conflicts through a proxy, too.
    assert_eq!(client.update(&one, &wanted).await.status, StatusCode::CONFLICT);
    let patched = merge_patch(client, &one, &json!({"metadata": {"labels": {"step": "patched"}}})).await;
    assert_eq!(patched.json()["metadata"]["labels"]["step"], "patched", "{}", patched.summary());
    let listed = client.get(collection).await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(client.delete(&one).await.status, StatusCode::OK);
    let gone = client.get(&one).await;
    assert_eq!((gone.status, gone.json()["details"]["name"].as_str()), (StatusCode::NOT_FOUND, Some("one")));
    for name in ["two", "three"] {
        assert_eq!(client.create(collection, &object(name)).await.status, StatusCode::CREATED);
    }
    assert_eq!(client.delete(collection).await.status, StatusCode::OK);
    assert_eq!(client.get(collection).await.json()["items"], json!([]));
    let mut seen = Vec::new();
    while seen.len() < 8 {
        seen.push(watch.next_event_summary().await);
    }
    seen[4..].sort();
    let expected =
        "ADDED one, MODIFIED one, MODIFIED one, DELETED one, ADDED three, ADDED two, DELETED three, DELETED two";
    assert_eq!(seen.join(", "), expected);
    13
}

#[test]
fn resources_of_one_server_are_served_through_the_other() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("old", &OLD_FLAGS);
        plane.start("new", &NEW_FLAGS);
        let [old, new] = ["old", "new"].map(|name| plane.admin(name));
        wait_within(Duration::from_secs(2), "the old server discovers the new one", async || {
            let answer = old.get(CLASSES_PATH).await;
            if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.summary()) }
        });
        for (client, path, object) in [
            (&old, CLASSES_PATH, volume_attributes_class as fn(&str) -> Value),
            (&new, DEPLOYMENTS_PATH, deployment as fn(&str) -> Value),
        ] {
            let sent = block_on(check_all_verbs(client, path, object));
            let forwarded = block_on(metric_sum(client, "apiserver_rerouted_request_total"));
            assert!(forwarded >= sent, "{forwarded} of {sent} requests for {path} were forwarded");
        }
        // A resource that both serve is not forwarded.
        block_on(async {
            let before = metric_sum(&old, "apiserver_rerouted_request_total").await;
            assert_eq!(old.get("/api/v1/namespaces/default").await.status, StatusCode::OK);
            assert_eq!(metric_sum(&old, "apiserver_rerouted_request_total").await, before);
        });
    });
}

#[test]
fn subresources_are_forwarded_to_the_other_server() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &OLD_FLAGS);
    plane.start("new", &NEW_FLAGS);
    let new = plane.admin("new");
    block_on(async {
        let one = format!("{DEPLOYMENTS_PATH}/one");
        assert_eq!(new.create(DEPLOYMENTS_PATH, &deployment("one")).await.status, StatusCode::CREATED);
        let ready = json!({"status": {"replicas": 1, "readyReplicas": 1}});
        let status = merge_patch(&new, &format!("{one}/status"), &ready).await;
        assert_eq!(status.status, StatusCode::OK, "{}", status.summary());
        let scale = merge_patch(&new, &format!("{one}/scale"), &json!({"spec": {"replicas": 7}})).await;
        assert_eq!(scale.status, StatusCode::OK, "{}", scale.summary());
        let found = new.get(&one).await.json();
        assert_eq!((found["spec"]["replicas"].as_i64(), found["status"]["readyReplicas"].as_i64()), (Some(7), Some(1)));
    });
}

#[test]
fn servers_with_the_gate_off_do_not_peer() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    let gate = "--feature-gates=UnknownVersionInteroperabilityProxy=false";
    plane.start("old", &[OLD_FLAGS[0], gate]);
    plane.start("new", &[NEW_FLAGS[0], NEW_FLAGS[1], gate]);
    let [old, new] = ["old", "new"].map(|name| plane.admin(name));
    block_on(async {
        assert_eq!(new.create(CLASSES_PATH, &volume_attributes_class("one")).await.status, StatusCode::CREATED);
        assert_eq!(old.get(&format!("{CLASSES_PATH}/one")).await.status, StatusCode::NOT_FOUND);
        let accepting = |accept| old.request_builder(Method::GET, "/apis").header("accept", accept);
        let [merged, local] = [MERGED_DISCOVERY_ACCEPT, LOCAL_DISCOVERY_ACCEPT].map(accepting);
        let [merged, local] = [old.send(merged, "".into()).await, old.send(local, "".into()).await];
        assert_eq!(merged.body, local.body);
        // A server with the gate off still has a lease.
        let selector = "labelSelector=apiserver.kubernetes.io/identity%3Dkube-apiserver";
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?{selector}");
        let leases = old.get(&path).await.json();
        assert_eq!(leases["items"].as_array().map(Vec::len), Some(2), "{leases}");
        assert!(!String::from_utf8_lossy(&old.get("/metrics").await.body).contains("unskew_peer_members"));
    });
}

#[test]
fn merged_discovery_is_identical_on_all_servers() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("old", &OLD_FLAGS);
        plane.start("new", &NEW_FLAGS);
        plane.start("ask", &["--emulated-version=1.35", "--publish-discovery=false"]);
        let clients = ["old", "new", "ask"].map(|name| plane.admin(name));
        let fetch = async |client: &Client, accept: &str| {
            client.send(client.request_builder(Method::GET, "/apis").header("accept", accept), "".into()).await
        };
        wait_within(Duration::from_secs(5), "all servers return the same complete document", async || {
            let mut bodies = Vec::new();
            for client in &clients {
                bodies.push(fetch(client, MERGED_DISCOVERY_ACCEPT).await);
            }
            let text = String::from_utf8_lossy(&bodies[0].body).into_owned();
            let is_same = bodies.iter().all(|other| {
                (&other.body, other.headers.get("etag")) == (&bodies[0].body, bodies[0].headers.get("etag"))
            });
            let has_all = text.contains("\"deployments\"") && text.contains("\"volumeattributesclasses\"");
            if is_same && has_all { Ok(()) } else { Err(format!("same: {is_same}, all: {has_all}")) }
        });
        let local = block_on(fetch(&clients[1], LOCAL_DISCOVERY_ACCEPT));
        assert!(!String::from_utf8_lossy(&local.body).contains("\"deployments\""));
        let hits = block_on(clients[1].get("/metrics"));
        let hits = String::from_utf8_lossy(&hits.body).into_owned();
        assert!(hits.contains("aggregator_discovery_nopeer_requests_total 1"), "{hits}");
        // Both others fetch /api and /apis from the server that does not publish its document.
        let asked = block_on(metric_value(&clients[2], "aggregator_discovery_nopeer_requests_total"));
        assert!(asked >= 4, "{asked}");
        assert!(!hits.contains("aggregator_discovery_peer_aggregated_cache_hits_total 0"), "{hits}");
    });
}

#[test]
fn legacy_discovery_is_merged_with_the_flag_only() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &[OLD_FLAGS[0], "--merge-discovery=all"]);
    plane.start("new", &NEW_FLAGS);
    let [old, new] = ["old", "new"].map(|name| plane.admin(name));
    wait_within(Duration::from_secs(2), "the legacy list has the new resource", async || {
        let list = old.get("/apis/storage.k8s.io/v1").await.json();
        if list.to_string().contains("\"volumeattributesclasses\"") { Ok(()) } else { Err(list.to_string()) }
    });
    block_on(async {
        let own = old.get("/api/v1").await;
        assert_eq!(own.status, StatusCode::OK);
        assert!(own.json().to_string().contains("storageVersionHash"), "a purely local group keeps its hashes");
        // Without the flag legacy discovery is local, as the KEP defines.
        assert_eq!(new.get("/apis/apps/v1").await.status, StatusCode::NOT_FOUND);
    });
}
