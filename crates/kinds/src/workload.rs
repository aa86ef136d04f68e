//! Rules shared by workloads: replicas, selectors, pod templates, rolling updates.

use api::FieldError;
use api::json::JsonObject;
use object::table::cells::{string_column, wide_column};
use object::table::{Column, cells};
use object::unstructured;
use object::unstructured::objects;
use serde_json::{Map, Value};

use crate::fields::{is_empty_value, list_items, object_field_mut, set_if_absent, set_if_empty, string_field};
use crate::pod::validation::{RESTART_POLICIES, check_pod_spec};
use crate::update_validation::immutable_fields::{ImmutableField, fixed_field};

pub(crate) const READY: Column = string_column("Ready", "How many pods are ready, of how many.", |workload, _| {
    let ready = unstructured::integer(workload, &["status", "readyReplicas"]).unwrap_or_default();
    format!("{ready}/{}", desired_replicas(workload)).into()
});

pub(crate) const SELECTOR_COLUMN: Column = wide_column("Selector", "Which pods are its own.", |workload, _| {
    cells::or_placeholder(cells::selector_text(workload, &["spec", "selector"]), "<none>")
});

pub(crate) const CONTAINERS: Column =
    wide_column("Containers", "The names of the containers.", |object, _| container_fields_cell(object, "name"));

pub(crate) const IMAGES: Column =
    wide_column("Images", "The images of the containers.", |object, _| container_fields_cell(object, "image"));

/// The desired number of pods; 1 by default.
pub(crate) fn desired_replicas(object: &JsonObject) -> i64 {
    unstructured::integer(object, &["spec", "replicas"]).unwrap_or(1)
}

/// A field of each container of the pod template, or of the pod template within a job template.
fn container_fields_cell(object: &JsonObject, field: &str) -> Value {
    let paths: [&[&str]; 3] = [
        &["spec", "template", "spec", "containers"],
        &["spec", "jobTemplate", "spec", "template", "spec", "containers"],
        &["template", "spec", "containers"],
    ];
    let of_template = paths.into_iter().flat_map(|path| objects(object, path));
    let fields: Vec<&str> = of_template.map(|container| unstructured::text(container, &[field])).collect();
    fields.join(",").into()
}

/// The selector of a workload is immutable.
pub(crate) const SELECTOR_IS_FIXED: &[ImmutableField] = &[fixed_field("spec.selector")];

pub(crate) fn check_workload(errors: &mut Vec<FieldError>, object: &JsonObject) {
    let Some(spec) = object.get("spec") else { return };
    check_replicas(errors, spec);
    check_template(errors, spec, spec.get("selector").unwrap_or(&Value::Null));
}

pub(crate) fn check_replicas(errors: &mut Vec<FieldError>, spec: &Value) {
    if let Some(replicas) = spec.get("replicas").and_then(Value::as_i64).filter(|replicas| *replicas < 0) {
        errors.push(FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0"));
    }
}

/// Rejects a pod template whose labels the selector does not match.
pub(crate) fn check_template(errors: &mut Vec<FieldError>, spec: &Value, selector: &Value) {
    let template = spec.get("template");
    let labels = template.and_then(|template| template.get("metadata")?.get("labels"));
    if has_terms(selector) && template.is_some() && !selector_matches(selector, labels.and_then(Value::as_object)) {
        let shown = labels.cloned().unwrap_or_default();
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", shown, detail));
    }
    check_pod_spec(errors, template.and_then(|template| template.get("spec")), "spec.template.spec");
    let policy = template.and_then(|template| template.get("spec")?.get("restartPolicy")?.as_str());
    if let Some(policy) = policy.filter(|policy| RESTART_POLICIES[1..].contains(policy)) {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
}

fn has_terms(selector: &Value) -> bool {
    let labels = selector.get("matchLabels").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
    labels || !list_items(selector.get("matchExpressions")).is_empty()
}

fn selector_matches(selector: &Value, labels: Option<&Map<String, Value>>) -> bool {
    let label = |key: &str| labels.and_then(|labels| labels.get(key));
    let mut wanted = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    wanted.all(|(key, value)| label(key) == Some(value))
        && list_items(selector.get("matchExpressions")).iter().all(|term| {
            let found = label(term.get("key").and_then(Value::as_str).unwrap_or_default());
            let is_among = found.is_some_and(|found| list_items(term.get("values")).contains(found));
            match term.get("operator").and_then(Value::as_str).unwrap_or_default() {
                "In" => is_among,
                "NotIn" => !is_among,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                // Another rule's concern.
                _ => true,
            }
        })
}

/// The labels of the pod template, unless there are none.
pub(crate) fn template_labels(object: &JsonObject) -> Option<Value> {
    let labels = object.get("spec")?.get("template")?.get("metadata")?.get("labels")?;
    (!is_empty_value(labels)).then(|| labels.clone())
}

/// The update strategy defaults to a rolling update with these parameters.
pub(crate) fn set_rolling_update_defaults(spec: &mut JsonObject, field: &str, parameters: &[(&str, Value)]) {
    let Some(strategy) = object_field_mut(spec, field) else { return };
    set_if_empty(strategy, "type", "RollingUpdate");
    if string_field(strategy, "type") != "RollingUpdate" {
        return;
    }
    let Some(rolling) = object_field_mut(strategy, "rollingUpdate") else { return };
    for (name, value) in parameters {
        set_if_absent(rolling, name, value.clone());
    }
}
