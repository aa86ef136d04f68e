//! Applies of deployments: ownership, conflicts, removal of fields.

use serde_json::{Value, json};

use super::{Deployments, deployment, entries, object, writer};
use crate::{ApplyError, apply, record_update};

fn live() -> api::json::JsonObject {
    let mut new = deployment(&json!({"replicas": 1, "minReadySeconds": 3}));
    record_update(None, &mut new, &writer("creator", 0), &Deployments::default()).expect("no conversion");
    new["metadata"]["uid"] = "u".into();
    new
}

#[track_caller]
fn check_error(config: &Value, expected: &str) {
    let error = apply(None, &object(config), false, &writer("a", 1), &Deployments::default()).expect_err("invalid");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn invalid_configs_are_refused_in_words_of_kubernetes() {
    let config = |spec: Value| Value::Object(deployment(&spec));
    check_error(&json!({"apiVersion": "v1", "kind": "Pod"}), "invalid object type: /v1, Kind=Pod");
    check_error(&json!({}), "invalid object type: /, Kind=");
    let mut with_entries = config(json!({}));
    with_entries["metadata"]["managedFields"] = json!([]);
    check_error(&with_entries, "metadata.managedFields must be nil");
    let prefix = "failed to create typed patch object (n/d; apps/v1, Kind=Deployment): ";
    check_error(&config(json!({"foo": 1})), &format!("{prefix}.spec.foo: field not declared in schema"));
    check_error(
        &config(json!({"replicas": "x", "paused": 1})),
        &format!(
            "{prefix}errors:\n  .spec.paused: expected boolean, got &{{1}}\n  .spec.replicas: expected numeric (int or float), got string"
        ),
    );
    let port = json!({"containerPort": 80});
    let container = json!({"name": "c", "ports": [port, {"containerPort": 80, "protocol": "TCP"}]});
    check_error(
        &config(json!({"template": {"spec": {"containers": [container]}}})),
        &format!(
            "{prefix}.spec.template.spec.containers[name=\"c\"].ports: duplicate entries for key [containerPort=80,protocol=\"TCP\"]"
        ),
    );
}

#[test]
fn work_of_an_apply_grows_with_the_length_of_lists() {
    const ITEMS: usize = 2000;
    let config = |numbers: &mut dyn Iterator<Item = usize>| {
        let variables: Vec<Value> = numbers.map(|number| json!({"name": number.to_string(), "value": "x"})).collect();
        let container = json!({"name": "c", "env": variables});
        deployment(&json!({"template": {"spec": {"containers": [container]}}}))
    };
    let types = Deployments::default();
    crate::typed::ELEMENTS_MADE.set(0);
    let created =
        apply(None, &config(&mut (0..ITEMS)), false, &writer("a", 1), &types).expect("valid").expect("changed");
    apply(Some(&created), &config(&mut (0..ITEMS).rev()), false, &writer("a", 2), &types).expect("valid");
    let made = crate::typed::ELEMENTS_MADE.get();
    assert!(made < 100 * ITEMS, "{made} path elements were made of {ITEMS} items");
}

#[test]
fn conflicts_are_sorted_by_manager_and_path() {
    let mut live = live();
    let mut new = live.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    let status = crate::FieldManager { subresource: "status", ..writer("another", 1) };
    record_update(Some(&live), &mut new, &status, &Deployments::default()).expect("no conversion");
    live = new;
    let mut config = deployment(&json!({"replicas": 2, "minReadySeconds": 4}));
    config["metadata"]["labels"] = json!({"a": "c"});
    let error = apply(Some(&live), &config, false, &writer("a", 2), &Deployments::default()).expect_err("conflicts");
    let ApplyError::Conflicts(conflicts) = error else { panic!("{error}") };
    assert_eq!(
        conflicts.message(),
        "Apply failed with 3 conflicts: conflicts with \"another\" with subresource \"status\" using apps/v1:\n\
         - .metadata.labels.a\nconflicts with \"creator\" using apps/v1:\n- .spec.minReadySeconds\n- .spec.replicas"
    );
    let causes: Vec<(String, &str)> = conflicts.causes().collect();
    assert_eq!(causes[1], ("conflict with \"creator\" using apps/v1".to_owned(), ".spec.minReadySeconds"));
    assert_eq!(causes.len(), 3);
}

#[test]
fn force_takes_fields_and_same_value_is_shared() {
    let config = deployment(&json!({"replicas": 1, "minReadySeconds": 4}));
    let result = apply(Some(&live()), &config, true, &writer("a", 1), &Deployments::default());
    let result = result.expect("forced").expect("a change");
    let set = |fields: Value| json!({"f:spec": fields});
    assert_eq!(
        entries(&result),
        [
            ("a Apply apps/v1 - 01".to_owned(), set(json!({"f:minReadySeconds": {}, "f:replicas": {}}))),
            ("creator Update apps/v1 - 00".to_owned(), set(json!({"f:replicas": {}}))),
        ]
        .into()
    );
}

#[test]
fn first_apply_of_untracked_object_has_fields_before_first_apply() {
    let mut live = live();
    live["metadata"].as_object_mut().expect("metadata").remove("managedFields");
    let config = deployment(&json!({"replicas": 1}));
    let result = apply(Some(&live), &config, false, &writer("a", 1), &Deployments::default());
    let entries = entries(&result.expect("no conflict").expect("new entries"));
    assert_eq!(
        entries.into_keys().collect::<Vec<_>>(),
        ["a Apply apps/v1 - 01", "before-first-apply Update apps/v1 - 01"]
    );
}

#[test]
fn entry_of_apply_without_change_has_time() {
    let config = deployment(&json!({"replicas": 1}));
    let result = apply(Some(&live()), &config, false, &writer("a", 1), &Deployments::default());
    let result = result.expect("no conflict").expect("a new entry");
    assert!(entries(&result).contains_key("a Apply apps/v1 - 01"));
    let again = apply(Some(&result), &config, false, &writer("a", 2), &Deployments::default());
    assert_eq!(again, Ok(None));
}

#[test]
fn undecodable_stored_entries_are_an_error() {
    let mut live = live();
    live["metadata"]["managedFields"][0]["operation"] = "Other".into();
    let error = apply(Some(&live), &deployment(&json!({})), true, &writer("a", 1), &Deployments::default());
    assert_eq!(
        error.expect_err("undecodable").to_string(),
        "failed to decode managed fields: operation must be `Apply` or `Update`"
    );
}

#[test]
fn kubectl_takes_over_what_client_side_apply_set() {
    const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut live = deployment(&json!({"replicas": 1, "minReadySeconds": 3}));
    let last = Value::Object(deployment(&json!({"replicas": 1, "minReadySeconds": 3}))).to_string();
    live["metadata"]["annotations"] = json!({ANNOTATION: last});
    let client_side = writer("kubectl-client-side-apply", 0);
    record_update(None, &mut live, &client_side, &Deployments::default()).expect("no conversion");
    let config = deployment(&json!({"replicas": 2}));
    let other = apply(Some(&live), &config, false, &writer("other", 1), &Deployments::default());
    assert!(matches!(other, Err(ApplyError::Conflicts(_))), "{other:?}");
    let result = apply(Some(&live), &config, false, &writer("kubectl", 1), &Deployments::default());
    let result = result.expect("conflicts are allowed").expect("a change");
    assert_eq!(result["spec"], json!({"replicas": 2, "minReadySeconds": 3}));
    let text = "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"d\",\"namespace\":\"n\"},\"spec\":{\"replicas\":2}}\n";
    assert_eq!(result["metadata"]["annotations"][ANNOTATION], text);
    // A field that was changed since is a conflict.
    let mut changed = live.clone();
    changed["spec"]["replicas"] = 5.into();
    record_update(Some(&live), &mut changed, &writer("scaler", 1), &Deployments::default()).expect("no conversion");
    let error = apply(Some(&changed), &config, false, &writer("kubectl", 2), &Deployments::default());
    assert_eq!(
        error.expect_err("changed since").to_string(),
        "Apply failed with 1 conflict: conflict with \"scaler\" using apps/v1: .spec.replicas"
    );
}

#[test]
fn unknown_field_of_live_object_is_kept() {
    let mut live = live();
    live["spec"]["future"] = json!({"a": 1});
    let config = deployment(&json!({"paused": true}));
    let result = apply(Some(&live), &config, false, &writer("a", 1), &Deployments::default());
    let result = result.expect("no conflict").expect("a change");
    assert_eq!(result["spec"], json!({"replicas": 1, "minReadySeconds": 3, "paused": true, "future": {"a": 1}}));
    let config = deployment(&json!({"minReadySeconds": 3}));
    let result = apply(Some(&result), &config, false, &writer("a", 2), &Deployments::default());
    let spec = result.expect("no conflict").expect("a change")["spec"].clone();
    assert_eq!(spec, json!({"replicas": 1, "minReadySeconds": 3, "future": {"a": 1}}));
}

#[test]
fn container_that_became_atomic_is_owned_as_a_whole() {
    let mut live = deployment(&json!({"selector": {"matchLabels": {"a": "b"}}}));
    live["metadata"]["managedFields"] = json!([{
        "manager": "m", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:selector": {"f:matchLabels": {"f:a": {}}}}},
    }]);
    let config = deployment(&json!({"selector": {"matchLabels": {"a": "c"}}}));
    let error = apply(Some(&live), &config, false, &writer("a", 1), &Deployments::default()).expect_err("a conflict");
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"m\" using apps/v1: .spec.selector");
}
