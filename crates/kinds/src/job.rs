//! Jobs; each selects its pods by a label with its uid.

mod status;
pub(crate) mod table;
mod update;
pub(crate) mod validation;

use access::User;
use api::json::JsonObject;
use object::rules::GenerationRule;
use object::selectable_fields::SelectableFields;
use object::unstructured;
use object::{KindRules, Rejection};
use serde_json::{Value, json};

use crate::feature_gates::FeatureGates;
use crate::fields::{object_field_mut, set_if_absent, set_if_empty};
use crate::release::Release;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;
use crate::workload::template_labels;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..RULES },
    prepare_for_create,
    prepare_for_update: |_, job| {
        set_labels_of_pods(job);
        Ok(())
    },
    validate: validation::check_job,
    validate_create: validation::check_new_job,
    validate_status: status::check_status,
    validate_update: |job, _| update::check_job(job),
    immutable_fields: &[
        fixed_field("spec.selector"),
        fixed_field("spec.completionMode"),
        fixed_field("spec.podFailurePolicy"),
        fixed_field("spec.backoffLimitPerIndex"),
        fixed_field("spec.managedBy"),
        fixed_field("spec.successPolicy"),
    ],
    columns: table::JOBS,
    selectable_fields: &SelectableFields {
        names: &["metadata.name", "metadata.namespace", "status.successful"],
        value: |job, field| {
            let succeeded = || unstructured::integer(job, &["status", "succeeded"]).unwrap_or_default();
            (field == "status.successful").then(|| succeeded().to_string().into())
        },
        unsupported: |field| format!("field label {field:?} not supported for Job"),
    },
    ..KindStrategy::DEFAULT
};

/// The labels with a job's name, and those with its uid; the older ones have no prefix.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Labels the pods of a new job and selects them by its uid, unless the client set `manualSelector`.
fn prepare_for_create(_: &User, object: &mut JsonObject) -> Result<(), Rejection> {
    let of_metadata = |object: &JsonObject, name: &str| {
        object.get("metadata").and_then(|metadata| metadata.get(name)).cloned().unwrap_or_else(|| "".into())
    };
    let (name, uid) = (of_metadata(object, "name"), of_metadata(object, "uid"));
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        set_labels_of_pods(object);
        return Ok(());
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
    set_labels_of_pods(object);
    Ok(())
}

/// A job without labels has those of its pods, with the generated ones. Unlike in kube-apiserver, where they are a
/// default, no manager owns them: a default cannot know the generated ones.
fn set_labels_of_pods(job: &mut JsonObject) {
    if let Some(labels) = template_labels(job)
        && let Some(metadata) = object_field_mut(job, "metadata")
    {
        set_if_empty(metadata, "labels", labels);
    }
}

/// The object at a path, created if absent; `None` if a value of another type is on the path.
fn ensure_object_at<'a>(object: &'a mut JsonObject, path: &[&str]) -> Option<&'a mut JsonObject> {
    path.iter().try_fold(object, |object, name| object.entry(*name).or_insert_with(|| json!({})).as_object_mut())
}

pub(crate) fn set_job_defaults(job: &mut JsonObject, gates: &FeatureGates) {
    let Some(spec) = object_field_mut(job, "spec") else { return };
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".to_owned(), 1.into());
    }
    set_if_absent(spec, "parallelism", 1);
    // With a limit for each index, none for the whole.
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    set_if_absent(spec, "backoffLimit", limit);
    set_if_absent(spec, "completionMode", "NonIndexed");
    set_if_absent(spec, "suspend", false);
    set_if_absent(spec, "manualSelector", false);
    // The gate was locked for three releases and then removed.
    if gates.enabled("JobPodReplacementPolicy") || gates.release() >= Release::R37 {
        let policy = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        set_if_absent(spec, "podReplacementPolicy", policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared_spec(spec: Value) -> Value {
        let metadata = json!({"name": "pi", "uid": "u1"});
        let mut job = JsonObject::from_iter([("metadata".to_owned(), metadata), ("spec".to_owned(), spec)]);
        prepare_for_create(&User::named("u"), &mut job).unwrap();
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
    fn job_without_labels_has_those_of_its_pods() {
        let job = |labels: Value| {
            let metadata = json!({"name": "pi", "uid": "u1", "labels": labels});
            let spec = json!({"template": {"metadata": {"labels": {"a": "b"}}}});
            let mut job = JsonObject::from_iter([("metadata".to_owned(), metadata), ("spec".to_owned(), spec)]);
            prepare_for_create(&User::named("u"), &mut job).unwrap();
            job
        };
        let without = job(json!({}));
        assert_eq!(without["metadata"]["labels"], without["spec"]["template"]["metadata"]["labels"]);
        assert_eq!(without["metadata"]["labels"]["job-name"], "pi");
        assert_eq!(job(json!({"a": "b"}))["metadata"]["labels"], json!({"a": "b"}));
    }

    #[test]
    fn job_with_manual_selector_is_unchanged() {
        let spec = json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": {}});
        assert_eq!(prepared_spec(spec.clone()), spec);
        assert_eq!(prepared_spec(Value::Null), Value::Null);
    }
}
