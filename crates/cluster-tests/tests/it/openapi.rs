//! OpenAPI documents of servers of different releases, and what kubectl makes of them.

mod real;
mod recorded;

use std::path::Path;

use cluster_tests::client::FullResponse;
use cluster_tests::gateway::PEER_PROXY_OFF;
use cluster_tests::tools::{is_skipped, kubectl};
use cluster_tests::wait::eventually;
use cluster_tests::{Client, ControlPlane, RunningGateway, TestStore};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::block_on;
use crate::peers::{CLASSES_PATH, NEW_FLAGS, OLD_FLAGS, volume_attributes_class};

const PROTOBUF_ACCEPT: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// Both releases serve it; the kind VolumeAttributesClass is new in 1.34.
const STORAGE_PATH: &str = "apis/storage.k8s.io/v1";
/// The group-version is new in 1.34.
const RESOURCE_PATH: &str = "apis/resource.k8s.io/v1";

async fn get_accepting(client: &Client, path: &str, accept: &str) -> FullResponse {
    let answer = client.send(client.request_builder(Method::GET, path).header("accept", accept), "".into()).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.summary());
    answer
}

/// Waits until the index lists a group-version that only the other release serves.
async fn wait_for_merged_index(client: &Client, path: &str) -> Value {
    eventually(&format!("the index lists {path}"), async || {
        let answer = client.get("/openapi/v3").await;
        let index = if answer.status == StatusCode::OK { answer.json() } else { Value::Null };
        if index["paths"].get(path).is_some() { Ok(()) } else { Err(answer.summary()) }
    })
    .await;
    client.get("/openapi/v3").await.json()
}

async fn document_of(client: &Client, index: &Value, path: &str) -> Value {
    let address = index["paths"][path]["serverRelativeURL"].as_str().unwrap_or_else(|| panic!("no {path}"));
    get_accepting(client, address, "application/json").await.json()
}

#[track_caller]
fn check_references(document: &Value) {
    let mut due = vec![document];
    while let Some(value) = due.pop() {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        due.extend(value.as_array().into_iter().flatten());
        due.extend(value.as_object().into_iter().flat_map(serde_json::Map::values));
    }
}

/// kubectl explains, validates and applies a kind that only the newer server has.
fn check_kubectl(kubeconfig: &Path) {
    if is_skipped("kubectl") {
        return;
    }
    let run = |args: &[&str]| kubectl(kubeconfig, args);
    for target in ["volumeattributesclass", "volumeattributesclass.metadata", "deviceclass.spec", "deployment.spec"] {
        for form in ["plaintext", "plaintext-openapiv2"] {
            let text = run(&["explain", target, &format!("--output={form}")]).expect_success();
            assert!(text.contains("FIELDS:"), "{target} {form}: {text}");
        }
    }
    let text = run(&["explain", "volumeattributesclass"]).expect_success();
    assert!(text.contains("driverName\t<string> -required-"), "{text}");
    let file = kubeconfig.with_file_name("class.json");
    let class = volume_attributes_class("validated");
    std::fs::write(&file, class.to_string()).unwrap();
    let file = file.display().to_string();
    run(&["create", "--validate=strict", "-f", &file]).expect_success();
    run(&["apply", "--server-side", "--force-conflicts", "-f", &file]).expect_success();
    run(&["delete", "-f", &file]).expect_success();
    let mut wrong = class;
    wrong["driver"] = "x".into();
    std::fs::write(&file, wrong.to_string()).unwrap();
    for args in [["create", "--validate=strict", "-f", &file], ["apply", "--server-side", "-f", &file]] {
        let text = run(&args).expect_failure();
        assert!(text.contains("driver"), "{text}");
    }
}

#[test]
fn openapi_at_old_server_has_kinds_of_new_peer() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("old", &OLD_FLAGS);
        plane.start("twin", &OLD_FLAGS);
        plane.start("new", &NEW_FLAGS);
        let [old, twin, new] = ["old", "twin", "new"].map(|name| plane.admin(name));
        block_on(async {
            let index = wait_for_merged_index(&old, RESOURCE_PATH).await;
            let storage = document_of(&old, &index, STORAGE_PATH).await;
            check_references(&storage);
            assert_eq!(storage["info"]["version"], "1.33");
            assert!(storage["paths"].get("/apis/storage.k8s.io/v1/volumeattributesclasses/{name}").is_some());
            assert!(storage["paths"].get("/apis/storage.k8s.io/v1/storageclasses").is_some());
            let resource = document_of(&old, &index, RESOURCE_PATH).await;
            check_references(&resource);
            assert_eq!(resource["info"]["version"], "1.36");
            // What every release serves is this server's own document.
            let node = document_of(&old, &index, "apis/node.k8s.io/v1").await;
            assert_eq!(node["info"]["version"], "1.33");
            assert!(old.get("/openapi/v3/apis/nothing.example.com/v1").await.status == StatusCode::NOT_FOUND);

            wait_for_merged_index(&twin, RESOURCE_PATH).await;
            for (path, accept) in [
                ("/openapi/v3", "application/json"),
                ("/openapi/v3/apis/storage.k8s.io/v1", "application/json"),
                ("/openapi/v2", "application/json"),
                ("/openapi/v2", PROTOBUF_ACCEPT),
            ] {
                let [ours, theirs] =
                    [get_accepting(&old, path, accept).await, get_accepting(&twin, path, accept).await];
                assert_eq!(ours.headers["etag"], theirs.headers["etag"], "{path}");
                assert!(ours.body == theirs.body, "{path}");
            }
            let swagger = get_accepting(&old, "/openapi/v2", "application/json").await.json();
            check_references(&swagger);
            assert!(swagger["paths"].get("/apis/resource.k8s.io/v1/deviceclasses").is_some());
            let index = wait_for_merged_index(&new, "apis/apps/v1").await;
            assert_eq!(document_of(&new, &index, "apis/apps/v1").await["info"]["version"], "1.33");
        });
        check_kubectl(&plane.server("old").kubeconfig());
    });
}

#[test]
fn openapi_of_stopped_peer_stays_where_it_is_known_and_is_unavailable_elsewhere() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &OLD_FLAGS);
    plane.start("new", &NEW_FLAGS);
    let old = plane.admin("old");
    let path = format!("/openapi/v3/{RESOURCE_PATH}");
    let known = block_on(async {
        wait_for_merged_index(&old, RESOURCE_PATH).await;
        old.get(&path).await
    });
    assert_eq!(known.status, StatusCode::OK, "{}", known.summary());
    plane.stop("new");
    plane.start("late", &OLD_FLAGS);
    let late = plane.admin("late");
    block_on(async {
        assert_eq!(old.get(CLASSES_PATH).await.status, StatusCode::SERVICE_UNAVAILABLE);
        let kept = old.get(&path).await;
        assert!(kept.body == known.body, "{}", kept.summary());
        let answer = late.get(&path).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.summary());
        // Its own documents are served, also of a group-version to which the stopped peer would add.
        let storage = late.get(&format!("/openapi/v3/{STORAGE_PATH}")).await.json();
        assert_eq!(storage["info"]["version"], "1.33");
        assert!(late.get("/openapi/v3").await.json()["paths"].get(STORAGE_PATH).is_some());
    });
}

#[test]
fn gateway_merges_openapi_of_upstreams() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &[OLD_FLAGS[0], PEER_PROXY_OFF]);
    plane.start("new", &[NEW_FLAGS[0], NEW_FLAGS[1], PEER_PROXY_OFF]);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let index = wait_for_merged_index(&admin, RESOURCE_PATH).await;
        for (path, version) in [(STORAGE_PATH, "1.36"), ("apis/apps/v1", "1.33"), ("api/v1", "1.36")] {
            let document = document_of(&admin, &index, path).await;
            check_references(&document);
            assert_eq!(document["info"]["version"], version, "{path}");
        }
        let swagger = get_accepting(&admin, "/openapi/v2", "application/json").await.json();
        check_references(&swagger);
        for path in ["/apis/resource.k8s.io/v1/deviceclasses", "/apis/apps/v1/deployments"] {
            assert!(swagger["paths"].get(path).is_some(), "{path}");
        }
    });
    check_kubectl(&gateway.kubeconfig());
}
