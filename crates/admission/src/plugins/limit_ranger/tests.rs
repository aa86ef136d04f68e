use std::collections::BTreeMap;

use object::unstructured::get;
use serde::Deserialize;

use super::*;

/// Pods, limits, and what Kubernetes' own code makes of them.
const RECORDED: &str = include_str!("../../tests/data/limit-ranger.jsonl");

#[derive(Deserialize)]
struct RecordedPod {
    pod: Value,
    limits: Value,
    /// The resources of each container after defaulting.
    resources: BTreeMap<String, Value>,
    annotation: String,
    /// Sorted.
    errors: Vec<String>,
}

#[test]
fn defaults_and_verdicts_equal_those_of_kubernetes() {
    let mut count = 0;
    for line in RECORDED.lines() {
        let recorded: RecordedPod = serde_json::from_str(line).unwrap();
        let mut pod = recorded.pod.as_object().unwrap().clone();
        let limit_range = json!({"spec": {"limits": recorded.limits}});
        let limit_range = limit_range.as_object().unwrap();
        set_defaults(&mut pod, limit_range);
        for (name, expected) in &recorded.resources {
            let containers = objects(&pod, &["spec", "containers"]).chain(objects(&pod, &["spec", "initContainers"]));
            let container = containers.clone().find(|container| text(container, &["name"]) == name).unwrap();
            let resources = container.get("resources").cloned().unwrap_or_else(|| json!({}));
            assert_eq!(resources, *expected, "{name} of {}", recorded.pod);
        }
        let annotation = get(&pod, &["metadata", "annotations", ANNOTATION]).and_then(Value::as_str);
        assert_eq!(annotation.unwrap_or_default(), recorded.annotation);
        let mut errors = check_pod(&pod, limit_range, true);
        errors.sort_unstable();
        errors.dedup();
        assert_eq!(errors, recorded.errors, "{} {}", recorded.pod, recorded.limits);
        count += 1;
    }
    assert!(count >= 120, "{count} pods");
}
