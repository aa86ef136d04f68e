//! Conversion of autoscalers: v1 has a target for CPU only, and keeps the rest in annotations.

use api::json::{JsonObject, to_go_json};
use object::decode::BodyEncoding;
use object::unstructured::nested_object_mut;
use object::{decode, unstructured};
use serde_json::{Map, Value, json};

use super::metrics;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The target of an autoscaler without metrics, in percent of the requested CPU.
const DEFAULT_CPU_UTILIZATION: i64 = 80;

pub(crate) fn v1_to_v2(scaler: &mut JsonObject) {
    let saved = take_annotations(scaler);
    let list = |name: &str| saved.get(name).and_then(|value| value.as_array().cloned());
    let spec = nested_object_mut(scaler, "spec");
    let mut metrics_v2: Vec<Value> =
        list(METRICS).unwrap_or_default().iter().map(metrics::target_metric_to_v2).collect();
    if let Some(percent) = spec.remove("targetCPUUtilizationPercentage").filter(|percent| !percent.is_null()) {
        metrics_v2.push(cpu_target_metric(&percent));
    }
    if metrics_v2.is_empty() {
        metrics_v2.push(cpu_target_metric(&DEFAULT_CPU_UTILIZATION.into()));
    }
    spec.insert("metrics".to_owned(), metrics_v2.into());
    if let Some(Value::Object(behavior)) =
        saved.get(BEHAVIOR).map(|behavior| change_first_letter_case(behavior, char::to_ascii_lowercase))
    {
        spec.insert("behavior".to_owned(), Value::Object(behavior));
    }
    let Some(Value::Object(status)) = scaler.get_mut("status") else { return };
    let percent = status.remove("currentCPUUtilizationPercentage").filter(|percent| !percent.is_null());
    let from_percent = percent.map(|percent| {
        vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}})]
    });
    let current_metrics =
        list(CURRENT_METRICS).map(|list| list.iter().map(metrics::current_metric_to_v2).collect()).or(from_percent);
    unstructured::set_or_remove(status, "currentMetrics", current_metrics.map(Value::Array));
    if let Some(conditions) = list(CONDITIONS) {
        status.insert("conditions".to_owned(), conditions.into());
    }
}

pub(crate) fn v2_to_v1(scaler: &mut JsonObject) {
    take_annotations(scaler);
    let mut saved: Vec<(&str, Value)> = Vec::new();
    let spec = nested_object_mut(scaler, "spec");
    let wanted = take_list(spec, "metrics");
    let (cpu, others): (Vec<&Value>, Vec<&Value>) =
        wanted.iter().partition(|metric| cpu_utilization(metric, "target").is_some());
    let percent = cpu.first().and_then(|metric| cpu_utilization(metric, "target")).cloned();
    unstructured::set_or_remove(spec, "targetCPUUtilizationPercentage", percent);
    if !others.is_empty() {
        saved.push((METRICS, others.into_iter().map(metrics::target_metric_to_v1).collect()));
    }
    if let Some(behavior) = spec.remove("behavior").filter(|behavior| !behavior.is_null()) {
        let mut behavior = change_first_letter_case(&behavior, char::to_ascii_uppercase);
        add_tolerances(&mut behavior);
        saved.push((BEHAVIOR, behavior));
    }
    if let Some(Value::Object(status)) = scaler.get_mut("status") {
        let current_metrics = take_list(status, "currentMetrics");
        let percent =
            current_metrics.iter().filter_map(|metric| cpu_utilization(metric, "current")).next_back().cloned();
        unstructured::set_or_remove(status, "currentCPUUtilizationPercentage", percent);
        if !current_metrics.is_empty() {
            saved.push((CURRENT_METRICS, current_metrics.iter().map(metrics::current_metric_to_v1).collect()));
        }
        let conditions = take_list(status, "conditions");
        if !conditions.is_empty() {
            saved.push((CONDITIONS, conditions.into()));
        }
    }
    if !saved.is_empty() {
        let annotations = nested_object_mut(unstructured::metadata_mut(scaler), "annotations");
        annotations.extend(saved.into_iter().map(|(name, value)| (name.to_owned(), go_ordered(&value).into())));
    }
}

/// The fields in the annotations, in the order of Go's structs.
const FIELD_ORDER: [&str; 35] = [
    "type",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "kind",
    "target",
    "metricName",
    "metricSelector",
    "name",
    "apiVersion",
    "targetAverageUtilization",
    "currentAverageUtilization",
    "targetValue",
    "currentValue",
    "targetAverageValue",
    "currentAverageValue",
    "container",
    "selector",
    "averageValue",
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Tolerance",
    "Type",
    "Value",
    "PeriodSeconds",
    "matchLabels",
];

/// JSON with the fields in their order in Go's structs; others, such as labels, follow sorted.
fn go_ordered(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let rank = |name: &str| FIELD_ORDER.iter().position(|known| *known == name).unwrap_or(FIELD_ORDER.len());
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| rank(name));
            let fields =
                fields.into_iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), go_ordered(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(go_ordered).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            String::from_utf8_lossy(&to_go_json(value)).into_owned()
        }
    }
}

/// A rule for scaling shows its tolerance even if it has none.
fn add_tolerances(behavior: &mut Value) {
    for name in ["ScaleUp", "ScaleDown"] {
        if let Some(rules) = behavior.get_mut(name).and_then(Value::as_object_mut) {
            rules.entry("Tolerance").or_insert(Value::Null);
        }
    }
}

/// Removes the annotations of v1 and decodes them; an annotation that cannot be decoded is dropped.
fn take_annotations(scaler: &mut JsonObject) -> Map<String, Value> {
    let mut taken = Map::new();
    let metadata = unstructured::metadata_mut(scaler);
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return taken };
    for name in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        let text = annotations.remove(name);
        // Decoded like a body, because it becomes a part of the object and must not nest deeper than one.
        let decoded = text.and_then(|text| decode::decode_value(text.as_str()?.as_bytes(), BodyEncoding::Json).ok());
        taken.extend(decoded.map(|decoded| (name.to_owned(), decoded.value)));
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    taken
}

fn take_list(object: &mut JsonObject, name: &str) -> Vec<Value> {
    match object.remove(name) {
        Some(Value::Array(items)) => items,
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) | None => {
            Vec::new()
        }
    }
}

/// The utilization in percent of a CPU metric that states one.
fn cpu_utilization<'m>(metric: &'m Value, part: &str) -> Option<&'m Value> {
    let is_cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    metric["resource"][part].get("averageUtilization").filter(|percent| is_cpu && !percent.is_null())
}

fn cpu_target_metric(percent: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// The annotation for behavior has names in Go's case, and null for absent.
fn change_first_letter_case(value: &Value, case: fn(&char) -> char) -> Value {
    match value {
        Value::Object(fields) => {
            let renamed = fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
                let mut letters = name.chars();
                let first = letters.next().map(|first| case(&first));
                (first.into_iter().chain(letters).collect::<String>(), change_first_letter_case(value, case))
            });
            Value::Object(renamed.collect())
        }
        Value::Array(items) => items.iter().map(|item| change_first_letter_case(item, case)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
