//! Controllers: namespaces that go when they are empty, objects that go when nobody owns them.

mod collection;
mod leading;
mod namespaces;
mod skew;

use std::time::Duration;

use cluster_tests::wait::eventually;
use cluster_tests::{Client, ControlPlane, Etcd, Server, Store};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use store::sqlite::SqliteStore;
use store::{Range, Store as _};
use tasks::Tasks;

use crate::{block_on, config_map};

/// What a server runs by default.
const ALL: &str = "--controllers=*";

/// Runs a test against a server with its controllers.
#[track_caller]
fn on_sqlite(test: impl AsyncFn(Client)) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Store::Sqlite, &[ALL]);
    block_on(test(server.admin()));
}

/// The same on each storage.
#[track_caller]
fn on_both(test: impl AsyncFn(Client)) {
    let etcd = Etcd::start();
    for store in [Store::Sqlite, Store::Etcd(&etcd)] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), store, &[ALL]);
        block_on(test(server.admin()));
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> String {
    format!("{MAPS}/{name}")
}

/// A reference to a ConfigMap.
fn owner(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
}

fn blocking(name: &str, uid: &str) -> Value {
    let mut owner = owner(name, uid);
    owner["blockOwnerDeletion"] = true.into();
    owner
}

/// Creates an object; its uid.
async fn create(client: &Client, collection: &str, object: &Value) -> String {
    let created = client.create(collection, object).await;
    assert_eq!(created.status, StatusCode::CREATED, "{collection}: {}", created.brief());
    created.json()["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Creates a ConfigMap in the default namespace that these own; its uid.
async fn create_owned(client: &Client, name: &str, owners: &[Value]) -> String {
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = json!(owners);
    create(client, MAPS, &object).await
}

async fn create_namespace(client: &Client, name: &str) {
    create(client, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
}

async fn delete(client: &Client, path: &str, propagation: &str) {
    let deleted = client.delete(&format!("{path}?propagationPolicy={propagation}")).await;
    assert_eq!(deleted.status, StatusCode::OK, "{path}: {}", deleted.brief());
}

async fn merge(client: &Client, path: &str, patch: &Value) -> cluster_tests::client::Answer {
    client.write(Method::PATCH, path, "application/merge-patch+json", patch.to_string().into()).await
}

/// Waits until the server says that an object is not there.
async fn wait_gone(client: &Client, path: &str) {
    eventually(&format!("{path} is gone"), async || {
        let answer = client.get(path).await;
        if answer.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(answer.json().to_string()) }
    })
    .await;
}

async fn is_there(client: &Client, path: &str) -> bool {
    client.get(path).await.status == StatusCode::OK
}

/// Waits until the garbage collector has come past everything that was written before: it works in order.
async fn wait_for_collector(client: &Client, name: &str) {
    create_owned(client, name, &[owner("nobody", name)]).await;
    wait_gone(client, &map(name)).await;
}

/// Waits until a namespace has a condition with this status whose message holds this text.
async fn wait_for_condition(client: &Client, namespace: &str, sort: &str, status: &str, text: &str) -> Value {
    let condition = async || {
        let namespace = client.get(&format!("/api/v1/namespaces/{namespace}")).await.json();
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == sort).unwrap_or_default()
    };
    eventually(&format!("{namespace} has {sort} {status}: {text}"), async || {
        let condition = condition().await;
        let message = condition["message"].as_str().unwrap_or_default();
        if condition["status"] == status && message.contains(text) { Ok(()) } else { Err(condition.to_string()) }
    })
    .await;
    condition().await
}

/// The keys that storage holds of a namespace, read below every server.
#[track_caller]
fn stored(plane: &ControlPlane<'_>, namespace: &str) -> Vec<String> {
    block_on(async {
        let tasks = Tasks::new();
        let range = Range::prefix("/registry/");
        let page = match plane.store() {
            Store::Sqlite => {
                let config = store::sqlite::Config::new(plane.folder().join("unskew-data/store.db"));
                let store = SqliteStore::open(config, &tasks).await.unwrap();
                let page = store.range(range).await.unwrap();
                store.close().await;
                page
            }
            Store::Etcd(etcd) => {
                let config = store::etcd::Config::new(vec![etcd.url().to_owned()]);
                store::etcd::Etcd::open(&config, tasks.clone()).await.unwrap().range(range).await.unwrap()
            }
        };
        tasks.stop(Duration::from_secs(10)).await.unwrap();
        let keys = page.entries.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned());
        keys.filter(|key| key.contains(&format!("/{namespace}/"))).collect()
    })
}
