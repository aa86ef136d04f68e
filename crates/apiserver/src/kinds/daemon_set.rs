//! DaemonSets: an annotation counts the changes of what their pods look like.

use api::json::JsonObject;
use serde_json::{Value, json};

/// A number that was a field once; controllers still label pods by it.
const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// The first look of the pods.
pub(super) fn prepare_for_create(object: &mut JsonObject) {
    let generation = template_generation(object).max(1);
    set_template_generation(object, generation);
}

/// The count stays as it is, or grows with a new look.
pub(super) fn prepare_for_update(old: &JsonObject, new: &mut JsonObject) {
    let template = |object: &JsonObject| object.get("spec").and_then(|spec| spec.get("template")).cloned();
    let generation = template_generation(old).saturating_add(i64::from(template(old) != template(new)));
    set_template_generation(new, generation.max(1));
}

fn template_generation(object: &JsonObject) -> i64 {
    let annotation = object
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations")?.get(TEMPLATE_GENERATION_ANNOTATION)?.as_str());
    annotation.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_template_generation(object: &mut JsonObject, generation: i64) {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let annotations = metadata.as_object_mut().map(|metadata| metadata.entry("annotations").or_insert(Value::Null));
    let Some(annotations) = annotations else { return };
    if annotations.is_null() {
        *annotations = json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(TEMPLATE_GENERATION_ANNOTATION.to_owned(), generation.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_generation_counts_template_changes() {
        let set = |image: &str| {
            let Value::Object(set) = json!({"metadata": {"name": "d"}, "spec": {"template": {"image": image}}}) else {
                unreachable!("it is an object")
            };
            set
        };
        let mut first = set("a");
        prepare_for_create(&mut first);
        assert_eq!(template_generation(&first), 1);
        let mut same = set("a");
        prepare_for_update(&first, &mut same);
        assert_eq!(template_generation(&same), 1);
        let mut next = set("b");
        prepare_for_update(&same, &mut next);
        assert_eq!(template_generation(&next), 2);
        set_template_generation(&mut same, i64::MAX);
        prepare_for_update(&same, &mut next);
        assert_eq!(template_generation(&next), i64::MAX);
    }
}
