//! The official Python client and kube-rs use custom resources.

use std::time::Duration;

use cluster_tests::RunningServer;
use cluster_tests::tools::{is_skipped, python};
use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, discovery};

use super::*;
use crate::clients::kube_rs::connect;
use crate::{block_on, for_each_store};

/// Creates a definition with typed classes, and uses its objects.
const PYTHON_PROGRAM: &str = r#"
import json, sys
from kubernetes import client, config, watch
config.load_kube_config(sys.argv[1])
definitions = client.ApiextensionsV1Api()
orders = client.CustomObjectsApi()
where = ("shop.example.com", "v1", "default", "orders")

definitions.create_custom_resource_definition(json.loads(sys.argv[2]))
watcher = watch.Watch()
for event in watcher.stream(definitions.list_custom_resource_definition, timeout_seconds=20):
    conditions = event["object"].status.conditions or []
    if any(found.type == "Established" and found.status == "True" for found in conditions):
        watcher.stop()
created = orders.create_namespaced_custom_object(*where, json.loads(sys.argv[3]))
assert created["spec"] == {"item": "tea", "size": "small", "replicas": 1}, created
orders.patch_namespaced_custom_object(*where, "a", {"spec": {"size": "large"}})
orders.patch_namespaced_custom_object_status(*where, "a", {"status": {"phase": "Sent"}})
orders.patch_namespaced_custom_object_scale(*where, "a", {"spec": {"replicas": 20}})
found = orders.list_cluster_custom_object("shop.example.com", "v2", "orders", field_selector="spec.size=large")
assert [item["spec"]["replicas"] for item in found["items"]] == [20], found
assert found["items"][0]["status"] == {"phase": "Sent"}, found
try:
    orders.patch_namespaced_custom_object(*where, "a", {"spec": {"size": "medium"}})
    raise SystemExit("the rule is not enforced")
except client.ApiException as error:
    assert error.status == 422 and "only large orders exceed ten" in error.body, error
orders.delete_namespaced_custom_object(*where, "a")
definitions.delete_custom_resource_definition("orders.shop.example.com")
print("done")
"#;

#[test]
fn python_client_uses_custom_resources() {
    if is_skipped("python") {
        return;
    }
    for_each_store(|server| {
        let kubeconfig = server.kubeconfig().display().to_string();
        let (definition, object) = (orders_crd().to_string(), order("a").to_string());
        assert_eq!(python(PYTHON_PROGRAM, &[&kubeconfig, &definition, &object]).expect_success(), "done\n");
    });
}

#[test]
fn kube_client_discovers_and_watches_custom_resources() {
    for_each_store(|server| {
        block_on(async {
            let limit = Duration::from_secs(60);
            tokio::time::timeout(limit, check_kube_client(server)).await.expect("the watch sees the changes in time");
        });
    });
}

async fn check_kube_client(server: &RunningServer) {
    define(&server.admin(), &orders_crd()).await;
    let client = connect(server).await;
    let group = discovery::group(&client, "shop.example.com").await.unwrap();
    assert_eq!(group.preferred_version_or_latest(), "v2");
    let kind = GroupVersionKind::gvk("shop.example.com", "v1", "Order");
    let (found, capabilities) = discovery::pinned_kind(&client, &kind).await.unwrap();
    assert_eq!(found, ApiResource::from_gvk_with_plural(&kind, "orders"));
    assert_eq!(capabilities.subresources.len(), 2, "status and scale");
    let orders: Api<DynamicObject> = Api::namespaced_with(client, "default", &found);
    let mut events = watcher(orders.clone(), watcher::Config::default()).applied_objects().boxed();
    for name in ["a", "b"] {
        let object = serde_json::from_value(order(name)).unwrap();
        orders.create(&PostParams::default(), &object).await.unwrap();
        let seen = events.try_next().await.unwrap().unwrap();
        assert_eq!((seen.metadata.name.as_deref(), &seen.data["spec"]["size"]), (Some(name), &json!("small")));
    }
    let patch = Patch::Merge(json!({"spec": {"size": "large"}}));
    orders.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(events.try_next().await.unwrap().unwrap().data["spec"]["size"], "large");
    orders.delete("a", &DeleteParams::default()).await.unwrap();
    let missing = orders.get("a").await.unwrap_err();
    assert!(matches!(&missing, kube::Error::Api(status) if status.is_not_found()), "{missing:?}");
}
