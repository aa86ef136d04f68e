//! One metric of an autoscaler: flat in the annotations of the first version, in parts in the second.

use serde_json::{Map, Value};

use crate::access::{self, Object, part_mut};

/// The sources of a metric, as fields of it.
const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

/// Whether a metric says what is wanted or what is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tense {
    Wanted,
    Present,
}

impl Tense {
    /// The part of the second version, and the start of names in the first.
    fn part(self) -> &'static str {
        match self {
            Self::Wanted => "target",
            Self::Present => "current",
        }
    }
}

pub(super) fn wanted_to_v1(metric: &Value) -> Value {
    each_source(metric, |source, fields| to_v1(source, fields, Tense::Wanted))
}

pub(super) fn present_to_v1(metric: &Value) -> Value {
    each_source(metric, |source, fields| to_v1(source, fields, Tense::Present))
}

pub(super) fn wanted_to_v2(metric: &Value) -> Value {
    each_source(metric, |source, fields| {
        let mut fields = to_v2(source, fields, Tense::Wanted);
        set_type(source, part_mut(&mut fields, "target"));
        fields
    })
}

pub(super) fn present_to_v2(metric: &Value) -> Value {
    each_source(metric, |source, fields| to_v2(source, fields, Tense::Present))
}

fn each_source(metric: &Value, convert: impl Fn(&str, &Object) -> Object) -> Value {
    let mut metric = metric.clone();
    for source in SOURCES {
        if let Some(Value::Object(fields)) = metric.get_mut(source) {
            *fields = convert(source, fields);
        }
    }
    metric
}

/// Names of a value in the second version, and in the first, where the tense comes before some.
fn value_names(source: &str, tense: Tense) -> [(&'static str, String); 3] {
    let part = tense.part();
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

/// The value that the first version cannot leave out; zero stands for absence.
fn required_value(source: &str, tense: Tense) -> Option<&'static str> {
    match (source, tense) {
        ("object", Tense::Wanted | Tense::Present) | ("external", Tense::Present) => Some("value"),
        ("pods", Tense::Wanted | Tense::Present) | ("resource" | "containerResource", Tense::Present) => {
            Some("averageValue")
        }
        _ => None,
    }
}

fn to_v1(source: &str, fields: &Object, tense: Tense) -> Object {
    let mut flat = fields.clone();
    let values = flat.remove(tense.part());
    let metric = flat.remove("metric");
    if let Some(described) = flat.remove("describedObject") {
        flat.insert("target".to_owned(), described);
    }
    if let Some(Value::Object(mut metric)) = metric {
        access::set(&mut flat, "metricName", metric.remove("name"));
        access::set(&mut flat, selector_name(source), metric.remove("selector"));
    }
    let values = values.as_ref().and_then(Value::as_object);
    for (name, flat_name) in value_names(source, tense) {
        let value = values.and_then(|values| values.get(name)).filter(|value| !value.is_null()).cloned();
        let zero = (required_value(source, tense) == Some(name)).then(|| Value::from("0"));
        access::set(&mut flat, &flat_name, value.or(zero));
    }
    flat
}

fn to_v2(source: &str, flat: &Object, tense: Tense) -> Object {
    let mut fields = flat.clone();
    let mut values = Map::new();
    for (name, flat_name) in value_names(source, tense) {
        values.extend(fields.remove(&flat_name).filter(|value| !value.is_null()).map(|value| (name.to_owned(), value)));
    }
    if source == "object" && tense == Tense::Wanted && values.contains_key("averageValue") {
        values.retain(|name, value| name != "value" || value != "0");
    }
    if let Some(described) = fields.remove("target") {
        fields.insert("describedObject".to_owned(), described);
    }
    if let Some(name) = fields.remove("metricName") {
        let selector = fields.remove(selector_name(source));
        let metric = part_mut(&mut fields, "metric");
        metric.insert("name".to_owned(), name);
        access::set(metric, "selector", selector);
    }
    fields.insert(tense.part().to_owned(), Value::Object(values));
    fields
}

/// Says which of its values a target is about.
fn set_type(source: &str, target: &mut Object) {
    let has = |name: &str| target.contains_key(name);
    let kind = match source {
        "object" if !has("averageValue") => "Value",
        "external" if has("value") => "Value",
        "resource" | "containerResource" if has("averageUtilization") => "Utilization",
        _ => "AverageValue",
    };
    target.insert("type".to_owned(), kind.into());
}
