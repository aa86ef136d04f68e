//! Storage versions of custom resources: published with the definition, withdrawn with it.

use std::time::Duration;

use super::*;
use crate::block_on;
use crate::storage_versions::{
    CONVERGENCE_TIMEOUT, STORAGE_VERSIONS_PATH, summarize_storage_version, wait_for_storage_version,
};

const GATE_OFF: &str = "--feature-gates=StorageVersionAPI=false";
const ORDERS_STORAGE_VERSION: &str = "shop.example.com.orders";

async fn entries(client: &Client) -> Value {
    client.get(&format!("{STORAGE_VERSIONS_PATH}/{ORDERS_STORAGE_VERSION}")).await.json()
}

#[test]
fn storage_version_of_a_custom_resource_follows_its_definition() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        let (a, b) = (plane.admin("a"), plane.admin("b"));
        let mut definition = orders_crd();
        definition["spec"]["versions"][1]["served"] = false.into();
        block_on(define(&a, &definition));
        let both = "a=v1 b=v1 | shop.example.com/v1 | True True";
        wait_for_storage_version(Duration::from_secs(5), &a, ORDERS_STORAGE_VERSION, both);
        let object = block_on(entries(&a));
        for entry in object["status"]["storageVersions"].as_array().unwrap() {
            assert_eq!(entry["decodableVersions"], json!(["shop.example.com/v1", "shop.example.com/v2"]));
            assert_eq!(entry["servedVersions"], json!(["shop.example.com/v1"]));
        }
        // A restart that changes nothing writes nothing.
        block_on(async { create(&b, ORDERS, &order("one")).await });
        plane.kill("b");
        plane.start("b", &[]);
        let b = plane.admin("b");
        block_on(async { create(&b, ORDERS, &order("two")).await });
        let restarted = block_on(entries(&a));
        assert_eq!(restarted["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"]);
        // A version that is served, and one that is stored, change the entries.
        block_on(async {
            let served = json!({"spec": {"versions": orders_crd()["spec"]["versions"]}});
            assert_eq!(merge_patch(&b, ORDERS_CRD, &served).await.status, 200);
            let mut versions = orders_crd()["spec"]["versions"].clone();
            (versions[0]["storage"], versions[1]["storage"]) = (false.into(), true.into());
            let stored = json!({"spec": {"versions": versions}});
            assert_eq!(merge_patch(&a, ORDERS_CRD, &stored).await.status, 200);
            create(&b, ORDERS, &order("three")).await;
        });
        let both = "a=v2 b=v2 | shop.example.com/v2 | True True";
        wait_for_storage_version(Duration::from_secs(5), &b, ORDERS_STORAGE_VERSION, both);
        let served = &block_on(entries(&a))["status"]["storageVersions"][0]["servedVersions"];
        assert_eq!(*served, json!(["shop.example.com/v1", "shop.example.com/v2"]));
        // Entries go with their server, and the object with the definition.
        plane.stop("b");
        wait_for_storage_version(
            CONVERGENCE_TIMEOUT,
            &a,
            ORDERS_STORAGE_VERSION,
            "a=v2 | shop.example.com/v2 | True True",
        );
        block_on(async {
            assert_eq!(a.delete(ORDERS_CRD).await.status, 200);
            wait_until_deleted(&a, ORDERS_CRD).await;
        });
        wait_for_storage_version(Duration::from_secs(5), &a, ORDERS_STORAGE_VERSION, "404");
    });
}

#[test]
fn custom_resources_work_with_the_gate_off_on_and_off_again() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &[GATE_OFF]);
    let a = plane.admin("a");
    block_on(async {
        define(&a, &orders_crd()).await;
        create(&a, ORDERS, &order("off")).await;
        assert_eq!(a.get(STORAGE_VERSIONS_PATH).await.status, 404, "nothing is published");
    });
    plane.stop("a");
    plane.start("a", &[]);
    let published = "a=v1 | shop.example.com/v1 | True True";
    block_on(async { create(&a, ORDERS, &order("on")).await });
    assert_eq!(block_on(summarize_storage_version(&a, ORDERS_STORAGE_VERSION)), published);
    plane.stop("a");
    plane.start("a", &[GATE_OFF]);
    block_on(async {
        create(&a, ORDERS, &order("off-again")).await;
        assert_eq!(a.delete(ORDERS_CRD).await.status, 200);
        wait_until_deleted(&a, ORDERS_CRD).await;
    });
    plane.stop("a");
    // With the gate on, the entry of the removed definition goes.
    plane.start("a", &[]);
    wait_for_storage_version(Duration::from_secs(10), &a, ORDERS_STORAGE_VERSION, "404");
}

#[test]
fn write_waits_for_publication_and_reads_do_not() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    block_on(async {
        define(&a, &orders_crd()).await;
        create(&a, ORDERS, &order("one")).await;
        let path = format!("{STORAGE_VERSIONS_PATH}/{ORDERS_STORAGE_VERSION}");
        for round in 0..20 {
            // The server publishes its entry again whenever it is removed; a write meanwhile waits for that.
            assert_eq!(a.delete(&path).await.status, 200);
            create(&a, ORDERS, &order(&format!("held-{round}"))).await;
            let found = a.get(&format!("{ORDERS}/one")).await;
            assert_eq!(found.status, 200, "{}", found.summary());
            assert_eq!(a.get("/readyz").await.status, 200, "readiness does not depend on custom entries");
        }
    });
}
