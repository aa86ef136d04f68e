//! What a pod requests in all, as the quota counts it.

use api::json::JsonObject;
use api::time::Time;
use kinds::FeatureGates;
use object::unstructured::{integer, nested_object, objects, text};

use super::evaluator::is_sidecar;
use super::list::ResourceList;
use crate::quantity::Amount;

const NAMES: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// Names that every container must set if a quota limits them.
const REQUIRED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
const HUGE_PAGES: &str = "hugepages-";
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

pub(super) fn is_measured(name: &str) -> bool {
    let extended =
        name.strip_prefix("requests.").is_some_and(|requested| !is_native(name) || requested.starts_with(DEVICE_CLASS));
    NAMES.contains(&name) || name.starts_with(HUGE_PAGES) || name.starts_with("requests.hugepages-") || extended
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// True if the grace period of a pod's deletion is over: a lost node must not hold its quota.
pub(super) fn is_past_grace(pod: &JsonObject, now: Time) -> bool {
    let deleted = text(pod, &["metadata", "deletionTimestamp"]).parse::<Time>();
    let grace = integer(pod, &["metadata", "deletionGracePeriodSeconds"]);
    match (deleted, grace) {
        (Ok(deleted), Some(grace)) => {
            now.timestamp().as_second() > deleted.timestamp().as_second().saturating_add(grace)
        }
        _ => false,
    }
}

/// A pod with a deadline, which the scope `Terminating` means.
pub(super) fn is_terminating(pod: &JsonObject) -> bool {
    integer(pod, &["spec", "activeDeadlineSeconds"]).is_some_and(|seconds| seconds >= 0)
}

/// True if a pod requests neither cpu nor memory.
pub(super) fn is_best_effort(pod: &JsonObject, gates: &FeatureGates) -> bool {
    let class = text(pod, &["status", "qosClass"]);
    if !class.is_empty() {
        return class == "BestEffort";
    }
    let requests_nothing = |holder: &JsonObject| {
        ["requests", "limits"].iter().all(|list| {
            let amounts = resources(holder, list);
            ["cpu", "memory"].iter().all(|name| amounts.0.get(*name).is_none_or(|amount| amount.billionths() <= 0))
        })
    };
    match nested_object(pod, &["spec", "resources"]).filter(|_| gates.enabled("PodLevelResources")) {
        Some(_) => nested_object(pod, &["spec"]).is_none_or(requests_nothing),
        None => containers(pod).all(requests_nothing),
    }
}

fn containers(pod: &JsonObject) -> impl Iterator<Item = &JsonObject> {
    objects(pod, &["spec", "containers"]).chain(objects(pod, &["spec", "initContainers"]))
}

fn resources(holder: &JsonObject, list: &str) -> ResourceList {
    ResourceList::read(nested_object(holder, &["resources", list]))
}

/// The message about containers that do not set what a quota limits.
pub(super) fn missing_resources(pod: &JsonObject, names: &[String], gates: &FeatureGates) -> Option<String> {
    let has_pod_resources = ["requests", "limits"].iter().any(|list| has_pod_level(pod, list));
    if gates.enabled("PodLevelResources") && has_pod_resources {
        return None;
    }
    let mut missing = Vec::new();
    for name in REQUIRED.iter().filter(|name| names.iter().any(|limited| limited == **name)) {
        let lacks = |container: &&JsonObject| {
            !usage_of_totals(&resources(container, "requests"), &resources(container, "limits")).0.contains_key(*name)
        };
        let mut without: Vec<&str> =
            containers(pod).filter(lacks).map(|container| text(container, &["name"])).collect();
        without.sort_unstable();
        without.dedup();
        if !without.is_empty() {
            missing.push(format!("{name} for: {}", without.join(",")));
        }
    }
    (!missing.is_empty()).then(|| format!("must specify {}", missing.join("; ")))
}

fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with(HUGE_PAGES)
}

fn has_pod_level(pod: &JsonObject, list: &str) -> bool {
    nested_object(pod, &["spec", "resources", list]).is_some_and(|list| list.keys().any(|name| is_pod_level(name)))
}

pub(super) fn usage(pod: &JsonObject, gates: &FeatureGates) -> ResourceList {
    let (mut requests, mut limits) = (sum(pod, "requests", gates), sum(pod, "limits", gates));
    let overhead = ResourceList::read(nested_object(pod, &["spec", "overhead"]));
    requests.add(&overhead);
    for (name, amount) in &overhead.0 {
        if let Some(limit) = limits.0.get_mut(name).filter(|limit| limit.billionths() != 0) {
            limit.add(amount);
        }
    }
    usage_of_totals(&requests, &limits)
}

/// The quota usage of a pod with these requests and limits in total.
fn usage_of_totals(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut usage = ResourceList::default();
    usage.set("pods", Amount::of(1));
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = requests.0.get(name) {
            usage.set(name, amount.clone());
            usage.set(&format!("requests.{name}"), amount.clone());
        }
        if let Some(amount) = limits.0.get(name) {
            usage.set(&format!("limits.{name}"), amount.clone());
        }
    }
    for (name, amount) in &requests.0 {
        if name.starts_with(HUGE_PAGES) {
            usage.set(name, amount.clone());
            usage.set(&format!("requests.{name}"), amount.clone());
        }
        let is_extended = !is_native(name) && !name.starts_with("requests.");
        if is_extended || name.starts_with(DEVICE_CLASS) {
            usage.set(&format!("requests.{name}"), amount.clone());
        }
    }
    usage
}

/// What the spec of a pod requests in all, whatever its status says.
pub(crate) fn requests(pod: &JsonObject) -> ResourceList {
    let mut requests = aggregate(pod, |container, _| resources(container, "requests"));
    set_pod_level(&mut requests, pod, "requests");
    requests.add(&ResourceList::read(nested_object(pod, &["spec", "overhead"])));
    requests
}

/// The sum as it counts: during a resize with what the status has; what the pod itself sets replaces it.
fn sum(pod: &JsonObject, list: &str, gates: &FeatureGates) -> ResourceList {
    let effective = |container: &JsonObject, has_status: bool| {
        let status = has_status.then(|| status_of(pod, text(container, &["name"]))).flatten();
        let spec = resources(container, list);
        match status.filter(|_| gates.enabled("InPlacePodVerticalScaling")) {
            Some(status) => in_resize(pod, spec, status, list),
            None => spec,
        }
    };
    let mut sum = aggregate(pod, effective);
    if gates.enabled("PodLevelResources") {
        set_pod_level(&mut sum, pod, list);
    }
    sum
}

/// The sum of containers and sidecars, at least what any init container needs. `effective` gets a container, and whether
/// it keeps running.
fn aggregate(pod: &JsonObject, effective: impl Fn(&JsonObject, bool) -> ResourceList) -> ResourceList {
    let mut sum = ResourceList::default();
    for container in objects(pod, &["spec", "containers"]) {
        sum.add(&effective(container, true));
    }
    let (mut sidecars, mut init) = (ResourceList::default(), ResourceList::default());
    for container in objects(pod, &["spec", "initContainers"]) {
        let mut own = effective(container, is_sidecar(container));
        if is_sidecar(container) {
            sum.add(&own);
            sidecars.add(&own);
            init.raise(&sidecars);
        } else {
            own.add(&sidecars);
            init.raise(&own);
        }
    }
    sum.raise(&init);
    sum
}

fn set_pod_level(sum: &mut ResourceList, pod: &JsonObject, list: &str) {
    if has_pod_level(pod, list) {
        let mut own = ResourceList::read(nested_object(pod, &["spec", "resources", list]));
        own.0.retain(|name, _| is_pod_level(name));
        sum.replace(&own);
    }
}

fn status_of<'a>(pod: &'a JsonObject, name: &str) -> Option<&'a JsonObject> {
    let containers = objects(pod, &["status", "containerStatuses"]);
    let statuses = containers.chain(objects(pod, &["status", "initContainerStatuses"]));
    let status = statuses.filter(|status| text(status, &["name"]) == name).last()?;
    status.contains_key("resources").then_some(status)
}

/// While a resize is pending the larger of old and new counts; if it is infeasible, only the old.
fn in_resize(pod: &JsonObject, spec: ResourceList, status: &JsonObject, list: &str) -> ResourceList {
    let pending =
        objects(pod, &["status", "conditions"]).find(|condition| text(condition, &["type"]) == "PodResizePending");
    let is_infeasible = pending.is_some_and(|condition| text(condition, &["reason"]) == "Infeasible");
    let mut effective = if is_infeasible { ResourceList::default() } else { spec };
    effective.raise(&resources(status, list));
    if list == "requests" {
        effective.raise(&ResourceList::read(nested_object(status, &["allocatedResources"])));
    }
    effective
}
