//! Which webhooks a write matches.

use serde_json::{Value, json};

use super::webhooks::{configuration, server};
use super::{Case, Fixture};
use crate::{Operation, PluginSet};

/// Runs a case against one validating webhook and reports whether it was called, or the refusal.
fn called(hook: Value, case: &Case, objects: &[(&str, Value)]) -> String {
    let mut full = json!({"name": "w.x.y"});
    full.as_object_mut().unwrap().extend(hook.as_object().unwrap().clone());
    let mut fixture: Fixture = server(&[], &[configuration("c", &[full])]);
    for (resource, value) in objects {
        fixture.objects = fixture.objects.with(resource, value.clone());
    }
    fixture.verbs = &["get"];
    let response = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": "uid-1", "allowed": true}});
    let (result, _) = fixture.run(case, &|_, _| Ok(response.clone()));
    match (result, fixture.calls.borrow().first()) {
        (Err(status), _) => format!("{} {}", status.code, status.message),
        (Ok(_), None) => "not called".to_owned(),
        (Ok(_), Some((_, body))) => {
            let request = &body["request"];
            format!(
                "{}/{}",
                request["resource"]["version"].as_str().unwrap(),
                request["kind"]["version"].as_str().unwrap()
            )
        }
    }
}

fn widget() -> Case {
    let labels = json!({"a": "b"});
    let value = json!({"kind": "Widget", "metadata": {"name": "w", "namespace": "n", "labels": labels}});
    Case { object: Some(value), ..Case::new(Operation::Update, "x.y", "widgets", "Widget") }
}

#[test]
fn rules_match_as_in_kubernetes() {
    let rule = |operations: &[&str], group: &str, version: &str, resources: &[&str], scope: &str| {
        json!({"matchPolicy": "Exact", "rules": [{"operations": operations, "apiGroups": [group], "apiVersions": [version],
            "resources": resources, "scope": scope}]})
    };
    for (hook, subresource, expected) in [
        (rule(&["*"], "*", "*", &["*"], "*"), "", "v1/v1"),
        (rule(&["CREATE", "UPDATE"], "x.y", "v1", &["widgets"], "Namespaced"), "", "v1/v1"),
        (rule(&["CREATE"], "*", "*", &["*"], "*"), "", "not called"),
        (rule(&["UPDATE"], "other", "*", &["*"], "*"), "", "not called"),
        (rule(&["UPDATE"], "*", "v2", &["*"], "*"), "", "not called"),
        (rule(&["UPDATE"], "*", "*", &["gadgets"], "*"), "", "not called"),
        (rule(&["UPDATE"], "*", "*", &["*"], "Cluster"), "", "not called"),
        (rule(&["UPDATE"], "*", "*", &["widgets"], "*"), "status", "not called"),
        (rule(&["UPDATE"], "*", "*", &["*"], "*"), "status", "not called"),
        (rule(&["UPDATE"], "*", "*", &["widgets/status"], "*"), "status", "v1/v1"),
        (rule(&["UPDATE"], "*", "*", &["*/status"], "*"), "status", "v1/v1"),
        (rule(&["UPDATE"], "*", "*", &["*/*"], "*"), "status", "v1/v1"),
        (rule(&["UPDATE"], "*", "*", &["widgets/*"], "*"), "", "v1/v1"),
    ] {
        assert_eq!(called(hook.clone(), &Case { subresource, ..widget() }, &[]), expected, "{hook} {subresource}");
    }
}

#[test]
fn equivalent_rule_converts_to_its_version() {
    let rules = json!([{"operations": ["*"], "apiGroups": ["x.y"], "apiVersions": ["v2"], "resources": ["widgets"]}]);
    assert_eq!(called(json!({"rules": rules}), &widget(), &[]), "v2/v2");
    assert_eq!(called(json!({"rules": rules, "matchPolicy": "Exact"}), &widget(), &[]), "not called");
}

#[test]
fn selectors_choose_by_labels_of_namespace_and_object() {
    let namespace = ("namespaces", json!({"metadata": {"name": "n", "labels": {"env": "prod"}}}));
    let objects = std::slice::from_ref(&namespace);
    let by_namespace = |value: &str| json!({"namespaceSelector": {"matchLabels": {"env": value}}});
    assert_eq!(called(by_namespace("prod"), &widget(), objects), "v1/v1");
    assert_eq!(called(by_namespace("dev"), &widget(), objects), "not called");
    assert_eq!(called(by_namespace("dev"), &widget(), &[]), "404 namespaces \"n\" not found");
    // A webhook without a matching rule is not called, whatever its selector.
    let no_rule = json!({"rules": [], "namespaceSelector": {"matchLabels": {"env": "dev"}}});
    assert_eq!(called(no_rule, &widget(), &[]), "not called");
    let created = json!({"metadata": {"name": "m", "labels": {"env": "prod"}}});
    let case = Case { object: Some(created), ..Case::new(Operation::Create, "", "namespaces", "Namespace") };
    assert_eq!(called(by_namespace("prod"), &case, &[]), "v1/v1");
    assert_eq!(called(by_namespace("dev"), &case, &[]), "not called");
    let by_object = |value: &str| json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": [value]}]}});
    assert_eq!(called(by_object("b"), &widget(), &[]), "v1/v1");
    assert_eq!(called(by_object("c"), &widget(), &[]), "not called");
    let old = json!({"metadata": {"name": "w", "namespace": "n", "labels": {"a": "c"}}});
    assert_eq!(called(by_object("c"), &Case { old_object: Some(old), ..widget() }, &[]), "v1/v1");
    let exec = Case { object: Some(json!({"kind": "PodExecOptions"})), operation: Operation::Connect, ..widget() };
    assert_eq!(called(by_object("b"), &exec, &[]), "not called");
}

#[test]
fn webhooks_that_cannot_match_are_no_candidates() {
    let rules = |operation: &str, resource: &str| json!([{"operations": [operation], "apiGroups": ["x.y"], "apiVersions": ["v2"], "resources": [resource]}]);
    let hook = |name: &str, part: Value| {
        let mut full = json!({"name": name, "rules": rules("UPDATE", "widgets")});
        full.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        full
    };
    let by_label = |of: &str, key: &str, operator: &str, values: &[&str]| {
        let selector = json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        json!({of: selector})
    };
    let hooks = [
        hook("equivalent", json!({})),
        hook("other operation", json!({"rules": rules("CREATE", "widgets")})),
        hook("other resource", json!({"rules": rules("*", "gadgets")})),
        hook("other subresource", json!({"rules": rules("*", "widgets/scale")})),
        hook("several rules", json!({"rules": [rules("*", "*/*")[0].clone(), rules("UPDATE", "*")[0].clone()]})),
        hook("label", by_label("objectSelector", "a", "In", &["b", "c"])),
        hook("label present", by_label("objectSelector", "a", "Exists", &[])),
        hook("label absent", by_label("objectSelector", "a", "DoesNotExist", &[])),
        hook("other value", by_label("objectSelector", "a", "In", &["c"])),
        hook("other label", by_label("objectSelector", "b", "Exists", &[])),
        hook("old label", by_label("objectSelector", "old", "Exists", &[])),
        hook("label of namespace", by_label("namespaceSelector", "env", "In", &["prod"])),
        hook("other value of namespace", by_label("namespaceSelector", "env", "In", &["dev"])),
    ];
    let mut fixture = server(&[], &[configuration("c", &hooks)]);
    let old = json!({"metadata": {"name": "w", "namespace": "n", "labels": {"old": ""}}});
    let case = Case { old_object: Some(old), ..widget() };
    let found =
        ["equivalent", "several rules", "label", "label present", "label absent", "old label", "label of namespace"];
    // What the namespace is not known to match stays a candidate, so that its error is found.
    assert_eq!(fixture.candidates(&case), [&found[..], &["other value of namespace"]].concat());
    let namespace = json!({"metadata": {"name": "n", "labels": {"env": "prod"}}});
    fixture.objects = fixture.objects.with("namespaces", namespace);
    assert_eq!(fixture.candidates(&case), found);
}

#[test]
fn conditions_decide_and_fail_by_policy() {
    let hook = |policy: &str, expressions: &[&str]| {
        let conditions: Vec<Value> =
            expressions.iter().map(|expression| json!({"name": "c", "expression": expression})).collect();
        json!({"failurePolicy": policy, "matchConditions": conditions})
    };
    for (expressions, expected) in [
        (&["object.metadata.name == 'w'", "request.operation == 'UPDATE'"][..], "v1/v1"),
        (&["request.userInfo.username == 'alice' && !has(request.subResource)"], "v1/v1"),
        (&["oldObject == null"], "v1/v1"),
        (&["object.metadata.name == 'x'"], "not called"),
        (&["object.missing == 1", "false"], "not called"),
        (&["authorizer.group('').resource('pods').check('get').allowed()"], "v1/v1"),
        (&["authorizer.requestResource.check('list').allowed()"], "not called"),
        (
            &["object.missing == 1"],
            "403 widgets.x.y \"w\" is forbidden: expression 'object.missing == 1' resulted in error: no such key: missing",
        ),
    ] {
        assert_eq!(called(hook("Fail", expressions), &widget(), &[]), expected, "{expressions:?}");
    }
    assert_eq!(called(hook("Ignore", &["object.missing == 1"]), &widget(), &[]), "not called");
    assert!(
        called(hook("Fail", &["object.metadata.name"]), &widget(), &[]).contains("must evaluate to bool but got dyn")
    );
}

#[test]
fn configurations_themselves_are_exempt() {
    let kind = "ValidatingWebhookConfiguration";
    let case = Case {
        object: Some(json!({"metadata": {"name": "c"}})),
        ..Case::new(Operation::Create, "admissionregistration.k8s.io", "validatingwebhookconfigurations", kind)
    };
    assert_eq!(called(json!({}), &case, &[]), "not called");
    let set = PluginSet::from_flags(kinds::Release::R36, &[], &[], |_| true).unwrap();
    assert!(set.contains("ValidatingAdmissionWebhook"));
}
