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

fn members(text: &str) -> MemberSet {
    text.split_whitespace().collect()
}

/// An object with these entries, written while all these servers were members.
fn object_with_entries(entries: &[(&str, &str)]) -> StorageVersion {
    let all: MemberSet = entries.iter().map(|(server, _)| *server).collect();
    let start = |object: Option<StorageVersion>, (server, version): &(&str, &str)| {
        Some(add_entry(object.as_ref(), "apps.deployments", &entry(server, version), &all, time(0)))
    };
    entries.iter().fold(None, start).unwrap_or_default()
}

fn describe(object: &StorageVersion) -> String {
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
        Edit::Put(object) => describe(&object),
    });
}

#[test]
fn add_entry_creates_missing_object() {
    let made = add_entry(None, "apps.deployments", &entry("a", "v1"), &members("a"), time(0));
    expect![[r#"apps.deployments [a=v1] common v1 True True"#]].assert_eq(&describe(&made));
    assert!(made.spec.is_empty() && made.metadata.resource_version.is_empty());
}

#[test]
fn add_entry_replaces_own_entry_and_drops_non_members() {
    let before = object_with_entries(&[("a", "v1"), ("b", "v1"), ("c", "v1")]);
    let after = add_entry(Some(&before), "apps.deployments", &entry("a", "v2"), &members("a c"), time(1));
    expect![[r#"apps.deployments [a=v2 c=v1] common none False True"#]].assert_eq(&describe(&after));
}

#[test]
fn add_entry_keeps_own_entry_when_not_a_member() {
    let after = add_entry(None, "core.pods", &entry("a", "v1"), &members(""), time(0));
    expect![[r#"core.pods [a=v1] common v1 True True"#]].assert_eq(&describe(&after));
}

#[test]
fn has_exact_entry_rejects_missing_changed_or_duplicate_entry() {
    let ours = entry("a", "v1");
    let right = object_with_entries(&[("a", "v1"), ("b", "v1")]);
    assert!(has_exact_entry(&right, &ours));
    assert!(!has_exact_entry(&object_with_entries(&[("b", "v1")]), &ours), "absent");
    assert!(!has_exact_entry(&object_with_entries(&[("a", "v2")]), &ours), "another version");
    let mut twice = right.clone();
    twice.status.storage_versions.push(entry("a", "v2"));
    assert!(!has_exact_entry(&twice, &ours), "two entries of one server");
    let repaired = add_entry(Some(&twice), "apps.deployments", &ours, &members("a b"), time(1));
    assert_eq!(repaired, right);
}

#[test]
fn remove_stale_entries_deletes_object_without_members() {
    let three = object_with_entries(&[("a", "v1"), ("b", "v2"), ("c", "v1")]);
    check(remove_stale_entries(&three, &members("a b c"), time(1)), &expect![["keep"]]);
    check(
        remove_stale_entries(&three, &members("a c"), time(1)),
        &expect![[r#"apps.deployments [a=v1 c=v1] common v1 True True"#]],
    );
    check(remove_stale_entries(&three, &members("d"), time(1)), &expect![["delete"]]);
    check(remove_stale_entries(&StorageVersion::default(), &members("a"), time(1)), &expect![["delete"]]);
}

#[test]
fn finalizer_keeps_object_without_entries() {
    let mut held = object_with_entries(&[("a", "v1")]);
    held.metadata.finalizers.push("example.com/hold".to_owned());
    check(
        remove_stale_entries(&held, &members("b"), time(1)),
        &expect![[r#"apps.deployments [] common none False False"#]],
    );
}

#[test]
fn remove_stale_entries_repairs_wrong_agreement() {
    let mut odd = object_with_entries(&[("a", "v1"), ("b", "v2")]);
    odd.status.common_encoding_version = Some("v1".to_owned());
    odd.status.conditions.clear();
    check(
        remove_stale_entries(&odd, &members("a b"), time(1)),
        &expect![[r#"apps.deployments [a=v1 b=v2] common none False True"#]],
    );
}

#[test]
fn remove_entry_deletes_object_with_last_entry() {
    let two = object_with_entries(&[("a", "v1"), ("b", "v2")]);
    check(
        remove_entry(&two, "a", &members("a b"), time(1)),
        &expect![[r#"apps.deployments [b=v2] common v2 True False"#]],
    );
    check(remove_entry(&object_with_entries(&[("a", "v1")]), "a", &members("a b"), time(1)), &expect![["delete"]]);
}

#[test]
fn only_marks_reports_missing_ignores_other_changes() {
    let current = object_with_entries(&[("a", "v1")]);
    let next = |members: &MemberSet| match remove_stale_entries(&current, members, time(1)) {
        Edit::Put(next) => *next,
        other @ (Edit::Keep | Edit::Delete) => panic!("{other:?}"),
    };
    let joined = next(&members("a b"));
    assert!(only_marks_reports_missing(&current, &joined));
    assert!(!only_marks_reports_missing(&joined, &current), "the member reports now");
    let two = object_with_entries(&[("a", "v1"), ("b", "v1")]);
    let left = add_entry(Some(&two), "apps.deployments", &entry("a", "v1"), &members("a c"), time(1));
    assert!(!only_marks_reports_missing(&two, &left), "an entry is removed");
}
