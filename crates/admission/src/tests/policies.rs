//! Policies on config maps and widgets: verdicts, messages, warnings, annotations and mutated objects. How each case compares
//! with Kubernetes is tested with whole servers.

use serde_json::{Value, json};

use super::{Case, Fixture, Objects, object};
use crate::policy::{CheckedTypes, type_check, type_in_document};
use crate::{CheckOutcome, Notes, Operation, PolicySet};

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

/// A write of a widget by the policies of a fixture.
fn widget(version: &'static str, size: i64) -> Case {
    let widget = json!({"apiVersion": format!("e.com/{version}"), "kind": "Widget",
        "metadata": {"name": "w", "namespace": "n"}, "spec": {"size": size}});
    let case = Case::new(Operation::Create, "e.com", "widgets", "Widget");
    let resource = api::GroupVersionResource { version, ..case.resource };
    Case { object: Some(widget), resource, ..case }
}

fn fixture(policies: PolicySet) -> Fixture {
    let objects = Objects::default().with("namespaces", json!({"metadata": {"name": "n", "labels": {"l": "x"}}}));
    let plugins = &["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"];
    Fixture { policies, objects, ..Fixture::with_plugins(plugins) }
}

fn patch_size(expression: &str, reinvocation: &str) -> Value {
    let patch = format!("[JSONPatch{{op: 'replace', path: '/spec/size', value: {expression}}}]");
    json!({"reinvocationPolicy": reinvocation, "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]})
}

#[test]
fn mutating_policies_of_other_versions_keep_what_earlier_ones_changed() {
    let rule = |version: &str| {
        json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["e.com"], "apiVersions": [version],
            "resources": ["widgets"]}]})
    };
    let mutating = |name: &str, version: &str, value: &str| {
        let mut policy = policy(name, &patch_size(value, "Never"));
        policy["spec"]["matchConstraints"] = rule(version);
        policy
    };
    let lists = [
        vec![mutating("a", "v1", "object.spec.size + 1"), mutating("b", "v2", "object.spec.size * 10")],
        vec![binding("a", &[]), binding("b", &[])],
    ];
    let fixture = fixture(policies([Vec::new(), Vec::new()], lists));
    let admitted = fixture.admit(&widget("v1", 1)).unwrap();
    assert_eq!((&admitted["spec"]["size"], &admitted["apiVersion"]), (&json!(20), &json!("e.com/v1")));
}

#[test]
fn reinvocable_policies_run_twice_after_any_applied_mutation() {
    for (policy_spec, expected) in [
        (patch_size("object.spec.size + 1", "Never"), 2),
        (patch_size("object.spec.size + 1", "IfNeeded"), 3),
        (patch_size("object.spec.size", "IfNeeded"), 1),
    ] {
        let lists = [vec![policy("p", &policy_spec)], vec![binding("p", &[])]];
        let admitted = fixture(policies([Vec::new(), Vec::new()], lists)).admit(&widget("v1", 1)).unwrap();
        assert_eq!(admitted["spec"]["size"], expected, "{policy_spec}");
    }
}

#[test]
fn mutations_precede_validations_and_are_seen_by_them() {
    let lists = [vec![policy("m", &patch_size("9", "Never"))], vec![binding("m", &[])]];
    let spec = json!({"validations": [{"expression": "object.spec.size < 5", "messageExpression":
        "namespaceObject.metadata.labels.l + string(object.spec.size)"}]});
    let validating = [vec![policy("v", &spec)], vec![binding("v", &["Deny"])]];
    let refused = fixture(policies(validating, lists)).admit(&widget("v1", 1)).unwrap_err();
    assert!(refused.ends_with("denied request: x9"), "{refused}");
}

#[test]
fn policy_kinds_and_reviews_are_excluded_and_unbound_policies_have_no_effect() {
    let deny = || policy("p", &json!({"validations": [{"expression": "false"}]}));
    let none = || [Vec::new(), Vec::new()];
    let bound = fixture(policies([vec![deny()], vec![binding("p", &["Deny"])]], none()));
    let of = |group: &'static str, resource: &'static str| Case {
        object: Some(json!({"metadata": {"name": "x"}})),
        ..Case::new(Operation::Create, group, resource, "X")
    };
    for (group, resource) in [
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("authentication.k8s.io", "tokenreviews"),
    ] {
        assert!(bound.admit(&of(group, resource)).is_ok(), "{resource}");
    }
    let webhooks = of("admissionregistration.k8s.io", "validatingwebhookconfigurations");
    assert!(bound.admit(&webhooks).is_err(), "webhook configurations pass policies");
    let unbound = fixture(policies([vec![deny()], vec![binding("other", &["Deny"])]], none()));
    assert!(unbound.admit(&of("", "configmaps")).is_ok());
}

#[test]
fn unchanged_policies_are_not_compiled_again() {
    let policy = policy("p", &json!({"validations": [{"expression": "false"}]}));
    let read = std::cell::Cell::new(0);
    let state = |revision: u64| {
        let (policy, read) = (policy.clone(), &read);
        let read_policy = move || {
            read.set(read.get() + 1);
            Some(object(policy))
        };
        [vec![((b"p".to_vec(), revision), Box::new(read_policy) as Box<dyn FnOnce() -> Option<_>>)], Vec::new()]
    };
    let none = || [Vec::new(), Vec::new()];
    let release = k8s_cel::Release(36);
    let set = PolicySet::default().update(state(1), none(), release);
    let set = set.update(state(1), none(), release);
    assert_eq!(read.get(), 1);
    let _ = set.update(state(2), none(), release);
    assert_eq!(read.get(), 2);
}

#[test]
fn checks_for_metrics_have_outcome_and_type_of_error() {
    let seen = |spec: &Value, actions: &[&str], is_mutating: bool| {
        let (_, notes) = run(spec, actions, is_mutating);
        notes.checks().iter().map(|check| (check.outcome, check.error_type)).collect::<Vec<_>>()
    };
    let failed = json!({"validations": [{"expression": "false"}, {"expression": "true"}]});
    assert_eq!(seen(&failed, &["Deny"], false), [(CheckOutcome::Denied, "invalid_error")]);
    let both = [(CheckOutcome::Warned, "invalid_error"), (CheckOutcome::Audited, "invalid_error")];
    assert_eq!(seen(&failed, &["Warn", "Audit"], false), both);
    let ignored = json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.x == ''"}]});
    assert_eq!(seen(&ignored, &["Deny"], false), [(CheckOutcome::Allowed, "invalid_error")]);
    let stored_wrong = json!({"validations": [{"expression": "1 + 'a' == 2"}]});
    assert_eq!(seen(&stored_wrong, &["Deny"], false), [(CheckOutcome::Denied, "compile_error")]);
    let mutation = json!({"reinvocationPolicy": "Never", "mutations": [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/data/b', value: ''}]"}}]});
    assert_eq!(seen(&mutation, &[], true), [(CheckOutcome::Mutated, "no_error")]);
}

#[test]
fn type_check_reports_mistakes_per_kind() {
    struct Types;
    impl CheckedTypes for Types {
        fn kind_of(&self, resource: api::GroupVersionResource<&str>) -> Option<api::GroupVersionKind> {
            let kind = match resource.resource {
                "as" => "A",
                "bs" => "B",
                _ => return None,
            };
            Some(resource.group_version().with_kind(kind).owned())
        }

        fn type_of(&self, kind: api::GroupVersionKind<&str>) -> Option<k8s_cel::DeclType> {
            let number = json!({"type": if kind.kind == "A" { "integer" } else { "string" }});
            let document = json!({"components": {"schemas": {
                "x": {"type": "object", "properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/spec"}]}},
                    "x-kubernetes-group-version-kind": [{"group": kind.group, "version": kind.version, "kind": kind.kind}]},
                "spec": {"type": "object", "properties": {"n": number, "self": {"$ref": "#/components/schemas/spec"},
                    "port": {"format": "int-or-string"}, "labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
            }}});
            type_in_document(&document, kind)
        }
    }
    let rule = json!({"apiGroups": ["e.com"], "apiVersions": ["v1"], "resources": ["bs", "as", "cs", "as/status"]});
    let policy = json!({"spec": {
        "matchConstraints": {"resourceRules": [rule, {"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["as"]}]},
        "variables": [{"name": "n", "expression": "object.spec.n"}],
        "validations": [
            {"expression": "variables.n > 3"},
            {"expression": "object.spec.port == 1 && object.spec.labels['a'] == 'b' && object.metadata.name != ''"},
            {"expression": "object.spec.self.n == object.spec.n", "messageExpression": "object.kind"},
        ],
    }});
    let warnings = type_check(&object(policy), &Types, k8s_cel::Release(36));
    let shown: Vec<(&str, &str)> = warnings
        .iter()
        .map(|warning| (warning.field.as_str(), warning.warning.lines().next().unwrap_or_default()))
        .collect();
    assert_eq!(
        shown,
        [
            (
                "spec.validations[0].expression",
                "e.com/v1, Kind=B: ERROR: <input>:1:13: found no matching overload for '_>_' applied to '(string, int)'"
            ),
            ("spec.validations[2].expression", "e.com/v1, Kind=A: ERROR: <input>:1:17: undefined field 'n'"),
        ]
    );
    assert_eq!(warnings[1].warning.matches("Kind=").count(), 2, "{}", warnings[1].warning);
}
