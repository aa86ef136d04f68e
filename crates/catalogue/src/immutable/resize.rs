//! `pods/resize`: cpu and memory of containers may change, nothing else.
//!
//! The server has already put back what the subresource never writes (image, node, labels). These rules judge what is left:
//! the lists of containers with their resources and resize policies, and the resources of the whole pod.

use std::cmp::Ordering;

use api::FieldError;
use serde_json::{Map, Value, json};

use super::difference::difference;
use super::{Update, copy, items};
use crate::qos::qos_class;
use crate::release::Release;
use crate::schema::compare_quantities;
use crate::schema::same::is_same;

/// How Kubernetes prints the path of a refusal that is about no field.
const NO_PATH: &str = "[]";
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
const ONLY_CPU_AND_MEMORY: &str = "only cpu and memory resources are mutable";
const LISTS: [&str; 2] = ["initContainers", "containers"];

pub(super) fn pod(update: Update<'_>) -> Vec<FieldError> {
    let release = update.gates.release();
    if let Some(fault) = unsupported_pod(update) {
        return vec![fault];
    }
    let mut faults: Vec<FieldError> = [changed_class(update), unsupported_node(update)].into_iter().flatten().collect();
    if release >= Release::R35 && has_pod_level_resources(update) {
        if !update.gates.enabled("InPlacePodLevelResourcesVerticalScaling") {
            let detail = "resize of pods with pod-level resources is forbidden when \
                          InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
            faults.push(FieldError::forbidden(NO_PATH, detail));
            return faults;
        }
        faults.extend(pod_level_resources(update));
    }
    if release == Release::R36 && !items(update.before("status.nodeAllocatableResourceClaimStatuses")).is_empty() {
        faults.push(FieldError::forbidden("spec", "pods with node allocatable resource claims cannot be resized"));
    }
    let moved = moved_containers(update);
    if !moved.is_empty() {
        faults.extend(moved);
        return faults;
    }
    for list in LISTS {
        faults.extend(removed_resources(update, list));
    }
    if release >= Release::R33 {
        faults.extend(changed_containers(update));
        faults.extend(changed_init_containers(update));
    }
    if release < Release::R33 || faults.is_empty() {
        faults.extend(changed_rest(update));
    }
    faults
}

/// A pod that is never resized, whatever is asked for.
fn unsupported_pod(update: Update<'_>) -> Option<FieldError> {
    let annotations = update.before("metadata.annotations");
    let detail = if update.gates.release() < Release::R35 && has_pod_level_resources(update) {
        "pods with pod-level resources cannot be resized"
    } else if annotations.is_some_and(|annotations| annotations.get(MIRROR_ANNOTATION).is_some()) {
        "static pods cannot be resized"
    } else if update.text_before("spec.os.name") == "windows" {
        "windows pods cannot be resized"
    } else {
        return None;
    };
    Some(FieldError::forbidden(NO_PATH, detail))
}

fn changed_class(update: Update<'_>) -> Option<FieldError> {
    let before = match update.text_before("status.qosClass") {
        "" => qos_class(update.old),
        class => class,
    };
    let detail = "Pod QOS Class may not change as a result of resizing";
    (before != qos_class(update.new)).then(|| FieldError::invalid("spec", update.text_after("status.qosClass"), detail))
}

/// A kubelet that resizes reports the resources of running containers.
fn unsupported_node(update: Update<'_>) -> Option<FieldError> {
    let running = items(update.before("status.containerStatuses"))
        .iter()
        .find(|status| status.get("state").is_some_and(|state| state.get("running").is_some_and(|at| !at.is_null())))?;
    let is_supported = running.get("resources").is_some_and(|resources| !resources.is_null());
    (!is_supported).then(|| FieldError::forbidden("spec", "Pod running on node without support for resize"))
}

fn has_pod_level_resources(update: Update<'_>) -> bool {
    let is_set = |resources: Option<&Value>| {
        let list = |name: &str| resources.and_then(|resources| resources.get(name)).and_then(Value::as_object);
        ["requests", "limits"].iter().any(|name| list(name).is_some_and(|list| !list.is_empty()))
    };
    is_set(update.before("spec.resources")) || is_set(update.after("spec.resources"))
}

fn pod_level_resources(update: Update<'_>) -> Vec<FieldError> {
    let path = "spec.resources";
    let (old, new) = (update.before(path), update.after(path));
    let mut faults = Vec::new();
    if old.is_some() && new.is_none() {
        return vec![FieldError::forbidden(path, "pod-level resources cannot be removed")];
    }
    for (list, detail) in [
        ("requests", "pod-level resource requests cannot be removed"),
        ("limits", "pod-level resource limits cannot be removed"),
    ] {
        if is_removed(old.and_then(|old| old.get(list)), new.and_then(|new| new.get(list))) {
            faults.push(FieldError::forbidden(format!("{path}.{list}"), detail));
        }
    }
    let masked = new.map(|new| masked(old, new, Claims::Compared));
    if update.field(path).is_some_and(|field| !is_same(field, old, masked.as_ref())) {
        faults.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable at pod-level"));
    }
    faults
}

/// Containers that were added, removed, renamed or reordered. Before 1.33 the server matched them by name.
fn moved_containers(update: Update<'_>) -> Vec<FieldError> {
    let mut faults = Vec::new();
    for list in ["containers", "initContainers"] {
        let path = format!("spec.{list}");
        let [old, new] = [update.before(&path), update.after(&path)].map(items);
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

fn removed_resources(update: Update<'_>, list: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let path = format!("spec.{list}");
    let [olds, news] = [update.before(&path), update.after(&path)].map(items);
    for (at, (old, new)) in olds.iter().zip(news).enumerate() {
        if list == "initContainers" && !is_resizable(update, old) {
            continue;
        }
        let path = format!("{path}[{at}].resources");
        let of = |container: &'_ Value, list: &str| container.get("resources").and_then(|all| all.get(list)).cloned();
        for (list, detail) in
            [("requests", "resource requests cannot be removed"), ("limits", "resource limits cannot be removed")]
        {
            if is_removed(of(old, list).as_ref(), of(new, list).as_ref()) {
                faults.push(FieldError::forbidden(format!("{path}.{list}"), detail));
            }
        }
        if update.gates.release() == Release::R33 {
            faults.extend(lowered_memory(old, new, &path));
        }
    }
    faults
}

/// Only 1.33 refuses to lower a memory limit without a restart.
fn lowered_memory(old: &Value, new: &Value, path: &str) -> Option<FieldError> {
    let policies = items(new.get("resizePolicy"));
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

fn changed_containers(update: Update<'_>) -> Vec<FieldError> {
    let path = "spec.containers";
    let pairs = items(update.before(path)).iter().zip(items(update.after(path)));
    let changed = pairs.filter(|(old, new)| !is_same_container(update, path, old, &masked_container(update, old, new)));
    changed.map(|_| FieldError::forbidden("spec", ONLY_CPU_AND_MEMORY)).collect()
}

fn changed_init_containers(update: Update<'_>) -> Vec<FieldError> {
    let path = "spec.initContainers";
    let mut faults = Vec::new();
    let pairs = items(update.before(path)).iter().zip(items(update.after(path)));
    for (at, (old, new)) in pairs.enumerate() {
        let is_modified = !is_same_container(update, path, old, new);
        if !is_resizable(update, new) {
            if is_modified {
                let detail = "resources for non-sidecar init containers are immutable";
                faults.push(FieldError::forbidden("spec", detail));
            }
            continue;
        }
        if !is_same_container(update, path, old, &masked_container(update, old, new)) {
            faults.push(if update.gates.release() < Release::R36 {
                FieldError::forbidden("spec", "only cpu and memory resources for sidecar containers are mutable")
            } else {
                let detail = "only cpu and memory resources for init or sidecar containers are mutable";
                FieldError::forbidden(format!("{path}[{at}]"), detail)
            });
        }
        let restarts = items(new.get("resizePolicy"))
            .iter()
            .filter(|policy| policy.get("restartPolicy").is_some_and(|word| word == "RestartContainer"));
        if is_modified && !is_restartable(new) {
            faults.extend(restarts.map(|_| {
                let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                FieldError::forbidden(format!("{path}[{at}]"), detail)
            }));
        }
    }
    faults
}

/// Everything beside cpu and memory. From 1.33 on the rules above have refused most of it already, in better words.
fn changed_rest(update: Update<'_>) -> Option<FieldError> {
    let mut allowed = update.after("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    // Before 1.33 init containers could not be resized at all.
    let lists = if update.gates.release() < Release::R33 { &LISTS[1..] } else { &LISTS };
    for list in lists {
        let olds = items(update.before("spec").and_then(|spec| spec.get(list)));
        let containers = allowed.get_mut(*list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, old) in containers.zip(olds) {
            *container = masked_container(update, old, container);
        }
    }
    if update.gates.enabled("InPlacePodLevelResourcesVerticalScaling") {
        copy(update.before("spec.resources"), &mut allowed, "resources");
    }
    let (old, allowed) = (update.before("spec"), Value::Object(allowed));
    if update.field("spec").is_none_or(|spec| is_same(spec, old, Some(&allowed))) {
        return None;
    }
    let detail = match update.gates.release() < Release::R33 {
        true => format!("{ONLY_CPU_AND_MEMORY}\n{}", difference(old.unwrap_or(&Value::Null), &allowed)),
        false => ONLY_CPU_AND_MEMORY.to_owned(),
    };
    Some(FieldError::forbidden("spec", detail))
}

fn is_restartable(container: &Value) -> bool {
    container.get("restartPolicy").is_some_and(|policy| policy == "Always")
}

fn is_resizable(update: Update<'_>, init_container: &Value) -> bool {
    is_restartable(init_container) || update.gates.enabled("InPlacePodVerticalScalingInitContainers")
}

/// Whether a list of resources lost one.
fn is_removed(old: Option<&Value>, new: Option<&Value>) -> bool {
    let new = new.and_then(Value::as_object);
    let mut names = old.and_then(Value::as_object).into_iter().flat_map(Map::keys);
    names.any(|name| new.is_none_or(|new| !new.contains_key(name)))
}

fn is_same_container(update: Update<'_>, path: &str, old: &Value, new: &Value) -> bool {
    let one = |container: &Value| Value::Array(vec![container.clone()]);
    update.field(path).is_none_or(|list| is_same(list, Some(&one(old)), Some(&one(new))))
}

/// A container with the cpu and memory of its old state.
fn masked_container(update: Update<'_>, old: &Value, new: &Value) -> Value {
    let release = update.gates.release();
    let mut container = new.clone();
    let claims = if release < Release::R37 { Claims::Dropped } else { Claims::Compared };
    container["resources"] = match new.get("resources") {
        Some(resources) => masked(old.get("resources"), resources, claims),
        None => masked(old.get("resources"), &json!({}), claims),
    };
    if release < Release::R33
        && let Some(container) = container.as_object_mut()
    {
        copy(old.get("resizePolicy"), container, "resizePolicy");
    }
    container
}

/// Up to 1.36 Kubernetes leaves claims out of the comparison on one side only, so that a container with claims is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claims {
    Dropped,
    Compared,
}

fn masked(old: Option<&Value>, new: &Value, claims: Claims) -> Value {
    let mut masked = new.as_object().cloned().unwrap_or_default();
    if claims == Claims::Dropped {
        masked.remove("claims");
    }
    for list in ["limits", "requests"] {
        let old = old.and_then(|old| old.get(list));
        let resources = masked.entry(list).or_insert_with(|| json!({}));
        let Some(resources) = resources.as_object_mut() else { continue };
        for name in ["cpu", "memory"] {
            copy(old.and_then(|old| old.get(name)), resources, name);
        }
    }
    Value::Object(masked)
}
