//! Controllers: namespace deletion, garbage collection, default service accounts and root CA.

mod garbage_collection;
mod leader_election;
mod namespaces;
mod skew;
mod storage_protection;

use std::time::Duration;

use cluster_tests::wait::eventually;
use cluster_tests::{Client, ControlPlane, Etcd, RunningServer, TestStore};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use store::sqlite::SqliteStore;
use store::{KeyRange, Store as _};
use tasks::Tasks;

use crate::{block_on, config_map};

/// Runs all controllers, as a server does by default.
const ALL_CONTROLLERS: &str = "--controllers=*";

/// Runs a test against a server with all controllers on SQLite.
#[track_caller]
fn with_controllers_on_sqlite(test: impl AsyncFn(Client)) {
    let folder = tempfile::tempdir().unwrap();
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &[ALL_CONTROLLERS]);
    block_on(test(server.admin()));
}

/// Runs a test against a server with all controllers, on each store.
#[track_caller]
fn with_controllers_on_each_store(test: impl AsyncFn(Client)) {
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        let folder = tempfile::tempdir().unwrap();
        let server = RunningServer::start(folder.path(), store, &[ALL_CONTROLLERS]);
        block_on(test(server.admin()));
    }
}

const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/default/configmaps";

fn config_map_path(name: &str) -> String {
    format!("{CONFIG_MAPS_PATH}/{name}")
}

/// Owner reference to a ConfigMap.
fn owner_reference(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
}

fn blocking_owner_reference(name: &str, uid: &str) -> Value {
    let mut owner = owner_reference(name, uid);
    owner["blockOwnerDeletion"] = true.into();
    owner
}

/// Creates an object and returns its uid.
async fn create_object(client: &Client, collection: &str, object: &Value) -> String {
    let created = client.create(collection, object).await;
    assert_eq!(created.status, StatusCode::CREATED, "{collection}: {}", created.summary());
    created.json()["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Creates a ConfigMap with these owners in the default namespace and returns its uid.
async fn create_owned(client: &Client, name: &str, owners: &[Value]) -> String {
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = json!(owners);
    create_object(client, CONFIG_MAPS_PATH, &object).await
}

async fn create_namespace(client: &Client, name: &str) {
    create_object(client, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
}

async fn delete_with_propagation(client: &Client, path: &str, propagation: &str) {
    let deleted = client.delete(&format!("{path}?propagationPolicy={propagation}")).await;
    assert_eq!(deleted.status, StatusCode::OK, "{path}: {}", deleted.summary());
}

async fn merge_patch(client: &Client, path: &str, patch: &Value) -> cluster_tests::client::FullResponse {
    client.send_body(Method::PATCH, path, "application/merge-patch+json", patch.to_string().into()).await
}

/// Waits until an object is 404.
async fn wait_until_deleted(client: &Client, path: &str) {
    eventually(&format!("{path} is gone"), async || {
        let answer = client.get(path).await;
        if answer.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(answer.json().to_string()) }
    })
    .await;
}

async fn object_exists(client: &Client, path: &str) -> bool {
    client.get(path).await.status == StatusCode::OK
}

/// Waits until the garbage collector has handled all earlier writes: it works in order, and deletes an object without
/// owner last.
async fn wait_for_collector(client: &Client, name: &str) {
    create_owned(client, name, &[owner_reference("absent", name)]).await;
    wait_until_deleted(client, &config_map_path(name)).await;
}

/// Waits until a namespace has a condition with this status and a message that contains `text`, and returns it.
async fn wait_for_condition(client: &Client, namespace: &str, condition_type: &str, status: &str, text: &str) -> Value {
    let condition = async || {
        let namespace = client.get(&format!("/api/v1/namespaces/{namespace}")).await.json();
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == condition_type).unwrap_or_default()
    };
    eventually(&format!("{namespace} has {condition_type} {status}: {text}"), async || {
        let condition = condition().await;
        let message = condition["message"].as_str().unwrap_or_default();
        if condition["status"] == status && message.contains(text) { Ok(()) } else { Err(condition.to_string()) }
    })
    .await;
    condition().await
}

/// Keys of a namespace, read directly from the store.
#[track_caller]
fn stored_keys(plane: &ControlPlane<'_>, namespace: &str) -> Vec<String> {
    block_on(async {
        let tasks = Tasks::new();
        let range = KeyRange::prefix("/registry/");
        let page = match plane.store() {
            TestStore::Sqlite => {
                let config = store::sqlite::Config::new(plane.folder().join("unskew-data/store.db"));
                let store = SqliteStore::open(config, &tasks).await.unwrap();
                let page = store.range(range).await.unwrap();
                store.close().await;
                page
            }
            TestStore::Etcd(etcd) => {
                let config = store::etcd::Config::new(vec![etcd.url().to_owned()]);
                store::etcd::EtcdStore::open(&config, tasks.clone()).await.unwrap().range(range).await.unwrap()
            }
        };
        tasks.stop(Duration::from_secs(10)).await.unwrap();
        let keys = page.entries.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned());
        keys.filter(|key| key.contains(&format!("/{namespace}/"))).collect()
    })
}
