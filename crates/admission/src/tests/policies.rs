//! Policies on widgets: verdicts, messages, warnings, annotations and mutated objects.

use serde_json::{Value, json};

use super::{Case, Fixture, object};
use crate::{Notes, Operation, PolicySet};

fn policy(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    spec["matchConstraints"] = json!({"resourceRules": [rule]});
    json!({"metadata": {"name": name}, "spec": spec})
}

fn binding(policy: &str, actions: &[&str]) -> Value {
    json!({"metadata": {"name": "b"}, "spec": {"policyName": policy, "validationActions": actions}})
}

pub(crate) fn policies(validating: [Vec<Value>; 2], mutating: [Vec<Value>; 2]) -> PolicySet {
    let states = |values: Vec<Value>| {
        let state = |(index, value)| ((vec![], index), move || Some(object(value)));
        (0..).zip(values).map(state).collect::<Vec<_>>()
    };
    PolicySet::default().update(validating.map(states), mutating.map(states), k8s_cel::Release(36))
}

/// Creates a config map under one policy, which validates or mutates.
fn run(spec: &Value, actions: &[&str], is_mutating: bool) -> (Result<Value, (u16, String)>, Notes) {
    let lists = [vec![policy("p", spec)], vec![binding("p", actions)]];
    let none = || [Vec::new(), Vec::new()];
    let policies = if is_mutating { policies(none(), lists) } else { policies(lists, none()) };
    let fixture =
        Fixture { policies, ..Fixture::with_plugins(&["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"]) };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}});
    let case = Case { object: Some(map), ..Case::new(Operation::Create, "", "configmaps", "ConfigMap") };
    let (result, notes) = fixture.run(&case, &|_, _| unreachable!());
    (result.map(|object| object.unwrap_or_default()).map_err(|status| (status.code, status.message)), notes)
}

#[track_caller]
fn denied(spec: &Value, code: u16, message: &str) {
    let (result, _) = run(spec, &["Deny"], false);
    let start = "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    assert_eq!(result, Err((code, format!("{start}{message}"))));
}

#[test]
fn failed_validation_denies_with_its_message_and_reason() {
    let expression = "object.data.a == '2'";
    denied(&json!({"validations": [{"expression": expression}]}), 422, "failed expression: object.data.a == '2'");
    denied(
        &json!({"validations": [{"expression": expression, "message": "not 2", "reason": "Forbidden"}]}),
        403,
        "not 2",
    );
    let spec = json!({
        "variables": [{"name": "a", "expression": "object.data.a"}, {"name": "b", "expression": "variables.a + '!'"}],
        "validations": [{"expression": "variables.b == '2!'", "messageExpression": "'got ' + variables.b"}],
    });
    denied(&spec, 422, "got 1!");
    let spec = json!({"validations": [{"expression": "object.data.x == '2'"}]});
    denied(&spec, 422, "expression 'object.data.x == '2'' resulted in error: no such key: x");
}

#[test]
fn failure_policy_and_conditions_decide_whether_a_policy_counts() {
    let spec = json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.x == '2'"}]});
    assert!(run(&spec, &["Deny"], false).0.is_ok());
    let conditions = json!([{"name": "n", "expression": "request.operation == 'UPDATE'"}]);
    let spec = json!({"matchConditions": conditions, "validations": [{"expression": "false"}]});
    assert!(run(&spec, &["Deny"], false).0.is_ok());
}

#[test]
fn warnings_and_annotations_are_recorded() {
    let spec = json!({
        "validations": [{"expression": "false", "message": "no"}],
        "auditAnnotations": [{"key": "k", "valueExpression": "'v' + object.data.a"}],
    });
    let (result, notes) = run(&spec, &["Warn", "Audit"], false);
    assert!(result.is_ok());
    assert_eq!(notes.warnings(), ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"]);
    assert_eq!(notes.annotations()["p/k"], "v1");
    assert_eq!(
        notes.annotations()["validation.policy.admission.k8s.io/validation_failure"],
        r#"[{"message":"no","policy":"p","binding":"b","expressionIndex":0,"validationActions":["Warn","Audit"]}]"#
    );
}

#[test]
fn json_patch_mutates_and_a_failed_test_does_not() {
    let mutation = |expression: &str| {
        json!({"reinvocationPolicy": "Never", "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]})
    };
    let spec = mutation("[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('x/y'), value: object.data.a}]");
    assert_eq!(run(&spec, &[], true).0.map(|it| it["data"].clone()), Ok(json!({"a": "1", "x/y": "1"})));
    let spec = mutation("[JSONPatch{op: 'test', path: '/data/a', value: '2'}, JSONPatch{op: 'remove', path: '/data'}]");
    assert_eq!(run(&spec, &[], true).0.map(|it| it["data"].clone()), Ok(json!({"a": "1"})));
    let spec = mutation("[JSONPatch{op: 'add', path: '/data/b', value: object.data.x}]");
    let (code, message) = run(&spec, &[], true).0.unwrap_err();
    assert_eq!(code, 403);
    assert!(message.starts_with("policy 'p' with binding 'b' denied request: expression '"), "{message}");
}
