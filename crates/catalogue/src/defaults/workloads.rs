//! What runs pods.

use api::json::JsonObject;
use serde_json::{Value, json};

use super::{is_empty, object_field_mut, objects_mut, set_if_absent, set_if_empty, string_field};
use crate::feature_gates::FeatureGates;
use crate::release::Release;

/// The labels of the pods stand in for labels and a selector of its own.
pub(super) fn set_replication_controller_defaults(controller: &mut JsonObject) {
    let Some(labels) = template_labels(controller) else { return };
    if let Some(spec) = object_field_mut(controller, "spec") {
        set_if_empty(spec, "selector", labels.clone());
    }
    if let Some(metadata) = object_field_mut(controller, "metadata") {
        set_if_empty(metadata, "labels", labels);
    }
}

fn template_labels(object: &JsonObject) -> Option<Value> {
    let labels = object.get("spec")?.get("template")?.get("metadata")?.get("labels")?;
    (!is_empty(labels)).then(|| labels.clone())
}

pub(super) fn set_deployment_defaults(spec: &mut JsonObject) {
    set_rolling_update_defaults(spec, "strategy", &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
}

pub(super) fn set_daemon_set_defaults(spec: &mut JsonObject) {
    set_rolling_update_defaults(spec, "updateStrategy", &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
}

/// Rolling unless said otherwise, at this pace.
fn set_rolling_update_defaults(spec: &mut JsonObject, field: &str, parameters: &[(&str, Value)]) {
    let Some(strategy) = object_field_mut(spec, field) else { return };
    set_if_empty(strategy, "type", "RollingUpdate");
    if string_field(strategy, "type") != "RollingUpdate" {
        return;
    }
    let Some(rolling) = object_field_mut(strategy, "rollingUpdate") else { return };
    for (name, value) in parameters {
        set_if_absent(rolling, name, value.clone());
    }
}

pub(super) fn set_stateful_set_defaults(spec: &mut JsonObject, gates: &FeatureGates) {
    if let Some(strategy) = object_field_mut(spec, "updateStrategy") {
        if string_field(strategy, "type").is_empty() {
            strategy.insert("type".to_owned(), "RollingUpdate".into());
            set_if_absent(strategy, "rollingUpdate", json!({}));
        }
        let is_rolling = string_field(strategy, "type") == "RollingUpdate";
        let rolling = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut);
        if let Some(rolling) = rolling.filter(|_| is_rolling) {
            set_if_absent(rolling, "partition", 0);
            if gates.enabled("MaxUnavailableStatefulSet") {
                set_if_absent(rolling, "maxUnavailable", 1);
            }
        }
    }
    for claim in objects_mut(spec, "volumeClaimTemplates") {
        set_if_empty(claim, "kind", "PersistentVolumeClaim");
        set_if_empty(claim, "apiVersion", "v1");
    }
    if let Some(retention) = object_field_mut(spec, "persistentVolumeClaimRetentionPolicy") {
        set_if_empty(retention, "whenDeleted", "Retain");
        set_if_empty(retention, "whenScaled", "Retain");
    }
}

pub(super) fn set_job_defaults(job: &mut JsonObject, gates: &FeatureGates) {
    if let Some(labels) = template_labels(job)
        && let Some(metadata) = object_field_mut(job, "metadata")
    {
        set_if_empty(metadata, "labels", labels);
    }
    let Some(spec) = object_field_mut(job, "spec") else { return };
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".to_owned(), 1.into());
    }
    set_if_absent(spec, "parallelism", 1);
    // With a limit for each index, none for the whole.
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    set_if_absent(spec, "backoffLimit", limit);
    set_if_absent(spec, "completionMode", "NonIndexed");
    set_if_absent(spec, "suspend", false);
    set_if_absent(spec, "manualSelector", false);
    // The gate was locked for three releases and then removed.
    if gates.enabled("JobPodReplacementPolicy") || gates.release() >= Release::R37 {
        let policy = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        set_if_absent(spec, "podReplacementPolicy", policy);
    }
}

pub(super) fn set_autoscaler_defaults(spec: &mut JsonObject) {
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    set_if_empty(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    if let Some(up) = object_field_mut(behavior, "scaleUp") {
        let by_pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        let by_half = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        set_if_absent(up, "stabilizationWindowSeconds", 0);
        set_if_absent(up, "selectPolicy", "Max");
        set_if_absent(up, "policies", json!([by_pods, by_half]));
    }
    if let Some(down) = object_field_mut(behavior, "scaleDown") {
        set_if_absent(down, "selectPolicy", "Max");
        set_if_absent(down, "policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}
