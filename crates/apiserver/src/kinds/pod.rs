//! Pods: what a new one says of itself, and the parts that are written through subresources of their own.

use api::FieldError;
use object::Refusal;
use serde_json::{Value, json};

use super::with_metadata_of;
use crate::forms::Object;

/// A new pod waits, in the class that its containers put it into.
pub(super) fn complete(object: &mut Object) {
    let status = json!({"phase": "Pending", "qosClass": class_of(object)});
    object.insert("status".to_owned(), status);
}

/// How well a pod is served: those that ask for nothing last, those that ask for exactly what they may have first.
fn class_of(pod: &Object) -> &'static str {
    let whole = pod.get("spec").and_then(|spec| spec.get("resources"));
    let parts: Vec<&Value> = match whole {
        Some(resources) => vec![resources],
        None => {
            let containers = containers_of(pod, "containers").iter().chain(containers_of(pod, "initContainers"));
            containers.map(|container| container.get("resources").unwrap_or(&Value::Null)).collect()
        }
    };
    let amount = |resources: &Value, list: &str, name: &str| {
        let amount = resources.get(list).and_then(|list| list.get(name)).and_then(Value::as_str);
        amount.filter(|amount| *amount != "0").map(str::to_owned)
    };
    let each = |list: &str| -> Vec<Option<String>> {
        parts.iter().flat_map(|part| ["cpu", "memory"].map(|name| amount(part, list, name))).collect()
    };
    let (requests, limits) = (each("requests"), each("limits"));
    if requests.iter().chain(&limits).all(Option::is_none) {
        return "BestEffort";
    }
    if limits.iter().all(Option::is_some) && requests == limits { "Guaranteed" } else { "Burstable" }
}

/// The write to `ephemeralcontainers`: it changes those containers and nothing else.
pub(super) fn add_containers(old: &Object, new: &Object) -> Object {
    let mut next = with_metadata_of(old, new);
    let containers = new.get("spec").and_then(|spec| spec.get("ephemeralContainers")).cloned();
    let spec = next.entry("spec").or_insert_with(|| json!({}));
    if let Some(spec) = spec.as_object_mut() {
        match containers {
            Some(containers) => spec.insert("ephemeralContainers".to_owned(), containers),
            None => spec.remove("ephemeralContainers"),
        };
    }
    next
}

/// Those that are there stay as they are.
pub(super) fn keep_containers(old: &Object, new: &Object) -> Result<(), Refusal> {
    let now = containers_of(new, "ephemeralContainers");
    let mut errors = Vec::new();
    for container in containers_of(old, "ephemeralContainers") {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        let what = match now.iter().find(|other| other.get("name") == container.get("name")) {
            Some(same) if same == container => continue,
            Some(_) => "changed",
            None => "removed",
        };
        let detail = format!("existing ephemeral containers \"{name}\" may not be {what}\n");
        errors.push(FieldError::forbidden("spec.ephemeralContainers", detail));
    }
    Refusal::invalid_unless_empty(errors)
}

/// The write to `resize`: it changes what containers ask for and nothing else. What adds, removes or renames containers is
/// left as it is, for the rules of updates to refuse.
pub(super) fn resize(old: &Object, new: &Object) -> Object {
    let mut next = with_metadata_of(old, new);
    for part in ["containers", "initContainers"] {
        let wanted = containers_of(new, part);
        let has_same_names = |old: &[Value]| {
            old.len() == wanted.len() && old.iter().zip(wanted).all(|(old, new)| old.get("name") == new.get("name"))
        };
        let Some(containers) = next.get_mut("spec").and_then(|spec| spec.get_mut(part)).and_then(Value::as_array_mut)
        else {
            continue;
        };
        if !has_same_names(containers) {
            return new.clone();
        }
        for (container, wanted) in containers.iter_mut().zip(wanted) {
            for field in ["resources", "resizePolicy"] {
                match (container.as_object_mut(), wanted.get(field)) {
                    (Some(container), Some(value)) => container.insert(field.to_owned(), value.clone()),
                    (Some(container), None) => container.remove(field),
                    (None, _) => None,
                };
            }
        }
    }
    next
}

fn containers_of<'a>(pod: &'a Object, part: &str) -> &'a [Value] {
    let containers = pod.get("spec").and_then(|spec| spec.get(part)).and_then(Value::as_array);
    containers.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn pod(spec: Value) -> Object {
        Object::from_iter([
            ("metadata".to_owned(), json!({"name": "a", "labels": {"a": "b"}})),
            ("spec".to_owned(), spec),
        ])
    }

    #[test]
    fn only_the_part_of_the_subresource_changes() {
        let old = pod(json!({"nodeName": "n", "containers": [{"name": "a", "image": "i"}]}));
        let mut new = pod(json!({
            "nodeName": "m",
            "containers": [{"name": "a", "image": "j", "resources": {"limits": {"cpu": "1"}}}],
            "ephemeralContainers": [{"name": "e"}],
        }));
        new["metadata"]["labels"] = json!({});
        new["metadata"]["resourceVersion"] = json!("7");
        let metadata = json!({"name": "a", "labels": {"a": "b"}, "resourceVersion": "7"});
        let added = add_containers(&old, &new);
        assert_eq!(added["metadata"], metadata);
        let expected = json!({"nodeName": "n", "containers": [{"name": "a", "image": "i"}], "ephemeralContainers": [{"name": "e"}]});
        assert_eq!(added["spec"], expected);
        let resized = resize(&old, &new);
        let containers = json!([{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1"}}}]);
        assert_eq!(resized["spec"], json!({"nodeName": "n", "containers": containers}));
        assert_eq!(resized["metadata"], metadata);
    }

    #[test]
    fn a_new_pod_waits_in_its_class() {
        let class = |spec: Value| {
            let mut pod = pod(spec);
            complete(&mut pod);
            assert_eq!(pod["status"]["phase"], "Pending");
            pod["status"]["qosClass"].as_str().unwrap().to_owned()
        };
        let container = |requests: Value, limits: Value| json!({"resources": {"requests": requests, "limits": limits}});
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let full = container(both.clone(), both.clone());
        assert_eq!(class(json!({"containers": [{}]})), "BestEffort");
        assert_eq!(class(json!({"containers": [container(json!({"cpu": "0"}), json!({"disk": "1"}))]})), "BestEffort");
        assert_eq!(class(json!({"containers": [full]})), "Guaranteed");
        assert_eq!(class(json!({"containers": [full, {}]})), "Burstable");
        assert_eq!(class(json!({"containers": [full], "initContainers": [{}]})), "Burstable");
        assert_eq!(class(json!({"containers": [container(json!({"cpu": "1"}), both)]})), "Burstable");
        assert_eq!(class(json!({"containers": [{}], "resources": full["resources"]})), "Guaranteed");
    }

    #[track_caller]
    fn check(old: &[&str], new: &Value, expected: &Expect) {
        let old: Vec<_> = old.iter().map(|name| json!({"name": name})).collect();
        let kept =
            keep_containers(&pod(json!({"ephemeralContainers": old})), &pod(json!({"ephemeralContainers": new})));
        expected.assert_eq(&format!("{kept:?}"));
    }

    #[test]
    fn ephemeral_containers_come_and_stay() {
        check(&["a"], &json!([{"name": "b"}, {"name": "a"}]), &expect![[r#"Ok(())"#]]);
        check(
            &["a"],
            &json!([{"name": "a", "image": "x"}]),
            &expect![[
                r#"Err(Invalid { subject: Kind, errors: [FieldError { kind: Forbidden, field: "spec.ephemeralContainers", value: None, detail: "existing ephemeral containers \"a\" may not be changed\n" }] })"#
            ]],
        );
        check(
            &["a"],
            &json!([]),
            &expect![[
                r#"Err(Invalid { subject: Kind, errors: [FieldError { kind: Forbidden, field: "spec.ephemeralContainers", value: None, detail: "existing ephemeral containers \"a\" may not be removed\n" }] })"#
            ]],
        );
    }
}
