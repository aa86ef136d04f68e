//! `pods/binding`: assigns a node to a pod, once.

use api::FieldError;
use api::json::JsonObject;
use api::time::Time;
use object::unstructured::{nested_object_mut, text};
use serde_json::json;

/// Rejects a binding to anything but a node.
pub fn validate_binding(binding: &JsonObject) -> Result<(), FieldError> {
    let target = |name: &str| binding.get("target").and_then(|target| target.get(name)?.as_str()).unwrap_or_default();
    match (target("kind"), target("name")) {
        ("" | "Node", "") => Err(FieldError::required("target.name", "")),
        ("" | "Node", _) => Ok(()),
        (other, _) => Err(FieldError::not_supported("target.kind", other, &["Node", "<empty>"])),
    }
}

/// The pod with the node of a binding, or the conflict that prevents it.
pub fn bind_pod(pod: &JsonObject, binding: &JsonObject, now: Time) -> Result<JsonObject, String> {
    let name = text(pod, &["metadata", "name"]);
    for (field, display_name) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let [requested, current] = [binding, pod].map(|object| text(object, &["metadata", field]));
        if !requested.is_empty() && requested != current {
            let reason = format!(
                "Precondition failed: {display_name} in precondition: {requested}, {display_name} in object meta: {current}"
            );
            return Err(reason);
        }
    }
    let node = text(pod, &["spec", "nodeName"]);
    if pod.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some()) {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node {node:?}"));
    }
    let gates = pod.get("spec").and_then(|spec| spec.get("schedulingGates")?.as_array());
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(assign_node(pod, binding, now))
}

fn assign_node(pod: &JsonObject, binding: &JsonObject, now: Time) -> JsonObject {
    let mut next = pod.clone();
    nested_object_mut(&mut next, "spec").insert("nodeName".to_owned(), text(binding, &["target", "name"]).into());
    let annotations_to_add = binding.get("metadata").and_then(|metadata| metadata.get("annotations")?.as_object());
    if let Some(annotations_to_add) = annotations_to_add.filter(|annotations_to_add| !annotations_to_add.is_empty()) {
        let annotations = nested_object_mut(nested_object_mut(&mut next, "metadata"), "annotations");
        annotations.extend(annotations_to_add.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    let status = nested_object_mut(&mut next, "status");
    status.remove("nominatedNodeName");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now.to_string(),
        }));
    }
    next
}
