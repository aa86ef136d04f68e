use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn object(metadata: &Value) -> Map<String, Value> {
    json!({ "metadata": metadata }).as_object().expect("test value is an object").clone()
}

fn show(errors: &[FieldError]) -> String {
    let lines: Vec<String> = errors.iter().map(FieldError::to_string).collect();
    lines.join("\n")
}

#[track_caller]
fn check(rules: KindRules, metadata: &Value, expected: &Expect) {
    expected.assert_eq(&show(&super::validate_metadata(&object(metadata), &rules)));
}

/// Adds a valid name and namespace.
#[track_caller]
fn check_field(field: &str, value: &Value, expected: &Expect) {
    check(KindRules::NAMESPACED, &json!({"name": "a", "namespace": "n", field: value}), expected);
}

#[track_caller]
fn check_update(old: &Value, new: &Value, expected: &Expect) {
    expected.assert_eq(&show(&validate_metadata_update(&object(old), &object(new), &KindRules::CLUSTER)));
}

#[test]
fn validate_metadata_applies_name_rule_of_kind() {
    let named = |name: &str| json!({"name": name, "namespace": "n"});
    let with = |names: NameRule| KindRules { name_rule: names, ..KindRules::NAMESPACED };
    for (rule, valid) in [
        (NameRule::Subdomain, "a.b-c.0"),
        (NameRule::Label, "0-a"),
        (NameRule::Label1035, "a-0"),
        (NameRule::PathSegment, "system:node: x"),
    ] {
        check(with(rule), &named(valid), &expect![""]);
    }
    check(
        with(NameRule::Subdomain),
        &named("A_b"),
        &expect![[
            r#"metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#
        ]],
    );
    check(
        with(NameRule::Label),
        &named("a.b"),
        &expect![[r#"metadata.name: Invalid value: "a.b": must not contain dots"#]],
    );
    check(
        with(NameRule::Label1035),
        &named("0a"),
        &expect![[
            r#"metadata.name: Invalid value: "0a": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#
        ]],
    );
    check(
        with(NameRule::PathSegment),
        &named("a/b%"),
        &expect![[r#"
        metadata.name: Invalid value: "a/b%": may not contain '/'
        metadata.name: Invalid value: "a/b%": may not contain '%'"#]],
    );
    check(
        with(NameRule::Subdomain),
        &json!({"namespace": "n"}),
        &expect!["metadata.name: Required value: name or generateName is required"],
    );
}

#[test]
fn validate_metadata_checks_generate_name() {
    let based = |base: &str| json!({"name": "a", "namespace": "n", "generateName": base});
    for base in ["web-", "web", "a-", "a"] {
        check(KindRules::NAMESPACED, &based(base), &expect![""]);
    }
    check(
        KindRules::NAMESPACED,
        &based("-"),
        &expect![[
            r#"metadata.generateName: Invalid value: "-": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#
        ]],
    );
    check(
        KindRules::NAMESPACED,
        &based("Web-"),
        &expect![[
            r#"metadata.generateName: Invalid value: "Web-": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#
        ]],
    );
    check(
        KindRules { name_rule: NameRule::PathSegment, ..KindRules::NAMESPACED },
        &based("a/"),
        &expect![[r#"metadata.generateName: Invalid value: "a/": may not contain '/'"#]],
    );
}

#[test]
fn validate_metadata_checks_namespace_by_scope() {
    check(KindRules::NAMESPACED, &json!({"name": "a"}), &expect!["metadata.namespace: Required value"]);
    check(
        KindRules::NAMESPACED,
        &json!({"name": "a", "namespace": "N"}),
        &expect![[
            r#"metadata.namespace: Invalid value: "N": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#
        ]],
    );
    check(KindRules::CLUSTER, &json!({"name": "a"}), &expect![""]);
    check(
        KindRules::CLUSTER,
        &json!({"name": "a", "namespace": "n"}),
        &expect!["metadata.namespace: Forbidden: not allowed on this type"],
    );
}

#[test]
fn validate_metadata_checks_labels_and_annotations() {
    check_field("labels", &json!({"app": "web", "example.com/a_b": "", "x": "A.b-1"}), &expect![""]);
    check_field(
        "labels",
        &json!({"-": "b c", "/x": "v"}),
        &expect![[r#"
        metadata.labels: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
        metadata.labels: Invalid value: "/x": prefix part must be non-empty"#]],
    );
    check_field("annotations", &json!({"Example.COM/Note": "any < text"}), &expect![""]);
    check_field(
        "annotations",
        &json!({"a b": "x"}),
        &expect![[
            r#"metadata.annotations: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#
        ]],
    );
    check_field("annotations", &json!({"a": "x".repeat(ANNOTATIONS_LENGTH_MAX - 1)}), &expect![""]);
    check_field(
        "annotations",
        &json!({"a": "x".repeat(ANNOTATIONS_LENGTH_MAX)}),
        &expect!["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
}

#[test]
fn validate_metadata_checks_owner_references() {
    let owner = |name: &str, controller: bool| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": controller});
    check_field("ownerReferences", &json!([owner("a", true), owner("b", false)]), &expect![""]);
    check_field(
        "ownerReferences",
        &json!([owner("a", true), owner("b", true)]),
        &expect![[
            r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"a","uid":"u","controller":true},{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"b","uid":"u","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for ReplicaSet/a and ReplicaSet/b"#
        ]],
    );
    check_field(
        "ownerReferences",
        &json!([{}]),
        &expect![[r#"
        metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty
        metadata.ownerReferences.kind: Invalid value: "": must not be empty
        metadata.ownerReferences.name: Invalid value: "": must not be empty
        metadata.ownerReferences.uid: Invalid value: "": must not be empty"#]],
    );
    check_field(
        "ownerReferences",
        &json!([{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]),
        &expect![[
            r#"metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}: /v1, Kind=Event is disallowed from being an owner"#
        ]],
    );
}

#[test]
fn validate_metadata_checks_finalizers() {
    check_field("finalizers", &json!(["example.com/x", "orphan"]), &expect![""]);
    check_field(
        "finalizers",
        &json!(["", "orphan", "foregroundDeletion"]),
        &expect![[r#"
        metadata.finalizers: Invalid value: "": name part must be non-empty
        metadata.finalizers: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        metadata.finalizers: Invalid value: ["","orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#]],
    );
}

#[test]
fn validate_metadata_checks_managed_fields() {
    check_field(
        "managedFields",
        &json!([{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1"}]),
        &expect![""],
    );
    check_field(
        "managedFields",
        &json!([{"manager": "a\nb", "operation": "", "fieldsType": "V2", "subresource": "s".repeat(257)},
                {"manager": "m".repeat(129), "operation": "Update"}]),
        &expect![[r#"
            metadata.managedFields[0].operation: Invalid value: "": must be `Apply` or `Update`
            metadata.managedFields[0].fieldsType: Invalid value: "V2": must be `FieldsV1`
            metadata.managedFields[0].manager: Invalid value: "a\nb": invalid character U+000A (at position 1)
            metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes
            metadata.managedFields[1].manager: Too long: may not be more than 128 bytes"#]],
    );
    check_field(
        "generation",
        &json!(-1),
        &expect!["metadata.generation: Invalid value: -1: must be greater than or equal to 0"],
    );
}

#[test]
fn validate_update_rejects_changed_server_fields() {
    let old = json!({"name": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
    check_update(&old, &old, &expect![""]);
    check_update(
        &old,
        &json!({"name": "b", "uid": "v", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3}),
        &expect![[r#"
            metadata.name: Invalid value: "b": field is immutable
            metadata.uid: Invalid value: "v": field is immutable
            metadata.creationTimestamp: Invalid value: null: field is immutable
            metadata.deletionTimestamp: Invalid value: "2026-01-01T00:00:00Z": field is immutable
            metadata.deletionGracePeriodSeconds: Invalid value: 3: field is immutable
            metadata.name: Invalid value: "b": field is immutable
            metadata.uid: Invalid value: "v": field is immutable
            metadata.creationTimestamp: Invalid value: null: field is immutable
            metadata.deletionTimestamp: Invalid value: "2026-01-01T00:00:00Z": field is immutable
            metadata.deletionGracePeriodSeconds: Invalid value: 3: field is immutable"#]],
    );
}

#[test]
fn validate_update_rejects_new_finalizers_while_deleting() {
    let with = |finalizers: &[&str], deleting: bool| {
        let mut metadata = json!({"name": "a", "finalizers": finalizers});
        if deleting {
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        metadata
    };
    check_update(&with(&["a"], false), &with(&["a", "b"], false), &expect![""]);
    check_update(&with(&["a", "b"], true), &with(&["b"], true), &expect![""]);
    check_update(
        &with(&["a"], true),
        &with(&["c", "a", "b"], true),
        &expect![[r#"
            metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"b", "c"}
            metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"b", "c"}"#]],
    );
}

#[test]
fn validate_metadata_limits_reported_errors() {
    let labels: Map<String, Value> = (0..10_000).map(|at| (format!("-{at}"), Value::from("-"))).collect();
    let metadata = json!({"name": "a", "labels": labels});
    assert_eq!(super::validate_metadata(&object(&metadata), &KindRules::CLUSTER).len(), REPORTED_ERRORS_MAX);
}
