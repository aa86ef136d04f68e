use access::User;
use api::json::JsonObject;
use expect_test::expect;
use object::delete::{DeleteOptions, DeleteOutcome, decide_deletion};
use serde_json::{Value, json};

use super::STRATEGY;
use crate::feature_gates::FeatureGates;
use crate::release::Release;

fn definition(metadata: &Value) -> JsonObject {
    let schema =
        json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "string", "format": "odd"}}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": "ex.io", "scope": "Cluster", "conversion": {"strategy": "None"},
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
        "status": {"storedVersions": ["v0"]},
    });
    definition.as_object().unwrap().clone()
}

fn delete(definition: &JsonObject) -> DeleteOutcome {
    let now = "2026-01-02T03:04:05Z".parse().unwrap();
    let outcome = decide_deletion(definition, &DeleteOptions::default(), &STRATEGY.rules, now).unwrap();
    (STRATEGY.adjust_deletion)(definition, outcome, now)
}

#[test]
fn first_deletion_marks_definition() {
    let DeleteOutcome::Mark(marked) = delete(&definition(&json!({"name": "widgets.ex.io"}))) else {
        panic!("not marked")
    };
    expect![[r#"{"deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":["customresourcecleanup.apiextensions.k8s.io"],"name":"widgets.ex.io"} {"conditions":[{"lastTransitionTime":"2026-01-02T03:04:05Z","message":"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon","reason":"InstanceDeletionPending","status":"True","type":"Terminating"}],"storedVersions":["v0"]}"#]]
    .assert_eq(&format!("{} {}", marked["metadata"], marked["status"]));
    // As in Kubernetes, a further deletion is that of any object with finalizers.
    let mut again = marked.clone();
    again["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    assert_eq!(delete(&marked), DeleteOutcome::Mark(again));
}

#[test]
fn deletion_without_finalizers_removes_terminating_definition() {
    let terminating = definition(&json!({"name": "widgets.ex.io", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
    assert!(matches!(delete(&terminating), DeleteOutcome::Remove(_)));
}

#[test]
fn create_replaces_status_and_update_appends_storage_version() {
    let mut created = definition(&json!({"name": "widgets.ex.io"}));
    (STRATEGY.prepare_for_create)(&User::default(), &mut created).unwrap();
    expect![[r#"{"acceptedNames":{"kind":"","plural":""},"conditions":null,"storedVersions":["v1"]}"#]]
        .assert_eq(&created["status"].to_string());
    let mut updated = definition(&json!({"name": "widgets.ex.io"}));
    (STRATEGY.prepare_for_update)(&created, &mut updated).unwrap();
    assert_eq!(updated["status"], json!({"storedVersions": ["v0", "v1"]}));
}

#[test]
fn new_definition_is_validated_and_warned_of() {
    let gates = FeatureGates::parse(Release::R36, "").unwrap();
    let wrong = definition(&json!({"name": "gadgets.ex.io"}));
    let errors: Vec<_> =
        crate::value_validation::validate_create(&STRATEGY, &gates, &wrong).iter().map(ToString::to_string).collect();
    expect![[r#"
        metadata.name: Invalid value: "gadgets.ex.io": must be spec.names.plural+"."+spec.group
        status.storedVersions: Invalid value: ["v0"]: must have the storage version v1
        status.storedVersions[0]: Invalid value: "v0": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions"#]]
    .assert_eq(&errors.join("\n"));
    assert_eq!((STRATEGY.warnings)(&gates, None, &wrong), ["unrecognized format \"odd\""]);
    assert!((STRATEGY.warnings)(&gates, Some(&wrong), &wrong).is_empty());
}
