//! One metric of an autoscaler: flat in the annotations of v1, nested in v2.

use api::json::JsonObject;
use object::unstructured;
use object::unstructured::nested_object_mut;
use serde_json::{Map, Value};

/// The sources of a metric, as fields of it.
const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

/// Whether a metric is a target or a current value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricSide {
    Target,
    Current,
}

impl MetricSide {
    /// The part of the second version, and the start of names in the first.
    fn field_name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Current => "current",
        }
    }
}

pub(crate) fn target_metric_to_v1(metric: &Value) -> Value {
    convert_sources(metric, |source, fields| source_to_v1(source, fields, MetricSide::Target))
}

pub(crate) fn current_metric_to_v1(metric: &Value) -> Value {
    convert_sources(metric, |source, fields| source_to_v1(source, fields, MetricSide::Current))
}

pub(crate) fn target_metric_to_v2(metric: &Value) -> Value {
    convert_sources(metric, |source, fields| {
        let mut fields = source_to_v2(source, fields, MetricSide::Target);
        set_target_type(source, nested_object_mut(&mut fields, "target"));
        fields
    })
}

pub(crate) fn current_metric_to_v2(metric: &Value) -> Value {
    convert_sources(metric, |source, fields| source_to_v2(source, fields, MetricSide::Current))
}

fn convert_sources(metric: &Value, convert: impl Fn(&str, &JsonObject) -> JsonObject) -> Value {
    let mut metric = metric.clone();
    for source in SOURCES {
        if let Some(Value::Object(fields)) = metric.get_mut(source) {
            *fields = convert(source, fields);
        }
    }
    metric
}

/// The names of a value in v2 and in v1, where some have the side as a prefix.
fn value_names(source: &str, side: MetricSide) -> [(&'static str, String); 3] {
    let part = side.field_name();
    let average = if source == "object" { "averageValue".to_owned() } else { format!("{part}AverageValue") };
    [
        ("value", format!("{part}Value")),
        ("averageValue", average),
        ("averageUtilization", format!("{part}AverageUtilization")),
    ]
}

fn selector_name(source: &str) -> &'static str {
    if source == "external" { "metricSelector" } else { "selector" }
}

/// The value that v1 requires; zero stands for absence.
fn required_value(source: &str, side: MetricSide) -> Option<&'static str> {
    match (source, side) {
        ("object", MetricSide::Target | MetricSide::Current) | ("external", MetricSide::Current) => Some("value"),
        ("pods", MetricSide::Target | MetricSide::Current)
        | ("resource" | "containerResource", MetricSide::Current) => Some("averageValue"),
        _ => None,
    }
}

fn source_to_v1(source: &str, fields: &JsonObject, side: MetricSide) -> JsonObject {
    let mut flat = fields.clone();
    let values = flat.remove(side.field_name());
    let metric = flat.remove("metric");
    if let Some(described) = flat.remove("describedObject") {
        flat.insert("target".to_owned(), described);
    }
    if let Some(Value::Object(mut metric)) = metric {
        unstructured::set_or_remove(&mut flat, "metricName", metric.remove("name"));
        unstructured::set_or_remove(&mut flat, selector_name(source), metric.remove("selector"));
    }
    let values = values.as_ref().and_then(Value::as_object);
    for (name, flat_name) in value_names(source, side) {
        let value = values.and_then(|values| values.get(name)).filter(|value| !value.is_null()).cloned();
        let zero = (required_value(source, side) == Some(name)).then(|| Value::from("0"));
        unstructured::set_or_remove(&mut flat, &flat_name, value.or(zero));
    }
    flat
}

fn source_to_v2(source: &str, flat: &JsonObject, side: MetricSide) -> JsonObject {
    let mut fields = flat.clone();
    let mut values = Map::new();
    for (name, flat_name) in value_names(source, side) {
        values.extend(fields.remove(&flat_name).filter(|value| !value.is_null()).map(|value| (name.to_owned(), value)));
    }
    if source == "object" && side == MetricSide::Target && values.contains_key("averageValue") {
        values.retain(|name, value| name != "value" || value != "0");
    }
    if let Some(described) = fields.remove("target") {
        fields.insert("describedObject".to_owned(), described);
    }
    if let Some(name) = fields.remove("metricName") {
        let selector = fields.remove(selector_name(source));
        let metric = nested_object_mut(&mut fields, "metric");
        metric.insert("name".to_owned(), name);
        unstructured::set_or_remove(metric, "selector", selector);
    }
    fields.insert(side.field_name().to_owned(), Value::Object(values));
    fields
}

/// Sets the type of a target by the value that it has.
fn set_target_type(source: &str, target: &mut JsonObject) {
    let has = |name: &str| target.contains_key(name);
    let kind = match source {
        "object" if !has("averageValue") => "Value",
        "external" if has("value") => "Value",
        "resource" | "containerResource" if has("averageUtilization") => "Utilization",
        _ => "AverageValue",
    };
    target.insert("type".to_owned(), kind.into());
}
