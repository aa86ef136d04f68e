//! Jobs: their pods stay as they are, unless none was made yet.

use api::FieldError;
use api::json::JsonObject;
use serde_json::{Map, Value};

use super::{FIELD_IS_IMMUTABLE, ObjectUpdate, copy_or_remove, list_items};
use crate::schema::semantic_equality::is_field_equal;

pub(super) fn check_job(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    [check_completions(update), check_template(update)].into_iter().flatten().collect()
}

/// Only a job with an index may change how many pods it wants, and how many of them at once with it.
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
    // Whoever may change what containers ask for may change labels and annotations too.
    let (path, allowed) = match may_resize {
        true => ("spec.template.spec", allowed.get("spec")),
        false => (path, Some(&allowed)),
    };
    let is_kept = is_field_equal(update.field(path)?, allowed, update.new_value(path));
    (!is_kept).then(|| FieldError::invalid(path, update.displayed_value(path), FIELD_IS_IMMUTABLE))
}

/// Whether a suspended job has no pods: it never had any, or says that they are gone.
fn is_without_pods(update: ObjectUpdate<'_>) -> bool {
    let is_suspended = |condition: &Value| {
        condition.get("type").is_some_and(|kind| kind == "Suspended")
            && condition.get("status").is_some_and(|status| status == "True")
    };
    let has_started = update.old_value("status.startTime").is_some();
    let active = update.old_value("status.active").and_then(Value::as_i64).unwrap_or_default();
    active == 0 && (!has_started || list_items(update.old_value("status.conditions")).iter().any(is_suspended))
}

/// Where pods may run, and what they are labelled with.
fn allow_scheduling_changes(new: &JsonObject, allowed: &mut JsonObject) {
    let [metadata, spec] = ["metadata", "spec"].map(|part| new.get(part));
    let of = |part: Option<&Value>, name: &str| part.and_then(|part| part.get(name)).cloned();
    for name in ["annotations", "labels"] {
        copy_or_remove(of(metadata, name).as_ref(), object_field_mut(allowed, "metadata"), name);
    }
    for name in ["nodeSelector", "schedulingGates", "tolerations"] {
        copy_or_remove(of(spec, name).as_ref(), object_field_mut(allowed, "spec"), name);
    }
    let affinity = of(spec, "affinity");
    let node_affinity = of(affinity.as_ref(), "nodeAffinity");
    copy_or_remove(
        node_affinity.as_ref(),
        object_field_mut(object_field_mut(allowed, "spec"), "affinity"),
        "nodeAffinity",
    );
}

/// What containers ask for.
fn allow_resource_changes(new: &JsonObject, allowed: &mut JsonObject) {
    for part in ["containers", "initContainers"] {
        let new = list_items(new.get("spec").and_then(|spec| spec.get(part)));
        let old = object_field_mut(allowed, "spec").get_mut(part).and_then(Value::as_array_mut);
        let Some(old) = old.filter(|old| old.len() == new.len()) else { continue };
        for (old, new) in old.iter_mut().zip(new) {
            let Some(old) = old.as_object_mut().filter(|old| old.get("name") == new.get("name")) else { continue };
            copy_or_remove(new.get("resources"), old, "resources");
        }
    }
}

/// The object in a field, made if it is not there.
fn object_field_mut<'a>(object: &'a mut JsonObject, name: &str) -> &'a mut JsonObject {
    let value = object.entry(name).or_insert_with(|| Map::new().into());
    if !value.is_object() {
        *value = Map::new().into();
    }
    value.as_object_mut().expect("it is an object by now")
}
