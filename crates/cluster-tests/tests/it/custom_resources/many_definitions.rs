//! A thousand definitions in one group.

use std::cell::Cell;
use std::time::{Duration, Instant};

use cluster_tests::wait::eventually_within;
use store::{Key, Op, Transaction};

use super::*;
use crate::block_on;
use crate::storage_versions::{STORAGE_VERSIONS_PATH, hostnames};

const DEFINITIONS: usize = 1000;
/// Puts per transaction; the store takes at most 128.
const BATCH: usize = 100;
/// Between the resources of two requests, so that they are not in the order of names.
const STEP: usize = 617;
/// From readiness to the last entry.
const JOIN_LIMIT: Duration = Duration::from_secs(5);

/// An established definition as it is stored.
fn stored_definition(number: usize) -> (Key, Value) {
    let (plural, kind) = (format!("items{number}"), format!("Item{number}"));
    let mut definition = plain_crd(&plural, &kind);
    let names = json!({
        "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
    });
    definition["metadata"]["uid"] = format!("00000000-0000-4000-8000-{number:012}").into();
    definition["metadata"]["generation"] = 1.into();
    definition["metadata"]["creationTimestamp"] = "2026-11-15T10:00:00Z".into();
    definition["spec"]["names"] = names.clone();
    definition["spec"]["conversion"] = json!({"strategy": "None"});
    let condition = |condition_type: &str, reason: &str| {
        json!({"type": condition_type, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": "2026-11-15T10:00:00Z"})
    };
    definition["status"] = json!({
        "acceptedNames": names, "storedVersions": ["v1"],
        "conditions": [condition("NamesAccepted", "NoConflicts"), condition("Established", "InitialNamesAccepted")],
    });
    let key = format!("/registry/apiextensions.k8s.io/customresourcedefinitions/{plural}.shop.example.com");
    (key.into(), definition)
}

async fn store_definitions(plane: &ControlPlane<'_>) {
    let (store, tasks) = open_store(plane).await;
    let definitions: Vec<_> = (0..DEFINITIONS).map(stored_definition).collect();
    for batch in definitions.chunks(BATCH) {
        let put =
            |(key, value): &(Key, Value)| Op::Put { key: key.clone(), value: value.to_string().into(), ttl: None };
        store.commit(Transaction { compares: Vec::new(), ops: batch.iter().map(put).collect() }).await.unwrap();
    }
    drop(store);
    tasks.stop(Duration::from_secs(10)).await.unwrap();
}

/// The number of custom resources that have an entry of this server, and of those in which all agree.
async fn entries_of(client: &Client, hostname: &str) -> (usize, usize) {
    let names = hostnames(client).await;
    let Some((identity, _)) = names.iter().find(|(_, name)| *name == hostname) else { return (0, 0) };
    let list = client.get(STORAGE_VERSIONS_PATH).await.json();
    let custom = list["items"].as_array().unwrap().iter().filter(|object| {
        object["metadata"]["name"].as_str().unwrap().starts_with("shop.example.com.items")
            && object["status"]["storageVersions"]
                .as_array()
                .is_some_and(|entries| entries.iter().any(|entry| entry["apiServerID"] == **identity))
    });
    let custom: Vec<_> = custom.collect();
    let agreed = custom.iter().filter(|object| object["status"]["commonEncodingVersion"] == "shop.example.com/v1");
    (custom.len(), agreed.count())
}

async fn wait_for_entries(client: &Client, hostname: &str, limit: Duration) {
    eventually_within(limit, "all entries are published", async || {
        let found = entries_of(client, hostname).await;
        if found == (DEFINITIONS, DEFINITIONS) { Ok(()) } else { Err(format!("{hostname}: {found:?}")) }
    })
    .await;
}

/// Creates objects of all resources in turn until `stop`. No request may fail.
async fn write_until(client: &Client, writer: usize, stop: &Cell<bool>) -> usize {
    for number in 0.. {
        if stop.get() {
            return number;
        }
        let item = (number * STEP + writer) % DEFINITIONS;
        let object = json!({
            "apiVersion": "shop.example.com/v1", "kind": format!("Item{item}"),
            "metadata": {"name": format!("w{writer}-{number}")},
        });
        create(client, &plain_path(&format!("items{item}")), &object).await;
    }
    unreachable!("the numbers do not end")
}

#[test]
fn server_joins_a_thousand_definitions_under_load() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        let a = plane.admin("a");
        block_on(async {
            store_definitions(&plane).await;
            wait_for_entries(&a, "a", Duration::from_secs(60)).await;
        });
        plane.start("b", &[]);
        let b = plane.admin("b");
        block_on(wait_for_entries(&a, "b", Duration::from_secs(60)));
        let began = Instant::now();
        plane.launch("c", &[]);
        let c = plane.admin("c");
        block_on(async {
            let stop = Cell::new(false);
            let joining = async {
                let is_ready = async || c.is_ready().await.then_some(()).ok_or_else(|| "not ready".to_owned());
                eventually_within(JOIN_LIMIT, "the server is ready", is_ready).await;
                let ready = began.elapsed();
                wait_for_entries(&a, "c", JOIN_LIMIT).await;
                println!("{:?}: ready after {ready:?}, all entries after {:?}", plane.store(), began.elapsed());
                // All definitions are listed, and each can be used at once.
                let group = c.get("/apis/shop.example.com/v1").await.json();
                assert_eq!(group["resources"].as_array().map(Vec::len), Some(DEFINITIONS));
                stop.set(true);
            };
            let (first, second, ()) = tokio::join!(write_until(&a, 0, &stop), write_until(&b, 1, &stop), joining);
            println!("{first} and {second} objects were created meanwhile");
            let object = json!({
                "apiVersion": "shop.example.com/v1", "kind": "Item7", "metadata": {"name": "last"},
            });
            create(&c, &plain_path("items7"), &object).await;
        });
    });
}
