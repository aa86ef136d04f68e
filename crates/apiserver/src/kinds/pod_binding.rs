//! Bindings: a pod is given a node, once.

use api::json::JsonObject;
use api::time::Time;
use api::{FieldError, GroupResource, Status};
use object::unstructured::{nested_object_mut, text};
use serde_json::json;

/// What conflicts are about.
const BINDING_RESOURCE: GroupResource<&str> = GroupResource { group: "", resource: "pods/binding" };

/// Refuses a binding to anything but a node.
pub(crate) fn validate_binding(binding: &JsonObject) -> Result<(), Status> {
    let target = |name: &str| binding.get("target").and_then(|target| target.get(name)?.as_str()).unwrap_or_default();
    let error = match (target("kind"), target("name")) {
        ("" | "Node", "") => FieldError::required("target.name", ""),
        ("" | "Node", _) => return Ok(()),
        (other, _) => FieldError::not_supported("target.kind", other, &["Node", "<empty>"]),
    };
    Err(Status::internal_error(error))
}

/// The pod as it is on the node of a binding.
pub(crate) fn bind_pod(pod: &JsonObject, binding: &JsonObject, now: Time) -> Result<JsonObject, Status> {
    let name = text(pod, &["metadata", "name"]);
    let reject = |reason: String| Status::conflict(BINDING_RESOURCE, name, reason);
    for (field, display_name) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let [requested, current] = [binding, pod].map(|object| text(object, &["metadata", field]));
        if !requested.is_empty() && requested != current {
            let reason = format!(
                "Precondition failed: {display_name} in precondition: {requested}, {display_name} in object meta: {current}"
            );
            return Err(reject(reason));
        }
    }
    let node = text(pod, &["spec", "nodeName"]);
    if pod.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some()) {
        return Err(reject(format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    if !node.is_empty() {
        return Err(reject(format!("pod {name} is already assigned to node {node:?}")));
    }
    let gates = pod.get("spec").and_then(|spec| spec.get("schedulingGates")?.as_array());
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(reject(format!("pod {name} has non-empty .spec.schedulingGates")));
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[track_caller]
    fn check_bind(pod: &Value, binding: &Value, expected: &str) {
        let now = "2026-01-02T03:04:05Z".parse::<jiff::Timestamp>().unwrap().into();
        let binding = object(binding);
        let found = match validate_binding(&binding).and_then(|()| bind_pod(&object(pod), &binding, now)) {
            Ok(next) => Value::Object(next).to_string(),
            Err(status) => format!("{} {}", status.http_code(), status.message),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn bind_pod_rejects_bound_deleted_and_mismatched_pods() {
        let to_n1 = json!({"target": {"kind": "Node", "name": "n1"}, "metadata": {"annotations": {"a": "b"}}});
        check_bind(
            &json!({"metadata": {"name": "p"}, "spec": {}, "status": {"nominatedNodeName": "n2"}}),
            &to_n1,
            r#"{"metadata":{"annotations":{"a":"b"},"name":"p"},"spec":{"nodeName":"n1"},"status":{"conditions":[{"lastProbeTime":null,"lastTransitionTime":"2026-01-02T03:04:05Z","status":"True","type":"PodScheduled"}]}}"#,
        );
        let conflict = "409 Operation cannot be fulfilled on pods/binding \"p\": ";
        check_bind(
            &json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n2"}}),
            &to_n1,
            &format!("{conflict}pod p is already assigned to node \"n2\""),
        );
        check_bind(
            &json!({"metadata": {"name": "p", "deletionTimestamp": "x"}}),
            &to_n1,
            &format!("{conflict}pod p is being deleted, cannot be assigned to a host"),
        );
        check_bind(
            &json!({"metadata": {"name": "p", "uid": "1"}}),
            &json!({"target": {"name": "n1"}, "metadata": {"uid": "2"}}),
            &format!("{conflict}Precondition failed: UID in precondition: 2, UID in object meta: 1"),
        );
        check_bind(
            &json!({"metadata": {"name": "p"}}),
            &json!({"target": {"kind": "Pod", "name": "n1"}}),
            "500 Internal error occurred: target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"",
        );
    }
}
