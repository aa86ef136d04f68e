use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

#[track_caller]
fn check(kind: RbacKind, object: &Value, expected: &Expect) {
    let found = validate_object(kind, "x", object.to_string().as_bytes()).unwrap();
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn validate_accepts_valid_and_default_objects() {
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    check(RbacKind::Role, &json!({"rules": [rule]}), &expect![""]);
    check(RbacKind::Role, &json!({}), &expect![""]);
    let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]});
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]});
    check(
        RbacKind::ClusterRole,
        &json!({"rules": [rule, paths], "aggregationRule": {"clusterRoleSelectors": [selector]}}),
        &expect![""],
    );
    for bundled in crate::bootstrap::tests::all_default_objects() {
        let name = &bundled.metadata().name;
        assert_eq!(validate_object(bundled.kind(), name, &bundled.to_json()).unwrap(), [], "{name}");
    }
}

#[test]
fn validate_requires_verbs_and_either_resources_or_paths() {
    check(
        RbacKind::Role,
        &json!({"rules": [{}, {"verbs": ["get"], "nonResourceURLs": ["/a"]}]}),
        &expect![[r#"
            rules[0].verbs: Required value: verbs must contain at least one value
            rules[0].apiGroups: Required value: resource rules must supply at least one api group
            rules[0].resources: Required value: resource rules must supply at least one resource
            rules[1].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs"#]],
    );
    check(
        RbacKind::ClusterRole,
        &json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["pods"]}]}),
        &expect![[
            r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#
        ]],
    );
}

#[test]
fn validate_rejects_malformed_aggregation_selectors() {
    check(
        RbacKind::ClusterRole,
        &json!({"aggregationRule": {}}),
        &expect![
            "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
        ],
    );
    check(
        RbacKind::ClusterRole,
        &json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a/b/c": "x"}, "matchExpressions": [
            {"key": "k", "operator": "In"}, {"key": "k", "operator": "Exists", "values": ["v"]}, {"key": "k", "operator": "Like"}, {"key": "", "operator": "Exists"}]}]}}),
        &expect![[r#"
            aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value: "a/b/c": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')
            aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
            aggregationRule.clusterRoleSelectors[0].matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'
            aggregationRule.clusterRoleSelectors[0].matchExpressions[2].operator: Invalid value: "Like": not a valid selector operator
            aggregationRule.clusterRoleSelectors[0].matchExpressions[3].key: Invalid value: "": name part must be non-empty
            aggregationRule.clusterRoleSelectors[0].matchExpressions[3].key: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector."#]],
    );
}

#[test]
fn validate_rejects_bindings_with_invalid_role_or_subjects() {
    let role = |kind: &str, name: &str| json!({"apiGroup": RBAC_GROUP, "kind": kind, "name": name});
    check(
        RbacKind::RoleBinding,
        &json!({"roleRef": role("Role", "r"), "subjects": [{"kind": "ServiceAccount", "name": "s"}]}),
        &expect![""],
    );
    check(
        RbacKind::ClusterRoleBinding,
        &json!({"roleRef": role("Role", ".."), "subjects": [
            {"kind": "ServiceAccount", "name": "S", "apiGroup": "x"}, {"kind": "User", "name": "u"}, {"kind": "Robot"}]}),
        &expect![[r#"
            roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"
            roleRef.name: Invalid value: "..": may not be '..'
            subjects[0].name: Invalid value: "S": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            subjects[0].apiGroup: Unsupported value: "x": supported values: ""
            subjects[0].namespace: Required value
            subjects[1].apiGroup: Unsupported value: "": supported values: "rbac.authorization.k8s.io"
            subjects[2].name: Required value
            subjects[2].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group""#]],
    );
    check(
        RbacKind::RoleBinding,
        &json!({}),
        &expect![[r#"
            roleRef.apiGroup: Unsupported value: "": supported values: "rbac.authorization.k8s.io"
            roleRef.kind: Unsupported value: "": supported values: "Role", "ClusterRole"
            roleRef.name: Required value"#]],
    );
}

#[test]
fn set_defaults_fills_in_missing_api_groups() {
    let mut binding = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
        {"kind": "User", "name": "u"}, {"kind": "Group", "name": "g", "apiGroup": ""}, {"kind": "ServiceAccount", "name": "s"}, {"kind": "User", "name": "o", "apiGroup": "other"}, 7]});
    set_defaults(RbacKind::RoleBinding, binding.as_object_mut().unwrap());
    expect![[r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"u"},{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"g"},{"kind":"ServiceAccount","name":"s"},{"apiGroup":"other","kind":"User","name":"o"},7]}"#]]
        .assert_eq(&binding.to_string());
    let mut role = json!({"roleRef": {}});
    set_defaults(RbacKind::Role, role.as_object_mut().unwrap());
    assert_eq!(role, json!({"roleRef": {}}));
}

#[test]
fn validate_rejects_unreadable_objects() {
    assert!(validate_object(RbacKind::Role, "x", b"[]").is_err());
    assert!(validate_object(RbacKind::RoleBinding, "x", b"[]").is_err());
}
