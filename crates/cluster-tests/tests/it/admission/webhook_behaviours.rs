//! What Kubernetes' own tests demand of webhooks: on both stores, for built-in and custom kinds, through either of two
//! servers.

use std::time::Duration;

use cluster_tests::scripted_members::http_response;
use cluster_tests::{Client, ControlPlane};
use http::Method;
use serde_json::{Value, json};
use transport::testing::ScriptedPeer;

use super::webhooks::{MUTATING, VALIDATING, WebhookServers, patch, request_of, seen};
use crate::custom_resource::{CARTS_PATH, CRD_PATH, carts_crd};
use crate::{CONFIG_MAPS_PATH, block_on, config_map};

const PODS_PATH: &str = "/api/v1/namespaces/default/pods";
const MERGE: &str = "application/merge-patch+json";

/// Two servers on each store. Service accounts and controllers would need waiting for.
fn for_each_pair(test: impl AsyncFn([Client; 2], WebhookServers)) {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b"] {
            plane.start(name, &["--disable-admission-plugins=ServiceAccount"]);
        }
        block_on(test(["a", "b"].map(|name| plane.admin(name)), WebhookServers::new()));
    });
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn cart(name: &str) -> Value {
    json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": name}, "spec": {"size": 1}})
}

fn rules(operations: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"rules": [{"operations": operations, "apiGroups": [group], "apiVersions": ["*"], "resources": resources}]})
}

async fn create(client: &Client, path: &str, object: &Value) -> Value {
    let created = client.create(path, object).await;
    assert_eq!(created.status, 201, "{path}: {}", created.summary());
    created.json()
}

async fn merge(client: &Client, path: &str, patch: &Value) -> String {
    client.send_body(Method::PATCH, path, MERGE, patch.to_string().into()).await.summary()
}

/// A webhook that answers after a pause.
async fn start_slow(servers: &WebhookServers, pause: Duration) -> ScriptedPeer {
    let tls = servers.certificates.server_config_named("localhost");
    ScriptedPeer::start(tls, &servers.tasks, move |mut connection| async move {
        while let Some(received) = connection.read_request().await {
            tokio::time::sleep(pause).await;
            let response = json!({"uid": request_of(&received)["uid"], "allowed": true});
            let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            connection.write(&http_response("200 OK", "application/json", &body.to_string())).await;
        }
    })
    .await
}

#[test]
fn denials_pass_through_for_every_write_of_built_in_and_custom_kinds() {
    for_each_pair(async |[here, there], servers| {
        let webhook = servers
            .start(|request| {
                let object = if request["object"].is_null() { &request["oldObject"] } else { &request["object"] };
                let denied = object["metadata"]["labels"]["deny"] == request["operation"];
                json!({"allowed": !denied, "status": {"message": "the object has an unwanted label"}})
            })
            .await;
        create(&here, CRD_PATH, &carts_crd()).await;
        let all = rules(&["*"], "*", &["pods", "configmaps", "carts", "customresourcedefinitions"]);
        servers.register(&here, VALIDATING, "deny", &webhook, &all).await;
        let denied = "400 admission webhook \"deny.example.com\" denied the request: the object has an unwanted label";
        for (path, object) in
            [(CONFIG_MAPS_PATH, config_map as fn(&str) -> Value), (PODS_PATH, pod), (CARTS_PATH, cart)]
        {
            for (name, client, other) in [("one", &here, &there), ("two", &there, &here)] {
                let named = format!("{path}/{name}");
                let mut refused = object(name);
                refused["metadata"]["labels"] = json!({"deny": "CREATE"});
                assert_eq!(client.create(path, &refused).await.summary(), denied, "create at {path}");
                let mut created = create(client, path, &object(name)).await;
                created["metadata"]["labels"] = json!({"deny": "UPDATE"});
                assert_eq!(other.update(&named, &created).await.summary(), denied, "update at {path}");
                let label = |value: &str| json!({"metadata": {"labels": {"deny": value}}});
                assert_eq!(merge(client, &named, &label("UPDATE")).await, denied, "patch at {path}");
                let apply = json!({"apiVersion": created["apiVersion"], "kind": created["kind"],
                    "metadata": {"name": name, "labels": {"deny": "UPDATE"}}});
                let apply = apply.to_string().into();
                let named_apply = format!("{named}?fieldManager=test");
                let applied = other.send_body(Method::PATCH, &named_apply, "application/apply-patch+yaml", apply).await;
                assert_eq!(applied.summary(), denied, "apply at {path}");
                assert!(merge(client, &named, &label("DELETE")).await.starts_with("200"));
                assert_eq!(other.delete(&named).await.summary(), denied, "delete at {path}");
                assert!(merge(client, &named, &label("NONE")).await.starts_with("200"));
                assert_eq!(other.delete(&named).await.status, 200);
            }
        }
        let mut definition = carts_crd();
        definition["metadata"] = json!({"name": "bags.shop.example.com", "labels": {"deny": "CREATE"}});
        definition["spec"]["names"] = json!({"plural": "bags", "kind": "Bag"});
        assert_eq!(there.create(CRD_PATH, &definition).await.summary(), denied);
        assert_eq!(there.get(&format!("{CRD_PATH}/bags.shop.example.com")).await.status, 404);
    });
}

#[test]
fn mutations_are_ordered_rerun_defaulted_and_pruned() {
    for_each_pair(async |[here, there], servers| {
        let append = |name: &'static str| {
            move |request: &Value| {
                let seen = request["object"]["data"]["seen"].as_str().unwrap_or_default();
                let count = seen.matches(name).count();
                let value = format!("{seen}{name}");
                match count {
                    0 => patch(&json!([{"op": "add", "path": "/data/seen", "value": value}])),
                    _ => json!({"allowed": true}),
                }
            }
        };
        let (first, second) = (servers.start(append("1")).await, servers.start(append("2")).await);
        let again = json!({"reinvocationPolicy": "IfNeeded"});
        // In the order of names, whatever the order of creation.
        servers.register(&here, MUTATING, "m2", &second, &again).await;
        servers.register(&there, MUTATING, "m1", &first, &again).await;
        for (client, name) in [(&here, "one"), (&there, "two")] {
            let created = create(client, CONFIG_MAPS_PATH, &config_map(name)).await;
            assert_eq!(created["data"]["seen"], "12");
            // The second one changed the object, so that the first is called again; its own change does not count.
            assert_eq!(first.take_requests().await.len(), 2);
            assert_eq!(second.take_requests().await.len(), 1);
        }
        for name in ["m1", "m2"] {
            assert_eq!(here.delete(&format!("{MUTATING}/{name}")).await.status, 200);
        }
        let container =
            json!([{"op": "add", "path": "/spec/initContainers", "value": [{"name": "init", "image": "i"}]}]);
        let adds = servers.start(move |_| patch(&container)).await;
        servers.register(&here, MUTATING, "pods", &adds, &rules(&["CREATE"], "", &["pods"])).await;
        let created = create(&there, PODS_PATH, &pod("p")).await;
        let init = &created["spec"]["initContainers"][0];
        assert_eq!(
            (&init["terminationMessagePolicy"], &init["imagePullPolicy"]),
            (&json!("File"), &json!("Always")),
            "what a webhook adds gets defaults"
        );
    });
}

#[test]
fn custom_objects_are_mutated_pruned_and_stored_in_another_version() {
    for_each_pair(async |[here, there], servers| {
        let mut definition = carts_crd();
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"size": {"type": "integer"}, "from": {"type": "string"}, "color": {"type": "string", "default": "red"}}}}}});
        definition["spec"]["versions"] = json!([
            {"name": "v1", "served": true, "storage": true, "schema": schema},
            {"name": "v2", "served": true, "storage": false, "schema": schema}]);
        create(&here, CRD_PATH, &definition).await;
        let changes = json!([{"op": "add", "path": "/spec/from", "value": "webhook"},
            {"op": "add", "path": "/spec/unknown", "value": 1}]);
        let webhook = servers.start(move |_| patch(&changes)).await;
        servers.register(&there, MUTATING, "carts", &webhook, &rules(&["CREATE", "UPDATE"], "*", &["carts"])).await;
        let mutated = json!({"size": 1, "from": "webhook", "color": "red"});
        assert_eq!(create(&here, CARTS_PATH, &cart("old")).await["spec"], mutated, "unknown fields are pruned");
        let storage = json!([{"op": "replace", "path": "/spec/versions/0/storage", "value": false},
            {"op": "replace", "path": "/spec/versions/1/storage", "value": true}]);
        let path = format!("{CRD_PATH}/carts.shop.example.com");
        let json_patch = "application/json-patch+json";
        let changed = here.send_body(Method::PATCH, &path, json_patch, storage.to_string().into()).await;
        assert_eq!(changed.status, 200, "{}", changed.summary());
        for (client, name) in [(&here, "one"), (&there, "two")] {
            assert_eq!(create(client, CARTS_PATH, &cart(name)).await["spec"], mutated);
            let grown = client
                .send_body(
                    Method::PATCH,
                    &format!("{CARTS_PATH}/old"),
                    MERGE,
                    json!({"spec": {"size": 2, "from": null}}).to_string().into(),
                )
                .await;
            assert_eq!(
                grown.json()["spec"],
                json!({"size": 2, "from": "webhook", "color": "red"}),
                "{}",
                grown.summary()
            );
            let size = json!({"spec": {"size": 3}}).to_string();
            assert_eq!(
                client.send_body(Method::PATCH, &format!("{CARTS_PATH}/old"), MERGE, size.into()).await.status,
                200
            );
        }
        let versions: Vec<Value> = webhook
            .take_requests()
            .await
            .iter()
            .map(request_of)
            .map(|request| request["object"]["apiVersion"].clone())
            .collect();
        assert!(versions.iter().all(|version| version == "shop.example.com/v1"), "{versions:?}");
    });
}

#[test]
fn configurations_are_neither_changed_nor_kept_by_webhooks() {
    for_each_pair(async |[here, there], servers| {
        let denying = servers.start(|_| json!({"allowed": false})).await;
        let labels = json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]);
        let mutating = servers.start(move |_| patch(&labels)).await;
        let all = rules(&["*"], "*", &["*/*"]);
        servers.register(&here, MUTATING, "all", &mutating, &all).await;
        servers.register(&there, VALIDATING, "all", &denying, &all).await;
        let another = servers.start(|_| json!({"allowed": true})).await;
        for (client, path) in [(&here, VALIDATING), (&there, MUTATING)] {
            servers.register(client, path, "another", &another, &json!({})).await;
            let stored = client.get(&format!("{path}/another")).await.json();
            assert_eq!(stored["metadata"]["labels"], Value::Null);
            assert_eq!(client.delete(&format!("{path}/another")).await.status, 200);
        }
        assert_eq!(there.create(CONFIG_MAPS_PATH, &config_map("one")).await.status, 400);
        // A list, then a deletion of all.
        let listed = there.get(VALIDATING).await.json();
        assert_eq!(listed["items"].as_array().unwrap().len(), 1);
        for path in [VALIDATING, MUTATING] {
            assert_eq!(here.delete(path).await.status, 200);
        }
        let created = create(&there, CONFIG_MAPS_PATH, &config_map("one")).await;
        assert_eq!(created["metadata"]["labels"], Value::Null, "deleted configurations count for the next write");
    });
}

#[test]
fn changed_rules_and_conditions_count_for_the_next_write_at_every_server() {
    for_each_pair(async |[here, there], servers| {
        let webhook = servers.start(|_| json!({"allowed": false, "status": {"message": "no"}})).await;
        servers.register(&here, VALIDATING, "rules", &webhook, &rules(&["CREATE"], "", &["configmaps"])).await;
        let path = format!("{VALIDATING}/rules");
        let denied = "400 admission webhook \"rules.example.com\" denied the request: no";
        assert_eq!(there.create(CONFIG_MAPS_PATH, &config_map("one")).await.summary(), denied);
        let mut configuration = here.get(&path).await.json();
        configuration["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
        assert_eq!(here.update(&path, &configuration).await.status, 200);
        create(&there, CONFIG_MAPS_PATH, &config_map("one")).await;
        let creates = json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}]);
        let json_patch = "application/json-patch+json";
        assert_eq!(there.send_body(Method::PATCH, &path, json_patch, creates.to_string().into()).await.status, 200);
        assert_eq!(here.create(CONFIG_MAPS_PATH, &config_map("two")).await.summary(), denied);
        let condition = |expression: &str| json!([{"op": "add", "path": "/webhooks/0/matchConditions", "value": [{"name": "c", "expression": expression}]}]);
        let body = condition("object.metadata.name != 'excluded'").to_string();
        assert_eq!(here.send_body(Method::PATCH, &path, json_patch, body.into()).await.status, 200);
        create(&there, CONFIG_MAPS_PATH, &config_map("excluded")).await;
        assert_eq!(there.create(CONFIG_MAPS_PATH, &config_map("two")).await.summary(), denied);
        let refused = there.send_body(Method::PATCH, &path, json_patch, condition("object.").to_string().into()).await;
        assert_eq!(refused.status, 422);
        assert!(refused.summary().contains("compilation failed"), "{}", refused.summary());
    });
}

#[test]
fn timeouts_are_told_to_webhooks_and_shrink() {
    for_each_pair(async |[here, there], servers| {
        let slow = start_slow(&servers, Duration::from_millis(1_200)).await;
        let short = json!({"timeoutSeconds": 1});
        servers.register(&here, MUTATING, "m1", &slow, &short).await;
        let refused = there.create(CONFIG_MAPS_PATH, &config_map("one")).await.summary();
        assert!(
            refused.contains("webhook") && refused.contains("?timeout=1s\": context deadline exceeded"),
            "{refused}"
        );
        let set = |policy: &str, seconds: u32| {
            json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy},
                {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": seconds}])
        };
        let path = format!("{MUTATING}/m1");
        for (policy, seconds) in [("Ignore", 1), ("Fail", 10)] {
            let body = set(policy, seconds).to_string().into();
            assert_eq!(here.send_body(Method::PATCH, &path, "application/json-patch+json", body).await.status, 200);
            let name = format!("{}-{seconds}", policy.to_lowercase());
            create(&there, CONFIG_MAPS_PATH, &config_map(&name)).await;
        }
        let later = servers.start(|_| json!({"allowed": true})).await;
        servers.register(&here, MUTATING, "m2", &later, &json!({"timeoutSeconds": 30})).await;
        slow.take_requests().await;
        create(&there, &format!("{CONFIG_MAPS_PATH}?timeout=5s"), &config_map("shrinks")).await;
        assert_eq!(slow.next_request().await.request_line, "POST /review?timeout=5s HTTP/1.1");
        assert_eq!(later.next_request().await.request_line, "POST /review?timeout=4s HTTP/1.1");
        let body = set("Ignore", 10).to_string().into();
        assert_eq!(here.send_body(Method::PATCH, &path, "application/json-patch+json", body).await.status, 200);
        let late = there.create(&format!("{CONFIG_MAPS_PATH}?timeout=1s"), &config_map("late")).await;
        assert_eq!(late.status, 504, "{}", late.summary());
        assert_eq!(later.take_requests().await.len(), 0, "a request whose time is over calls no later webhook");
        assert_eq!(there.get(&format!("{CONFIG_MAPS_PATH}/late")).await.status, 404);
    });
}

#[test]
fn broken_managed_fields_are_put_back_with_a_warning() {
    for_each_pair(async |[here, there], servers| {
        let broken = json!([{"op": "replace", "path": "/metadata/managedFields/0/fieldsType", "value": "FieldsV9"}]);
        let webhook = servers.start(move |_| patch(&broken)).await;
        servers.register(&here, MUTATING, "broken", &webhook, &json!({})).await;
        create(&here, CRD_PATH, &carts_crd()).await;
        servers.register(&here, MUTATING, "carts", &webhook, &json!({})).await;
        for (client, path, object) in [(&here, CONFIG_MAPS_PATH, config_map("one")), (&there, CARTS_PATH, cart("one"))]
        {
            let created = client.create(path, &object).await;
            assert_eq!(created.status, 201, "{}", created.summary());
            assert_eq!(created.json()["metadata"]["managedFields"][0]["fieldsType"], "FieldsV1");
            assert_eq!(
                created.headers["warning"],
                "299 - \".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: invalid fieldsType \\\"FieldsV9\\\" in managed fields entry 0\""
            );
        }
    });
}

#[test]
fn webhook_without_ca_is_not_trusted_and_a_broken_one_does_not_stop_the_start() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        block_on(async {
            let (client, servers) = (plane.admin("a"), WebhookServers::new());
            let webhook = servers.start(|_| json!({"allowed": true})).await;
            let url = format!("https://localhost:{}/review", webhook.address.port());
            servers.register(&client, VALIDATING, "no-ca", &webhook, &json!({"clientConfig": {"url": url}})).await;
            let refused = client.create(CONFIG_MAPS_PATH, &config_map("one")).await.summary();
            let expected = "x509: certificate signed by unknown authority";
            assert!(refused.starts_with("500 ") && refused.contains(expected), "{refused}");
            assert_eq!(webhook.take_requests().await.len(), 0);
            let mut closed = rules(&["*"], "*", &["*/*"]);
            closed["clientConfig"] = json!({"url": "https://127.0.0.1:9/"});
            for path in [MUTATING, VALIDATING] {
                servers.register(&client, path, "closed", &webhook, &closed).await;
            }
        });
        plane.kill("a");
        plane.start("b", &[]);
        block_on(async {
            let client = plane.admin("b");
            assert_eq!(client.create(CONFIG_MAPS_PATH, &config_map("one")).await.status, 500);
            for path in [MUTATING, VALIDATING] {
                assert_eq!(client.delete(path).await.status, 200);
            }
            create(&client, CONFIG_MAPS_PATH, &config_map("one")).await;
        });
    });
}

#[test]
fn collection_is_deleted_one_review_per_object() {
    for_each_pair(async |[here, there], servers| {
        create(&here, CRD_PATH, &carts_crd()).await;
        let webhook = servers
            .start(|request| {
                let is_kept = request["oldObject"]["metadata"]["labels"]["keep"] == "yes";
                json!({"allowed": !is_kept, "status": {"message": "kept"}})
            })
            .await;
        servers.register(&here, VALIDATING, "carts", &webhook, &rules(&["DELETE"], "*", &["carts"])).await;
        for name in ["one", "two"] {
            create(&here, CARTS_PATH, &cart(name)).await;
        }
        assert_eq!(there.delete(CARTS_PATH).await.status, 200);
        assert_eq!(seen(&webhook).await, ["DELETE ", "DELETE "], "the name is in the old object only");
        let mut kept = cart("three");
        kept["metadata"]["labels"] = json!({"keep": "yes"});
        create(&there, CARTS_PATH, &kept).await;
        let refused = here.delete(CARTS_PATH).await.summary();
        assert_eq!(refused, "400 admission webhook \"carts.example.com\" denied the request: kept");
    });
}
