//! What runs pods.

use serde_json::{Value, json};

use super::{Object, child, is_empty, items, set_absent, set_empty, text};
use crate::gates::Gates;
use crate::release::Release;

/// The labels of the pods stand in for labels and a selector of its own.
pub(super) fn replication_controller(controller: &mut Object) {
    let Some(labels) = template_labels(controller) else { return };
    if let Some(spec) = child(controller, "spec") {
        set_empty(spec, "selector", labels.clone());
    }
    if let Some(metadata) = child(controller, "metadata") {
        set_empty(metadata, "labels", labels);
    }
}

fn template_labels(object: &Object) -> Option<Value> {
    let labels = object.get("spec")?.get("template")?.get("metadata")?.get("labels")?;
    (!is_empty(labels)).then(|| labels.clone())
}

pub(super) fn deployment(spec: &mut Object) {
    rolling_update(spec, "strategy", &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
}

pub(super) fn daemon_set(spec: &mut Object) {
    rolling_update(spec, "updateStrategy", &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
}

/// Rolling unless said otherwise, at this pace.
fn rolling_update(spec: &mut Object, field: &str, pace: &[(&str, Value)]) {
    let Some(strategy) = child(spec, field) else { return };
    set_empty(strategy, "type", "RollingUpdate");
    if text(strategy, "type") != "RollingUpdate" {
        return;
    }
    let Some(rolling) = child(strategy, "rollingUpdate") else { return };
    for (name, value) in pace {
        set_absent(rolling, name, value.clone());
    }
}

pub(super) fn stateful_set(spec: &mut Object, gates: &Gates) {
    if let Some(strategy) = child(spec, "updateStrategy") {
        if text(strategy, "type").is_empty() {
            strategy.insert("type".to_owned(), "RollingUpdate".into());
            set_absent(strategy, "rollingUpdate", json!({}));
        }
        let is_rolling = text(strategy, "type") == "RollingUpdate";
        let rolling = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut);
        if let Some(rolling) = rolling.filter(|_| is_rolling) {
            set_absent(rolling, "partition", 0);
            if gates.enabled("MaxUnavailableStatefulSet") {
                set_absent(rolling, "maxUnavailable", 1);
            }
        }
    }
    for claim in items(spec, "volumeClaimTemplates") {
        set_empty(claim, "kind", "PersistentVolumeClaim");
        set_empty(claim, "apiVersion", "v1");
    }
    if let Some(retention) = child(spec, "persistentVolumeClaimRetentionPolicy") {
        set_empty(retention, "whenDeleted", "Retain");
        set_empty(retention, "whenScaled", "Retain");
    }
}

pub(super) fn job(job: &mut Object, gates: &Gates) {
    if let Some(labels) = template_labels(job)
        && let Some(metadata) = child(job, "metadata")
    {
        set_empty(metadata, "labels", labels);
    }
    let Some(spec) = child(job, "spec") else { return };
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".to_owned(), 1.into());
    }
    set_absent(spec, "parallelism", 1);
    // With a limit for each index, none for the whole.
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    set_absent(spec, "backoffLimit", limit);
    set_absent(spec, "completionMode", "NonIndexed");
    set_absent(spec, "suspend", false);
    set_absent(spec, "manualSelector", false);
    // The gate was locked for three releases and then removed.
    if gates.enabled("JobPodReplacementPolicy") || gates.release() >= Release::R37 {
        let policy = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        set_absent(spec, "podReplacementPolicy", policy);
    }
}

pub(super) fn autoscaler(spec: &mut Object) {
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    set_empty(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    if let Some(up) = child(behavior, "scaleUp") {
        let by_pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        let by_half = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        set_absent(up, "stabilizationWindowSeconds", 0);
        set_absent(up, "selectPolicy", "Max");
        set_absent(up, "policies", json!([by_pods, by_half]));
    }
    if let Some(down) = child(behavior, "scaleDown") {
        set_absent(down, "selectPolicy", "Max");
        set_absent(down, "policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}
