//! Addresses and ports of services: what each type gets and gives back, and servers of several releases on one store.

mod releases;
mod types;

use cluster_tests::Client;
use serde_json::{Value, json};

pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
pub(crate) const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

/// A service of this name whose spec has these fields besides a port.
pub(crate) fn service(name: &str, fields: &Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}]}});
    for (field, value) in fields.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    service
}

/// Creates a service and returns its spec.
pub(crate) async fn created(client: &Client, service: &Value) -> Value {
    let response = client.create(SERVICES, service).await;
    assert_eq!(response.status, 201, "{}", response.summary());
    response.json()["spec"].clone()
}

/// The names of all IPAddresses.
pub(crate) async fn recorded_addresses(client: &Client) -> Vec<String> {
    let list = client.get(ADDRESSES).await.json();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}
