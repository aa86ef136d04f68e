//! Pods: what a new one says of itself, and the parts that are written through subresources of their own.

use api::json::JsonObject;
use catalogue::{FeatureGates, Release, qos_class};
use object::unstructured::{self, nested_object_mut};
use serde_json::{Value, json};

use super::restore_metadata_field;

/// A new pod waits, in the class that its containers put it into.
pub(super) fn prepare_for_create(object: &mut JsonObject) {
    let status = json!({"phase": "Pending", "qosClass": qos_class(object)});
    object.insert("status".to_owned(), status);
}

/// `pods/resize`: of each container its resources and its resize policy; of the pod its resources, where the gate says so.
/// Lists with other containers stay as the request has them, for the rules of immutable fields to refuse.
pub(super) fn apply_resize(old: &JsonObject, next: &mut JsonObject, feature_gates: &FeatureGates) {
    let is_matched_by_name = feature_gates.release() < Release::R33;
    for list in ["containers", "initContainers"] {
        let (kept, desired) = (containers_in(old, list), containers_in(next, list));
        let has_same_names = kept.len() == desired.len()
            && kept.iter().zip(desired).all(|(old, new)| old.get("name") == new.get("name"));
        let resized: Vec<Value> = match is_matched_by_name {
            true if list == "initContainers" => kept.to_vec(),
            true => kept
                .iter()
                .map(|old| resized_container(old, desired.iter().find(|new| new.get("name") == old.get("name"))))
                .collect(),
            false if has_same_names => {
                kept.iter().zip(desired).map(|(old, new)| resized_container(old, Some(new))).collect()
            }
            false => continue,
        };
        let spec = nested_object_mut(next, "spec");
        match resized.is_empty() {
            true => drop(spec.remove(list)),
            false => drop(spec.insert(list.to_owned(), resized.into())),
        }
    }
    if !feature_gates.enabled("InPlacePodLevelResourcesVerticalScaling") {
        unstructured::set_or_remove(
            nested_object_mut(next, "spec"),
            "resources",
            unstructured::get(old, &["spec", "resources"]).cloned(),
        );
    }
}

fn resized_container(old: &Value, new: Option<&Value>) -> Value {
    let mut container = old.clone();
    if let (Some(container), Some(new)) = (container.as_object_mut(), new) {
        for field in ["resources", "resizePolicy"] {
            unstructured::set_or_remove(container, field, new.get(field).cloned());
        }
    }
    container
}

/// `pods/status`: owners stay, because old kubelets garbled them, and so does the class of service, which they dropped.
pub(super) fn prepare_status_update(old: &JsonObject, new: &mut JsonObject) {
    restore_metadata_field(old, new, "ownerReferences");
    let class = unstructured::get(old, &["status", "qosClass"])
        .filter(|_| unstructured::text(new, &["status", "qosClass"]).is_empty());
    if let Some(class) = class.cloned() {
        nested_object_mut(new, "status").insert("qosClass".to_owned(), class);
    }
}

fn containers_in<'a>(pod: &'a JsonObject, field: &str) -> &'a [Value] {
    let containers = pod.get("spec").and_then(|spec| spec.get(field)).and_then(Value::as_array);
    containers.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: Value) -> JsonObject {
        JsonObject::from_iter([("metadata".to_owned(), json!({"name": "a"})), ("spec".to_owned(), spec)])
    }

    #[track_caller]
    fn check(flags: (Release, &str), old: &Value, new: &Value, expected: &Value) {
        let feature_gates = FeatureGates::parse(flags.0, flags.1).unwrap();
        let mut next = pod(new.clone());
        apply_resize(&pod(old.clone()), &mut next, &feature_gates);
        assert_eq!(next["spec"], *expected, "{flags:?}");
    }

    #[test]
    fn resize_changes_only_resources_and_resize_policies() {
        let one = |image: &str, cpu: &str| json!({"name": "a", "image": image, "resources": {"limits": {"cpu": cpu}}});
        let (r32, r36) = ((Release::R32, "InPlacePodVerticalScaling=true"), (Release::R36, ""));
        for release in [r32, r36] {
            check(
                release,
                &json!({"containers": [one("i", "1")]}),
                &json!({"containers": [one("j", "2")]}),
                &json!({"containers": [one("i", "2")]}),
            );
        }
        let old =
            json!({"containers": [one("i", "1")], "initContainers": [{"name": "b"}], "resources": {"limits": {}}});
        let new = json!({"containers": [{"name": "z"}, one("j", "2")], "initContainers": [{"name": "c"}]});
        check(r36, &old, &new, &new);
        check(
            r32,
            &old,
            &new,
            &json!({"containers": [one("i", "2")], "initContainers": [{"name": "b"}], "resources": {"limits": {}}}),
        );
        check((Release::R36, "InPlacePodLevelResourcesVerticalScaling=false"), &old, &new, &{
            let mut kept = new.clone();
            kept["resources"] = old["resources"].clone();
            kept
        });
    }

    #[test]
    fn new_pod_is_pending_with_qos_class() {
        let mut pod = pod(json!({"containers": [{}]}));
        prepare_for_create(&mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    }

    #[test]
    fn status_update_keeps_owners_and_qos_class() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let old = object(json!({"metadata": {"ownerReferences": ["a"]}, "status": {"qosClass": "Burstable"}}));
        let mut new =
            object(json!({"metadata": {"labels": {"a": "b"}, "ownerReferences": []}, "status": {"phase": "Running"}}));
        prepare_status_update(&old, &mut new);
        assert_eq!(new["metadata"], json!({"labels": {"a": "b"}, "ownerReferences": ["a"]}));
        assert_eq!(new["status"], json!({"phase": "Running", "qosClass": "Burstable"}));
        new["status"]["qosClass"] = json!("Guaranteed");
        prepare_status_update(&old, &mut new);
        assert_eq!(new["status"]["qosClass"], "Guaranteed", "left for the rules to refuse");
    }
}
