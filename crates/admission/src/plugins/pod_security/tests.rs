use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::*;

/// Pods and the violations that Kubernetes' own code finds, by text and then level and version.
const RECORDED: &str = include_str!("../../tests/data/pod-security.jsonl");
/// The release of the recording.
const RELEASE: u32 = 36;

#[derive(Deserialize)]
struct RecordedPod {
    pod: Value,
    violations: BTreeMap<String, Vec<String>>,
}

#[test]
fn violations_equal_those_of_kubernetes() {
    let mut count = 0;
    for line in RECORDED.lines() {
        let recorded: RecordedPod = serde_json::from_str(line).unwrap();
        let pod = recorded.pod.as_object().unwrap();
        for (expected, levels) in &recorded.violations {
            for level in levels {
                let (level, version) = level.split_once(':').unwrap();
                let labels = serde_json::json!({"metadata": {"labels": {
                    "pod-security.kubernetes.io/enforce": level,
                    "pod-security.kubernetes.io/enforce-version": version,
                }}});
                let (policy, errors) = Policy::of_namespace(labels.as_object().unwrap(), Policy::default());
                assert_eq!(errors, []);
                assert_eq!(policy.enforce.to_string(), format!("{level}:{version}"));
                let found = violations(view_of(Some(pod)).unwrap(), policy.enforce, RELEASE);
                assert_eq!(details_of(&found), *expected, "{level}:{version} {}", recorded.pod);
            }
        }
        count += 1;
    }
    assert!(count >= 120, "{count} pods");
}
