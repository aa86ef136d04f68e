//! String form of a `LabelSelector`, such as `a=b,c in (d,e),!f`.

use api::json::JsonObject;
use serde_json::{Map, Value};

use crate::unstructured;

/// Requirements sorted by key; empty for the selector that selects everything. `None` for an unknown operator.
pub fn selector_to_string(selector: &Map<String, Value>) -> Option<String> {
    let labels = unstructured::nested_object(selector, &["matchLabels"]).into_iter().flatten();
    let mut requirements: Vec<(&str, String)> =
        labels.map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default()))).collect();
    for expression in unstructured::objects(selector, &["matchExpressions"]) {
        let key = unstructured::text(expression, &["key"]);
        let mut values: Vec<&str> = unstructured::texts(expression, &["values"]).collect();
        values.sort_unstable();
        let values = values.join(",");
        let requirement = match unstructured::text(expression, &["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        requirements.push((key, requirement));
    }
    requirements.sort_by_key(|(key, _)| *key);
    Some(requirements.into_iter().map(|(_, requirement)| requirement).collect::<Vec<_>>().join(","))
}

/// A map of labels as `a=b,c=d`.
pub(crate) fn labels_to_string(labels: &JsonObject) -> String {
    let pairs = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}
