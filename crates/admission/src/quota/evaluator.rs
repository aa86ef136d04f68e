//! Which resources of a quota the objects of a kind use, and how much.

use api::json::JsonObject;
use kinds::FeatureGates;
use object::unstructured::{get, integer, objects, text};
use serde_json::Value;

use super::list::ResourceList;
use super::pod;
use crate::attributes::Operation;
use crate::quantity::Amount;

const CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
const CLAIM_NAMES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
const DEVICES_SUFFIX: &str = ".deviceclass.resource.k8s.io/devices";
/// The most devices of a request for all of them.
const DEVICES_MAX: i64 = 32;
/// Core resources that a quota may also count under their plain name.
const ALIASES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
const IGNORED: &[(&str, &[&str])] = &[
    ("", &["bindings", "componentstatuses", "events"]),
    ("events.k8s.io", &["events"]),
    ("authentication.k8s.io", &["tokenreviews", "selfsubjectreviews"]),
    (
        "authorization.k8s.io",
        &["subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews"],
    ),
];

/// True for resources that no quota counts.
pub fn is_ignored(group: &str, resource: &str) -> bool {
    IGNORED.iter().any(|(ignored, resources)| *ignored == group && resources.contains(&resource))
}

/// How the objects of a resource are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluator<'a> {
    pub(super) kind: EvaluatorKind,
    resource: &'a str,
    /// `count/<resource>.<group>`.
    count_name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvaluatorKind {
    Pods,
    Services,
    VolumeClaims,
    ResourceClaims,
    /// Only the number of objects counts.
    Objects,
}

impl<'a> Evaluator<'a> {
    /// The evaluator of a resource; `None` if no quota counts it.
    pub fn of(group: &str, resource: &'a str, gates: &FeatureGates) -> Option<Self> {
        if is_ignored(group, resource) {
            return None;
        }
        let kind = match (group, resource) {
            ("", "pods") => EvaluatorKind::Pods,
            ("", "services") => EvaluatorKind::Services,
            ("", "persistentvolumeclaims") => EvaluatorKind::VolumeClaims,
            ("resource.k8s.io", "resourceclaims") if gates.enabled("DynamicResourceAllocation") => {
                EvaluatorKind::ResourceClaims
            }
            _ => EvaluatorKind::Objects,
        };
        let count_name =
            if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") };
        Some(Self { kind, resource, count_name })
    }

    /// True if only the number of objects counts.
    pub fn only_counts(&self) -> bool {
        self.kind == EvaluatorKind::Objects
    }

    /// What a number of objects uses, if only their number counts.
    pub fn count(&self, objects: usize) -> ResourceList {
        let mut usage = ResourceList::default();
        usage.set(&self.count_name, Amount::of(objects));
        if ALIASES.contains(&self.resource) && !self.count_name.contains('.') {
            usage.set(self.resource, Amount::of(objects));
        }
        usage
    }

    /// True if a write may change what is used. `old` is present for updates.
    pub fn handles(
        &self,
        operation: Operation,
        subresource: &str,
        new: &JsonObject,
        old: Option<&JsonObject>,
        gates: &FeatureGates,
    ) -> bool {
        let is_create = operation == Operation::Create;
        let is_update = operation == Operation::Update;
        match (self.kind, subresource) {
            (EvaluatorKind::Pods, "resize") => is_update,
            (EvaluatorKind::Pods, "") => {
                let is_changed = old.is_some_and(|old| pod::is_terminating(old) != pod::is_terminating(new));
                is_create || is_update && is_changed
            }
            (EvaluatorKind::VolumeClaims, "status") => {
                is_update && old.is_some_and(|old| is_claim_status_changed(old, new, gates))
            }
            (EvaluatorKind::Services | EvaluatorKind::VolumeClaims | EvaluatorKind::ResourceClaims, "") => {
                is_create || is_update
            }
            (EvaluatorKind::Objects, "") => is_create,
            _ => false,
        }
    }

    /// The names of a quota's limits that this evaluator measures.
    pub fn matching(&self, limits: &ResourceList) -> Vec<String> {
        limits.names().into_iter().filter(|name| self.is_measured(name)).collect()
    }

    fn is_measured(&self, name: &str) -> bool {
        if name == self.count_name {
            return true;
        }
        match self.kind {
            EvaluatorKind::Pods => pod::is_measured(name),
            EvaluatorKind::Services => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
            EvaluatorKind::VolumeClaims => {
                let plain = name.rsplit_once(CLASS_SUFFIX).map_or(name, |(_, plain)| plain);
                CLAIM_NAMES.contains(&plain)
            }
            EvaluatorKind::ResourceClaims => name.ends_with(DEVICES_SUFFIX),
            EvaluatorKind::Objects => name == self.resource && self.count(1).0.contains_key(name),
        }
    }

    /// What one object uses. An ended pod counts as an object only.
    pub fn usage(&self, object: &JsonObject, gates: &FeatureGates, is_ended: bool) -> ResourceList {
        let mut usage = self.count(1);
        match self.kind {
            EvaluatorKind::Objects => {}
            EvaluatorKind::Pods => {
                if !is_ended && !matches!(text(object, &["status", "phase"]), "Failed" | "Succeeded") {
                    usage.add(&pod::usage(object, gates));
                }
            }
            EvaluatorKind::Services => add_service(&mut usage, object),
            EvaluatorKind::VolumeClaims => add_volume_claim(&mut usage, object, gates),
            EvaluatorKind::ResourceClaims => add_resource_claim(&mut usage, object),
        }
        usage
    }
}

fn add_service(usage: &mut ResourceList, service: &JsonObject) {
    let ports = objects(service, &["spec", "ports"]);
    let all = ports.clone().count();
    let has_port = |port: &&JsonObject| integer(port, &["nodePort"]).is_some_and(|number| number != 0);
    let allocates = get(service, &["spec", "allocateLoadBalancerNodePorts"]) != Some(&Value::Bool(false));
    let (node_ports, balancers) = match text(service, &["spec", "type"]) {
        "NodePort" => (all, 0),
        "LoadBalancer" if allocates => (all, 1),
        "LoadBalancer" => (ports.filter(has_port).count(), 1),
        _ => (0, 0),
    };
    usage.set("services", Amount::of(1));
    usage.set("services.nodeports", Amount::of(node_ports));
    usage.set("services.loadbalancers", Amount::of(balancers));
}

fn add_volume_claim(usage: &mut ResourceList, claim: &JsonObject, gates: &FeatureGates) {
    let annotation = get(claim, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    let class = annotation.or_else(|| get(claim, &["spec", "storageClassName"])).and_then(Value::as_str);
    let class = class.unwrap_or_default();
    let mut charge = |name: &str, amount: Amount| {
        if !class.is_empty() {
            usage.set(&format!("{class}{CLASS_SUFFIX}{name}"), amount.clone());
        }
        usage.set(name, amount);
    };
    charge("persistentvolumeclaims", Amount::of(1));
    let requested = get(claim, &["spec", "resources", "requests", "storage"]).and_then(Amount::read);
    let Some(requested) = requested.map(Amount::rounded_up) else { return };
    let allocated = get(claim, &["status", "allocatedResources", "storage"]).and_then(Amount::read);
    let allocated = allocated.filter(|amount| {
        gates.enabled("RecoverVolumeExpansionFailure") && amount.billionths() > requested.billionths()
    });
    charge("requests.storage", allocated.map_or(requested, Amount::rounded_up));
}

/// Requests of `resource.k8s.io/v1beta1` have the fields of `exactly` themselves.
fn add_resource_claim(usage: &mut ResourceList, claim: &JsonObject) {
    let devices = |request: &JsonObject| match text(request, &["allocationMode"]) {
        "ExactCount" => integer(request, &["count"]).unwrap_or(0),
        "All" => DEVICES_MAX,
        _ => 0,
    };
    let amount = |request: &JsonObject| Amount::of(usize::try_from(devices(request)).unwrap_or(0));
    let name = |request: &JsonObject| format!("{}{DEVICES_SUFFIX}", text(request, &["deviceClassName"]));
    for request in objects(claim, &["spec", "devices", "requests"]) {
        let mut most = ResourceList::default();
        let mut alternatives = objects(request, &["firstAvailable"]).peekable();
        if alternatives.peek().is_some() {
            for alternative in alternatives {
                let mut one = ResourceList::default();
                one.set(&name(alternative), amount(alternative));
                most.raise(&one.without_zeros());
            }
        } else {
            let exactly = object::unstructured::nested_object(request, &["exactly"]).unwrap_or(request);
            if exactly.contains_key("deviceClassName") {
                most.set(&name(exactly), amount(exactly));
            }
        }
        usage.add(&most);
    }
}

fn is_claim_status_changed(old: &JsonObject, new: &JsonObject, gates: &FeatureGates) -> bool {
    let allocated = |claim| get(claim, &["status", "allocatedResources", "storage"]).cloned();
    gates.enabled("RecoverVolumeExpansionFailure") && allocated(old) != allocated(new)
        || gates.enabled("VolumeAttributesClass") && attributes_classes(old) != attributes_classes(new)
}

/// The VolumeAttributesClasses that a claim has, wants or changes to; sorted.
pub(super) fn attributes_classes(claim: &JsonObject) -> Vec<&str> {
    let paths: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    let mut names: Vec<&str> = paths.iter().map(|path| text(claim, path)).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// True for a sidecar: an init container that keeps running.
pub(super) fn is_sidecar(container: &JsonObject) -> bool {
    text(container, &["restartPolicy"]) == "Always"
}
