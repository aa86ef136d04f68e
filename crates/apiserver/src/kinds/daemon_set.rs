//! DaemonSets: an annotation counts the changes of what their pods look like.

use serde_json::{Value, json};

use crate::forms::Object;

/// A number that was a field once; controllers still label pods by it.
const COUNT: &str = "deprecated.daemonset.template.generation";

/// The first look of the pods.
pub(super) fn complete(object: &mut Object) {
    let count = count_of(object).max(1);
    set_count(object, count);
}

/// The count stays as it is, or grows with a new look.
pub(super) fn keep(old: &Object, new: &mut Object) {
    let template = |object: &Object| object.get("spec").and_then(|spec| spec.get("template")).cloned();
    let count = count_of(old).saturating_add(i64::from(template(old) != template(new)));
    set_count(new, count.max(1));
}

fn count_of(object: &Object) -> i64 {
    let annotation = object.get("metadata").and_then(|metadata| metadata.get("annotations")?.get(COUNT)?.as_str());
    annotation.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_count(object: &mut Object, count: i64) {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let annotations = metadata.as_object_mut().map(|metadata| metadata.entry("annotations").or_insert(Value::Null));
    let Some(annotations) = annotations else { return };
    if annotations.is_null() {
        *annotations = json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(COUNT.to_owned(), count.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_template_are_counted() {
        let set = |image: &str| {
            let Value::Object(set) = json!({"metadata": {"name": "d"}, "spec": {"template": {"image": image}}}) else {
                unreachable!("it is an object")
            };
            set
        };
        let mut first = set("a");
        complete(&mut first);
        assert_eq!(count_of(&first), 1);
        let mut same = set("a");
        keep(&first, &mut same);
        assert_eq!(count_of(&same), 1);
        let mut next = set("b");
        keep(&same, &mut next);
        assert_eq!(count_of(&next), 2);
        set_count(&mut same, i64::MAX);
        keep(&same, &mut next);
        assert_eq!(count_of(&next), i64::MAX);
    }
}
