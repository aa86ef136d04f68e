//! Jobs: each is found by its own pods through labels that no other job has.

use serde_json::{Map, Value, json};

use crate::forms::Object;

/// The labels with a job's name, and those with its uid: with the prefix, and as they once were.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Labels the pods of a new job, and selects them by its uid, unless the client does so itself.
pub(super) fn complete(object: &mut Object) {
    let of_metadata = |object: &Object, name: &str| {
        object.get("metadata").and_then(|metadata| metadata.get(name)).cloned().unwrap_or_default()
    };
    let (name, uid) = (of_metadata(object, "name"), of_metadata(object, "uid"));
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    if let Some(labels) = child(spec, &["template", "metadata", "labels"]) {
        for (label, value) in
            NAME_LABELS.map(|label| (label, &name)).into_iter().chain(UID_LABELS.map(|label| (label, &uid)))
        {
            labels.entry(label).or_insert_with(|| value.clone());
        }
    }
    if let Some(labels) = child(spec, &["selector", "matchLabels"]) {
        labels.entry(UID_LABELS[1]).or_insert(uid);
    }
    // A job without labels has those of its pods.
    let labels = child(spec, &["template", "metadata", "labels"]).cloned().unwrap_or_default();
    if let Some(own) = child(object, &["metadata", "labels"]).filter(|own| own.is_empty()) {
        *own = labels;
    }
}

/// The object at a path, made if it is not there; `None` if something else is in the way.
fn child<'a>(object: &'a mut Map<String, Value>, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    path.iter().try_fold(object, |object, name| object.entry(*name).or_insert_with(|| json!({})).as_object_mut())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(spec: Value) -> Value {
        let metadata = json!({"name": "pi", "uid": "u1"});
        let mut job = Object::from_iter([("metadata".to_owned(), metadata), ("spec".to_owned(), spec)]);
        complete(&mut job);
        job["spec"].clone()
    }

    #[test]
    fn a_job_selects_its_own_pods() {
        let spec = completed(json!({"template": {"metadata": {"labels": {"a": "b", "job-name": "mine"}}}}));
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
    fn whoever_selects_pods_by_hand_is_left_alone() {
        let spec = json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": {}});
        assert_eq!(completed(spec.clone()), spec);
        assert_eq!(completed(Value::Null), Value::Null);
    }
}
