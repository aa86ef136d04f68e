//! TaintNodesByCondition and PodTopologyLabels.

use api::GroupResource;
use api::json::JsonObject;
use object::unstructured::{metadata_mut, nested_object, nested_object_mut, objects, text};
use serde_json::{Value, json};

use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const NODES: GroupResource<&str> = GroupResource { group: "", resource: "nodes" };
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

pub(super) static TAINT_NODES: Plugin = Plugin {
    name: "TaintNodesByCondition",
    operations: &[Operation::Create],
    admit: Some(add_not_ready_taint),
    validate: None,
};

pub(super) static TOPOLOGY: Plugin = Plugin {
    name: "PodTopologyLabels",
    operations: &[Operation::Create],
    admit: Some(copy_topology_labels),
    validate: None,
};

/// A new node gets no pods until the node controller finds it ready.
fn add_not_ready_taint(write: &mut Write<'_>, _environment: &Environment<'_>) -> Result<(), Refusal> {
    if !write.attributes.is_object("", "nodes") {
        return Ok(());
    }
    let Some(node) = &mut write.object else { return Ok(()) };
    let is_tainted = objects(node, &["spec", "taints"])
        .any(|taint| (text(taint, &["key"]), text(taint, &["effect"])) == (NOT_READY, "NoSchedule"));
    if let Value::Array(taints) = nested_object_mut(node, "spec").entry("taints").or_insert_with(|| json!([]))
        && !is_tainted
    {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
    Ok(())
}

/// A pod that is created on a node, and a binding, get the region and zone of the node.
fn copy_topology_labels(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if !write.attributes.is_resource("", "pods") {
        return Ok(());
    }
    let subresource = write.attributes.subresource;
    let Some(object) = &mut write.object else { return Ok(()) };
    let node = match subresource {
        "" => text(object, &["spec", "nodeName"]),
        "binding" if text(object, &["target", "kind"]) == "Node" => text(object, &["target", "name"]),
        _ => return Ok(()),
    };
    if node.is_empty() {
        return Ok(());
    }
    let Some(node) = environment.view.get(NODES, "", node)? else { return Ok(()) };
    let labels = nested_object(&node, &["metadata", "labels"]).into_iter().flatten();
    let copied: JsonObject = labels
        .filter(|(key, _)| TOPOLOGY_LABELS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !copied.is_empty() {
        nested_object_mut(metadata_mut(object), "labels").extend(copied);
    }
    Ok(())
}
