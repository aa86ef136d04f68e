//! `pods/resize`: the state that a resize requests.

use api::json::JsonObject;
use object::unstructured;
use object::unstructured::nested_object_mut;
use serde_json::Value;

use crate::feature_gates::FeatureGates;
use crate::release::Release;

/// Takes resources and resize policy of each container from the request, and the resources of the pod if the feature
/// gate is enabled. If the containers differ, the request's list is kept, so that the rules of immutable fields reject
/// it.
pub(crate) fn apply_resize(old: &JsonObject, next: &mut JsonObject, feature_gates: &FeatureGates) {
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

fn containers_in<'a>(pod: &'a JsonObject, field: &str) -> &'a [Value] {
    unstructured::list(pod, &["spec", field])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
}
