//! Jobs: their pods stay as they are, unless none was made yet.

use api::FieldError;
use serde_json::{Map, Value};

use super::{FIXED, Object, Update, copy, items};
use crate::schema::same::is_same;

pub(super) fn job(update: Update<'_>) -> Vec<FieldError> {
    [completions(update), template(update)].into_iter().flatten().collect()
}

/// Only a job with an index may change how many pods it wants, and how many of them at once with it.
fn completions(update: Update<'_>) -> Option<FieldError> {
    let path = "spec.completions";
    if update.keeps(path) {
        return None;
    }
    if update.text_after("spec.completionMode") != "Indexed" {
        return Some(FieldError::invalid(path, update.shown(path), FIXED));
    }
    let completions = update.after(path)?;
    let is_in_tandem = update.after("spec.parallelism") == Some(completions);
    let detail = "can only be modified in tandem with spec.parallelism";
    (!is_in_tandem).then(|| FieldError::invalid(path, completions.clone(), detail))
}

fn template(update: Update<'_>) -> Option<FieldError> {
    let path = "spec.template";
    if update.keeps(path) {
        return None;
    }
    let is_suspended = update.before("spec.suspend").and_then(Value::as_bool).unwrap_or_default();
    let has_started = update.before("status.startTime").is_some();
    let is_idle = is_suspended && is_without_pods(update);
    let has = |gate: &str| update.gates.enabled(gate);
    let may_move = match has("MutableSchedulingDirectivesForSuspendedJobs") {
        true => is_idle,
        false => is_suspended && !has_started,
    };
    let may_resize = has("MutablePodResourcesForSuspendedJobs") && is_idle;
    let mut allowed = update.before(path).and_then(Value::as_object).cloned().unwrap_or_default();
    let empty = Map::new();
    let new = update.after(path).and_then(Value::as_object).unwrap_or(&empty);
    if may_move {
        free_scheduling(new, &mut allowed);
    }
    if may_resize {
        free_resources(new, &mut allowed);
    }
    let allowed = Value::Object(allowed);
    // Whoever may change what containers ask for may change labels and annotations too.
    let (path, allowed) = match may_resize {
        true => ("spec.template.spec", allowed.get("spec")),
        false => (path, Some(&allowed)),
    };
    let is_kept = is_same(update.field(path)?, allowed, update.after(path));
    (!is_kept).then(|| FieldError::invalid(path, update.shown(path), FIXED))
}

/// Whether a suspended job has no pods: it never had any, or says that they are gone.
fn is_without_pods(update: Update<'_>) -> bool {
    let is_suspended = |condition: &Value| {
        condition.get("type").is_some_and(|kind| kind == "Suspended")
            && condition.get("status").is_some_and(|status| status == "True")
    };
    let has_started = update.before("status.startTime").is_some();
    let active = update.before("status.active").and_then(Value::as_i64).unwrap_or_default();
    active == 0 && (!has_started || items(update.before("status.conditions")).iter().any(is_suspended))
}

/// Where pods may run, and what they are labelled with.
fn free_scheduling(new: &Object, allowed: &mut Object) {
    let [metadata, spec] = ["metadata", "spec"].map(|part| new.get(part));
    let of = |part: Option<&Value>, name: &str| part.and_then(|part| part.get(name)).cloned();
    for name in ["annotations", "labels"] {
        copy(of(metadata, name).as_ref(), child(allowed, "metadata"), name);
    }
    for name in ["nodeSelector", "schedulingGates", "tolerations"] {
        copy(of(spec, name).as_ref(), child(allowed, "spec"), name);
    }
    let affinity = of(spec, "affinity");
    let node_affinity = of(affinity.as_ref(), "nodeAffinity");
    copy(node_affinity.as_ref(), child(child(allowed, "spec"), "affinity"), "nodeAffinity");
}

/// What containers ask for.
fn free_resources(new: &Object, allowed: &mut Object) {
    for part in ["containers", "initContainers"] {
        let new = items(new.get("spec").and_then(|spec| spec.get(part)));
        let old = child(allowed, "spec").get_mut(part).and_then(Value::as_array_mut);
        let Some(old) = old.filter(|old| old.len() == new.len()) else { continue };
        for (old, new) in old.iter_mut().zip(new) {
            let Some(old) = old.as_object_mut().filter(|old| old.get("name") == new.get("name")) else { continue };
            copy(new.get("resources"), old, "resources");
        }
    }
}

/// The object in a field, made if it is not there.
fn child<'a>(object: &'a mut Object, name: &str) -> &'a mut Object {
    let value = object.entry(name).or_insert_with(|| Map::new().into());
    if !value.is_object() {
        *value = Map::new().into();
    }
    value.as_object_mut().expect("it is an object by now")
}
