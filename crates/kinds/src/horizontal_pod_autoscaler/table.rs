//! The columns of autoscalers.

use api::json::JsonObject;
use object::table::cells::{AGE, NAME, integer_cell, string_cell, string_column};
use object::table::{Column, cells};
use object::unstructured;
use object::unstructured::objects;
use serde_json::Value;

pub(crate) const AUTOSCALERS: &[Column] = &[
    NAME,
    string_column("Reference", "What it scales.", |scaler, _| {
        let field = |name: &str| unstructured::text(scaler, &["spec", "scaleTargetRef", name]);
        format!("{}/{}", field("kind"), field("name")).into()
    }),
    string_column("Targets", "The metrics it watches: present and wanted.", |scaler, _| targets_cell(scaler)),
    string_column("MinPods", "The least pods it leaves.", |scaler, _| {
        let least = unstructured::integer(scaler, &["spec", "minReplicas"]);
        least.map_or_else(|| "<unset>".into(), |least| least.to_string().into())
    }),
    string_column("MaxPods", "The most pods it makes.", |scaler, _| integer_cell(scaler, &["spec", "maxReplicas"])),
    string_column("Replicas", "How many pods there are.", |scaler, _| {
        integer_cell(scaler, &["status", "currentReplicas"])
    }),
    AGE,
];

/// How many metrics of an autoscaler are shown.
const METRICS_SHOWN_MAX: usize = 2;

fn targets_cell(scaler: &JsonObject) -> Value {
    let current_metrics: Vec<&JsonObject> = objects(scaler, &["status", "currentMetrics"]).collect();
    let metrics = objects(scaler, &["spec", "metrics"]).enumerate();
    let mut shown: Vec<String> =
        metrics.map(|(at, metric)| target_text(metric, current_metrics.get(at).copied())).collect();
    // The first version knows but one metric.
    if let Some(wanted) = unstructured::integer(scaler, &["spec", "targetCPUUtilizationPercentage"]) {
        let present = unstructured::integer(scaler, &["status", "currentCPUUtilizationPercentage"]);
        let present = present.map_or_else(|| "<unknown>".to_owned(), |percent| format!("{percent}%"));
        shown.push(format!("cpu: {present}/{wanted}%"));
    }
    match shown.len().checked_sub(METRICS_SHOWN_MAX) {
        Some(rest @ 1..) => format!("{} + {rest} more...", shown[..METRICS_SHOWN_MAX].join(", ")).into(),
        _ => cells::or_placeholder(shown.join(", "), "<none>"),
    }
}

fn target_text(metric: &JsonObject, current: Option<&JsonObject>) -> String {
    let source = match unstructured::text(metric, &["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let wanted = |field: &str| quantity_text(metric, &[source, "target", field]);
    let present = |field: &str| current.and_then(|now| quantity_text(now, &[source, "current", field]));
    let unknown = || "<unknown>".to_owned();
    let average = wanted("averageValue");
    match source {
        "pods" => format!("{}/{}", present("averageValue").unwrap_or_else(unknown), average.unwrap_or_default()),
        "external" | "object" => match average {
            Some(average) => format!("{}/{average} (avg)", present("averageValue").unwrap_or_else(unknown)),
            None => format!("{}/{}", present("value").unwrap_or_else(unknown), wanted("value").unwrap_or_default()),
        },
        _ => {
            let name = string_cell(metric, &[source, "name"]);
            let name = name.as_str().unwrap_or_default();
            let percent =
                |value: Option<String>, none: &str| value.map_or_else(|| none.to_owned(), |value| format!("{value}%"));
            match average {
                Some(average) => format!("{name}: {}/{average}", present("averageValue").unwrap_or_else(unknown)),
                None => format!(
                    "{name}: {}/{}",
                    percent(present("averageUtilization"), "<unknown>"),
                    percent(wanted("averageUtilization"), "<auto>")
                ),
            }
        }
    }
}

/// A quantity or a number, as text.
fn quantity_text(object: &JsonObject, path: &[&str]) -> Option<String> {
    match unstructured::get(object, path)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
