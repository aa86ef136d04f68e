//! Immutable fields of pods: nearly the whole spec.

use api::FieldError;
use api::json::JsonObject;
use object::unstructured::nested_object_mut;
use schema::semantic_equality::is_field_equal;
use schema::{TypeForm, ValueType};
use serde_json::{Map, Value};

use crate::fields::list_items;
use crate::release::Release;
use crate::update_validation::unified_diff::unified_diff;
use crate::update_validation::{FIELD_IS_IMMUTABLE, ObjectUpdate, copy_or_remove};

/// The mutable fields, as listed in error messages.
const MUTABLE_FIELDS: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
     `spec.tolerations` (only additions to existing tolerations),\
     `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Added to the list before 1.32, when an update could change resources.
const MUTABLE_RESOURCES: &str = ",`spec.containers[*].resources` (for CPU/memory only)";

pub(crate) fn check_pod(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    if update.is_unchanged("spec") {
        return Vec::new();
    }
    let mut errors = Vec::new();
    for part in ["containers", "initContainers"] {
        if !check_containers(update, part, &mut errors) {
            return errors;
        }
    }
    if !check_deadline(update, &mut errors) {
        return errors;
    }
    errors.extend(check_tolerations(update));
    errors.extend(check_scheduling_gates(update));
    let mut allowed = with_mutable_fields_of_old(update);
    if !list_items(update.old_value("spec.schedulingGates")).is_empty() {
        check_scheduling_gated(update, &mut allowed, &mut errors);
    }
    let Some(spec) = update.field("spec") else { return errors };
    let allowed = Value::Object(allowed);
    if !is_field_equal(spec, update.old_value("spec"), Some(&allowed)) {
        let difference =
            unified_diff(update.old_value("spec").unwrap_or(&Value::Null), &allowed, Some(spec.value_type()));
        let resources = if allows_resource_changes(update) { MUTABLE_RESOURCES } else { "" };
        let detail = format!("pod updates may not change fields other than {MUTABLE_FIELDS}{resources}\n{difference}");
        errors.push(FieldError::forbidden("spec", detail));
    }
    errors
}

fn list_item_type(shape: ValueType<'_>) -> Option<ValueType<'_>> {
    if let TypeForm::List(items) = shape.form() { Some(items) } else { None }
}

/// `pods/ephemeralcontainers`: containers may be added; existing ones are immutable.
pub(crate) fn check_ephemeral_containers(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.ephemeralContainers";
    let annotations = update.old_value("metadata.annotations");
    if annotations.is_some_and(|annotations| annotations.get("kubernetes.io/config.mirror").is_some()) {
        return vec![FieldError::forbidden("[]", "static pods do not support ephemeral containers")];
    }
    let now = list_items(update.new_value(path));
    let one = |container: &Value| Value::Array(vec![container.clone()]);
    let mut faults = Vec::new();
    for old in list_items(update.old_value(path)) {
        let name = old.get("name").and_then(Value::as_str).unwrap_or_default();
        let detail = match now.iter().find(|new| new.get("name") == old.get("name")) {
            Some(new)
                if update.field(path).is_none_or(|list| is_field_equal(list, Some(&one(old)), Some(&one(new)))) =>
            {
                continue;
            }
            Some(new) => {
                let item = update.field(path).and_then(|list| list_item_type(list.value_type()));
                format!("existing ephemeral containers {name:?} may not be changed\n{}", unified_diff(old, new, item))
            }
            None => format!("existing ephemeral containers {name:?} may not be removed\n"),
        };
        faults.push(FieldError::forbidden(path, detail));
    }
    faults
}

/// `pods/status`: the quality-of-service class is immutable.
pub(crate) fn check_status(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "status.qosClass";
    match update.old_string(path) == update.new_string(path) {
        true => Vec::new(),
        false => vec![FieldError::invalid(path, update.new_string(path), FIELD_IS_IMMUTABLE)],
    }
}

/// Checks a list of containers. False if further checks make no sense.
fn check_containers(update: ObjectUpdate<'_>, part: &str, errors: &mut Vec<FieldError>) -> bool {
    let path = format!("spec.{part}");
    let [old, new] = [update.old_value(&path), update.new_value(&path)].map(list_items);
    if old.len() != new.len() {
        errors.push(FieldError::forbidden(path, "pod updates may not add or remove containers"));
        return false;
    }
    for (at, container) in new.iter().enumerate() {
        let field = format!("{path}[{at}].image");
        let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
        if image.is_empty() {
            errors.push(FieldError::required(&*field, ""));
        }
        if image.trim() != image {
            errors.push(FieldError::invalid(field, image, "must not have leading or trailing whitespace"));
        }
    }
    true
}

/// The deadline may be set and shortened. False if further checks make no sense.
fn check_deadline(update: ObjectUpdate<'_>, errors: &mut Vec<FieldError>) -> bool {
    let path = "spec.activeDeadlineSeconds";
    let [old, new] = [update.old_value(path), update.new_value(path)].map(|value| value.and_then(Value::as_i64));
    let detail = match (old, new) {
        (_, Some(new)) if !(0..=i64::from(i32::MAX)).contains(&new) => "must be between 0 and 2147483647, inclusive",
        (Some(old), Some(new)) if old < new => "must be less than or equal to previous value",
        (Some(_), None) => "must not update from a positive integer to nil value",
        _ => return true,
    };
    errors.push(FieldError::invalid(path, new.map_or(Value::Null, Value::from), detail));
    new.is_none()
}

/// Existing tolerations may change their seconds only; others may be added.
fn check_tolerations(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let path = "spec.tolerations";
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(fields) = toleration.as_object_mut() {
            fields.retain(|name, value| name != "tolerationSeconds" && value.as_str() != Some(""));
        }
        toleration
    };
    let kept: Vec<Value> = list_items(update.new_value(path)).iter().map(without_seconds).collect();
    let is_kept = |old: &Value| kept.contains(&without_seconds(old));
    let detail = "existing toleration can not be modified except its tolerationSeconds";
    (!list_items(update.old_value(path)).iter().all(is_kept)).then(|| FieldError::forbidden(path, detail))
}

/// Scheduling gates may be removed, not added.
fn check_scheduling_gates(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.schedulingGates";
    let name = |gate: &Value| gate.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let old: Vec<String> = list_items(update.old_value(path)).iter().map(name).collect();
    let new = list_items(update.new_value(path)).iter().map(name).enumerate();
    let added = new.filter(|(_, gate)| !old.contains(gate)).map(|(at, gate)| {
        let detail = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
        FieldError::forbidden(format!("{path}[{at}].name"), detail)
    });
    added.collect()
}

/// The new spec with the mutable fields of the old one.
fn with_mutable_fields_of_old(update: ObjectUpdate<'_>) -> JsonObject {
    let empty = Map::new();
    let [old, new] = [update.old_value("spec"), update.new_value("spec")]
        .map(|spec| spec.and_then(Value::as_object).unwrap_or(&empty));
    let mut allowed = new.clone();
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy_or_remove(old.get(name), &mut allowed, name);
    }
    for part in ["containers", "initContainers"] {
        let containers = allowed.get_mut(part).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, old) in containers.zip(list_items(old.get(part))) {
            let Some(container) = container.as_object_mut() else { continue };
            copy_or_remove(old.get("image"), container, "image");
            if part == "containers" && allows_resource_changes(update) {
                allow_resource_changes(old, container);
            }
        }
    }
    let grace = "terminationGracePeriodSeconds";
    let was_negative = old.get(grace).and_then(Value::as_i64).is_some_and(|seconds| seconds < 0);
    if was_negative && allowed.get(grace).and_then(Value::as_i64) == Some(1) {
        copy_or_remove(old.get(grace), &mut allowed, grace);
    }
    allowed
}

fn allows_resource_changes(update: ObjectUpdate<'_>) -> bool {
    update.gates.release() < Release::R32 && update.gates.enabled("InPlacePodVerticalScaling")
}

fn allow_resource_changes(old: &Value, container: &mut JsonObject) {
    for list in ["limits", "requests"] {
        let old = old.get("resources").and_then(|resources| resources.get(list));
        let new = container.get_mut("resources").and_then(|resources| resources.get_mut(list));
        let Some(new) = new.and_then(Value::as_object_mut) else { continue };
        for name in ["cpu", "memory"] {
            copy_or_remove(old.and_then(|old| old.get(name)), new, name);
        }
    }
}

/// While a pod has scheduling gates, its node selection may become narrower. Restores that selection in `allowed`.
fn check_scheduling_gated(update: ObjectUpdate<'_>, allowed: &mut JsonObject, errors: &mut Vec<FieldError>) {
    let path = "spec.nodeSelector";
    let empty = Map::new();
    let [old, new] = [update.old_value(path), update.new_value(path)]
        .map(|selector| selector.and_then(Value::as_object).unwrap_or(&empty));
    if old.iter().any(|(key, value)| new.get(key) != Some(value)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid(path, new.clone(), detail));
    }
    copy_or_remove(update.old_value(path), allowed, "nodeSelector");
    check_node_affinity(update, errors);
    if update.is_unchanged("spec.affinity.nodeAffinity") {
        return;
    }
    let affinity = nested_object_mut(allowed, "affinity");
    copy_or_remove(update.old_value("spec.affinity.nodeAffinity"), affinity, "nodeAffinity");
    if affinity.is_empty() && update.old_value("spec.affinity").is_none() {
        allowed.remove("affinity");
    }
}

fn check_node_affinity(update: ObjectUpdate<'_>, errors: &mut Vec<FieldError>) {
    let path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let [old, new] = [update.old_value(path), update.new_value(path)].map(list_items);
    if !old.is_empty() && old.len() != new.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(FieldError::invalid(path, new.to_vec(), detail));
        return;
    }
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        if !keeps_all_requirements(old, new) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(format!("{path}[{at}]"), new.clone(), detail));
        }
    }
}

/// Whether a term keeps all its requirements. A term without any matches nothing and must stay empty.
fn keeps_all_requirements(old: &Value, new: &Value) -> bool {
    let parts = ["matchExpressions", "matchFields"].map(|part| (list_items(old.get(part)), list_items(new.get(part))));
    if parts.iter().all(|(old, _)| old.is_empty()) {
        return parts.iter().all(|(_, new)| new.is_empty());
    }
    parts.iter().all(|(old, new)| new.starts_with(old))
}
