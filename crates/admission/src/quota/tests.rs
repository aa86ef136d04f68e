//! Decisions of quotas, in tables.

use api::json::JsonObject;
use kinds::{FeatureGates, Release};
use serde_json::{Value, json};

use super::*;
use crate::refusal::Refusal;

fn object(value: Value) -> JsonObject {
    let Value::Object(object) = value else { panic!("{value} is no object") };
    object
}

fn quota(hard: &Value, used: &Value) -> JsonObject {
    object(json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}))
}

fn pod(requests: &Value) -> JsonObject {
    object(
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}),
    )
}

fn gates() -> FeatureGates {
    FeatureGates::new(Release::R36)
}

/// The refusal, or what is used after the write; empty if the quota does not change.
fn decide(resource: (&str, &str), new: &JsonObject, old: Option<&JsonObject>, state: QuotaState) -> String {
    let gates = gates();
    let evaluator = Evaluator::of(resource.0, resource.1, &gates).unwrap();
    let write = QuotaWrite { evaluator: &evaluator, resource, subresource: "", new, old };
    match check(write, &[state], &[], &gates) {
        Ok(charged) => charged[0].as_ref().map_or(String::new(), |quota| {
            ResourceList::read(object::unstructured::nested_object(quota, &["status", "used"])).to_string()
        }),
        Err(Refusal::Forbidden(text)) => text,
        Err(other) => format!("{other:?}"),
    }
}

fn believed(quota: JsonObject) -> QuotaState {
    QuotaState { quota, existing: None }
}

#[test]
fn create_is_charged_or_refused_with_kubernetes_texts() {
    let pods = ("", "pods");
    let one = pod(&json!({"cpu": "500m"}));
    for (hard, used, expected) in [
        (json!({"pods": "2"}), json!({"pods": "1"}), "pods=2"),
        (
            json!({"pods": "2"}),
            json!({"pods": "2"}),
            "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
        ),
        (
            json!({"requests.cpu": "1", "pods": "5"}),
            json!({"requests.cpu": "600m", "pods": "1"}),
            "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1",
        ),
        (json!({"memory": "1Gi"}), json!({"memory": "0"}), "failed quota: q: must specify memory for: c"),
        (json!({"pods": "2", "cpu": "2"}), json!({"pods": "1"}), "status unknown for quota: q, resources: cpu,pods"),
        (
            json!({"count/pods": "3", "services": "0"}),
            json!({"count/pods": "1", "services": "0"}),
            "count/pods=2,services=0",
        ),
        (json!({"configmaps": "0"}), json!({"configmaps": "0"}), ""),
    ] {
        assert_eq!(decide(pods, &one, None, believed(quota(&hard, &used))), expected, "{hard}");
    }
}

#[test]
fn used_that_is_lower_than_what_exists_is_not_believed() {
    let state = |existing: Value| QuotaState {
        quota: quota(&json!({"pods": "3"}), &json!({"pods": "1"})),
        existing: Some(ResourceList::read(existing.as_object())),
    };
    let one = pod(&json!({}));
    assert_eq!(decide(("", "pods"), &one, None, state(json!({"pods": "2"}))), "pods=3");
    assert_eq!(decide(("", "pods"), &one, None, state(json!({"pods": "0"}))), "pods=2", "the controller lowers it");
    let refused = "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3";
    assert_eq!(decide(("", "pods"), &one, None, state(json!({"pods": "3"}))), refused);
}

#[test]
fn custom_and_core_objects_are_counted_by_name() {
    let custom = object(json!({"metadata": {"name": "w"}}));
    let state = believed(quota(&json!({"count/widgets.example.com": "1"}), &json!({"count/widgets.example.com": "0"})));
    assert_eq!(decide(("example.com", "widgets"), &custom, None, state), "count/widgets.example.com=1");
    let state = believed(quota(&json!({"secrets": "1"}), &json!({"secrets": "1"})));
    let refused = "exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1";
    assert_eq!(decide(("", "secrets"), &custom, None, state), refused);
    assert_eq!(Evaluator::of("", "events", &gates()), None);
}

#[test]
fn update_is_charged_for_growth_only() {
    let claim = |size: &str| {
        object(json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": size}}}}))
    };
    let state = || {
        believed(quota(
            &json!({"requests.storage": "10Gi", "gold.storageclass.storage.k8s.io/requests.storage": "9Gi"}),
            &json!({"requests.storage": "4Gi", "gold.storageclass.storage.k8s.io/requests.storage": "4Gi"}),
        ))
    };
    let decide = |new: &str, old: &str| decide(("", "persistentvolumeclaims"), &claim(new), Some(&claim(old)), state());
    assert_eq!(decide("3Gi", "2Gi"), "gold.storageclass.storage.k8s.io/requests.storage=5Gi,requests.storage=5Gi");
    assert_eq!(decide("2Gi", "3Gi"), "", "admission lowers nothing");
    let refused = decide("8Gi", "2Gi");
    assert!(
        refused.starts_with("exceeded quota: q, requested: gold.storageclass.storage.k8s.io/requests.storage=6Gi"),
        "{refused}"
    );
}

#[test]
fn scopes_select_pods_and_claims() {
    let scoped = |scopes: Value, selector: Value| {
        let mut quota = quota(
            &json!({"pods": "5", "persistentvolumeclaims": "5"}),
            &json!({"pods": "0", "persistentvolumeclaims": "0"}),
        );
        quota["spec"]["scopes"] = scopes;
        quota["spec"]["scopeSelector"] = json!({"matchExpressions": selector});
        quota
    };
    let selector = |scope: &str, operator: &str, values: Value| json!([{"scopeName": scope, "operator": operator, "values": values}]);
    let mut best_effort = pod(&json!({}));
    best_effort["spec"]["activeDeadlineSeconds"] = json!(5);
    best_effort["spec"]["priorityClassName"] = json!("high");
    let burstable = pod(&json!({"cpu": "1"}));
    for (scopes, selector, expected) in [
        (json!(["BestEffort"]), json!([]), [true, false]),
        (json!(["NotBestEffort"]), json!([]), [false, true]),
        (json!(["Terminating"]), json!([]), [true, false]),
        (json!(["NotTerminating", "NotBestEffort"]), json!([]), [false, true]),
        (json!([]), selector("PriorityClass", "In", json!(["high"])), [true, false]),
        (json!([]), selector("PriorityClass", "NotIn", json!(["high"])), [false, true]),
        (json!([]), selector("PriorityClass", "DoesNotExist", json!(null)), [false, true]),
        (json!(["VolumeAttributesClass"]), json!([]), [false, false]),
    ] {
        let covered = [&best_effort, &burstable]
            .map(|pod| !decide(("", "pods"), pod, None, believed(scoped(scopes.clone(), selector.clone()))).is_empty());
        assert_eq!(covered, expected, "{scopes} {selector}");
    }
    let claim = object(json!({"spec": {"volumeAttributesClassName": "fast"}}));
    let fast = scoped(json!([]), selector("VolumeAttributesClass", "In", json!(["fast"])));
    assert_eq!(decide(("", "persistentvolumeclaims"), &claim, None, believed(fast)), "persistentvolumeclaims=1,pods=0");
}

#[test]
fn configured_resource_needs_a_covering_quota() {
    let gates = gates();
    let evaluator = Evaluator::of("", "pods", &gates).unwrap();
    let limited = LimitedResource {
        resource: "pods".to_owned(),
        match_contains: vec!["requests.cpu".to_owned()],
        ..LimitedResource::default()
    };
    let one = pod(&json!({"cpu": "1"}));
    let write = QuotaWrite { evaluator: &evaluator, resource: ("", "pods"), subresource: "", new: &one, old: None };
    let refused = check(write, &[], std::slice::from_ref(&limited), &gates);
    assert_eq!(refused, Err(Refusal::Forbidden("insufficient quota to consume: requests.cpu".to_owned())));
    let covering = believed(quota(&json!({"requests.cpu": "2"}), &json!({"requests.cpu": "0"})));
    assert!(check(write, &[covering], &[limited], &gates).is_ok());
}
