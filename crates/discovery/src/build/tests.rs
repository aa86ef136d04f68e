use expect_test::{Expect, expect};

use super::*;
use crate::testing::{groups_from_notation, to_notation};

/// Parses an entry like `BuiltIn apps/v1 17800/15 deployments:get`.
fn part(text: &str) -> LocalGroupVersion {
    let mut words = text.splitn(3, ' ');
    let source = match words.next() {
        Some("Aggregated") => DiscoverySource::Aggregated,
        Some("BuiltIn") => DiscoverySource::BuiltIn,
        Some("CustomResource") => DiscoverySource::CustomResource,
        other => panic!("unknown source {other:?}"),
    };
    let (group_priority, version_priority) = words.next().unwrap().split_once('/').unwrap();
    let groups = groups_from_notation(words.next().unwrap());
    let (group, version) = groups.versions().next().unwrap();
    LocalGroupVersion {
        source,
        group: group.name.clone(),
        version: version.name.clone(),
        group_priority: group_priority.parse().unwrap(),
        version_priority: version_priority.parse().unwrap(),
        freshness: version.freshness.clone(),
        resources: version.resources.clone(),
    }
}

#[track_caller]
fn check(parts: &[&str], expected: &Expect) {
    let mut parts: Vec<_> = parts.iter().map(|text| part(text)).collect();
    expected.assert_eq(&to_notation(&build(&parts, CreationTimestamp::Absent)));
    parts.reverse();
    expected.assert_eq(&to_notation(&build(&parts, CreationTimestamp::Absent)));
}

#[test]
fn build_sorts_groups_by_priority_then_name() {
    check(
        &["BuiltIn 16700/1 b/v1 xs:get", "BuiltIn 17800/1 z/v1 xs:get", "BuiltIn 16700/1 a/v1 xs:get"],
        &expect!["z/v1 xs:get | a/v1 xs:get | b/v1 xs:get"],
    );
    check(
        &["BuiltIn 17800/15 apps/v1 xs:get", "Aggregated 20001/0 apiregistration.k8s.io/v1 ys:get"],
        &expect!["apiregistration.k8s.io/v1 ys:get | apps/v1 xs:get"],
    );
}

#[test]
fn build_sorts_equal_priority_versions_in_kube_order() {
    let parts =
        ["v1beta1", "v2beta1", "v1", "v1alpha1", "v2"].map(|version| format!("BuiltIn 1000/15 a/{version} xs:get"));
    check(
        &parts.each_ref().map(String::as_str),
        &expect!["a/v2 xs:get | a/v1 xs:get | a/v2beta1 xs:get | a/v1beta1 xs:get | a/v1alpha1 xs:get"],
    );
}

#[test]
fn build_sorts_versions_by_priority_before_name() {
    check(
        &["BuiltIn 1000/9 a/v2beta1 xs:get", "BuiltIn 1000/1 a/v2beta2 xs:get", "BuiltIn 1000/15 a/v1 xs:get"],
        &expect!["a/v1 xs:get | a/v2beta1 xs:get | a/v2beta2 xs:get"],
    );
}

#[test]
fn group_priority_is_highest_of_its_listed_versions() {
    check(
        &["BuiltIn 10/15 a/v1 xs:get", "BuiltIn 1000/15 a/v2 xs:get", "BuiltIn 500/15 b/v1 xs:get"],
        &expect!["a/v2 xs:get | a/v1 xs:get | b/v1 xs:get"],
    );
    // The entry with the higher priority is not listed.
    check(
        &["Aggregated 10/15 a/v1 xs:get", "CustomResource 1000/100 a/v1 ys:get", "BuiltIn 500/15 b/v1 xs:get"],
        &expect!["b/v1 xs:get | a/v1 xs:get"],
    );
}

#[test]
fn build_lists_best_source_per_group_version() {
    check(
        &["CustomResource 1000/100 a/v1 cs:get", "BuiltIn 1000/100 a/v1 bs:get", "CustomResource 1000/100 a/v2 cs:get"],
        &expect!["a/v2 cs:get | a/v1 bs:get"],
    );
    check(
        &["BuiltIn 1000/100 a/v1 bs:get", "Aggregated 1000/100 a/v1! as:get", "CustomResource 1000/100 a/v1 cs:get"],
        &expect!["a/v1! as:get"],
    );
}

#[test]
fn build_concatenates_parts_of_same_source() {
    let parts = [part("CustomResource 1000/100 a/v1! xs:get"), part("CustomResource 1000/100 a/v1 bs:get")];
    assert_eq!(to_notation(&build(&parts, CreationTimestamp::Absent)), "a/v1 xs:get bs:get");
}

#[test]
fn build_sets_given_creation_timestamp() {
    let groups = build(&[part("BuiltIn 1/1 a/v1 xs:get")], CreationTimestamp::Null);
    assert_eq!(groups.items()[0].creation_timestamp, CreationTimestamp::Null);
    assert_eq!(to_notation(&build(&[], CreationTimestamp::Null)), "");
}
