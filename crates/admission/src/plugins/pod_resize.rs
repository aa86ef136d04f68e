//! PodResizeValidator and NodeDeclaredFeatureValidator: whether the node of a pod can follow an update.

use api::json::JsonObject;
use api::{GroupResource, Status};
use object::unstructured::{get, integer, metadata_string, nested_object, objects, text, texts};

use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::quantity::Amount;
use crate::quota::{self, ResourceList};
use crate::refusal::Refusal;

const NODES: GroupResource<&str> = GroupResource { group: "", resource: "nodes" };
const OS_LABEL: &str = "kubernetes.io/os";

pub(super) static RESIZE: Plugin = Plugin {
    name: "PodResizeValidator",
    operations: &[Operation::Update],
    admit: None,
    validate: Some(check_node_has_room),
};

pub(super) static DECLARED_FEATURES: Plugin = Plugin {
    name: "NodeDeclaredFeatureValidator",
    operations: &[Operation::Update],
    admit: None,
    validate: Some(check_declared_features),
};

/// The pod before and after a change of its spec, and the name of its node.
fn scheduled_update<'w>(
    write: &'w Write<'_>,
    subresources: &[&str],
) -> Option<(&'w JsonObject, &'w JsonObject, &'w str)> {
    if !write.attributes.is_resource("", "pods") || !subresources.contains(&write.attributes.subresource) {
        return None;
    }
    let (old, new) = (write.old_object?, write.object.as_ref()?);
    let node = text(new, &["spec", "nodeName"]);
    let generation = |pod| integer(pod, &["metadata", "generation"]);
    (!node.is_empty() && generation(old) != generation(new)).then_some((old, new, node))
}

fn node_of(environment: &Environment<'_>, name: &str) -> Result<JsonObject, Refusal> {
    let node = environment.view.get(NODES, "", name)?;
    node.ok_or_else(|| Refusal::forbidden(format!("node {name:?} not found")))
}

/// A resize must fit into what the node offers to pods.
fn check_node_has_room(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let Some((_, pod, node)) = scheduled_update(write, &["resize"]) else { return Ok(()) };
    let node = node_of(environment, node)?;
    let refused = |text: String, cause: &'static str| {
        let attributes = &write.attributes;
        let name = attributes.shown_name(write.object.as_ref());
        let status = Status::forbidden(attributes.resource.group_resource(), name, text);
        Err(Refusal::from(status.with_cause(cause, "")))
    };
    let system = get(&node, &["metadata", "labels", OS_LABEL]).and_then(serde_json::Value::as_str);
    if let Some(system) = system.filter(|system| *system != "linux") {
        let name = metadata_string(&node, "name");
        let text = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return refused(text, "UnsupportedPlatform");
    }
    let requests = quota::pod_requests(pod);
    let allocatable = ResourceList::read(nested_object(&node, &["status", "allocatable"]));
    let missing: Vec<String> =
        ["cpu", "memory"].into_iter().filter_map(|name| shortage(&requests, &allocatable, name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    refused(format!("node didn't have enough allocatable resources: {}", missing.join("; ")), "NodeCapacity")
}

/// The text about a resource of which a pod requests more than its node has: thousandths of cpu, bytes of memory.
fn shortage(requests: &ResourceList, allocatable: &ResourceList, name: &str) -> Option<String> {
    let none = Amount::of(0);
    let requested = requests.amount(name)?;
    let available = allocatable.amount(name).unwrap_or(&none);
    if requested.billionths() <= available.billionths() {
        return None;
    }
    let shown = |amount: &Amount| if name == "cpu" { amount.thousandths() } else { amount.whole() };
    Some(format!("{name}, requested: {}, allocatable: {}", shown(requested), shown(available)))
}

/// An update may need features that the node declares.
fn check_declared_features(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let Some((old, new, node)) = scheduled_update(write, &["", "resize"]) else { return Ok(()) };
    let mut required = Vec::new();
    if is_pod_resized(old, new) {
        required.push("InPlacePodLevelResourcesVerticalScaling");
    }
    if is_init_container_resized(old, new) {
        required.push("InPlacePodVerticalScalingInitContainers");
    }
    if required.is_empty() {
        return Ok(());
    }
    let node = node_of(environment, node)?;
    let declared: Vec<&str> = texts(&node, &["status", "declaredFeatures"]).collect();
    required.retain(|feature| !declared.contains(feature));
    if required.is_empty() {
        return Ok(());
    }
    let (features, name) = (required.join(", "), metadata_string(&node, "name"));
    Err(Refusal::Forbidden(format!("pod update requires features {features} which are not available on node {name:?}")))
}

fn is_pod_resized(old: &JsonObject, new: &JsonObject) -> bool {
    let resources = |pod| nested_object(pod, &["spec", "resources"]);
    let list = |holder: &JsonObject, name| ResourceList::read(nested_object(holder, &[name]));
    match (resources(old), resources(new)) {
        (None, None) => false,
        (Some(old), Some(new)) => {
            old.get("claims") != new.get("claims")
                || ["requests", "limits"].iter().any(|name| !list(old, name).is_equal(&list(new, name)))
        }
        (Some(_), None) | (None, Some(_)) => true,
    }
}

/// Init containers that end; sidecars may always be resized.
fn is_init_container_resized(old: &JsonObject, new: &JsonObject) -> bool {
    let containers = |pod| objects(pod, &["spec", "initContainers"]);
    containers(old)
        .zip(containers(new))
        .any(|(old, new)| text(old, &["restartPolicy"]) != "Always" && old.get("resources") != new.get("resources"))
}
