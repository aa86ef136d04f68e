//! Servers that share a store serve the same custom resources at every moment.

use std::time::Duration;

use bytes::Bytes;
use cluster_tests::tools;
use cluster_tests::wait::wait_within;

use super::*;
use crate::block_on;
use crate::peers::MERGED_DISCOVERY_ACCEPT;

fn rounds() -> usize {
    if tools::is_soak() { 1000 } else { 100 }
}

async fn expect_status(what: &str, answer: FullResponse, expected: u16) {
    assert_eq!(answer.status, expected, "{what}: {}", String::from_utf8_lossy(&answer.body));
}

/// Creates a definition through one server and uses it at once through the others.
async fn use_new_definition(round: usize, clients: &[Client; 3]) {
    let [first, second, third] = [0, 1, 2].map(|offset| &clients[(round + offset) % 3]);
    // Some names return with another uid.
    let (plural, kind) = (format!("things{}", round % 10), format!("Thing{}", round % 10));
    let (collection, definition) = (plain_path(&plural), plain_crd(&plural, &kind));
    define(first, &definition).await;
    let object = json!({
        "apiVersion": "shop.example.com/v1", "kind": kind, "metadata": {"name": "a"}, "spec": {"round": round},
    });
    expect_status(&format!("{round}: create"), second.create(&collection, &object).await, 201).await;
    let one = format!("{collection}/a");
    let found = third.get(&one).await;
    assert_eq!(found.status, 200, "{round}: {}", found.summary());
    assert_eq!(found.json()["spec"]["round"], round);
    expect_status(&format!("{round}: list"), first.get(&collection).await, 200).await;
    expect_status(&format!("{round}: delete"), third.delete(&one).await, 200).await;
    let late = rounds() - round <= 10;
    if !late {
        let path = format!("{CRD_PATH}/{plural}.shop.example.com");
        expect_status(&format!("{round}: delete the definition"), second.delete(&path).await, 200).await;
        wait_until_deleted(third, &path).await;
        expect_status(&format!("{round}: after the deletion"), first.get(&collection).await, 404).await;
    }
}

async fn discovery_documents(clients: &[Client; 3]) -> Vec<(Bytes, Option<http::HeaderValue>)> {
    let mut documents = Vec::new();
    for client in clients {
        let request = client.request_builder(Method::GET, "/apis").header("accept", MERGED_DISCOVERY_ACCEPT);
        let answer = client.send(request, Bytes::new()).await;
        documents.push((answer.body, answer.headers.get("etag").cloned()));
    }
    documents
}

#[test]
fn established_definition_is_usable_through_every_server_at_once() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b", "c"] {
            plane.start(name, &[]);
        }
        let clients = ["a", "b", "c"].map(|name| plane.admin(name));
        block_on(async {
            for round in 0..rounds() {
                use_new_definition(round, &clients).await;
            }
        });
        wait_within(Duration::from_secs(10), "all servers return the same discovery document", async || {
            let documents = discovery_documents(&clients).await;
            let text = String::from_utf8_lossy(&documents[0].0).into_owned();
            let missing: Vec<_> = (0..10).filter(|at| !text.contains(&format!("\"things{at}\""))).collect();
            let is_same = documents.iter().all(|document| *document == documents[0]);
            if is_same && missing.is_empty() { Ok(()) } else { Err(format!("same: {is_same}, missing: {missing:?}")) }
        });
    });
}

#[test]
fn servers_of_different_releases_serve_the_same_custom_resources() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("old", &["--emulated-version=1.33"]);
        plane.start("new", &["--emulated-version=1.36"]);
        let [old, new] = ["old", "new"].map(|name| plane.admin(name));
        block_on(async {
            for (creator, user, plural, kind) in [(&old, &new, "cups", "Cup"), (&new, &old, "mugs", "Mug")] {
                define(creator, &plain_crd(plural, kind)).await;
                let object = json!({"apiVersion": "shop.example.com/v1", "kind": kind, "metadata": {"name": "a"}});
                create(user, &plain_path(plural), &object).await;
                let one = format!("{}/a", plain_path(plural));
                let patched = merge_patch(creator, &one, &json!({"spec": {"color": "red"}})).await;
                assert_eq!(patched.status, 200, "{}", patched.summary());
                assert_eq!(user.get(&one).await.json()["spec"]["color"], "red");
            }
        });
        // A server that starts later serves them as soon as it is ready.
        plane.start("later", &["--emulated-version=1.34"]);
        let later = plane.admin("later");
        block_on(async {
            assert_eq!(later.get(&plain_path("cups")).await.json()["items"].as_array().map(Vec::len), Some(1));
        });
    });
}

#[test]
fn restarted_server_serves_stored_definitions_when_ready() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    block_on(async {
        define(&a, &orders_crd()).await;
        create(&a, ORDERS, &order("one")).await;
    });
    plane.kill("a");
    plane.start("a", &[]);
    let a = plane.admin("a");
    block_on(async {
        let found = a.get(&format!("{ORDERS_V2}/one")).await;
        assert_eq!(found.json()["apiVersion"], "shop.example.com/v2", "{}", found.summary());
        create(&a, ORDERS, &order("two")).await;
    });
}
