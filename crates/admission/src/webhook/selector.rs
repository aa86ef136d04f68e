//! Label selectors as API objects have them.

use api::json::JsonObject;
use api::quote::Quoted;
use api::selector::{LabelOperator, LabelRequirement, LabelSelector};
use object::unstructured::{nested_object, objects, text, texts};

/// Reads a `LabelSelector`. The text of an error is Kubernetes'.
pub(crate) fn parse_label_selector(selector: &JsonObject) -> Result<LabelSelector, String> {
    let mut requirements = Vec::new();
    for (key, value) in nested_object(selector, &["matchLabels"]).into_iter().flatten() {
        let values = vec![value.as_str().unwrap_or_default().to_owned()];
        requirements
            .push(LabelRequirement::new(key, LabelOperator::Equals, values).map_err(|error| error.to_string())?);
    }
    for expression in objects(selector, &["matchExpressions"]) {
        let operator = match text(expression, &["operator"]) {
            "In" => LabelOperator::In,
            "NotIn" => LabelOperator::NotIn,
            "Exists" => LabelOperator::Exists,
            "DoesNotExist" => LabelOperator::DoesNotExist,
            other => return Err(format!("{} is not a valid label selector operator", Quoted(other))),
        };
        let values = texts(expression, &["values"]).map(str::to_owned).collect();
        let requirement = LabelRequirement::new(text(expression, &["key"]), operator, values);
        requirements.push(requirement.map_err(|error| error.to_string())?);
    }
    Ok(LabelSelector::from_iter(requirements))
}

/// True if the labels of an object match.
pub(crate) fn matches_labels(selector: &LabelSelector, object: &JsonObject) -> bool {
    let labels = nested_object(object, &["metadata", "labels"]);
    selector.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(serde_json::Value::as_str))
}
