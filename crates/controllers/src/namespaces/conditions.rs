//! The conditions of a terminating namespace, with kube-controller-manager's texts.

use std::collections::BTreeMap;

use api::time::Time;
use serde_json::{Value, json};

use super::findings::Findings;

/// Type, reason and message of each condition without a problem.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// The conditions after a pass; `None` if nothing changed. `lastTransitionTime` changes only with the status.
pub(super) fn merge_conditions(before: &[Value], findings: &Findings, now: Time) -> Option<Vec<Value>> {
    let mut conditions = before.to_vec();
    for (sort, reason, message) in CONDITIONS {
        let (status, reason, message) = match condition_problem(sort, findings) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        let Some(condition) = conditions.iter_mut().find(|condition| condition["type"] == sort) else {
            conditions.push(json!({"type": sort, "status": status, "lastTransitionTime": now.to_string(),
                "reason": reason, "message": message}));
            continue;
        };
        if condition["status"] != status {
            condition["lastTransitionTime"] = now.to_string().into();
        }
        condition["status"] = status.into();
        condition["reason"] = reason.into();
        condition["message"] = message.into();
    }
    (conditions != before).then_some(conditions)
}

/// The reason and message of a condition that has a problem.
fn condition_problem(condition_type: &str, findings: &Findings) -> Option<(&'static str, String)> {
    match condition_type {
        "NamespaceDeletionDiscoveryFailure" => findings.discovery.clone().map(|why| ("DiscoveryFailed", why)),
        "NamespaceDeletionContentFailure" if !findings.failures.is_empty() => {
            let mut failures = findings.failures.clone();
            failures.sort();
            let message =
                format!("Failed to delete all resource types, {} remaining: {}", failures.len(), failures.join(", "));
            Some(("ContentDeletionFailed", message))
        }
        "NamespaceContentRemaining" => {
            let list = format_counts(&findings.remaining, "has")?;
            Some(("SomeResourcesRemain", format!("Some resources are remaining: {list}")))
        }
        "NamespaceFinalizersRemaining" => {
            let list = format_counts(&findings.finalizers, "in")?;
            let message = format!("Some content in the namespace has finalizers remaining: {list}");
            Some(("SomeFinalizersRemain", message))
        }
        _ => None,
    }
}

fn format_counts(counts: &BTreeMap<String, usize>, word: &str) -> Option<String> {
    let list: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {word} {count} resource instances")).collect();
    (!list.is_empty()).then(|| list.join(", "))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn timestamp(second: u8) -> Time {
        format!("2026-01-01T00:00:{second:02}Z").parse().unwrap()
    }

    #[track_caller]
    fn check(conditions: &[Value], expected: &Expect) {
        let lines: Vec<String> = conditions
            .iter()
            .map(|condition| {
                let text = |field: &str| condition[field].as_str().unwrap().to_owned();
                let (sort, status, since) = (text("type"), text("status"), text("lastTransitionTime"));
                format!("{sort} {status} since {} {}: {}", &since[17..19], text("reason"), text("message"))
            })
            .collect();
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn merge_conditions_reports_problems_with_transition_times() {
        let mut findings = Findings {
            discovery: Some("discovery is away".to_owned()),
            failures: vec!["b".to_owned(), "a".to_owned()],
            remaining: BTreeMap::from([("configmaps.".to_owned(), 2), ("jobs.batch".to_owned(), 1)]),
            finalizers: BTreeMap::from([("example.com/f".to_owned(), 3)]),
            ..Findings::default()
        };
        let first = merge_conditions(&[], &findings, timestamp(1)).unwrap();
        check(
            &first,
            &expect![[r#"
                NamespaceDeletionDiscoveryFailure True since 01 DiscoveryFailed: discovery is away
                NamespaceDeletionGroupVersionParsingFailure False since 01 ParsedGroupVersions: All legacy kube types successfully parsed
                NamespaceDeletionContentFailure True since 01 ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a, b
                NamespaceContentRemaining True since 01 SomeResourcesRemain: Some resources are remaining: configmaps. has 2 resource instances, jobs.batch has 1 resource instances
                NamespaceFinalizersRemaining True since 01 SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/f in 3 resource instances"#]],
        );
        assert_eq!(merge_conditions(&first, &findings, timestamp(2)), None, "nothing changed");
        findings.remaining.remove("jobs.batch");
        findings.failures.clear();
        let second = merge_conditions(&first, &findings, timestamp(3)).unwrap();
        check(
            &second,
            &expect![[r#"
                NamespaceDeletionDiscoveryFailure True since 01 DiscoveryFailed: discovery is away
                NamespaceDeletionGroupVersionParsingFailure False since 01 ParsedGroupVersions: All legacy kube types successfully parsed
                NamespaceDeletionContentFailure False since 03 ContentDeleted: All content successfully deleted, may be waiting on finalization
                NamespaceContentRemaining True since 01 SomeResourcesRemain: Some resources are remaining: configmaps. has 2 resource instances
                NamespaceFinalizersRemaining True since 01 SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/f in 3 resource instances"#]],
        );
    }

    #[test]
    fn merge_conditions_keeps_foreign_conditions() {
        let other = json!({"type": "Other", "status": "True"});
        let conditions = merge_conditions(std::slice::from_ref(&other), &Findings::default(), timestamp(1)).unwrap();
        assert_eq!((conditions.len(), &conditions[0]), (6, &other));
    }
}
