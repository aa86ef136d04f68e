//! Rules shared by workloads: replicas, selectors, pod templates, rolling updates.

use api::json::JsonObject;
use object::table::cells::{string_column, wide_column};
use object::table::{Column, cells};
use object::unstructured;
use object::unstructured::objects;
use serde_json::Value;

use crate::fields::{is_empty_value, object_field_mut, set_if_absent, set_if_empty, string_field};
use crate::pod::validation::check_pod_template;
use crate::update_validation::immutable_fields::{ImmutableField, fixed_field};
use crate::validation::Field;
use crate::validation::labels::selector_matches;

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

/// Rules that differ between workloads with replicas.
pub(crate) struct WorkloadWords {
    /// The kind in the message about an empty selector.
    pub(crate) empty_selector: &'static str,
    /// The kind in the message about a deadline.
    pub(crate) deadline: &'static str,
}

/// Requires a selector with at least one term. False if the selector cannot be used.
pub(crate) fn check_selector(selector: Field<'_>, words: &WorkloadWords) -> bool {
    if !selector.is_present() {
        selector.required("");
        return true;
    }
    let errors = selector.error_count();
    selector.label_selector();
    let is_valid = selector.error_count() == errors;
    if !selector.has_selector_terms() {
        selector.invalid(format!("empty selector is invalid for {}", words.empty_selector));
    }
    is_valid
}

/// The pod template of a workload whose pods run for ever.
pub(crate) fn check_template(template: Field<'_>, selector: Field<'_>, words: &WorkloadWords) {
    check_template_labels(template, selector);
    check_pod_template(template);
    check_runs_for_ever(template, words);
}

pub(crate) fn check_template_labels(template: Field<'_>, selector: Field<'_>) {
    let labels = template.path("metadata.labels");
    // An absent selector matches nothing, an empty one everything.
    if !selector.is_present() || !selector_matches(selector, labels) {
        labels.invalid("`selector` does not match template `labels`");
    }
}

pub(crate) fn check_runs_for_ever(template: Field<'_>, words: &WorkloadWords) {
    template.path("spec.restartPolicy").one_of(&["Always"]);
    let deadline = template.path("spec.activeDeadlineSeconds");
    if deadline.is_present() {
        deadline.forbidden(format!("activeDeadlineSeconds in {} is not Supported", words.deadline));
    }
}

/// Counts of pods in a status: none is negative, and none greater than the number of replicas.
pub(crate) fn check_replica_counts(status: Field<'_>, names: &[&'static str], below_replicas: &[&'static str]) {
    names.iter().for_each(|name| status.at(name).not_negative());
    let replicas = status.at("replicas").integer_or_zero();
    for count in below_replicas.iter().map(|name| status.at(name)) {
        if count.integer_or_zero() > replicas {
            count.invalid("cannot be greater than status.replicas");
        }
    }
}

/// `of_ready` names the count of ready pods in the message.
pub(crate) fn check_available_are_ready(status: Field<'_>, of_ready: &str) {
    let available = status.at("availableReplicas");
    if available.integer_or_zero() > status.at("readyReplicas").integer_or_zero() {
        available.invalid(format!("cannot be greater than {of_ready}"));
    }
}

/// The number of name collisions only grows.
pub(crate) fn check_collisions(status: Field<'_>, old: Field<'_>) {
    let (now, before) = (status.at("collisionCount"), old.at("collisionCount"));
    if before.is_present() && now.integer_or_zero() < before.integer_or_zero() {
        now.invalid_as(now.integer_or_zero(), "cannot be decremented");
    }
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
