//! The storage version of a definition changes while all servers write.

use std::cell::Cell;
use std::time::Duration;

use store::StoreEvent;

use super::*;
use crate::block_on;
use crate::storage_versions::history::{check_history, read_store_history};
use crate::storage_versions::summarize_storage_version;

/// Changes of the storage version; the last one is to `v2`.
const CHANGES: usize = 5;

fn with_storage_version(storage: &str) -> Value {
    let mut definition = orders_crd();
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["storage"] = (version["name"] == storage).into();
    }
    json!({"spec": {"versions": definition["spec"]["versions"]}})
}

/// Requests between two changes.
const REQUESTS_PER_CHANGE: usize = 45;

/// Creates and patches objects through a server until `stop`; no request may fail. Returns the number of requests.
async fn write_until(client: &Client, writer: usize, stop: &Cell<bool>, all: &Cell<usize>) -> usize {
    let mut sent = 0;
    for number in 0.. {
        if stop.get() {
            break;
        }
        let (collection, version) = if number % 2 == 0 { (ORDERS, "v1") } else { (ORDERS_V2, "v2") };
        let name = format!("w{writer}-{number}");
        let mut object = order(&name);
        object["apiVersion"] = format!("shop.example.com/{version}").into();
        // The history is compared with the entry of this server.
        object["metadata"]["labels"] = json!({"writer": (["a", "b", "c"][writer])});
        create(client, collection, &object).await;
        let one = format!("{collection}/{name}");
        let patched = merge_patch(client, &one, &json!({"spec": {"replicas": 5}})).await;
        assert_eq!(patched.status, 200, "{}", patched.summary());
        let listed = client.get(&one).await;
        assert_eq!(listed.status, 200, "{}", listed.summary());
        sent += 3;
        all.set(all.get() + 3);
    }
    sent
}

/// Replays the history: every object must have been stored in the storage version of that moment.
fn check_stored_versions(events: &[StoreEvent]) -> usize {
    let (mut storage, mut checked) = (String::new(), 0);
    for event in events {
        let StoreEvent::Put(entry) = event else { continue };
        let key = String::from_utf8_lossy(&entry.key).into_owned();
        if key.starts_with("/registry/apiextensions.k8s.io/customresourcedefinitions/") {
            let definition: Value = serde_json::from_slice(&entry.value).unwrap();
            let versions = definition["spec"]["versions"].as_array().unwrap();
            let found = versions.iter().find(|version| version["storage"] == true).unwrap();
            storage = format!("shop.example.com/{}", found["name"].as_str().unwrap());
        } else if key.starts_with(STORED_OBJECTS) {
            let object: Value = serde_json::from_slice(&entry.value).unwrap();
            assert_eq!(object["apiVersion"], storage, "{key} at {}", entry.revision);
            checked += 1;
        }
    }
    checked
}

#[test]
fn storage_version_changes_under_writes_without_a_failed_request() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b", "c"] {
            plane.start(name, &[]);
        }
        let clients = ["a", "b", "c"].map(|name| plane.admin(name));
        block_on(async {
            define(&clients[0], &orders_crd()).await;
            create(&clients[0], ORDERS, &order("first")).await;
            let (stop, all) = (Cell::new(false), Cell::new(0));
            let writers = clients.iter().enumerate().map(|(writer, client)| write_until(client, writer, &stop, &all));
            let changes = async {
                for change in 0..CHANGES {
                    let version = if change % 2 == 0 { "v2" } else { "v1" };
                    let changed = merge_patch(&clients[change % 3], ORDERS_CRD, &with_storage_version(version)).await;
                    assert_eq!(changed.status, 200, "{}", changed.summary());
                    let marker = format!("marker{change}");
                    create(&clients[(change + 1) % 3], ORDERS, &order(&marker)).await;
                    let goal = all.get() + REQUESTS_PER_CHANGE;
                    while all.get() < goal {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                }
                stop.set(true);
            };
            let (sent, ()) = tokio::join!(futures_util::future::join_all(writers), changes);
            println!("{:?}: {sent:?} requests", plane.store());
            let definition = clients[1].get(ORDERS_CRD).await.json();
            assert_eq!(definition["status"]["storedVersions"], json!(["v1", "v2"]));
            check_rewrite(&plane, &clients).await;
            let events = read_store_history(&plane).await;
            assert!(check_stored_versions(&events) >= sent.iter().sum::<usize>() / 3 * 2);
            let findings = check_history(&clients[0], &events).await;
            assert_eq!(findings.wrong, Vec::<String>::new(), "every write was in the published version of its server");
            assert!(findings.by_writer.len() >= 4, "{:?}", findings.by_writer);
            assert_eq!(
                summarize_storage_version(&clients[0], "shop.example.com.orders").await,
                "a=v2 b=v2 c=v2 | shop.example.com/v2 | True True"
            );
        });
    });
}

/// A PUT that changes nothing stores an object in the current storage version.
async fn check_rewrite(plane: &ControlPlane<'_>, clients: &[Client; 3]) {
    let stored_version = async || {
        let objects = stored_objects(plane).await;
        let (_, first) = objects.into_iter().find(|(key, _)| key.ends_with("/default/first")).unwrap();
        first["apiVersion"].as_str().unwrap().to_owned()
    };
    let one = format!("{ORDERS}/first");
    assert_eq!(stored_version().await, "shop.example.com/v1");
    let before = clients[2].get(&one).await.json();
    let updated = clients[2].update(&one, &before).await;
    assert_eq!(updated.status, 200, "{}", updated.summary());
    assert_eq!(stored_version().await, "shop.example.com/v2");
    // The next one changes nothing at all.
    let after = updated.json();
    let again = clients[1].update(&one, &after).await;
    assert_eq!(again.json()["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
}
