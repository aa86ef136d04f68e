//! `pods/binding`: assigns a node to a pod, once.

use api::FieldError;
use api::json::JsonObject;
use api::time::Time;
use object::unstructured::{list, metadata_mut, nested_object, nested_object_mut, text};
use serde_json::json;

use crate::FeatureGates;

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
pub fn bind_pod(pod: &JsonObject, binding: &JsonObject, gates: &FeatureGates, now: Time) -> Result<JsonObject, String> {
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
    if !list(pod, &["spec", "schedulingGates"]).is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(assign_node(pod, binding, gates, now))
}

fn assign_node(pod: &JsonObject, binding: &JsonObject, gates: &FeatureGates, now: Time) -> JsonObject {
    let mut next = pod.clone();
    nested_object_mut(&mut next, "spec").insert("nodeName".to_owned(), text(binding, &["target", "name"]).into());
    merge_metadata(&mut next, binding, "annotations");
    // Admission puts the zone and region of the node there.
    if gates.includes("PodTopologyLabelsAdmission") {
        merge_metadata(&mut next, binding, "labels");
    }
    let status = nested_object_mut(&mut next, "status");
    if gates.includes("ClearingNominatedNodeNameAfterBinding") {
        status.remove("nominatedNodeName");
    }
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        let existing = conditions.iter().position(|condition| condition["type"] == "PodScheduled");
        let changed_at = match existing.map(|at| &conditions[at]) {
            Some(same) if same["status"] == "True" => same["lastTransitionTime"].clone(),
            Some(_) | None => now.to_string().into(),
        };
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": changed_at,
        });
        match existing {
            Some(at) => conditions[at] = scheduled,
            None => conditions.push(scheduled),
        }
    }
    next
}

/// Copies labels or annotations of the binding to the pod; those of the binding win.
fn merge_metadata(pod: &mut JsonObject, binding: &JsonObject, field: &str) {
    let added = nested_object(binding, &["metadata", field]).filter(|added| !added.is_empty());
    if let Some(added) = added {
        let merged = nested_object_mut(metadata_mut(pod), field);
        merged.extend(added.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
}
