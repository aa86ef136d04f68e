//! What webhooks are sent: for every resource and verb, and not twice for one write.

use std::sync::Arc;
use std::time::Duration;

use cluster_tests::scripted_members::http_response;
use cluster_tests::{Client, ControlPlane};
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use transport::testing::ScriptedPeer;

use super::webhooks::{MUTATING, VALIDATING, WebhookServers, request_of, seen};
use crate::rest::kinds::{ListedResource, list_writable_resources, remove_finalizers_and_delete};
use crate::{CONFIG_MAPS_PATH, block_on, config_map, for_each_store_async};

const MERGE: &str = "application/merge-patch+json";
/// Exempt from webhooks.
const CONFIGURATIONS: [&str; 6] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
];
/// Served from 1.34 on.
const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";

fn rules(operations: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"rules": [{"operations": operations, "apiGroups": [group], "apiVersions": ["*"], "resources": resources}]})
}

/// The reviews that a webhook got of a resource.
async fn reviews_of(peer: &ScriptedPeer, listed: &ListedResource) -> Vec<Value> {
    let of_resource = |review: &Value| {
        let resource = &review["requestResource"];
        resource["group"] == listed.group.as_str() && resource["resource"] == listed.resource.as_str()
    };
    peer.take_requests().await.iter().map(request_of).filter(of_resource).collect()
}

/// Checks a review of each webhook.
async fn check_reviews(peers: &[ScriptedPeer; 2], listed: &ListedResource, operation: &str, subresource: &str) {
    let what = format!("{operation} {} {}/{subresource}", listed.api_version(), listed.resource);
    for peer in peers {
        let reviews = reviews_of(peer, listed).await;
        // A controller aggregates roles meanwhile.
        let review = reviews.iter().find(|review| review["operation"] == operation);
        let review = review.unwrap_or_else(|| panic!("no review: {what}"));
        let kind = match subresource {
            "scale" => json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}),
            _ => json!({"group": listed.group, "version": listed.version, "kind": listed.kind}),
        };
        let resource = json!({"group": listed.group, "version": listed.version, "resource": listed.resource});
        assert_eq!((&review["kind"], &review["requestKind"]), (&kind, &kind), "{what}");
        assert_eq!((&review["resource"], &review["requestResource"]), (&resource, &resource), "{what}");
        let shown = if subresource.is_empty() { Value::Null } else { subresource.into() };
        assert_eq!((&review["subResource"], &review["requestSubResource"]), (&shown, &shown), "{what}");
        assert_eq!(review["name"], listed.name(), "{what}");
        let namespace = match &*listed.resource {
            "namespaces" => json!(listed.name()),
            _ if listed.is_namespaced => json!("default"),
            _ => Value::Null,
        };
        assert_eq!(review["namespace"], namespace, "{what}");
        let (has_new, has_old) = (operation != "DELETE", operation != "CREATE");
        for (field, is_expected) in [("object", has_new), ("oldObject", has_old)] {
            let object = &review[field];
            assert_eq!(!object.is_null(), is_expected, "{what}: {field}");
            if is_expected {
                let api_version =
                    if subresource == "scale" { "autoscaling/v1".to_owned() } else { listed.api_version() };
                assert_eq!((&object["apiVersion"], &object["kind"]), (&json!(api_version), &kind["kind"]), "{what}");
            }
        }
        let options = match operation {
            "CREATE" => "CreateOptions",
            "UPDATE" => "UpdateOptions",
            _ => "DeleteOptions",
        };
        assert_eq!((&review["options"]["kind"], &review["dryRun"]), (&json!(options), &json!(false)), "{what}");
    }
}

async fn check_resource(client: &Client, peers: &[ScriptedPeer; 2], listed: &ListedResource) {
    let is_exempt = CONFIGURATIONS.contains(&&*listed.resource);
    let check = async |operation: &str, subresource: &str| {
        if is_exempt {
            for peer in peers {
                assert_eq!(reviews_of(peer, listed).await, Vec::<Value>::new(), "{} is exempt", listed.resource);
            }
        } else {
            check_reviews(peers, listed, operation, subresource).await;
        }
    };
    let path = listed.path();
    let created = client.create(&path, &listed.valid_object()).await;
    assert_eq!(created.status, 201, "{path}: {}", created.summary());
    check("CREATE", "").await;
    let one = format!("{path}/{}", listed.name());
    let label = json!({"metadata": {"labels": {"patched": "true"}}}).to_string();
    let patched = client.send_body(Method::PATCH, &one, MERGE, label.into()).await;
    assert_eq!(patched.status, 200, "{one}: {}", patched.summary());
    check("UPDATE", "").await;
    let mut object = patched.json();
    object["metadata"]["labels"]["updated"] = "true".into();
    if listed.kind == "ClusterRole" {
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    }
    let updated = client.update(&one, &object).await;
    assert_eq!(updated.status, 200, "{one}: {}", updated.summary());
    check("UPDATE", "").await;
    for subresource in listed.subresources.iter().filter(|name| ["status", "scale"].contains(&&***name)) {
        let body = match &**subresource {
            "scale" => json!({"spec": {"replicas": 2}}),
            _ => json!({"metadata": {"labels": {"seen": "true"}}}),
        };
        let patched =
            client.send_body(Method::PATCH, &format!("{one}/{subresource}"), MERGE, body.to_string().into()).await;
        assert_eq!(patched.status, 200, "{one}/{subresource}: {}", patched.summary());
        check("UPDATE", subresource).await;
    }
    assert_eq!(client.delete(&one).await.status, 200, "{one}");
    check("DELETE", "").await;
    remove_finalizers_and_delete(client, &one).await;
    for peer in peers {
        peer.take_requests().await;
    }
}

#[test]
fn every_resource_and_verb_is_reviewed_with_its_kind_and_objects() {
    for_each_store_async(async |client| {
        let servers = WebhookServers::new();
        let all = list_writable_resources(&client).await;
        let peers =
            [servers.start(|_| json!({"allowed": true})).await, servers.start(|_| json!({"allowed": true})).await];
        let mut everything = rules(&["*"], "*", &["*/*"]);
        everything["matchPolicy"] = "Exact".into();
        servers.register(&client, MUTATING, "all", &peers[0], &everything).await;
        servers.register(&client, VALIDATING, "all", &peers[1], &everything).await;
        assert!(all.len() > 50, "{}", all.len());
        for listed in &all {
            check_resource(&client, &peers, listed).await;
        }
    });
}

/// A webhook that answers requests of the field manager `held` only after a permit.
async fn start_held(servers: &WebhookServers, permits: Arc<Semaphore>) -> ScriptedPeer {
    let tls = servers.certificates.server_config_named("localhost");
    ScriptedPeer::start(tls, &servers.tasks, move |mut connection| {
        let permits = permits.clone();
        async move {
            while let Some(received) = connection.read_request().await {
                let request = request_of(&received);
                if request["options"]["fieldManager"] == "held" {
                    permits.acquire().await.unwrap().forget();
                }
                let response = json!({"uid": request["uid"], "allowed": true});
                let body =
                    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
                connection.write(&http_response("200 OK", "application/json", &body.to_string())).await;
            }
        }
    })
    .await
}

#[test]
fn conflict_calls_a_webhook_again_only_if_it_would_be_sent_something_else() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        let [here, there] = ["a", "b"].map(|name| plane.admin(name));
        block_on(async {
            let (servers, permits) = (WebhookServers::new(), Arc::new(Semaphore::new(0)));
            let held = start_held(&servers, permits.clone()).await;
            servers
                .register(&here, VALIDATING, "held", &held, &rules(&["CREATE", "UPDATE"], "", &["configmaps"]))
                .await;
            let path = format!("{CONFIG_MAPS_PATH}?fieldManager=held");
            // What is compared beside the object changes: configurations, and the namespace with a new quota.
            let object = config_map("one");
            let (created, ()) = tokio::join!(here.create(&path, &object), async {
                held.next_request().await;
                servers.register(&there, VALIDATING, "other", &held, &rules(&["*"], "", &["secrets"])).await;
                let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                    "spec": {"hard": {"count/configmaps": "100"}}});
                let created = there.create("/api/v1/namespaces/default/resourcequotas", &quota).await;
                assert_eq!(created.status, 201, "{}", created.summary());
                permits.add_permits(1);
            });
            assert_eq!(created.status, 201, "{}", created.summary());
            assert_eq!(seen(&held).await, Vec::<String>::new(), "the webhook would have been sent the same");
            // The object itself changes: the webhook is sent another old object.
            let one = format!("{CONFIG_MAPS_PATH}/one");
            let patch = |key: &str| json!({"data": {key: "x"}}).to_string();
            let held_path = format!("{one}?fieldManager=held");
            let (patched, ()) =
                tokio::join!(here.send_body(Method::PATCH, &held_path, MERGE, patch("b").into()), async {
                    held.next_request().await;
                    assert_eq!(there.send_body(Method::PATCH, &one, MERGE, patch("c").into()).await.status, 200);
                    held.next_request().await;
                    permits.add_permits(2);
                });
            assert_eq!(patched.json()["data"], json!({"a": "1", "b": "x", "c": "x"}), "{}", patched.summary());
            let again = held.take_requests().await;
            let [again] = &*again else { panic!("{} calls after the conflict", again.len()) };
            assert_eq!(request_of(again)["oldObject"]["data"]["c"], "x");
        });
    });
}

#[test]
fn no_second_server_calls_a_webhook_for_a_write_that_may_have_been_executed() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("old", &["--emulated-version=1.33"]);
        for name in ["n1", "n2"] {
            plane.start(name, &["--emulated-version=1.36"]);
        }
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "c"},
            "driverName": "csi.example.com", "parameters": {"a": "b"}});
        let old = plane.admin("old");
        let (servers, permits) = (WebhookServers::new(), Arc::new(Semaphore::new(0)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let held = runtime.block_on(start_held(&servers, permits));
        let everything = rules(&["CREATE"], "storage.k8s.io", &["volumeattributesclasses"]);
        runtime.block_on(servers.register(&plane.admin("n1"), VALIDATING, "held", &held, &everything));
        runtime.block_on(async {
            let path = format!("{CLASSES}?fieldManager=held");
            let mut request = Box::pin(old.create(&path, &class));
            tokio::select! {
                early = &mut request => panic!("{}", early.summary()),
                _ = held.next_request() => {}
            }
            // The server that executes the write is one of two; the other one must not repeat it.
            plane.kill("n1");
            let mut outcome = tokio::time::timeout(Duration::from_secs(2), &mut request).await.ok();
            if outcome.is_none() {
                plane.start("n3", &["--emulated-version=1.36"]);
                plane.kill("n2");
                outcome = Some(request.await);
            }
            let failed = outcome.unwrap();
            assert!(failed.status.is_server_error(), "{}", failed.summary());
            assert_eq!(seen(&held).await, Vec::<String>::new(), "no other server calls the webhook");
            assert_eq!(old.get(&format!("{CLASSES}/c")).await.status, 404, "the write was not executed");
        });
    });
}
