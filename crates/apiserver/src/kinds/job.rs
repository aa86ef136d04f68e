//! Jobs: each is found by its own pods through labels that no other job has.

use api::json::JsonObject;
use serde_json::{Map, Value, json};

/// The labels with a job's name, and those with its uid: with the prefix, and as they once were.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Labels the pods of a new job, and selects them by its uid, unless the client does so itself.
pub(super) fn prepare_for_create(object: &mut JsonObject) {
    let of_metadata = |object: &JsonObject, name: &str| {
        object.get("metadata").and_then(|metadata| metadata.get(name)).cloned().unwrap_or_default()
    };
    let (name, uid) = (of_metadata(object, "name"), of_metadata(object, "uid"));
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    if let Some(labels) = ensure_object_at(spec, &["template", "metadata", "labels"]) {
        for (label, value) in
            NAME_LABELS.map(|label| (label, &name)).into_iter().chain(UID_LABELS.map(|label| (label, &uid)))
        {
            labels.entry(label).or_insert_with(|| value.clone());
        }
    }
    if let Some(labels) = ensure_object_at(spec, &["selector", "matchLabels"]) {
        labels.entry(UID_LABELS[1]).or_insert(uid);
    }
    // A job without labels has those of its pods.
    let labels = ensure_object_at(spec, &["template", "metadata", "labels"]).cloned().unwrap_or_default();
    if let Some(own) = ensure_object_at(object, &["metadata", "labels"]).filter(|own| own.is_empty()) {
        *own = labels;
    }
}

/// The object at a path, made if it is not there; `None` if something else is in the way.
fn ensure_object_at<'a>(object: &'a mut Map<String, Value>, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    path.iter().try_fold(object, |object, name| object.entry(*name).or_insert_with(|| json!({})).as_object_mut())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared_spec(spec: Value) -> Value {
        let metadata = json!({"name": "pi", "uid": "u1"});
        let mut job = JsonObject::from_iter([("metadata".to_owned(), metadata), ("spec".to_owned(), spec)]);
        prepare_for_create(&mut job);
        job["spec"].clone()
    }

    #[test]
    fn job_selects_its_pods_by_uid_label() {
        let spec = prepared_spec(json!({"template": {"metadata": {"labels": {"a": "b", "job-name": "mine"}}}}));
        let labels = json!({
            "a": "b",
            "job-name": "mine",
            "batch.kubernetes.io/job-name": "pi",
            "controller-uid": "u1",
            "batch.kubernetes.io/controller-uid": "u1",
        });
        assert_eq!(spec["template"]["metadata"]["labels"], labels);
        assert_eq!(spec["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u1"}}));
    }

    #[test]
    fn job_with_manual_selector_is_unchanged() {
        let spec = json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": {}});
        assert_eq!(prepared_spec(spec.clone()), spec);
        assert_eq!(prepared_spec(Value::Null), Value::Null);
    }
}
