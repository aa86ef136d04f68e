use std::borrow::Cow;

use expect_test::{Expect, expect};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::authentication::TokenAuthenticator;
use crate::rbac::{RbacKind, RbacPolicy};
use crate::tokens::{self, BoundObjects, TokenFile};
use crate::user::User;

fn test_index() -> RbacIndex {
    let mut policy = RbacPolicy::default();
    for (kind, namespace, name, object) in [
        (
            RbacKind::ClusterRole,
            "",
            "reader",
            json!({"rules": [
                {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]},
                {"verbs": ["get"], "nonResourceURLs": ["/healthz"]},
            ]}),
        ),
        (
            RbacKind::ClusterRoleBinding,
            "",
            "readers",
            json!({"subjects": [{"kind": "User", "name": "alice"}, {"kind": "Group", "name": "dev"}], "roleRef": {"kind": "ClusterRole", "name": "reader"}}),
        ),
        (
            RbacKind::ClusterRoleBinding,
            "",
            "readers-again",
            json!({"subjects": [{"kind": "Group", "name": "dev"}], "roleRef": {"kind": "ClusterRole", "name": "reader"}}),
        ),
        (
            RbacKind::Role,
            "dev",
            "writer",
            json!({"rules": [{"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments"]}]}),
        ),
        (
            RbacKind::RoleBinding,
            "dev",
            "writers",
            json!({"subjects": [{"kind": "User", "name": "alice"}], "roleRef": {"kind": "Role", "name": "writer"}}),
        ),
        (
            RbacKind::ClusterRoleBinding,
            "",
            "ghost",
            json!({"subjects": [{"kind": "User", "name": "gina"}], "roleRef": {"kind": "ClusterRole", "name": "gone"}}),
        ),
    ] {
        let _ = policy.put(kind, namespace, name, object.to_string().as_bytes()).unwrap();
    }
    policy.build_index()
}

fn describe_error(error: &ReviewError) -> String {
    match error {
        ReviewError::Invalid { errors, .. } => {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            format!("invalid: {}", errors.join(", "))
        }
        ReviewError::InvalidBody { .. } | ReviewError::BadRequest(_) => error.to_string(),
    }
}

#[track_caller]
fn check_with(modes: &str, review: impl Fn(AuthorizerSnapshot<'_>) -> Result<Vec<u8>, ReviewError>, expected: &Expect) {
    let (authorizer, index) = (Authorizer::parse(modes).unwrap(), test_index());
    let text = match review(AuthorizerSnapshot { authorizer: &authorizer, index: &index }) {
        Ok(json) => String::from_utf8(json).unwrap(),
        Err(error) => describe_error(&error),
    };
    expected.assert_eq(&text);
}

#[track_caller]
fn check_subject(review: &Value, expected: &Expect) {
    check_with("RBAC", |judge| subject_access_review(review.to_string().as_bytes(), judge), expected);
}

#[test]
fn access_review_reports_decision_and_reason() {
    check_subject(
        &json!({"kind": "SubjectAccessReview", "spec": {"user": "zoe", "groups": ["dev"], "extra": {"k": ["v"]}, "uid": "u", "unknown": 1, "resourceAttributes": {"namespace": "dev", "verb": "get", "resource": "pods", "name": "a"}}, "status": {"allowed": false}}),
        &expect![[
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"namespace":"dev","verb":"get","resource":"pods","name":"a"},"user":"zoe","groups":["dev"],"extra":{"k":["v"]},"uid":"u"},"status":{"allowed":true,"reason":"RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to Group \"dev\""}}"#
        ]],
    );
    check_subject(
        &json!({"spec": {"user": "alice", "nonResourceAttributes": {"path": "/healthz", "verb": "get"}}}),
        &expect![[
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"nonResourceAttributes":{"path":"/healthz","verb":"get"},"user":"alice"},"status":{"allowed":true,"reason":"RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to User \"alice\""}}"#
        ]],
    );
    check_subject(
        &json!({"spec": {"user": "gina", "resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        &expect![[
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"verb":"get","resource":"pods"},"user":"gina"},"status":{"allowed":false,"reason":"RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found"}}"#
        ]],
    );
    check_subject(
        &json!({"spec": {"groups": ["system:masters"], "resourceAttributes": {"verb": "delete", "resource": "nodes"}}}),
        &expect![[
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"verb":"delete","resource":"nodes"},"groups":["system:masters"]},"status":{"allowed":true}}"#
        ]],
    );
}

#[test]
fn access_review_requires_user_and_exactly_one_attributes() {
    check_subject(
        &json!({"spec": {"user": "alice"}}),
        &expect![
            "invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        ],
    );
    check_subject(
        &json!({"spec": {"user": "alice", "resourceAttributes": {}, "nonResourceAttributes": {"path": "/"}}}),
        &expect![[
            r#"invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/","Verb":""}: cannot be specified in combination with resourceAttributes"#
        ]],
    );
    check_subject(
        &json!({"spec": {"resourceAttributes": {}}, "metadata": {"name": "x", "managedFields": [1], "creationTimestamp": null, "labels": {}}}),
        &expect![[
            r#"invalid: spec.user: Invalid value: "": at least one of user or group must be specified, metadata: Invalid value: {"labels":{},"managedFields":[1],"name":"x"}: must be empty"#
        ]],
    );
    check_subject(
        &json!([]),
        &expect![
            "the SubjectAccessReview cannot be read: invalid type: sequence, expected an object at line 1 column 0"
        ],
    );
}

#[test]
fn access_review_validates_selectors_and_reports_ignored_ones() {
    let with = |field: &Value, label: &Value| json!({"spec": {"user": "zoe", "resourceAttributes": {"verb": "list", "resource": "pods", "fieldSelector": field, "labelSelector": label}}});
    check_subject(
        &with(&json!({"rawSelector": "a=b", "requirements": [{"key": "", "operator": "In"}]}), &json!({})),
        &expect![[
            r#"invalid: spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements, spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified, spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required"#
        ]],
    );
    check_subject(
        &with(
            &json!({"rawSelector": "a=b"}),
            &json!({"requirements": [{"key": "a b", "operator": "Exists", "values": ["x y"]}]}),
        ),
        &expect![[
            r#"invalid: spec.resourceAttributes.labelSelector.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist', spec.resourceAttributes.labelSelector.requirements[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), spec.resourceAttributes.labelSelector.requirements[0].values[0]: Invalid value: "x y": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#
        ]],
    );
    let evaluation_error = |field: &Value, label: &Value| {
        let (authorizer, index) = (Authorizer::parse("RBAC").unwrap(), test_index());
        let judge = AuthorizerSnapshot { authorizer: &authorizer, index: &index };
        let response = subject_access_review(with(field, label).to_string().as_bytes(), judge).unwrap();
        let response: Value = serde_json::from_slice(&response).unwrap();
        response["status"]["evaluationError"].as_str().unwrap_or_default().to_owned()
    };
    let requirement = |operator: &str, values: &Value| json!({"key": "k", "operator": operator, "values": values});
    expect!["spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error"]
        .assert_eq(&evaluation_error(&json!({"rawSelector": "&"}), &json!({"rawSelector": "a in"})));
    expect!["spec.resourceAttributes.fieldSelector partially ignored due to parse error; spec.resourceAttributes.labelSelector partially ignored due to parse error"].assert_eq(&evaluation_error(
        &json!({"requirements": [requirement("In", &json!(["a"])), requirement("In", &json!(["a", "b"]))]}),
        &json!({"requirements": [requirement("NotIn", &json!(["a"])), requirement("Like", &json!(["a"]))]}),
    ));
    assert_eq!(
        evaluation_error(
            &json!({"requirements": [requirement("NotIn", &json!(["a"]))]}),
            &json!({"requirements": [requirement("Exists", &json!([])), requirement("DoesNotExist", &json!(null)), requirement("In", &json!(["a"]))]})
        ),
        ""
    );
}

#[test]
fn local_access_review_rejects_other_namespaces() {
    let check = |review: &Value, expected: &Expect| {
        check_with("RBAC", |judge| local_subject_access_review(review.to_string().as_bytes(), "dev", judge), expected);
    };
    check(
        &json!({"metadata": {"namespace": "dev"}, "spec": {"user": "alice", "resourceAttributes": {"namespace": "dev", "verb": "patch", "group": "apps", "version": "v1", "resource": "deployments"}}}),
        &expect![[
            r#"{"kind":"LocalSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{"namespace":"dev"},"spec":{"resourceAttributes":{"namespace":"dev","verb":"patch","group":"apps","version":"v1","resource":"deployments"},"user":"alice"},"status":{"allowed":true,"reason":"RBAC: allowed by RoleBinding \"writers/dev\" of Role \"writer\" to User \"alice\""}}"#
        ]],
    );
    check(
        &json!({"metadata": {"namespace": "dev", "name": "x"}, "spec": {"user": "alice", "resourceAttributes": {"namespace": "ops"}}}),
        &expect![[
            r#"invalid: metadata: Invalid value: {"name":"x","namespace":"dev"}: must be empty except for namespace, spec.resourceAttributes.namespace: Invalid value: "ops": must match metadata.namespace"#
        ]],
    );
    check(
        &json!({"metadata": {"namespace": "dev"}, "spec": {"user": "alice", "nonResourceAttributes": {"path": "/", "verb": "get"}}}),
        &expect![[
            r#"invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/","Verb":"get"}: disallowed on this kind of request"#
        ]],
    );
    check(
        &json!({"metadata": {"namespace": "ops"}, "spec": {"user": "alice", "resourceAttributes": {"namespace": "ops"}}}),
        &expect!["spec.resourceAttributes.namespace must match namespace: dev"],
    );
}

#[test]
fn self_access_review_evaluates_the_caller() {
    let alice = User::named("alice");
    let check = |review: &Value, expected: &Expect| {
        check_with("RBAC", |judge| self_subject_access_review(review.to_string().as_bytes(), judge, &alice), expected);
    };
    check(
        &json!({"spec": {"user": "root", "resourceAttributes": {"namespace": "ops", "verb": "patch", "group": "apps", "resource": "deployments"}}}),
        &expect![[
            r#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"namespace":"ops","verb":"patch","group":"apps","resource":"deployments"}},"status":{"allowed":false}}"#
        ]],
    );
    check(
        &json!({"spec": {}, "metadata": {"name": "x"}}),
        &expect![[
            r#"invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, metadata: Invalid value: {"name":"x"}: must be empty"#
        ]],
    );
}

#[track_caller]
fn check_rules(modes: &str, user: &User, namespace: &str, expected: &Expect) {
    let body = json!({"spec": {"namespace": namespace}}).to_string();
    check_with(modes, |judge| self_subject_rules_review(body.as_bytes(), judge, user), expected);
}

#[test]
fn rules_review_lists_rules_of_the_caller_in_namespace() {
    let alice = User { groups: vec!["dev".to_owned()], ..User::named("alice") };
    check_rules(
        "RBAC",
        &alice,
        "dev",
        &expect![[
            r#"{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{},"status":{"resourceRules":[{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"],"resourceNames":["a"]},{"verbs":["*"],"apiGroups":["apps"],"resources":["deployments"]}],"nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/healthz"]}],"incomplete":false}}"#
        ]],
    );
    check_rules(
        "Node,RBAC",
        &User::named("gina"),
        "ops",
        &expect![[
            r#"{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{},"status":{"resourceRules":[],"nonResourceRules":[],"incomplete":false,"evaluationError":"clusterrole.rbac.authorization.k8s.io \"gone\" not found"}}"#
        ]],
    );
    check_rules(
        "AlwaysAllow",
        &alice,
        "dev",
        &expect![[
            r#"{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{},"status":{"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}],"incomplete":false}}"#
        ]],
    );
    let node = User { groups: vec!["system:nodes".to_owned()], ..User::named("system:node:n1") };
    check_rules(
        "Node,RBAC",
        &node,
        "dev",
        &expect![[
            r#"{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{},"status":{"resourceRules":[],"nonResourceRules":[],"incomplete":true,"evaluationError":"node authorizer does not support user rule resolution"}}"#
        ]],
    );
    check_rules("RBAC", &alice, "", &expect!["no namespace on request"]);
}

#[test]
fn self_subject_review_returns_caller_identity() {
    let mut user = User { uid: "u1".to_owned(), groups: vec!["dev".to_owned()], ..User::named("alice") };
    user.extra.insert("k".to_owned(), vec!["v".to_owned()]);
    let now = Timestamp::from_second(1_767_225_600).unwrap();
    let review = |user: &User| String::from_utf8(self_subject_review(user, now)).unwrap();
    expect![[r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"status":{"userInfo":{"username":"alice","uid":"u1","groups":["dev"],"extra":{"k":["v"]}}}}"#]].assert_eq(&review(&user));
    expect![[r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"status":{"userInfo":{"username":"bob"}}}"#]].assert_eq(&review(&User::named("bob")));
}

struct NoObjects;

impl BoundObjects for NoObjects {
    fn get_json(&self, _: tokens::BoundObjectKind, _: &str, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

#[test]
fn token_review_returns_token_user_and_audiences() {
    let file = TokenFile::parse("secret,alice,u1,dev").unwrap();
    let tokens = TokenAuthenticator { token_file: file, token_verifier: None, audiences: vec!["api".to_owned()] };
    let check = |body: &Value, expected: &Expect| {
        check_with(
            "RBAC",
            |_| token_review(body.to_string().as_bytes(), &tokens, &NoObjects, Timestamp::UNIX_EPOCH),
            expected,
        );
    };
    check(
        &json!({"spec": {"token": "secret"}}),
        &expect![[
            r#"{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"token":"secret"},"status":{"authenticated":true,"user":{"username":"alice","uid":"u1","groups":["dev","system:authenticated"]},"audiences":["api"]}}"#
        ]],
    );
    check(
        &json!({"spec": {"token": "secret", "audiences": ["vault"]}}),
        &expect![[
            r#"{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"token":"secret","audiences":["vault"]},"status":{"user":{},"error":"invalid bearer token"}}"#
        ]],
    );
    check(&json!({"spec": {}}), &expect!["token is required for TokenReview in authentication"]);
}
