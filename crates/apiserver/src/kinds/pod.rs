//! Pods: what a new one says of itself, and the parts that are written through subresources of their own.

use catalogue::{Gates, Release, qos_class};
use object::access::{self, part_mut};
use serde_json::{Value, json};

use super::keep_metadata;
use crate::forms::Object;

/// A new pod waits, in the class that its containers put it into.
pub(super) fn complete(object: &mut Object) {
    let status = json!({"phase": "Pending", "qosClass": qos_class(object)});
    object.insert("status".to_owned(), status);
}

/// `pods/resize`: of each container its resources and its resize policy; of the pod its resources, where the gate says so.
/// Lists with other containers stay as the request has them, for the rules of immutable fields to refuse.
pub(super) fn resize(old: &Object, next: &mut Object, gates: &Gates) {
    let is_matched_by_name = gates.release() < Release::R33;
    for list in ["containers", "initContainers"] {
        let (kept, wanted) = (containers_of(old, list), containers_of(next, list));
        let has_same_names =
            kept.len() == wanted.len() && kept.iter().zip(wanted).all(|(old, new)| old.get("name") == new.get("name"));
        let resized: Vec<Value> = match is_matched_by_name {
            true if list == "initContainers" => kept.to_vec(),
            true => kept
                .iter()
                .map(|old| resized(old, wanted.iter().find(|new| new.get("name") == old.get("name"))))
                .collect(),
            false if has_same_names => kept.iter().zip(wanted).map(|(old, new)| resized(old, Some(new))).collect(),
            false => continue,
        };
        let spec = part_mut(next, "spec");
        match resized.is_empty() {
            true => drop(spec.remove(list)),
            false => drop(spec.insert(list.to_owned(), resized.into())),
        }
    }
    if !gates.enabled("InPlacePodLevelResourcesVerticalScaling") {
        access::set(part_mut(next, "spec"), "resources", access::get(old, &["spec", "resources"]).cloned());
    }
}

fn resized(old: &Value, new: Option<&Value>) -> Value {
    let mut container = old.clone();
    if let (Some(container), Some(new)) = (container.as_object_mut(), new) {
        for field in ["resources", "resizePolicy"] {
            access::set(container, field, new.get(field).cloned());
        }
    }
    container
}

/// `pods/status`: owners stay, because old kubelets garbled them, and so does the class of service, which they dropped.
pub(super) fn keep_status(old: &Object, new: &mut Object) {
    keep_metadata(old, new, "ownerReferences");
    let class =
        access::get(old, &["status", "qosClass"]).filter(|_| access::text(new, &["status", "qosClass"]).is_empty());
    if let Some(class) = class.cloned() {
        part_mut(new, "status").insert("qosClass".to_owned(), class);
    }
}

fn containers_of<'a>(pod: &'a Object, part: &str) -> &'a [Value] {
    let containers = pod.get("spec").and_then(|spec| spec.get(part)).and_then(Value::as_array);
    containers.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: Value) -> Object {
        Object::from_iter([("metadata".to_owned(), json!({"name": "a"})), ("spec".to_owned(), spec)])
    }

    #[track_caller]
    fn check(flags: (Release, &str), old: &Value, new: &Value, expected: &Value) {
        let gates = Gates::parse(flags.0, flags.1).unwrap();
        let mut next = pod(new.clone());
        resize(&pod(old.clone()), &mut next, &gates);
        assert_eq!(next["spec"], *expected, "{flags:?}");
    }

    #[test]
    fn resize_takes_resources_and_resize_policies() {
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
    fn new_pod_is_pending_in_its_class() {
        let mut pod = pod(json!({"containers": [{}]}));
        complete(&mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    }

    #[test]
    fn status_keeps_owners_and_class() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let old = object(json!({"metadata": {"ownerReferences": ["a"]}, "status": {"qosClass": "Burstable"}}));
        let mut new =
            object(json!({"metadata": {"labels": {"a": "b"}, "ownerReferences": []}, "status": {"phase": "Running"}}));
        keep_status(&old, &mut new);
        assert_eq!(new["metadata"], json!({"labels": {"a": "b"}, "ownerReferences": ["a"]}));
        assert_eq!(new["status"], json!({"phase": "Running", "qosClass": "Burstable"}));
        new["status"]["qosClass"] = json!("Guaranteed");
        keep_status(&old, &mut new);
        assert_eq!(new["status"]["qosClass"], "Guaranteed", "left for the rules to refuse");
    }
}
