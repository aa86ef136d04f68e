//! Servers at different versions answer as one: what only some of them serve is served through all.

mod outages;

use std::time::{Duration, Instant};

use cluster_tests::wait::{figure, within};
use cluster_tests::{Client, ControlPlane, Lines, Store};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::block_on;

/// `storage.k8s.io/v1` has it from 1.34 on.
pub(crate) const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Every server here is 1.33, and the newer ones 1.36 without `apps/v1`.
pub(crate) const OLD: [&str; 1] = ["--emulated-version=1.33"];
pub(crate) const NEW: [&str; 2] = ["--emulated-version=1.36", "--runtime-config=apps/v1=false"];
pub(crate) const MERGED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
pub(crate) const LOCAL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";

pub(crate) fn class(name: &str) -> Value {
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

/// The sum of a counter over all its labels.
async fn counted(client: &Client, metric: &str) -> u64 {
    let page = client.get("/metrics").await;
    let text = String::from_utf8_lossy(&page.body).into_owned();
    let values = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

async fn patch(client: &Client, path: &str, patch: &Value) -> cluster_tests::client::Answer {
    client.write(Method::PATCH, path, "application/merge-patch+json", patch.to_string().into()).await
}

/// Everything that can be done with a resource, through one server. Returns the number of requests.
pub(crate) async fn live_through(client: &Client, collection: &str, object: impl Fn(&str) -> Value) -> u64 {
    let mut watch = Lines::open(client, &format!("{collection}?watch=true&resourceVersion=0")).await;
    let created = client.create(collection, &object("one")).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.brief());
    let one = format!("{collection}/one");
    let got = client.get(&one).await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.brief());
    assert_eq!(got.json()["metadata"]["uid"], created.json()["metadata"]["uid"]);
    let mut wanted = got.json();
    wanted["metadata"]["labels"] = json!({"step": "updated"});
    assert_eq!(client.update(&one, &wanted).await.status, StatusCode::OK);
    // What another has written in between is a conflict here as everywhere.
    assert_eq!(client.update(&one, &wanted).await.status, StatusCode::CONFLICT);
    let patched = patch(client, &one, &json!({"metadata": {"labels": {"step": "patched"}}})).await;
    assert_eq!(patched.json()["metadata"]["labels"]["step"], "patched", "{}", patched.brief());
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
        seen.push(watch.brief().await);
    }
    seen[4..].sort();
    let expected =
        "ADDED one, MODIFIED one, MODIFIED one, DELETED one, ADDED three, ADDED two, DELETED three, DELETED two";
    assert_eq!(seen.join(", "), expected);
    13
}

#[test]
fn what_only_one_server_has_is_served_through_the_other() {
    ControlPlane::on_both(|mut plane| {
        plane.start("old", &OLD);
        plane.start("new", &NEW);
        let [old, new] = ["old", "new"].map(|name| plane.admin(name));
        within(Duration::from_secs(2), "the old server knows of the new one", async || {
            let answer = old.get(CLASSES).await;
            if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.brief()) }
        });
        for (client, path, object) in
            [(&old, CLASSES, class as fn(&str) -> Value), (&new, DEPLOYMENTS, deployment as fn(&str) -> Value)]
        {
            let sent = block_on(live_through(client, path, object));
            let forwarded = block_on(counted(client, "apiserver_rerouted_request_total"));
            assert!(forwarded >= sent, "{forwarded} of {sent} requests for {path} were forwarded");
        }
        // A resource that both have is served where it is asked for.
        block_on(async {
            let before = counted(&old, "apiserver_rerouted_request_total").await;
            assert_eq!(old.get("/api/v1/namespaces/default").await.status, StatusCode::OK);
            assert_eq!(counted(&old, "apiserver_rerouted_request_total").await, before);
        });
    });
}

#[test]
fn subresources_are_served_through_the_other_server() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("old", &OLD);
    plane.start("new", &NEW);
    let new = plane.admin("new");
    block_on(async {
        let one = format!("{DEPLOYMENTS}/one");
        assert_eq!(new.create(DEPLOYMENTS, &deployment("one")).await.status, StatusCode::CREATED);
        let status = patch(&new, &format!("{one}/status"), &json!({"status": {"readyReplicas": 1}})).await;
        assert_eq!(status.status, StatusCode::OK, "{}", status.brief());
        let scale = patch(&new, &format!("{one}/scale"), &json!({"spec": {"replicas": 7}})).await;
        assert_eq!(scale.status, StatusCode::OK, "{}", scale.brief());
        let found = new.get(&one).await.json();
        assert_eq!((found["spec"]["replicas"].as_i64(), found["status"]["readyReplicas"].as_i64()), (Some(7), Some(1)));
    });
}

#[test]
fn without_the_gate_every_server_is_alone() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    let gate = "--feature-gates=UnknownVersionInteroperabilityProxy=false";
    plane.start("old", &[OLD[0], gate]);
    plane.start("new", &[NEW[0], NEW[1], gate]);
    let [old, new] = ["old", "new"].map(|name| plane.admin(name));
    block_on(async {
        assert_eq!(new.create(CLASSES, &class("one")).await.status, StatusCode::CREATED);
        assert_eq!(old.get(&format!("{CLASSES}/one")).await.status, StatusCode::NOT_FOUND);
        let accepting = |accept| old.request(Method::GET, "/apis").header("accept", accept);
        let [merged, local] = [MERGED, LOCAL].map(accepting);
        let [merged, local] = [old.send(merged, "".into()).await, old.send(local, "".into()).await];
        assert_eq!(merged.body, local.body);
        // It still has a lease.
        let selector = "labelSelector=apiserver.kubernetes.io/identity%3Dkube-apiserver";
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?{selector}");
        let leases = old.get(&path).await.json();
        assert_eq!(leases["items"].as_array().map(Vec::len), Some(2), "{leases}");
        assert!(!String::from_utf8_lossy(&old.get("/metrics").await.body).contains("unskew_peer_members"));
    });
}

#[test]
fn one_document_lists_what_all_servers_serve() {
    ControlPlane::on_both(|mut plane| {
        plane.start("old", &OLD);
        plane.start("new", &NEW);
        plane.start("ask", &["--emulated-version=1.35", "--publish-discovery=false"]);
        let clients = ["old", "new", "ask"].map(|name| plane.admin(name));
        let fetch = async |client: &Client, accept: &str| {
            client.send(client.request(Method::GET, "/apis").header("accept", accept), "".into()).await
        };
        within(Duration::from_secs(5), "all servers give one document that has everything", async || {
            let mut bodies = Vec::new();
            for client in &clients {
                bodies.push(fetch(client, MERGED).await);
            }
            let text = String::from_utf8_lossy(&bodies[0].body).into_owned();
            let is_same = bodies.iter().all(|other| {
                (&other.body, other.headers.get("etag")) == (&bodies[0].body, bodies[0].headers.get("etag"))
            });
            let has_all = text.contains("\"deployments\"") && text.contains("\"volumeattributesclasses\"");
            if is_same && has_all { Ok(()) } else { Err(format!("same: {is_same}, all: {has_all}")) }
        });
        let local = block_on(fetch(&clients[1], LOCAL));
        assert!(!String::from_utf8_lossy(&local.body).contains("\"deployments\""));
        let hits = block_on(clients[1].get("/metrics"));
        let hits = String::from_utf8_lossy(&hits.body).into_owned();
        assert!(hits.contains("aggregator_discovery_nopeer_requests_total 1"), "{hits}");
        // The one that does not publish is asked by both others, for /api and for /apis.
        let asked = block_on(figure(&clients[2], "aggregator_discovery_nopeer_requests_total"));
        assert!(asked >= 4, "{asked}");
        assert!(!hits.contains("aggregator_discovery_peer_aggregated_cache_hits_total 0"), "{hits}");
    });
}

#[test]
fn all_forms_of_discovery_are_merged_if_wanted() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("old", &[OLD[0], "--merge-discovery=all"]);
    plane.start("new", &NEW);
    let [old, new] = ["old", "new"].map(|name| plane.admin(name));
    within(Duration::from_secs(2), "the legacy list has the new resource", async || {
        let list = old.get("/apis/storage.k8s.io/v1").await.json();
        if list.to_string().contains("\"volumeattributesclasses\"") { Ok(()) } else { Err(list.to_string()) }
    });
    block_on(async {
        let own = old.get("/api/v1").await;
        assert_eq!(own.status, StatusCode::OK);
        assert!(own.json().to_string().contains("storageVersionHash"), "what is all ours keeps its hashes");
        // Without the flag legacy forms are local, as the KEP says.
        assert_eq!(new.get("/apis/apps/v1").await.status, StatusCode::NOT_FOUND);
    });
}
