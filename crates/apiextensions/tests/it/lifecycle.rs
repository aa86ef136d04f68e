//! Defaults, the first status, and what updates and deletions add.

use api::json::JsonObject;
use apiextensions::lifecycle::{add_stored_version, begin_deletion, set_defaults, set_initial_status};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

fn object(value: &Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

fn check(mut definition: JsonObject, change: impl Fn(&mut JsonObject), expected: &Expect) {
    change(&mut definition);
    expected.assert_eq(&Value::Object(definition).to_string());
}

#[test]
fn set_defaults_fills_names_conversion_port_and_stored_versions() {
    check(
        object(&json!({"spec": {
            "names": {"kind": "Widget", "listKind": ""},
            "versions": [{"name": "v1"}, {"name": "v2", "storage": true}],
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "a"}}}},
        }, "status": {"storedVersions": []}})),
        set_defaults,
        &expect![[
            r#"{"spec":{"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"service":{"name":"a","port":443}}}},"names":{"kind":"Widget","listKind":"WidgetList","singular":"widget"},"versions":[{"name":"v1"},{"name":"v2","storage":true}]},"status":{"storedVersions":["v2"]}}"#
        ]],
    );
    check(
        object(&json!({"spec": {"names": {}}})),
        set_defaults,
        &expect![[r#"{"spec":{"conversion":{"strategy":"None"},"names":{}}}"#]],
    );
}

#[test]
fn set_initial_status_replaces_status_of_client() {
    check(
        object(&json!({"spec": {"versions": [{"name": "v1", "storage": true}]}, "status": {"storedVersions": ["v9"]}})),
        set_initial_status,
        &expect![[
            r#"{"spec":{"versions":[{"name":"v1","storage":true}]},"status":{"acceptedNames":{"kind":"","plural":""},"conditions":null,"storedVersions":["v1"]}}"#
        ]],
    );
    check(
        object(&json!({"spec": {"versions": []}})),
        set_initial_status,
        &expect![[
            r#"{"spec":{"versions":[]},"status":{"acceptedNames":{"kind":"","plural":""},"conditions":null,"storedVersions":null}}"#
        ]],
    );
}

#[test]
fn add_stored_version_appends_new_storage_version_once() {
    let definition = object(&json!({
        "spec": {"versions": [{"name": "v2", "storage": true}]}, "status": {"storedVersions": ["v1"]},
    }));
    let twice = |definition: &mut JsonObject| {
        add_stored_version(definition);
        add_stored_version(definition);
    };
    check(
        definition,
        twice,
        &expect![[r#"{"spec":{"versions":[{"name":"v2","storage":true}]},"status":{"storedVersions":["v1","v2"]}}"#]],
    );
}

#[test]
fn begin_deletion_sets_finalizer_and_condition_and_keeps_others() {
    let now = "2026-01-02T03:04:05Z".parse().unwrap();
    let condition = json!({"type": "Established", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    check(
        object(&json!({"metadata": {"name": "a.b", "finalizers": ["x"]}, "status": {"conditions": [condition]}})),
        |definition| begin_deletion(definition, now),
        &expect![[
            r#"{"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":["x","customresourcecleanup.apiextensions.k8s.io"],"name":"a.b"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","status":"True","type":"Established"},{"lastTransitionTime":"2026-01-02T03:04:05Z","message":"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon","reason":"InstanceDeletionPending","status":"True","type":"Terminating"}]}}"#
        ]],
    );
}
