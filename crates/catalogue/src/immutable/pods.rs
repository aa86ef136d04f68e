//! Pods: nearly nothing of their spec may change.

use api::FieldError;
use serde_json::{Map, Value};

use super::difference::difference;
use super::{FIXED, Object, Update, copy, items};
use crate::release::Release;
use crate::schema::same::is_same;

/// What may change, as refusals list it.
const FREE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
     `spec.tolerations` (only additions to existing tolerations),\
     `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
/// Resources could be changed by an update until they had a subresource of their own.
const FREE_RESOURCES: &str = ",`spec.containers[*].resources` (for CPU/memory only)";

pub(super) fn pod(update: Update<'_>) -> Vec<FieldError> {
    if update.keeps("spec") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for part in ["containers", "initContainers"] {
        if !check_containers(update, part, &mut faults) {
            return faults;
        }
    }
    if !check_deadline(update, &mut faults) {
        return faults;
    }
    faults.extend(tolerations(update));
    faults.extend(scheduling_gates(update));
    let mut allowed = with_free_fields_of_old(update);
    if !items(update.before("spec.schedulingGates")).is_empty() {
        check_gated(update, &mut allowed, &mut faults);
    }
    let Some(spec) = update.field("spec") else { return faults };
    let allowed = Value::Object(allowed);
    if !is_same(spec, update.before("spec"), Some(&allowed)) {
        let difference = difference(update.before("spec").unwrap_or(&Value::Null), &allowed);
        let resources = if has_free_resources(update) { FREE_RESOURCES } else { "" };
        let detail = format!("pod updates may not change fields other than {FREE}{resources}\n{difference}");
        faults.push(FieldError::forbidden("spec", detail));
    }
    faults
}

/// `pods/ephemeralcontainers`: containers are added, and stay as they are.
pub(super) fn ephemeral_containers(update: Update<'_>) -> Vec<FieldError> {
    let path = "spec.ephemeralContainers";
    let annotations = update.before("metadata.annotations");
    if annotations.is_some_and(|annotations| annotations.get("kubernetes.io/config.mirror").is_some()) {
        return vec![FieldError::forbidden("[]", "static pods do not support ephemeral containers")];
    }
    let now = items(update.after(path));
    let one = |container: &Value| Value::Array(vec![container.clone()]);
    let mut faults = Vec::new();
    for old in items(update.before(path)) {
        let name = old.get("name").and_then(Value::as_str).unwrap_or_default();
        let detail = match now.iter().find(|new| new.get("name") == old.get("name")) {
            Some(new) if update.field(path).is_none_or(|list| is_same(list, Some(&one(old)), Some(&one(new)))) => {
                continue;
            }
            Some(new) => {
                format!("existing ephemeral containers {name:?} may not be changed\n{}", difference(old, new))
            }
            None => format!("existing ephemeral containers {name:?} may not be removed\n"),
        };
        faults.push(FieldError::forbidden(path, detail));
    }
    faults
}

/// `pods/status`: the class of service is the server's word.
pub(super) fn status(update: Update<'_>) -> Vec<FieldError> {
    let path = "status.qosClass";
    match update.text_before(path) == update.text_after(path) {
        true => Vec::new(),
        false => vec![FieldError::invalid(path, update.text_after(path), FIXED)],
    }
}

/// Whether it makes sense to look further.
fn check_containers(update: Update<'_>, part: &str, faults: &mut Vec<FieldError>) -> bool {
    let path = format!("spec.{part}");
    let [old, new] = [update.before(&path), update.after(&path)].map(items);
    if old.len() != new.len() {
        faults.push(FieldError::forbidden(path, "pod updates may not add or remove containers"));
        return false;
    }
    for (at, container) in new.iter().enumerate() {
        let field = format!("{path}[{at}].image");
        let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
        if image.is_empty() {
            faults.push(FieldError::required(&*field, ""));
        }
        if image.trim() != image {
            faults.push(FieldError::invalid(field, image, "must not have leading or trailing whitespace"));
        }
    }
    true
}

/// A deadline may be set, and shortened. Says whether it makes sense to look further.
fn check_deadline(update: Update<'_>, faults: &mut Vec<FieldError>) -> bool {
    let path = "spec.activeDeadlineSeconds";
    let [old, new] = [update.before(path), update.after(path)].map(|value| value.and_then(Value::as_i64));
    let detail = match (old, new) {
        (_, Some(new)) if !(0..=i64::from(i32::MAX)).contains(&new) => "must be between 0 and 2147483647, inclusive",
        (Some(old), Some(new)) if old < new => "must be less than or equal to previous value",
        (Some(_), None) => "must not update from a positive integer to nil value",
        _ => return true,
    };
    faults.push(FieldError::invalid(path, new.map_or(Value::Null, Value::from), detail));
    new.is_none()
}

/// Old ones stay, whatever their seconds; others may be added.
fn tolerations(update: Update<'_>) -> Option<FieldError> {
    let path = "spec.tolerations";
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(fields) = toleration.as_object_mut() {
            fields.retain(|name, value| name != "tolerationSeconds" && value.as_str() != Some(""));
        }
        toleration
    };
    let kept: Vec<Value> = items(update.after(path)).iter().map(without_seconds).collect();
    let is_kept = |old: &Value| kept.contains(&without_seconds(old));
    let detail = "existing toleration can not be modified except its tolerationSeconds";
    (!items(update.before(path)).iter().all(is_kept)).then(|| FieldError::forbidden(path, detail))
}

/// Old ones may go; none may be added.
fn scheduling_gates(update: Update<'_>) -> Vec<FieldError> {
    let path = "spec.schedulingGates";
    let name = |gate: &Value| gate.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let old: Vec<String> = items(update.before(path)).iter().map(name).collect();
    let new = items(update.after(path)).iter().map(name).enumerate();
    let added = new.filter(|(_, gate)| !old.contains(gate)).map(|(at, gate)| {
        let detail = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
        FieldError::forbidden(format!("{path}[{at}].name"), detail)
    });
    added.collect()
}

/// The new spec with what may change as it was.
fn with_free_fields_of_old(update: Update<'_>) -> Object {
    let empty = Map::new();
    let [old, new] =
        [update.before("spec"), update.after("spec")].map(|spec| spec.and_then(Value::as_object).unwrap_or(&empty));
    let mut allowed = new.clone();
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy(old.get(name), &mut allowed, name);
    }
    for part in ["containers", "initContainers"] {
        let containers = allowed.get_mut(part).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, old) in containers.zip(items(old.get(part))) {
            let Some(container) = container.as_object_mut() else { continue };
            copy(old.get("image"), container, "image");
            if part == "containers" && has_free_resources(update) {
                free_resources(old, container);
            }
        }
    }
    let grace = "terminationGracePeriodSeconds";
    let was_negative = old.get(grace).and_then(Value::as_i64).is_some_and(|seconds| seconds < 0);
    if was_negative && allowed.get(grace).and_then(Value::as_i64) == Some(1) {
        copy(old.get(grace), &mut allowed, grace);
    }
    allowed
}

fn has_free_resources(update: Update<'_>) -> bool {
    update.gates.release() < Release::R32 && update.gates.enabled("InPlacePodVerticalScaling")
}

fn free_resources(old: &Value, container: &mut Object) {
    for list in ["limits", "requests"] {
        let old = old.get("resources").and_then(|resources| resources.get(list));
        let new = container.get_mut("resources").and_then(|resources| resources.get_mut(list));
        let Some(new) = new.and_then(Value::as_object_mut) else { continue };
        for name in ["cpu", "memory"] {
            copy(old.and_then(|old| old.get(name)), new, name);
        }
    }
}

/// Until the last gate is gone, the choice of nodes may become narrower. `allowed` becomes as it was in this respect.
fn check_gated(update: Update<'_>, allowed: &mut Object, faults: &mut Vec<FieldError>) {
    let path = "spec.nodeSelector";
    let empty = Map::new();
    let [old, new] =
        [update.before(path), update.after(path)].map(|selector| selector.and_then(Value::as_object).unwrap_or(&empty));
    if old.iter().any(|(key, value)| new.get(key) != Some(value)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        faults.push(FieldError::invalid(path, new.clone(), detail));
    }
    copy(update.before(path), allowed, "nodeSelector");
    check_node_affinity(update, faults);
    let old = update.before("spec.affinity.nodeAffinity");
    if old.is_none() && allowed.get("affinity").is_none() {
        return;
    }
    let affinity = allowed.entry("affinity").or_insert_with(|| Map::new().into());
    if let Some(affinity) = affinity.as_object_mut() {
        copy(old, affinity, "nodeAffinity");
    }
}

fn check_node_affinity(update: Update<'_>, faults: &mut Vec<FieldError>) {
    let path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let [old, new] = [update.before(path), update.after(path)].map(items);
    if !old.is_empty() && old.len() != new.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        faults.push(FieldError::invalid(path, new.to_vec(), detail));
        return;
    }
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        if !is_narrower(old, new) {
            let detail = "only additions are allowed (no mutations or deletions)";
            faults.push(FieldError::invalid(format!("{path}[{at}]"), new.clone(), detail));
        }
    }
}

/// Whether a term keeps all its requirements. One without any matches nothing, and so must one stay.
fn is_narrower(old: &Value, new: &Value) -> bool {
    let parts = ["matchExpressions", "matchFields"].map(|part| (items(old.get(part)), items(new.get(part))));
    if parts.iter().all(|(old, _)| old.is_empty()) {
        return parts.iter().all(|(_, new)| new.is_empty());
    }
    parts.iter().all(|(old, new)| new.starts_with(old))
}
