use expect_test::{Expect, expect};

use super::*;

fn time(minute: u32) -> Time {
    format!("2026-11-15T10:{minute:02}:00Z").parse().unwrap()
}

fn entry(server: &str, version: &str) -> ServerStorageVersion {
    ServerStorageVersion {
        api_server_id: server.to_owned(),
        encoding_version: version.to_owned(),
        decodable_versions: vec![version.to_owned()],
        ..ServerStorageVersion::default()
    }
}

fn members(text: &str) -> Members {
    text.split_whitespace().collect()
}

/// An object with these entries, as servers that are all members left it.
fn object(entries: &[(&str, &str)]) -> StorageVersion {
    let all: Members = entries.iter().map(|(server, _)| *server).collect();
    let start = |object: Option<StorageVersion>, (server, version): &(&str, &str)| {
        Some(register(object.as_ref(), "apps.deployments", &entry(server, version), &all, time(0)))
    };
    entries.iter().fold(None, start).unwrap_or_default()
}

fn shown(object: &StorageVersion) -> String {
    let entries = object.status.storage_versions.iter();
    let entries: Vec<_> = entries.map(|entry| format!("{}={}", entry.api_server_id, entry.encoding_version)).collect();
    let conditions: Vec<_> = object.status.conditions.iter().map(|condition| &*condition.status).collect();
    let common = object.status.common_encoding_version.as_deref().unwrap_or("none");
    format!("{} [{}] common {common} {}", object.metadata.name, entries.join(" "), conditions.join(" "))
}

#[track_caller]
fn check(edit: Edit, expected: &Expect) {
    expected.assert_eq(&match edit {
        Edit::Keep => "keep".to_owned(),
        Edit::Delete => "delete".to_owned(),
        Edit::Put(object) => shown(&object),
    });
}

#[test]
fn the_first_server_makes_the_object() {
    let made = register(None, "apps.deployments", &entry("a", "v1"), &members("a"), time(0));
    expect![[r#"apps.deployments [a=v1] common v1 True True"#]].assert_eq(&shown(&made));
    assert!(made.spec.is_empty() && made.metadata.resource_version.is_empty());
}

#[test]
fn an_entry_is_replaced_in_its_place_and_those_who_left_go_with_it() {
    let before = object(&[("a", "v1"), ("b", "v1"), ("c", "v1")]);
    let after = register(Some(&before), "apps.deployments", &entry("a", "v2"), &members("a c"), time(1));
    expect![[r#"apps.deployments [a=v2 c=v1] common none False True"#]].assert_eq(&shown(&after));
}

#[test]
fn a_server_need_not_be_in_its_own_view_of_the_members() {
    let after = register(None, "core.pods", &entry("a", "v1"), &members(""), time(0));
    expect![[r#"core.pods [a=v1] common v1 True True"#]].assert_eq(&shown(&after));
}

#[test]
fn tampered_entries_are_not_ours() {
    let ours = entry("a", "v1");
    let right = object(&[("a", "v1"), ("b", "v1")]);
    assert!(has_entry(&right, &ours));
    assert!(!has_entry(&object(&[("b", "v1")]), &ours), "absent");
    assert!(!has_entry(&object(&[("a", "v2")]), &ours), "another version");
    let mut twice = right.clone();
    twice.status.storage_versions.push(entry("a", "v2"));
    assert!(!has_entry(&twice, &ours), "contradicted");
    let repaired = register(Some(&twice), "apps.deployments", &ours, &members("a b"), time(1));
    assert_eq!(repaired, right);
}

#[test]
fn collection_removes_those_who_left_and_the_object_with_the_last_entry() {
    let three = object(&[("a", "v1"), ("b", "v2"), ("c", "v1")]);
    check(collect(&three, &members("a b c"), time(1)), &expect![["keep"]]);
    check(collect(&three, &members("a c"), time(1)), &expect![[r#"apps.deployments [a=v1 c=v1] common v1 True True"#]]);
    check(collect(&three, &members("d"), time(1)), &expect![["delete"]]);
    check(collect(&StorageVersion::default(), &members("a"), time(1)), &expect![["delete"]]);
}

#[test]
fn a_finalizer_holds_an_object_without_entries() {
    let mut held = object(&[("a", "v1")]);
    held.metadata.finalizers.push("example.com/hold".to_owned());
    check(collect(&held, &members("b"), time(1)), &expect![[r#"apps.deployments [] common none False False"#]]);
}

#[test]
fn collection_repairs_an_agreement_that_does_not_follow_from_the_entries() {
    let mut odd = object(&[("a", "v1"), ("b", "v2")]);
    odd.status.common_encoding_version = Some("v1".to_owned());
    odd.status.conditions.clear();
    check(
        collect(&odd, &members("a b"), time(1)),
        &expect![[r#"apps.deployments [a=v1 b=v2] common none False True"#]],
    );
}

#[test]
fn a_resource_that_is_no_longer_kept_is_withdrawn() {
    let two = object(&[("a", "v1"), ("b", "v2")]);
    check(withdraw(&two, "a", &members("a b"), time(1)), &expect![[r#"apps.deployments [b=v2] common v2 True False"#]]);
    check(withdraw(&object(&[("a", "v1")]), "a", &members("a b"), time(1)), &expect![["delete"]]);
}

#[test]
fn only_a_missing_report_can_wait() {
    let current = object(&[("a", "v1")]);
    let next = |members: &Members| match collect(&current, members, time(1)) {
        Edit::Put(next) => *next,
        other @ (Edit::Keep | Edit::Delete) => panic!("{other:?}"),
    };
    let joined = next(&members("a b"));
    assert!(only_misses_reports(&current, &joined));
    assert!(!only_misses_reports(&joined, &current), "it reports now");
    let two = object(&[("a", "v1"), ("b", "v1")]);
    let left = register(Some(&two), "apps.deployments", &entry("a", "v1"), &members("a c"), time(1));
    assert!(!only_misses_reports(&two, &left), "an entry goes");
}
