//! Compares rules with recorded verdicts of Kubernetes 1.36.

mod case;

use serde_json::Value;

#[test]
fn rules_agree_with_recorded_verdicts() {
    let mut count = 0;
    let mut differences = Vec::new();
    for line in include_str!("data/cases.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let found = case::run(&case);
        count += 1;
        for part in ["crd", "results"] {
            if found[part] != case["expected"][part] {
                differences.push(format!("{line}\n  {part}: {}", found[part]));
            }
        }
    }
    assert!(count > 50, "{count} cases");
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}
