//! Validation of `pods/resize`, which may change only cpu and memory.
//!
//! The new state already has the stored values of all fields that the subresource never writes (image, node, labels).
//! These rules check the rest: the lists of containers with their resources and resize policies, and the resources of
//! the whole pod.

use std::cmp::Ordering;

use api::FieldError;
use schema::compare_quantities;
use schema::semantic_equality::is_field_equal;
use serde_json::{Map, Value, json};

use crate::fields::list_items;
use crate::pod::qos::{has_requests_or_limits, qos_class};
use crate::release::Release;
use crate::update_validation::unified_diff::unified_diff;
use crate::update_validation::{ObjectUpdate, copy_or_remove};

/// Path of an error without a field, as Kubernetes prints it.
const NO_PATH: &str = "[]";

const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

const ONLY_CPU_AND_MEMORY: &str = "only cpu and memory resources are mutable";

const CONTAINER_LISTS: [&str; 2] = ["initContainers", "containers"];

pub(crate) fn check_resize(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let release = update.gates.release();
    if let Some(fault) = check_pod_is_resizable(update) {
        return vec![fault];
    }
    let mut faults: Vec<FieldError> =
        [check_qos_class(update), check_node_supports_resize(update)].into_iter().flatten().collect();
    if release >= Release::R35 && has_pod_level_resources(update) {
        if !update.gates.enabled("InPlacePodLevelResourcesVerticalScaling") {
            let detail = "resize of pods with pod-level resources is forbidden when \
                          InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
            faults.push(FieldError::forbidden(NO_PATH, detail));
            return faults;
        }
        faults.extend(check_pod_level_resources(update));
    }
    if release == Release::R36
        && !list_items(update.old_value("status.nodeAllocatableResourceClaimStatuses")).is_empty()
    {
        faults.push(FieldError::forbidden("spec", "pods with node allocatable resource claims cannot be resized"));
    }
    let moved = check_container_order(update);
    if !moved.is_empty() {
        faults.extend(moved);
        return faults;
    }
    for list in CONTAINER_LISTS {
        faults.extend(check_removed_resources(update, list));
    }
    if release >= Release::R33 {
        faults.extend(check_containers(update));
        faults.extend(check_init_containers(update));
    }
    if release < Release::R33 || faults.is_empty() {
        faults.extend(check_other_fields(update));
    }
    faults
}

/// Rejects pods that can never be resized.
fn check_pod_is_resizable(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let annotations = update.old_value("metadata.annotations");
    let detail = if update.gates.release() < Release::R35 && has_pod_level_resources(update) {
        "pods with pod-level resources cannot be resized"
    } else if annotations.is_some_and(|annotations| annotations.get(MIRROR_ANNOTATION).is_some()) {
        "static pods cannot be resized"
    } else if update.old_string("spec.os.name") == "windows" {
        "windows pods cannot be resized"
    } else {
        return None;
    };
    Some(FieldError::forbidden(NO_PATH, detail))
}

fn check_qos_class(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let before = match update.old_string("status.qosClass") {
        "" => qos_class(update.old),
        class => class,
    };
    let detail = "Pod QOS Class may not change as a result of resizing";
    (before != qos_class(update.new)).then(|| FieldError::invalid("spec", update.new_string("status.qosClass"), detail))
}

/// A kubelet that resizes reports the resources of running containers.
fn check_node_supports_resize(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let running = list_items(update.old_value("status.containerStatuses"))
        .iter()
        .find(|status| status.get("state").is_some_and(|state| state.get("running").is_some_and(|at| !at.is_null())))?;
    let is_supported = running.get("resources").is_some_and(|resources| !resources.is_null());
    (!is_supported).then(|| FieldError::forbidden("spec", "Pod running on node without support for resize"))
}

fn has_pod_level_resources(update: ObjectUpdate<'_>) -> bool {
    let is_set = |resources: Option<&Value>| resources.is_some_and(has_requests_or_limits);
    is_set(update.old_value("spec.resources")) || is_set(update.new_value("spec.resources"))
}

fn check_pod_level_resources(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.resources";
    let (old, new) = (update.old_value(path), update.new_value(path));
    let mut faults = Vec::new();
    if old.is_some() && new.is_none() {
        return vec![FieldError::forbidden(path, "pod-level resources cannot be removed")];
    }
    for (list, detail) in [
        ("requests", "pod-level resource requests cannot be removed"),
        ("limits", "pod-level resource limits cannot be removed"),
    ] {
        if has_lost_resource(old.and_then(|old| old.get(list)), new.and_then(|new| new.get(list))) {
            faults.push(FieldError::forbidden(format!("{path}.{list}"), detail));
        }
    }
    let masked = new.map(|new| with_amounts_of_old(old, new, ClaimsComparison::Compared));
    if update.field(path).is_some_and(|field| !is_field_equal(field, old, masked.as_ref())) {
        faults.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable at pod-level"));
    }
    faults
}

/// Containers that were added, removed, renamed or reordered. Before 1.33 the server matched them by name.
fn check_container_order(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let mut faults = Vec::new();
    for list in ["containers", "initContainers"] {
        let path = format!("spec.{list}");
        let [old, new] = [update.old_value(&path), update.new_value(&path)].map(list_items);
        if old.len() != new.len() {
            faults.push(FieldError::forbidden(path, format!("{list} may not be added or removed on resize")));
            continue;
        }
        let renamed = old.iter().zip(new).enumerate().filter(|(_, (old, new))| old.get("name") != new.get("name"));
        faults.extend(renamed.map(|(at, _)| {
            let detail = format!("{list} may not be renamed or reordered on resize");
            FieldError::forbidden(format!("{path}[{at}].name"), detail)
        }));
    }
    faults
}

fn check_removed_resources(update: ObjectUpdate<'_>, list: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let path = format!("spec.{list}");
    let [olds, news] = [update.old_value(&path), update.new_value(&path)].map(list_items);
    for (at, (old, new)) in olds.iter().zip(news).enumerate() {
        if list == "initContainers" && !is_resizable(update, old) {
            continue;
        }
        let path = format!("{path}[{at}].resources");
        let of = |container: &'_ Value, list: &str| container.get("resources").and_then(|all| all.get(list)).cloned();
        for (list, detail) in
            [("requests", "resource requests cannot be removed"), ("limits", "resource limits cannot be removed")]
        {
            if has_lost_resource(of(old, list).as_ref(), of(new, list).as_ref()) {
                faults.push(FieldError::forbidden(format!("{path}.{list}"), detail));
            }
        }
        if update.gates.release() == Release::R33 {
            faults.extend(check_lowered_memory(old, new, &path));
        }
    }
    faults
}

/// Only 1.33 rejects a lower memory limit without a restart.
fn check_lowered_memory(old: &Value, new: &Value, path: &str) -> Option<FieldError> {
    let policies = list_items(new.get("resizePolicy"));
    let policy = policies.iter().find(|policy| policy.get("resourceName").is_some_and(|name| name == "memory"));
    if policy.is_some_and(|policy| policy.get("restartPolicy").is_some_and(|word| word == "RestartContainer")) {
        return None;
    }
    let limit = |container: &Value| container.get("resources")?.get("limits")?.get("memory").cloned();
    let verb = match (limit(old), limit(new)) {
        (Some(old), Some(new)) if compare_quantities(&new, &old) == Some(Ordering::Less) => "decreased",
        (None, Some(_)) => "added",
        _ => return None,
    };
    let detail = format!("memory limits cannot be {verb} unless resizePolicy is RestartContainer");
    Some(FieldError::forbidden(format!("{path}.limits[memory]"), detail))
}

fn check_containers(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.containers";
    let pairs = list_items(update.old_value(path)).iter().zip(list_items(update.new_value(path)));
    let changed =
        pairs.filter(|(old, new)| !is_same_container(update, path, old, &with_cpu_and_memory_of_old(update, old, new)));
    changed.map(|_| FieldError::forbidden("spec", ONLY_CPU_AND_MEMORY)).collect()
}

fn check_init_containers(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.initContainers";
    let mut faults = Vec::new();
    let pairs = list_items(update.old_value(path)).iter().zip(list_items(update.new_value(path)));
    for (at, (old, new)) in pairs.enumerate() {
        let is_modified = !is_same_container(update, path, old, new);
        if !is_resizable(update, new) {
            if is_modified {
                let detail = "resources for non-sidecar init containers are immutable";
                faults.push(FieldError::forbidden("spec", detail));
            }
            continue;
        }
        if !is_same_container(update, path, old, &with_cpu_and_memory_of_old(update, old, new)) {
            faults.push(if update.gates.release() < Release::R36 {
                FieldError::forbidden("spec", "only cpu and memory resources for sidecar containers are mutable")
            } else {
                let detail = "only cpu and memory resources for init or sidecar containers are mutable";
                FieldError::forbidden(format!("{path}[{at}]"), detail)
            });
        }
        let restarts = list_items(new.get("resizePolicy"))
            .iter()
            .filter(|policy| policy.get("restartPolicy").is_some_and(|word| word == "RestartContainer"));
        if is_modified && !is_sidecar(new) {
            faults.extend(restarts.map(|_| {
                let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                FieldError::forbidden(format!("{path}[{at}]"), detail)
            }));
        }
    }
    faults
}

/// Rejects changes of anything but cpu and memory. From 1.33 on the other checks refuse most of it first, in better
/// words.
fn check_other_fields(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let mut allowed = update.new_value("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    // Before 1.33 init containers could not be resized at all.
    let lists = if update.gates.release() < Release::R33 { &CONTAINER_LISTS[1..] } else { &CONTAINER_LISTS };
    for list in lists {
        let olds = list_items(update.old_value("spec").and_then(|spec| spec.get(list)));
        let containers = allowed.get_mut(*list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, old) in containers.zip(olds) {
            *container = with_cpu_and_memory_of_old(update, old, container);
        }
    }
    if update.gates.enabled("InPlacePodLevelResourcesVerticalScaling") {
        copy_or_remove(update.old_value("spec.resources"), &mut allowed, "resources");
    }
    let (old, allowed) = (update.old_value("spec"), Value::Object(allowed));
    if update.field("spec").is_none_or(|spec| is_field_equal(spec, old, Some(&allowed))) {
        return None;
    }
    let detail = match update.gates.release() < Release::R33 {
        true => format!("{ONLY_CPU_AND_MEMORY}\n{}", unified_diff(old.unwrap_or(&Value::Null), &allowed, None)),
        false => ONLY_CPU_AND_MEMORY.to_owned(),
    };
    Some(FieldError::forbidden("spec", detail))
}

fn is_sidecar(container: &Value) -> bool {
    container.get("restartPolicy").is_some_and(|policy| policy == "Always")
}

fn is_resizable(update: ObjectUpdate<'_>, init_container: &Value) -> bool {
    is_sidecar(init_container) || update.gates.enabled("InPlacePodVerticalScalingInitContainers")
}

/// Whether a resource was removed from a list.
fn has_lost_resource(old: Option<&Value>, new: Option<&Value>) -> bool {
    let new = new.and_then(Value::as_object);
    let mut names = old.and_then(Value::as_object).into_iter().flat_map(Map::keys);
    names.any(|name| new.is_none_or(|new| !new.contains_key(name)))
}

fn is_same_container(update: ObjectUpdate<'_>, path: &str, old: &Value, new: &Value) -> bool {
    let one = |container: &Value| Value::Array(vec![container.clone()]);
    update.field(path).is_none_or(|list| is_field_equal(list, Some(&one(old)), Some(&one(new))))
}

/// A container with the cpu and memory of its old state.
fn with_cpu_and_memory_of_old(update: ObjectUpdate<'_>, old: &Value, new: &Value) -> Value {
    let release = update.gates.release();
    let mut container = new.clone();
    let claims = if release < Release::R37 { ClaimsComparison::Ignored } else { ClaimsComparison::Compared };
    container["resources"] = match new.get("resources") {
        Some(resources) => with_amounts_of_old(old.get("resources"), resources, claims),
        None => with_amounts_of_old(old.get("resources"), &json!({}), claims),
    };
    if release < Release::R33
        && let Some(container) = container.as_object_mut()
    {
        copy_or_remove(old.get("resizePolicy"), container, "resizePolicy");
    }
    container
}

/// Up to 1.36 Kubernetes leaves claims out of the comparison on one side only, so that a container with claims is
/// refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaimsComparison {
    Ignored,
    Compared,
}

fn with_amounts_of_old(old: Option<&Value>, new: &Value, claims: ClaimsComparison) -> Value {
    let mut masked = new.as_object().cloned().unwrap_or_default();
    if claims == ClaimsComparison::Ignored {
        masked.remove("claims");
    }
    for list in ["limits", "requests"] {
        let old = old.and_then(|old| old.get(list));
        let resources = masked.entry(list).or_insert_with(|| json!({}));
        let Some(resources) = resources.as_object_mut() else { continue };
        for name in ["cpu", "memory"] {
            copy_or_remove(old.and_then(|old| old.get(name)), resources, name);
        }
    }
    Value::Object(masked)
}
