//! Immutable fields of jobs: the pod template, unless the job is suspended and has no pods yet.

use api::FieldError;
use api::json::JsonObject;
use object::unstructured::nested_object_mut;
use schema::semantic_equality::is_field_equal;
use serde_json::{Map, Value};

use crate::fields::list_items;
use crate::update_validation::{FIELD_IS_IMMUTABLE, ObjectUpdate, copy_or_remove};

pub(crate) fn check_job(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    [check_completions(update), check_template(update)].into_iter().flatten().collect()
}

/// Only an indexed job may change `completions`, and only together with `parallelism`.
fn check_completions(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let path = "spec.completions";
    if update.is_unchanged(path) {
        return None;
    }
    if update.new_string("spec.completionMode") != "Indexed" {
        return Some(FieldError::invalid(path, update.displayed_value(path), FIELD_IS_IMMUTABLE));
    }
    let completions = update.new_value(path)?;
    let is_in_tandem = update.new_value("spec.parallelism") == Some(completions);
    let detail = "can only be modified in tandem with spec.parallelism";
    (!is_in_tandem).then(|| FieldError::invalid(path, completions.clone(), detail))
}

fn check_template(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let path = "spec.template";
    if update.is_unchanged(path) {
        return None;
    }
    let is_suspended = update.old_value("spec.suspend").and_then(Value::as_bool).unwrap_or_default();
    let has_started = update.old_value("status.startTime").is_some();
    let is_idle = is_suspended && is_without_pods(update);
    let has = |gate: &str| update.gates.enabled(gate);
    let may_move = match has("MutableSchedulingDirectivesForSuspendedJobs") {
        true => is_idle,
        false => is_suspended && !has_started,
    };
    let may_resize = has("MutablePodResourcesForSuspendedJobs") && is_idle;
    let mut allowed = update.old_value(path).and_then(Value::as_object).cloned().unwrap_or_default();
    let empty = Map::new();
    let new = update.new_value(path).and_then(Value::as_object).unwrap_or(&empty);
    if may_move {
        allow_scheduling_changes(new, &mut allowed);
    }
    if may_resize {
        allow_resource_changes(new, &mut allowed);
    }
    let allowed = Value::Object(allowed);
    // With the resources of containers, labels and annotations may change too.
    let (path, allowed) = match may_resize {
        true => ("spec.template.spec", allowed.get("spec")),
        false => (path, Some(&allowed)),
    };
    let is_kept = is_field_equal(update.field(path)?, allowed, update.new_value(path));
    (!is_kept).then(|| update.invalid(path, path, FIELD_IS_IMMUTABLE))
}

/// True if the job has no pods: none is active, and it never started or has the condition `Suspended`.
fn is_without_pods(update: ObjectUpdate<'_>) -> bool {
    let is_suspended = |condition: &Value| {
        condition.get("type").is_some_and(|kind| kind == "Suspended")
            && condition.get("status").is_some_and(|status| status == "True")
    };
    let has_started = update.old_value("status.startTime").is_some();
    let active = update.old_value("status.active").and_then(Value::as_i64).unwrap_or_default();
    active == 0 && (!has_started || list_items(update.old_value("status.conditions")).iter().any(is_suspended))
}

/// Allows changes of scheduling fields, labels and annotations of the pod template.
fn allow_scheduling_changes(new: &JsonObject, allowed: &mut JsonObject) {
    let [metadata, spec] = ["metadata", "spec"].map(|part| new.get(part));
    let of = |part: Option<&Value>, name: &str| part.and_then(|part| part.get(name)).cloned();
    for name in ["annotations", "labels"] {
        copy_or_remove(of(metadata, name).as_ref(), nested_object_mut(allowed, "metadata"), name);
    }
    for name in ["nodeSelector", "schedulingGates", "tolerations"] {
        copy_or_remove(of(spec, name).as_ref(), nested_object_mut(allowed, "spec"), name);
    }
    let affinity = of(spec, "affinity");
    let allowed_spec = nested_object_mut(allowed, "spec");
    if affinity.is_none() && !allowed_spec.contains_key("affinity") {
        return;
    }
    let allowed_affinity = nested_object_mut(allowed_spec, "affinity");
    copy_or_remove(of(affinity.as_ref(), "nodeAffinity").as_ref(), allowed_affinity, "nodeAffinity");
    if affinity.is_none() && allowed_affinity.is_empty() {
        allowed_spec.remove("affinity");
    }
}

/// Allows changes of the resources of containers.
fn allow_resource_changes(new: &JsonObject, allowed: &mut JsonObject) {
    for part in ["containers", "initContainers"] {
        let new = list_items(new.get("spec").and_then(|spec| spec.get(part)));
        let old = nested_object_mut(allowed, "spec").get_mut(part).and_then(Value::as_array_mut);
        let Some(old) = old.filter(|old| old.len() == new.len()) else { continue };
        for (old, new) in old.iter_mut().zip(new) {
            let Some(old) = old.as_object_mut().filter(|old| old.get("name") == new.get("name")) else { continue };
            copy_or_remove(new.get("resources"), old, "resources");
        }
    }
}
