//! The wire of an apply: options, errors, subresources, peers and other releases.

use cluster_tests::ControlPlane;
use cluster_tests::client::FullResponse;
use cluster_tests::wait::{eventually, metric_value};
use http::Method;

use super::create_widgets;
use crate::custom_resource::CRD_PATH;
use crate::*;

const APPLY: &str = "application/apply-patch+yaml";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WIDGETS: &str = "/apis/apply.example.com/v1/namespaces/default/widgets";

async fn apply(client: &Client, path: &str, query: &str, body: &str) -> FullResponse {
    client.send_body(Method::PATCH, &format!("{path}?{query}"), APPLY, body.to_owned().into()).await
}

#[track_caller]
fn check(response: &FullResponse, code: u16, reason: &str, message: &str) {
    let status = response.json();
    let found = (response.status.as_u16(), status["reason"].as_str().unwrap_or_default(), status["message"].as_str());
    assert_eq!(found, (code, reason, Some(message)));
}

#[test]
fn apply_errors_are_those_of_kubernetes_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    let path = format!("{CONFIG_MAPS_PATH}/m");
    block_on(async {
        create_widgets(&client).await;
        let patch = async |path: &str, media_type: &str| {
            client.send_body(Method::PATCH, path, media_type, "{}".into()).await.json()["message"].clone()
        };
        let accepted = "the body of the request was in an unknown format - accepted media types include: ";
        let built_in = "application/json-patch+json, application/merge-patch+json, \
                        application/strategic-merge-patch+json, application/apply-patch+yaml";
        assert_eq!(patch(&path, "application/apply-patch+cbor").await, format!("{accepted}{built_in}"));
        let custom = built_in.replace("application/strategic-merge-patch+json, ", "");
        assert_eq!(
            patch(&format!("{WIDGETS}/w"), "application/strategic-merge-patch+json").await,
            format!("{accepted}{custom}")
        );
        let options = "PatchOptions.meta.k8s.io \"\" is invalid: ";
        let required = format!("{options}fieldManager: Required value: is required for apply patch");
        check(&apply(&client, &path, "", "][").await, 422, "Invalid", &required);
        let forced = client
            .send_body(Method::PATCH, &format!("{path}?force=true"), "application/merge-patch+json", "{}".into())
            .await;
        let message = format!("{options}force: Forbidden: may not be specified for non-apply patch");
        check(&forced, 422, "Invalid", &message);
        let message = format!(
            "{options}fieldValidation: Unsupported value: \"Other\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
        );
        check(&apply(&client, &path, "fieldManager=m&fieldValidation=Other", "{}").await, 422, "Invalid", &message);
        let found = apply(&client, &path, "fieldManager=m", "a: [").await;
        assert_eq!(found.status, 400);
        assert!(found.summary().contains("error decoding YAML: "), "{}", found.summary());
        check(&apply(&client, &path, "fieldManager=m", "{}").await, 400, "BadRequest", "invalid object type: /, Kind=");
        let head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n";
        let managed = apply(&client, &path, "fieldManager=m", &format!("{head}  managedFields: []\n")).await;
        check(&managed, 400, "BadRequest", "metadata.managedFields must be nil");
        let unknown = apply(&client, &path, "fieldManager=m", &format!("{head}unknown: 1\n")).await;
        let message =
            "failed to create typed patch object (/m; /v1, Kind=ConfigMap): .unknown: field not declared in schema";
        check(&unknown, 500, "", message);
        let uid = apply(&client, &path, "fieldManager=m", &format!("{head}  uid: u\n")).await;
        let message = "Operation cannot be fulfilled on configmaps \"m\": uid mismatch: the provided object specified uid u, and no existing object was found";
        check(&uid, 409, "Conflict", message);
        let other = apply(&client, &path, "fieldManager=m", &head.replace("name: m", "name: other")).await;
        check(&other, 400, "BadRequest", "the name of the object (other) does not match the name on the URL (m)");
        let duplicate = format!("{head}immutable: false\nimmutable: false\n");
        let strict = apply(&client, &path, "fieldManager=m&fieldValidation=Strict", &duplicate).await;
        let message = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"immutable\" already set in map";
        check(&strict, 400, "BadRequest", message);
        let warned = apply(&client, &path, "fieldManager=m", &duplicate).await;
        assert_eq!(warned.status, 201, "{}", warned.summary());
        assert_eq!(warned.headers["warning"], r#"299 - "line 6: key \"immutable\" already set in map""#);
        let missing = apply(&client, &format!("{DEPLOYMENTS}/none/status"), "fieldManager=m", "a: [").await;
        assert_eq!(missing.status, 404, "{}", missing.summary());
        let version = apply(&client, &path, "fieldManager=m", &format!("{head}  resourceVersion: '1'\n")).await;
        assert_eq!(version.status, 409, "{}", version.summary());
        let series = r#"apiserver_request_total{code="201",group="",resource="configmaps",subresource="",verb="APPLY",version="v1"}"#;
        assert_eq!(metric_value(&client, series).await, 1);
    });
}

#[test]
fn apply_creates_only_with_the_right_to_create_and_while_the_definition_lives() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        create_widgets(&client).await;
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch", "get"]}]);
        let role = json!({"metadata": {"name": "patcher"}, "rules": rules});
        client.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
        let binding = json!({"metadata": {"name": "patcher"}, "subjects": [{"kind": "User", "name": "pat"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "patcher"}});
        client.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
        let path = format!("{CONFIG_MAPS_PATH}/m?fieldManager=m");
        let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}"#;
        let as_pat = client
            .request_builder(Method::PATCH, &path)
            .header("impersonate-user", "pat")
            .header("content-type", APPLY);
        let refused = client.send(as_pat, body.into()).await;
        let message = "configmaps \"m\" is forbidden: User \"pat\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"";
        check(&refused, 403, "Forbidden", message);

        let widget = json!({"apiVersion": "apply.example.com/v1", "kind": "Widget", "metadata": {"name": "w", "finalizers": ["example.com/wait"]}});
        assert_eq!(client.create(WIDGETS, &widget).await.status, 201);
        client.delete(&format!("{CRD_PATH}/widgets.apply.example.com")).await;
        let body = r#"{"apiVersion":"apply.example.com/v1","kind":"Widget","metadata":{"name":"new"}}"#;
        let refused = apply(&client, &format!("{WIDGETS}/new"), "fieldManager=m", body).await;
        let message = "widgets.apply.example.com \"new\" is forbidden: create not allowed while custom resource definition is terminating";
        check(&refused, 403, "Forbidden", message);
    });
}

#[test]
fn subresources_have_entries_of_their_own() {
    for_each_store_async(async |client| {
        create_widgets(&client).await;
        let path = format!("{WIDGETS}/w");
        let config = |rest: &str| {
            format!(r#"{{"apiVersion":"apply.example.com/v1","kind":"Widget","metadata":{{"name":"w"}},{rest}}}"#)
        };
        apply(&client, &path, "fieldManager=m", &config(r#""spec":{"size":{"count":2}}"#)).await;
        let status =
            apply(&client, &format!("{path}/status"), "fieldManager=m", &config(r#""status":{"phase":"x"}"#)).await;
        assert_eq!(status.status, 200, "{}", status.summary());
        let scale = r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"w"},"spec":{"replicas":5}}"#;
        let refused = apply(&client, &format!("{path}/scale"), "fieldManager=hpa", scale).await;
        check(&refused, 409, "Conflict", "Apply failed with 1 conflict: conflict with \"m\": .spec.replicas");
        let scaled = apply(&client, &format!("{path}/scale"), "fieldManager=hpa&force=true", scale).await;
        assert_eq!(
            (scaled.status.as_u16(), &scaled.json()["spec"]["replicas"]),
            (200, &json!(5)),
            "{}",
            scaled.summary()
        );
        let object = client.get(&path).await.json();
        assert_eq!((&object["spec"]["size"]["count"], &object["status"]["phase"]), (&json!(5), &json!("x")));
        let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
        let mut entries: Vec<_> = entries
            .map(|entry| format!("{} {} {}", entry["manager"], entry["subresource"], entry["fieldsV1"]))
            .collect();
        entries.sort();
        assert_eq!(
            entries,
            [r#""hpa" "scale" {"f:spec":{"f:size":{"f:count":{}}}}"#, r#""m" "status" {"f:status":{"f:phase":{}}}"#,],
            "the first owner of the replicas owns nothing more"
        );
    });
}

#[test]
fn apply_where_kubernetes_fails_or_writes_in_vain() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        create_widgets(&client).await;
        let path = format!("{WIDGETS}/w");
        let widget = r#"{"apiVersion":"apply.example.com/v1","kind":"Widget","metadata":{"name":"w","labels":{}}}"#;
        assert_eq!(apply(&client, &path, "fieldManager=m", widget).await.status, 201);
        let stored = client.get(&path).await.json();
        let updated = client.update(&path, &stored).await;
        assert_eq!(updated.json(), stored, "an update that changes nothing is no write");

        // No entry owns the replicas.
        let scale = r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"w"},"spec":{"replicas":5}}"#;
        let refused = apply(&client, &format!("{path}/scale"), "fieldManager=hpa", scale).await;
        let message = "Apply failed with 1 conflict: conflict with \"before-first-apply\" with subresource \"scale\" using autoscaling/v1: .spec.replicas";
        check(&refused, 409, "Conflict", message);
        let scaled = apply(&client, &format!("{path}/scale"), "fieldManager=hpa&force=true", scale).await;
        assert_eq!(scaled.status, 200, "{}", scaled.summary());
        assert_eq!(client.get(&path).await.json()["spec"]["size"]["count"], 5);

        let service = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#;
        let path = "/api/v1/namespaces/default/services/s";
        let refused = apply(&client, &format!("{path}/status"), "fieldManager=m", service).await;
        check(&refused, 404, "NotFound", "services \"s\" not found");
    });
}

#[test]
fn field_without_owner_goes_unless_it_has_a_default() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let path = format!("{DEPLOYMENTS}/d");
        let config = |rest: &str| {
            format!(
                r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"d"}},"spec":{{{rest}"selector":{{"matchLabels":{{"a":"b"}}}},
                "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
            )
        };
        let first = apply(&client, &path, "fieldManager=m", &config(r#""replicas":3,"minReadySeconds":7,"#)).await;
        assert_eq!(first.status, 201, "{}", first.summary());
        let second = apply(&client, &path, "fieldManager=m", &config("")).await.json();
        assert_eq!((&second["spec"]["replicas"], &second["spec"]["minReadySeconds"]), (&json!(1), &Value::Null));
        let entries = second["metadata"]["managedFields"].to_string();
        assert!(!entries.contains("f:replicas"), "a default has no owner: {entries}");

        let status = |rest: &str| {
            format!(r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"d"}},"status":{{{rest}}}}}"#)
        };
        let path = format!("{path}/status");
        let first = apply(&client, &path, "fieldManager=m", &status(r#""observedGeneration":2"#)).await.json();
        assert_eq!(first["status"], json!({"observedGeneration": 2}));
        let second = apply(&client, &path, "fieldManager=m", &status("").replace(r#","status":{}"#, "")).await.json();
        assert_eq!(second["status"], json!({}), "an empty status is shown");
    });
}

#[test]
fn apply_works_through_a_peer_and_keeps_fields_of_a_newer_release() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("new", &["--emulated-version=1.36"]);
        plane.start("old", &["--emulated-version=1.33"]);
        let (new, old) = (plane.admin("new"), plane.admin("old"));
        block_on(async {
            let classes = "/apis/storage.k8s.io/v1/volumeattributesclasses/c";
            let class = r#"{"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttributesClass","metadata":{"name":"c"},"driverName":"d.example.com","parameters":{"a":"b"}}"#;
            eventually("the old server forwards", async || {
                let applied = apply(&old, classes, "fieldManager=m", class).await;
                if applied.status.is_success() { Ok(()) } else { Err(applied.summary()) }
            })
            .await;
            assert_eq!(new.get(classes).await.json()["metadata"]["managedFields"][0]["manager"], "m");

            // 1.33 does not know this field of a container.
            let path = "/api/v1/namespaces/default/pods/p";
            let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i","restartPolicy":"Never","restartPolicyRules":[{"action":"Restart","exitCodes":{"operator":"In","values":[1]}}]}]}}"#;
            let created = apply(&new, path, "fieldManager=new", pod).await;
            assert_eq!(created.status, 201, "{}", created.summary());
            let labels = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
            let applied = apply(&old, path, "fieldManager=old", labels).await;
            assert_eq!(applied.status, 200, "{}", applied.summary());
            let stored = new.get(path).await.json();
            assert_eq!(stored["spec"]["containers"][0]["restartPolicyRules"][0]["action"], "Restart");
            assert_eq!(stored["metadata"]["labels"]["a"], "b");
            let entries = stored["metadata"]["managedFields"].to_string();
            assert!(entries.contains("f:restartPolicyRules"), "the owner of the unknown field keeps it: {entries}");
            let container = r#"k:{\"name\":\"c\"}"#;
            assert_eq!(entries.matches(container).count(), 2, "both own the container: {entries}");
        });
    });
}

#[test]
fn object_too_large_with_managed_fields_is_stored_without_them_unless_applied() {
    for_each_store_async(async |client| {
        // Keys count twice: in the data and in the entry of its owner.
        let data: serde_json::Map<String, Value> =
            (0..12_500).map(|number| (format!("{number:064}"), json!(""))).collect();
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
        let path = format!("{CONFIG_MAPS_PATH}/m");
        let refused = apply(&client, &path, "fieldManager=m", &object.to_string()).await;
        assert_eq!(refused.status, 413, "{}", refused.summary());
        let created = client.create(CONFIG_MAPS_PATH, &object).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        assert_eq!(created.json()["metadata"]["managedFields"], Value::Null);
        client.delete(&path).await;
        object["data"] = json!({"a": "b"});
        assert_eq!(client.create(CONFIG_MAPS_PATH, &object).await.status, 201);
        object["data"] = data.into();
        let updated = client.update(&path, &object).await;
        assert_eq!(updated.status, 200, "{}", updated.summary());
        assert_eq!(client.get(&path).await.json()["metadata"]["managedFields"], Value::Null);
    });
}

#[test]
fn json_patch_removes_a_list_that_go_encodes_as_null() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
        let created = client.create(roles, &json!({"metadata": {"name": "r"}})).await;
        assert!(created.json().as_object().unwrap().contains_key("rules"), "{}", created.summary());
        let patch = json!([{"op": "remove", "path": "/rules"}]).to_string();
        let path = format!("{roles}/r");
        let patched = client.send_body(Method::PATCH, &path, "application/json-patch+json", patch.into()).await;
        assert_eq!(patched.status, 200, "{}", patched.summary());
        assert_eq!(patched.json(), created.json(), "nothing was written");
    });
}
