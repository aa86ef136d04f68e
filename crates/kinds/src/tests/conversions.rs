//! Conversions of each kind.

use api::{GroupVersion, GroupVersionKind};
use serde_json::{Value, json};

use crate::groups::strategy_of;

fn version(text: &str) -> GroupVersion<&str> {
    GroupVersion::parse(text).expect("a test writes versions")
}

#[track_caller]
fn convert_to(object: &Value, to: &str) -> Value {
    let mut object = object.as_object().unwrap().clone();
    let kind = object["kind"].as_str().unwrap().to_owned();
    let GroupVersion { group, version } = version(to);
    let strategy = strategy_of(group, &kind).unwrap();
    object::convert::convert(&mut object, GroupVersionKind { group, version, kind: &kind }, strategy.conversion);
    Value::Object(object)
}

/// Converts in both directions and checks both results.
#[track_caller]
fn check_both_ways(one: &Value, other: &Value) {
    assert_eq!(&convert_to(one, other["apiVersion"].as_str().unwrap()), other);
    assert_eq!(&convert_to(other, one["apiVersion"].as_str().unwrap()), one);
}

#[test]
fn convert_changes_only_api_version_when_fields_are_equal() {
    check_both_ways(
        &json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"future": 1}}),
        &json!({"apiVersion": "batch/v1beta1", "kind": "CronJob", "spec": {"future": 1}}),
    );
    for (kind, from, to) in [
        ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v2beta2"),
        ("DeviceClass", "resource.k8s.io/v1beta1", "resource.k8s.io/v1"),
        ("ResourceClaim", "resource.k8s.io/v1beta2", "resource.k8s.io/v1"),
        ("Event", "events.k8s.io/v1", "events.k8s.io/v1beta1"),
    ] {
        let (from, to) = (version(from), version(to));
        assert!((strategy_of(to.group, kind).unwrap().conversion)(from, to).is_none(), "{kind}");
    }
}

#[test]
fn convert_event_between_core_and_events_group() {
    check_both_ways(
        &json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "message": "m",
            "source": {"component": "c"}, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": null, "count": 3,
            "reportingComponent": "r", "reportingInstance": "i", "type": "Normal", "reason": "x", "series": {"count": 2},
        }),
        &json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "regarding": {"kind": "Pod"}, "note": "m",
            "deprecatedSource": {"component": "c"}, "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z", "deprecatedLastTimestamp": null,
            "deprecatedCount": 3, "reportingController": "r", "reportingInstance": "i", "type": "Normal", "reason": "x", "series": {"count": 2},
        }),
    );
}

#[test]
fn convert_resource_claim_moves_request_under_exactly() {
    let flat = json!([
        {"name": "a", "deviceClassName": "gpu", "selectors": [{"cel": {}}], "allocationMode": "ExactCount", "count": 1, "adminAccess": true,
         "tolerations": [{}], "capacity": {"requests": {}}},
        {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "x"}], "future": 1},
    ]);
    let nested = json!([
        {"name": "a", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {}}], "allocationMode": "ExactCount", "count": 1, "adminAccess": true,
         "tolerations": [{}], "capacity": {"requests": {}}}},
        {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "x"}], "future": 1},
    ]);
    for later in ["resource.k8s.io/v1beta2", "resource.k8s.io/v1"] {
        check_both_ways(
            &json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim", "spec": {"devices": {"requests": flat}}}),
            &json!({"apiVersion": later, "kind": "ResourceClaim", "spec": {"devices": {"requests": nested}}}),
        );
        check_both_ways(
            &json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": {"requests": flat}}}}),
            &json!({"apiVersion": later, "kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": {"requests": nested}}}}),
        );
    }
    let empty = json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim", "spec": {}});
    assert_eq!(convert_to(&empty, "resource.k8s.io/v1")["spec"], json!({}));
}

#[test]
fn convert_resource_slice_flattens_basic_devices() {
    check_both_ways(
        &json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice", "spec": {"driver": "d", "devices": [
            {"name": "a", "basic": {"attributes": {"x": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}}, {"name": "b", "basic": {}}]}}),
        &json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": {"driver": "d", "devices": [
            {"name": "a", "attributes": {"x": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}, {"name": "b"}]}}),
    );
}

fn scaler_v2(metrics: &Value, more: &Value) -> Value {
    let mut scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"maxReplicas": 9, "metrics": metrics}});
    if let Some(behavior) = more.get("behavior") {
        scaler["spec"]["behavior"] = behavior.clone();
    }
    if let Some(status) = more.get("status") {
        scaler["status"] = status.clone();
    }
    scaler
}

fn annotation(scaler: &Value, name: &str) -> Value {
    let text = scaler["metadata"]["annotations"][format!("autoscaling.alpha.kubernetes.io/{name}")].as_str();
    serde_json::from_str(text.unwrap_or("null")).unwrap()
}

#[test]
fn convert_hpa_cpu_target_between_v1_and_v2() {
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}});
    check_both_ways(
        &json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a", "annotations": {"x": "y"}},
                "spec": {"maxReplicas": 9, "targetCPUUtilizationPercentage": 70}, "status": {"currentReplicas": 1}}),
        &json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a", "annotations": {"x": "y"}},
                "spec": {"maxReplicas": 9, "metrics": [cpu]}, "status": {"currentReplicas": 1}}),
    );
    let bare = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "spec": {}});
    assert_eq!(
        convert_to(&bare, "autoscaling/v2")["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        80
    );
}

#[test]
fn convert_hpa_keeps_other_metrics_in_annotation() {
    let selector = json!({"matchLabels": {"a": "b"}});
    let metrics = json!([
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 5}}},
        {"type": "Pods", "pods": {"metric": {"name": "m", "selector": selector}, "target": {"type": "AverageValue", "averageValue": "3"}}},
        {"type": "Object", "object": {"metric": {"name": "m", "selector": selector}, "describedObject": {"kind": "K", "name": "n", "apiVersion": "v1"},
            "target": {"type": "Value", "value": "7"}}},
        {"type": "Object", "object": {"metric": {"name": "m"}, "describedObject": {"kind": "K", "name": "n"}, "target": {"type": "AverageValue", "averageValue": "2"}}},
        {"type": "External", "external": {"metric": {"name": "m", "selector": selector}, "target": {"type": "AverageValue", "averageValue": "4"}}},
        {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "4"}}},
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}},
    ]);
    let v2 = scaler_v2(&metrics, &json!({}));
    let v1 = convert_to(&v2, "autoscaling/v1");
    assert_eq!(v1["spec"], json!({"maxReplicas": 9, "targetCPUUtilizationPercentage": 70}));
    assert_eq!(
        annotation(&v1, "metrics"),
        json!([
            {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}},
            {"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 50}},
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "targetAverageUtilization": 5}},
            {"type": "Pods", "pods": {"metricName": "m", "selector": selector, "targetAverageValue": "3"}},
            {"type": "Object", "object": {"metricName": "m", "selector": selector, "target": {"kind": "K", "name": "n", "apiVersion": "v1"}, "targetValue": "7"}},
            {"type": "Object", "object": {"metricName": "m", "target": {"kind": "K", "name": "n"}, "targetValue": "0", "averageValue": "2"}},
            {"type": "External", "external": {"metricName": "m", "metricSelector": selector, "targetAverageValue": "4"}},
            {"type": "External", "external": {"metricName": "m", "targetValue": "4"}},
        ])
    );
    assert_eq!(convert_to(&v1, "autoscaling/v2"), v2);
}

#[test]
fn convert_hpa_keeps_behavior_and_status_in_annotations() {
    let cpu = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}]);
    let more = json!({
        "behavior": {"scaleUp": {"stabilizationWindowSeconds": 3, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}},
        "status": {
            "currentReplicas": 2,
            "conditions": [{"type": "AbleToScale", "status": "True"}],
            "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 41, "averageValue": "100m"}}},
                {"type": "Pods", "pods": {"metric": {"name": "m"}, "current": {"averageValue": "3"}}},
                {"type": "Object", "object": {"metric": {"name": "m"}, "describedObject": {"kind": "K", "name": "n"}, "current": {"value": "3"}}},
                {"type": "External", "external": {"metric": {"name": "m"}, "current": {"value": "3", "averageValue": "1"}}},
            ],
        },
    });
    let v2 = scaler_v2(&cpu, &more);
    let v1 = convert_to(&v2, "autoscaling/v1");
    assert_eq!(v1["status"], json!({"currentReplicas": 2, "currentCPUUtilizationPercentage": 41}));
    assert_eq!(
        annotation(&v1, "behavior"),
        json!({"ScaleUp": {"StabilizationWindowSeconds": 3, "Policies": [{"Type": "Pods", "Value": 4, "PeriodSeconds": 60}], "Tolerance": null}})
    );
    // Fields stand in the order of Go's structs.
    assert_eq!(
        v1["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/behavior"],
        r#"{"ScaleUp":{"StabilizationWindowSeconds":3,"Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":60}],"Tolerance":null}}"#
    );
    assert_eq!(
        annotation(&v1, "current-metrics")[0],
        json!({"type": "Resource", "resource": {"name": "cpu", "currentAverageUtilization": 41, "currentAverageValue": "100m"}})
    );
    assert_eq!(convert_to(&v1, "autoscaling/v2"), v2);
}

#[test]
fn convert_hpa_drops_malformed_annotations() {
    let v1 = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"annotations": {
        "autoscaling.alpha.kubernetes.io/metrics": "{", "autoscaling.alpha.kubernetes.io/conditions": "7"}}, "spec": {}, "status": {}});
    let v2 = convert_to(&v1, "autoscaling/v2");
    assert_eq!(v2["metadata"], json!({}));
    assert_eq!(v2["status"], json!({}));
    assert_eq!(v2["spec"]["metrics"].as_array().unwrap().len(), 1);
}

#[test]
fn convert_crd_lifts_fields_shared_by_all_versions() {
    let columns = |path: &str| json!([{"name": "Size", "type": "integer", path: ".spec.size"}]);
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let other = json!({"openAPIV3Schema": {"type": "object", "properties": {}}});
    check_both_ways(
        &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {
            "group": "example.com",
            "versions": [
                {"name": "v2", "schema": schema, "subresources": {"status": {}}, "additionalPrinterColumns": columns("jsonPath")},
                {"name": "v1", "schema": other, "subresources": {"status": {}}},
            ],
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]}},
        }}),
        &json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition", "spec": {
            "group": "example.com",
            "version": "v2",
            "versions": [
                {"name": "v2", "schema": schema, "additionalPrinterColumns": columns("JSONPath")},
                {"name": "v1", "schema": other},
            ],
            "subresources": {"status": {}},
            "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]},
            "preserveUnknownFields": false,
        }}),
    );
}

#[test]
fn convert_crd_without_versions_uses_spec_version() {
    let stored = json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition", "spec": {
        "version": "v1", "validation": {"openAPIV3Schema": {}},
    }});
    assert_eq!(
        convert_to(&stored, "apiextensions.k8s.io/v1")["spec"],
        json!({"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {}}}]})
    );
}

#[test]
fn convert_pod_certificate_request_drops_beta_fields() {
    let stored = json!({"apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest", "spec": {
        "podName": "p", "pkixPublicKey": "x", "proofOfPossession": "y",
    }});
    let served = convert_to(&stored, "certificates.k8s.io/v1");
    assert_eq!(served["spec"], json!({"podName": "p"}));
    assert_eq!(convert_to(&served, "certificates.k8s.io/v1beta1")["spec"], json!({"podName": "p"}));
}
