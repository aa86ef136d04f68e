use expect_test::{Expect, expect};

use super::*;
use crate::testing::{document, notation};

/// A part like `BuiltIn apps/v1 17800/15 deployments:get`.
fn part(text: &str) -> Part {
    let mut words = text.splitn(3, ' ');
    let source = match words.next() {
        Some("Aggregated") => Source::Aggregated,
        Some("BuiltIn") => Source::BuiltIn,
        Some("CustomResource") => Source::CustomResource,
        other => panic!("{other:?} is no source"),
    };
    let (group_priority, version_priority) = words.next().unwrap().split_once('/').unwrap();
    let groups = document(words.next().unwrap());
    let (group, version) = groups.versions().next().unwrap();
    Part {
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
    expected.assert_eq(&notation(&build(&parts, CreationTimestamp::Absent)));
    parts.reverse();
    expected.assert_eq(&notation(&build(&parts, CreationTimestamp::Absent)));
}

#[test]
fn groups_stand_by_priority_then_by_name() {
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
fn versions_without_priority_stand_in_kubernetes_order() {
    let parts =
        ["v1beta1", "v2beta1", "v1", "v1alpha1", "v2"].map(|version| format!("BuiltIn 1000/15 a/{version} xs:get"));
    check(
        &parts.each_ref().map(String::as_str),
        &expect!["a/v2 xs:get | a/v1 xs:get | a/v2beta1 xs:get | a/v1beta1 xs:get | a/v1alpha1 xs:get"],
    );
}

#[test]
fn a_version_priority_beats_the_name() {
    check(
        &["BuiltIn 1000/9 a/v2beta1 xs:get", "BuiltIn 1000/1 a/v2beta2 xs:get", "BuiltIn 1000/15 a/v1 xs:get"],
        &expect!["a/v1 xs:get | a/v2beta1 xs:get | a/v2beta2 xs:get"],
    );
}

#[test]
fn a_group_stands_as_high_as_its_highest_shown_version() {
    check(
        &["BuiltIn 10/15 a/v1 xs:get", "BuiltIn 1000/15 a/v2 xs:get", "BuiltIn 500/15 b/v1 xs:get"],
        &expect!["a/v2 xs:get | a/v1 xs:get | b/v1 xs:get"],
    );
    // The high claim belongs to a part that is not shown.
    check(
        &["Aggregated 10/15 a/v1 xs:get", "CustomResource 1000/100 a/v1 ys:get", "BuiltIn 500/15 b/v1 xs:get"],
        &expect!["b/v1 xs:get | a/v1 xs:get"],
    );
}

#[test]
fn one_source_is_shown_per_group_version_and_the_other_versions_stay() {
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
fn parts_of_one_source_are_joined_in_their_order() {
    let parts = [part("CustomResource 1000/100 a/v1! xs:get"), part("CustomResource 1000/100 a/v1 bs:get")];
    assert_eq!(notation(&build(&parts, CreationTimestamp::Absent)), "a/v1 xs:get bs:get");
}

#[test]
fn the_creation_timestamp_is_that_of_the_emulated_release() {
    let groups = build(&[part("BuiltIn 1/1 a/v1 xs:get")], CreationTimestamp::Null);
    assert_eq!(groups.items()[0].creation_timestamp, CreationTimestamp::Null);
    assert_eq!(notation(&build(&[], CreationTimestamp::Null)), "");
}
