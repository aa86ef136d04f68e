//! Webhooks that mutate, validate, hang, lie and show a wrong certificate.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cluster_tests::scripted_members::http_response;
use cluster_tests::{Client, ControlPlane};
use http::Method;
use serde_json::{Value, json};
use tasks::Tasks;
use transport::testing::{ReceivedRequest, ScriptedPeer, TestCertificates};

use crate::custom_resource::{CARTS_PATH, CRD_PATH, carts_crd};
use crate::{CONFIG_MAPS_PATH, block_on, config_map, for_each_store_async};

pub(super) const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(super) const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Webhook servers with certificates of a CA of their own.
pub(super) struct WebhookServers {
    folder: tempfile::TempDir,
    pub(super) tasks: Tasks,
    pub(super) certificates: TestCertificates,
}

impl WebhookServers {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = TestCertificates::new(folder.path());
        Self { folder, tasks: Tasks::new(), certificates }
    }

    /// A webhook that answers each review's request.
    pub(super) async fn start(
        &self,
        respond: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static,
    ) -> ScriptedPeer {
        let tls = self.certificates.server_config_named("localhost");
        ScriptedPeer::start_responder(tls, &self.tasks, move |received| {
            let review: Value = serde_json::from_str(&received.body).unwrap();
            let mut response = respond(&review["request"]);
            if response.get("uid").is_none() {
                response["uid"] = review["request"]["uid"].clone();
            }
            let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            http_response("200 OK", "application/json", &body.to_string())
        })
        .await
    }

    /// Registers a webhook for all operations on a resource of any group.
    pub(super) async fn register(&self, client: &Client, path: &str, name: &str, peer: &ScriptedPeer, more: &Value) {
        let resources = if name.starts_with("carts") { "carts" } else { "configmaps" };
        let mut webhook = json!({
            "name": format!("{name}.example.com"),
            "clientConfig": {
                "url": format!("https://localhost:{}/review", peer.address.port()),
                "caBundle": BASE64_STANDARD.encode(self.certificates.ca_pem()),
            },
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resources]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        webhook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let kind = if path == MUTATING { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": [webhook]});
        let created = client.create(path, &configuration).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        // A consistent read: the server's cache then has the configuration.
        assert_eq!(client.get(&format!("{path}/{name}")).await.status, 200);
    }
}

pub(super) fn patch(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(operations.to_string())})
}

pub(super) fn request_of(received: &ReceivedRequest) -> Value {
    let review: Value = serde_json::from_str(&received.body).unwrap();
    review["request"].clone()
}

/// Operations and names that a webhook saw.
pub(super) async fn seen(peer: &ScriptedPeer) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let requests = peer.take_requests().await;
    requests.iter().map(request_of).map(|it| format!("{} {}", text(&it["operation"]), text(&it["name"]))).collect()
}

#[test]
fn mutating_and_validating_webhooks_see_every_write() {
    for_each_store_async(async |client| {
        let servers = WebhookServers::new();
        let labels = json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]);
        let mutating = servers
            .start(move |request| {
                let is_write = !request["object"].is_null();
                if is_write { patch(&labels) } else { json!({"allowed": true}) }
            })
            .await;
        let validating = servers
            .start(|request| {
                let object = if request["object"].is_null() { &request["oldObject"] } else { &request["object"] };
                let is_refused = object["data"]["bad"] == "yes";
                let status = json!({"message": "bad data", "code": 409, "reason": "Conflict"});
                let warnings = ["looked at it"];
                json!({"allowed": !is_refused, "status": status, "warnings": warnings})
            })
            .await;
        servers.register(&client, MUTATING, "mutate", &mutating, &json!({})).await;
        servers.register(&client, VALIDATING, "validate", &validating, &json!({})).await;
        let one = format!("{CONFIG_MAPS_PATH}/one");
        let created = client.create(CONFIG_MAPS_PATH, &config_map("one")).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        assert_eq!(created.json()["metadata"]["labels"], json!({"seen": "yes"}));
        assert_eq!(created.headers["warning"], "299 - \"looked at it\"");
        let managers = created.json()["metadata"]["managedFields"].to_string();
        assert!(!managers.contains("seen"), "a webhook's change has no owner: {managers}");
        let bad = json!({"data": {"bad": "yes"}}).to_string();
        let patched = client.send_body(Method::PATCH, &one, "application/merge-patch+json", bad.into()).await;
        assert_eq!(
            patched.summary(),
            "409 admission webhook \"validate.example.com\" denied the request: bad data",
            "the webhook's own code"
        );
        let mut changed = created.json();
        changed["data"]["b"] = "2".into();
        assert_eq!(client.update(&one, &changed).await.status, 200);
        let dry_run = client.create(&format!("{CONFIG_MAPS_PATH}?dryRun=All"), &config_map("two")).await;
        assert_eq!(dry_run.status, 201, "{}", dry_run.summary());
        assert_eq!(client.delete(&one).await.status, 200);
        let all = ["CREATE one", "UPDATE one", "UPDATE one", "CREATE two", "DELETE one"];
        assert_eq!(seen(&mutating).await, all);
        assert_eq!(seen(&validating).await, all);
        // Configurations themselves are exempt.
        assert_eq!(client.delete(&format!("{VALIDATING}/validate")).await.status, 200);
        assert_eq!(client.create(CONFIG_MAPS_PATH, &config_map("three")).await.status, 201);
        assert_eq!(seen(&validating).await, Vec::<String>::new(), "a deleted configuration counts at once");
    });
}

#[test]
fn review_has_what_kubernetes_sends() {
    let folder = tempfile::tempdir().unwrap();
    let server = crate::start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let servers = WebhookServers::new();
        let peer = servers.start(|_| json!({"allowed": true})).await;
        servers.register(&client, VALIDATING, "validate", &peer, &json!({"timeoutSeconds": 7})).await;
        let path = format!("{CONFIG_MAPS_PATH}?fieldManager=me&fieldValidation=Strict");
        let mut generated = config_map("");
        generated["metadata"] = json!({"generateName": "g-"});
        let created = client.create(&path, &generated).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let received = peer.next_request().await;
        assert_eq!(received.request_line, "POST /review?timeout=7s HTTP/1.1");
        assert_eq!(received.header("content-type"), ["application/json"]);
        assert_eq!(received.header("user-agent"), ["kube-apiserver-admission"]);
        let request = request_of(&received);
        assert_eq!(request["object"]["metadata"]["uid"], created.json()["metadata"]["uid"], "as it is stored");
        assert_eq!(request["object"]["metadata"]["name"], created.json()["metadata"]["name"]);
        assert_eq!(request["oldObject"], Value::Null);
        assert_eq!(request["namespace"], "default");
        assert_eq!(request["userInfo"]["groups"][0], "system:masters");
        let options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "fieldValidation": "Strict"});
        assert_eq!(request["options"], options);
    });
}

#[test]
fn failing_webhooks_follow_their_policy() {
    let folder = tempfile::tempdir().unwrap();
    let server = crate::start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let servers = WebhookServers::new();
        let other_folder = servers.folder.path().join("other");
        std::fs::create_dir(&other_folder).unwrap();
        let stranger = TestCertificates::new(&other_folder);
        let hanging = ScriptedPeer::start(
            servers.certificates.server_config_named("localhost"),
            &servers.tasks,
            |mut connection| async move {
                connection.read_request().await;
                std::future::pending::<()>().await;
            },
        )
        .await;
        let lying = servers.start(|_| json!({"allowed": true, "uid": "another"})).await;
        let untrusted =
            ScriptedPeer::start_responder(stranger.server_config_named("localhost"), &servers.tasks, |_| String::new())
                .await;
        let metrics = async || String::from_utf8_lossy(&client.get("/metrics").await.body).into_owned();
        let mut seen = String::new();
        for (name, peer, expected) in [
            ("hangs", &hanging, "context deadline exceeded"),
            ("lies", &lying, "received invalid webhook response: expected response.uid="),
            (
                "stranger",
                &untrusted,
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            ),
        ] {
            servers.register(&client, VALIDATING, name, peer, &json!({"timeoutSeconds": 1})).await;
            let refused = client.create(CONFIG_MAPS_PATH, &config_map(name)).await.summary();
            let prefix = format!("500 Internal error occurred: failed calling webhook \"{name}.example.com\": ");
            assert!(refused.starts_with(&prefix) && refused.contains(expected), "{refused}");
            // The next create may call the webhook once more: until the server knows the patched configuration.
            seen.push_str(&metrics().await);
            let ignore = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]).to_string();
            let path = format!("{VALIDATING}/{name}");
            let patched = client.send_body(Method::PATCH, &path, "application/json-patch+json", ignore.into()).await;
            assert_eq!(patched.status, 200, "{}", patched.summary());
            let created = client.create(CONFIG_MAPS_PATH, &config_map(name)).await;
            assert_eq!(created.status, 201, "{}", created.summary());
            assert_eq!(client.delete(&path).await.status, 200);
        }
        seen.push_str(&metrics().await);
        for line in [
            "apiserver_admission_controller_admission_duration_seconds_count{name=\"ValidatingAdmissionWebhook\",operation=\"CREATE\",rejected=\"true\",type=\"validate\"} 3",
            "apiserver_admission_webhook_fail_open_count{name=\"hangs.example.com\",type=\"validating\"} 1",
            "apiserver_admission_webhook_rejection_count{error_type=\"calling_webhook_error\",name=\"lies.example.com\",operation=\"CREATE\",rejection_code=\"503\",type=\"validating\"} 1",
        ] {
            assert!(seen.contains(line), "{line}");
        }
    });
}

#[test]
fn custom_objects_are_admitted_where_they_are_executed() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        block_on(async {
            let (here, there) = (plane.admin("a"), plane.admin("b"));
            let servers = WebhookServers::new();
            let peer =
                servers.start(|_| patch(&json!([{"op": "add", "path": "/spec", "value": {"from": "webhook"}}]))).await;
            assert_eq!(here.create(CRD_PATH, &carts_crd()).await.status, 201);
            servers.register(&here, MUTATING, "carts", &peer, &json!({})).await;
            for (name, client) in [("one", &here), ("two", &there)] {
                let cart = json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": name}});
                let created = client.create(CARTS_PATH, &cart).await;
                assert_eq!(created.status, 201, "{}", created.summary());
                assert_eq!(created.json()["spec"]["from"], "webhook");
            }
            assert_eq!(seen(&peer).await, ["CREATE one", "CREATE two"], "each write is admitted once");
        });
    });
}

#[test]
fn webhook_is_called_again_only_if_it_would_see_something_else() {
    for_each_store_async(async |client| {
        let servers = WebhookServers::new();
        let peer = servers.start(|_| json!({"allowed": true})).await;
        servers.register(&client, VALIDATING, "validate", &peer, &json!({})).await;
        let path = format!("{CONFIG_MAPS_PATH}/counter");
        assert_eq!(client.create(CONFIG_MAPS_PATH, &config_map("counter")).await.status, 201);
        let patches = (0..20).map(|at| {
            let body = json!({"data": {format!("k{at}"): "x"}}).to_string();
            client.send_body(Method::PATCH, &path, "application/merge-patch+json", body.into())
        });
        for patched in futures_util::future::join_all(patches).await {
            assert_eq!(patched.status, 200, "{}", patched.summary());
        }
        let data = client.get(&path).await.json()["data"].as_object().unwrap().len();
        assert_eq!(data, 21, "no patch is lost");
        let bodies: Vec<String> = peer
            .take_requests()
            .await
            .iter()
            .map(|received| {
                let mut request = request_of(received);
                request["uid"].take();
                request.to_string()
            })
            .collect();
        let distinct: std::collections::BTreeSet<&String> = bodies.iter().collect();
        assert_eq!(distinct.len(), bodies.len(), "no review is sent twice");
    });
}

#[test]
fn object_is_stored_under_the_name_that_webhooks_leave() {
    for_each_store_async(async |client| {
        let servers = WebhookServers::new();
        let peer = servers
            .start(|request| {
                let field = |name: &str| request["object"]["data"][name].as_str().map(str::to_owned);
                let set = |(name, value)| json!({"op": "add", "path": format!("/metadata/{name}"), "value": value});
                let changed = [("name", field("name")), ("namespace", field("namespace"))];
                patch(&changed.into_iter().filter_map(|(name, value)| Some(set((name, value?)))).collect())
            })
            .await;
        servers.register(&client, MUTATING, "places", &peer, &json!({})).await;
        let moved = |from: &str, field: &str, to: &str| {
            let mut object = config_map(from);
            object["data"] = json!({field: to});
            object
        };
        let renamed = client.create(CONFIG_MAPS_PATH, &moved("before", "name", "after")).await;
        assert_eq!(renamed.status, 201, "{}", renamed.summary());
        assert_eq!(renamed.json()["metadata"]["name"], "after");
        assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}/before")).await.status, 404);
        assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}/after")).await.json(), renamed.json());
        let mut generated = moved("", "name", "chosen");
        generated["metadata"] = json!({"generateName": "g-"});
        assert_eq!(client.create(CONFIG_MAPS_PATH, &generated).await.json()["metadata"]["name"], "chosen");
        let again = client.create(CONFIG_MAPS_PATH, &moved("before", "name", "after")).await;
        assert_eq!(again.summary(), "409 configmaps \"after\" already exists");
        let elsewhere = client.create(CONFIG_MAPS_PATH, &moved("x", "namespace", "kube-system")).await;
        let refused = "400 the namespace of the provided object does not match the namespace sent on the request";
        assert_eq!(elsewhere.summary(), refused);
        let invalid = client.create(CONFIG_MAPS_PATH, &moved("x", "name", "../x")).await;
        assert!(invalid.summary().starts_with("422 ConfigMap \"../x\" is invalid"), "{}", invalid.summary());
        assert_eq!(client.get(&format!("{CONFIG_MAPS_PATH}/x")).await.status, 404);
    });
}
