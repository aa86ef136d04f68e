//! Custom resources: definitions, their objects, and servers that agree on both.

mod agreement;
mod clients;
mod conditions;
mod controllers;
pub(crate) mod conversion;
mod definition_storm;
mod deletion;
mod kubectl;
mod many_definitions;
mod names;
mod objects;
mod openapi;
mod recorded;
pub(crate) mod responses;
mod storage_version_change;
mod storage_versions;
mod watches;

use cluster_tests::client::FullResponse;
use cluster_tests::wait::eventually;
use cluster_tests::{Client, ControlPlane};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use store::KeyRange;

use crate::custom_resource::CRD_PATH;
use crate::storage_versions::history::open_store;

const ORDERS: &str = "/apis/shop.example.com/v1/namespaces/default/orders";
const ORDERS_V2: &str = "/apis/shop.example.com/v2/namespaces/default/orders";
const ORDERS_CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/orders.shop.example.com";
/// Below it, the objects of the group are stored.
const STORED_OBJECTS: &str = "/registry/shop.example.com/";

/// Definition of `orders.shop.example.com`, stored as `v1` and also served as `v2`.
fn orders_crd() -> Value {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {
            "type": "object", "required": ["item"],
            "properties": {
                "item": {"type": "string", "maxLength": 20},
                "size": {"type": "string", "enum": ["small", "medium", "large"], "default": "small"},
                "replicas": {"type": "integer", "minimum": 0, "default": 1},
            },
            "x-kubernetes-validations": [
                {"rule": "self.replicas <= 10 || self.size == 'large'", "message": "only large orders exceed ten"},
            ],
        },
        "status": {"type": "object", "properties": {
            "phase": {"type": "string"}, "replicas": {"type": "integer"}, "selector": {"type": "string"},
        }},
    }});
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            }},
            "selectableFields": [{"jsonPath": ".spec.size"}],
            "additionalPrinterColumns": [
                {"name": "Size", "type": "string", "jsonPath": ".spec.size"},
                {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                {"name": "Item", "type": "string", "jsonPath": ".spec.item", "priority": 1},
            ],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "orders.shop.example.com"},
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced",
            "names": {
                "plural": "orders", "singular": "order", "kind": "Order", "listKind": "OrderList",
                "shortNames": ["ord"], "categories": ["shopping"],
            },
            "versions": [version("v1"), version("v2")],
        },
    })
}

/// Definition of a resource in the same group whose objects may have any field.
fn plain_crd(plural: &str, kind: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.shop.example.com")},
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn plain_path(plural: &str) -> String {
    format!("/apis/shop.example.com/v1/namespaces/default/{plural}")
}

fn order(name: &str) -> Value {
    json!({"apiVersion": "shop.example.com/v1", "kind": "Order", "metadata": {"name": name}, "spec": {"item": "tea"}})
}

/// Creates a definition and waits until it is established.
async fn define(client: &Client, definition: &Value) {
    create(client, CRD_PATH, definition).await;
    let name = definition["metadata"]["name"].as_str().unwrap();
    wait_for_condition(client, name, "Established", "True InitialNamesAccepted").await;
}

/// Creates an object and returns it.
async fn create(client: &Client, collection: &str, object: &Value) -> Value {
    let created = client.create(collection, object).await;
    assert_eq!(created.status, StatusCode::CREATED, "{collection}: {}", created.summary());
    created.json()
}

/// Status and reason of a definition's condition.
fn condition(definition: &Value, condition_type: &str) -> String {
    let mut conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    let Some(found) = conditions.find(|condition| condition["type"] == condition_type) else {
        return "none".to_owned();
    };
    format!("{} {}", found["status"].as_str().unwrap(), found["reason"].as_str().unwrap())
}

/// Waits until a condition of a definition has this status and reason.
async fn wait_for_condition(client: &Client, definition: &str, condition_type: &str, expected: &str) {
    eventually(&format!("{definition} has {condition_type} {expected}"), async || {
        let definition = client.get(&format!("{CRD_PATH}/{definition}")).await.json();
        if condition(&definition, condition_type) == expected { Ok(()) } else { Err(definition["status"].to_string()) }
    })
    .await;
}

/// Waits until an object is 404.
async fn wait_until_deleted(client: &Client, path: &str) {
    eventually(&format!("{path} is gone"), async || {
        let answer = client.get(path).await;
        if answer.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(answer.summary()) }
    })
    .await;
}

async fn merge_patch(client: &Client, path: &str, patch: &Value) -> FullResponse {
    client.send_body(Method::PATCH, path, "application/merge-patch+json", patch.to_string().into()).await
}

/// The stored objects of the group, read directly from the store.
async fn stored_objects(plane: &ControlPlane<'_>) -> Vec<(String, Value)> {
    let (store, tasks) = open_store(plane).await;
    let page = store.range(KeyRange::prefix(STORED_OBJECTS)).await.unwrap();
    let objects = page.entries.iter().map(|entry| {
        let key = String::from_utf8_lossy(&entry.key).into_owned();
        (key, serde_json::from_slice(&entry.value).unwrap())
    });
    let objects = objects.collect();
    drop(store);
    tasks.stop(std::time::Duration::from_secs(10)).await.unwrap();
    objects
}

/// The keys of stored objects below the prefix of the group.
async fn stored_keys(plane: &ControlPlane<'_>) -> Vec<String> {
    let keys = stored_objects(plane).await.into_iter().map(|(key, _)| key);
    keys.filter_map(|key| key.strip_prefix(STORED_OBJECTS).map(str::to_owned)).collect()
}
