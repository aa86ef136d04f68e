//! Namespace deletion and garbage collection include custom objects.

use cluster_tests::{Etcd, RunningServer, TestStore};

use super::*;
use crate::{CONFIG_MAPS_PATH, block_on, config_map};

#[track_caller]
fn with_controllers(test: impl AsyncFn(Client)) {
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        let folder = tempfile::tempdir().unwrap();
        let server = RunningServer::start(folder.path(), store, &["--controllers=*"]);
        block_on(test(server.admin()));
    }
}

fn owner_reference(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "blockOwnerDeletion": true,
    })
}

fn owned_by(mut object: Value, owner: &Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([owner_reference(owner)]);
    object
}

#[test]
fn namespace_deletion_removes_custom_objects() {
    with_controllers(async |client| {
        define(&client, &orders_crd()).await;
        create(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
        let orders = ORDERS.replace("/default/", "/shop/");
        create(&client, &orders, &order("a")).await;
        create(&client, ORDERS, &order("b")).await;
        assert_eq!(client.delete("/api/v1/namespaces/shop").await.status, 200);
        wait_until_deleted(&client, "/api/v1/namespaces/shop").await;
        let left = client.get("/apis/shop.example.com/v1/orders").await.json();
        let left: Vec<_> = left["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
        assert_eq!(left, ["b"]);
    });
}

#[test]
fn garbage_collection_follows_owners_across_custom_and_built_in_resources() {
    with_controllers(async |client| {
        define(&client, &orders_crd()).await;
        let [config_map_path, order_path] =
            [CONFIG_MAPS_PATH, ORDERS].map(|collection| move |name: &str| format!("{collection}/{name}"));
        // Owner order → dependent ConfigMap → dependent order, deleted in the background.
        let owner = create(&client, ORDERS, &order("owner")).await;
        let map = create(&client, CONFIG_MAPS_PATH, &owned_by(config_map("middle"), &owner)).await;
        create(&client, ORDERS, &owned_by(order("last"), &map)).await;
        assert_eq!(client.delete(&order_path("owner")).await.status, 200);
        wait_until_deleted(&client, &config_map_path("middle")).await;
        wait_until_deleted(&client, &order_path("last")).await;
        // In the foreground the owner goes last.
        let owner = create(&client, ORDERS, &order("owner")).await;
        let mut held = owned_by(config_map("held"), &owner);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        create(&client, CONFIG_MAPS_PATH, &held).await;
        client.delete(&format!("{}?propagationPolicy=Foreground", order_path("owner"))).await;
        eventually("the dependent is marked", async || {
            let held = client.get(&config_map_path("held")).await.json();
            if held["metadata"]["deletionTimestamp"].is_string() { Ok(()) } else { Err(held.to_string()) }
        })
        .await;
        assert_eq!(client.get(&order_path("owner")).await.status, 200);
        merge_patch(&client, &config_map_path("held"), &json!({"metadata": {"finalizers": null}})).await;
        wait_until_deleted(&client, &order_path("owner")).await;
        // Orphaned dependents stay, without the reference.
        let owner = create(&client, ORDERS, &order("owner")).await;
        create(&client, CONFIG_MAPS_PATH, &owned_by(config_map("orphan"), &owner)).await;
        client.delete(&format!("{}?propagationPolicy=Orphan", order_path("owner"))).await;
        wait_until_deleted(&client, &order_path("owner")).await;
        let orphan = client.get(&config_map_path("orphan")).await.json();
        assert_eq!(orphan["metadata"]["ownerReferences"], Value::Null, "{orphan}");
    });
}
