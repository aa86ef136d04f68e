use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn time(minute: u32) -> Time {
    format!("2026-11-15T10:{minute:02}:00Z").parse().unwrap()
}

/// Parses entries from `a=v1 b=v1beta1`.
fn entries(text: &str) -> Vec<ServerStorageVersion> {
    let entry = |word: &str| {
        let (server, version) = word.split_once('=').unwrap();
        ServerStorageVersion {
            api_server_id: server.to_owned(),
            encoding_version: version.to_owned(),
            decodable_versions: vec![version.to_owned()],
            ..ServerStorageVersion::default()
        }
    };
    text.split_whitespace().map(entry).collect()
}

fn members(text: &str) -> MemberSet {
    text.split_whitespace().collect()
}

fn describe(status: &StorageVersionStatus) -> String {
    let common = status.common_encoding_version.as_deref().unwrap_or("none");
    let conditions = status.conditions.iter().map(|condition| {
        let since = condition.last_transition_time.map_or("never".to_owned(), |time| time.to_string());
        let StorageVersionCondition { condition_type, status, reason, message, observed_generation, .. } = condition;
        format!("\n{condition_type} {status} since {since} at {observed_generation}: {reason}: {message}")
    });
    format!("common {common}{}", conditions.collect::<String>())
}

#[track_caller]
fn check(entries_text: &str, members_text: &str, expected: &Expect) {
    let mut status =
        StorageVersionStatus { storage_versions: entries(entries_text), ..StorageVersionStatus::default() };
    update_agreement(&mut status, 3, &members(members_text), time(0));
    expected.assert_eq(&describe(&status));
}

#[test]
fn equal_entries_set_common_encoding_version() {
    check(
        "a=v1 b=v1",
        "a b",
        &expect![[r#"
            common v1
            AllEncodingVersionsEqual True since 2026-11-15T10:00:00Z at 3: CommonEncodingVersionSet: Common encoding version set
            AllServersReporting True since 2026-11-15T10:00:00Z at 3: EntriesComplete: Every server of the cluster has an entry"#]],
    );
}

#[test]
fn differing_entry_unsets_common_encoding_version() {
    check(
        "a=v1 b=v1 c=v1beta1",
        "a b c",
        &expect![[r#"
            common none
            AllEncodingVersionsEqual False since 2026-11-15T10:00:00Z at 3: CommonEncodingVersionUnset: Common encoding version unset
            AllServersReporting True since 2026-11-15T10:00:00Z at 3: EntriesComplete: Every server of the cluster has an entry"#]],
    );
}

#[test]
fn no_entries_leave_common_encoding_version_unset() {
    check(
        "",
        "",
        &expect![[r#"
            common none
            AllEncodingVersionsEqual False since 2026-11-15T10:00:00Z at 3: CommonEncodingVersionUnset: Common encoding version unset
            AllServersReporting True since 2026-11-15T10:00:00Z at 3: EntriesComplete: Every server of the cluster has an entry"#]],
    );
}

#[test]
fn members_without_entry_are_named_in_reporting_condition() {
    check(
        "a=v1",
        "a b c",
        &expect![[r#"
            common v1
            AllEncodingVersionsEqual True since 2026-11-15T10:00:00Z at 3: CommonEncodingVersionSet: Common encoding version set
            AllServersReporting False since 2026-11-15T10:00:00Z at 3: EntriesMissing: No entry of b, c"#]],
    );
}

#[test]
fn reporting_condition_counts_members_beyond_the_limit() {
    let mut status = StorageVersionStatus::default();
    let many: MemberSet = (10..30).map(|number| format!("m{number}")).collect();
    update_agreement(&mut status, 0, &many, time(0));
    assert_eq!(
        status.conditions[1].message,
        "No entry of m10, m11, m12, m13, m14, m15, m16, m17, m18, m19 and 10 more"
    );
}

#[test]
fn transition_time_changes_with_status_or_common_version() {
    let mut status = StorageVersionStatus::default();
    let mut step = |listed: &str, minute: u32| {
        status.storage_versions = entries(listed);
        update_agreement(&mut status, 0, &members("a b"), time(minute));
        let minutes = status.conditions.iter().map(|condition| {
            let since = condition.last_transition_time.unwrap();
            (0..60).find(|minute| time(*minute) == since).unwrap()
        });
        minutes.collect::<Vec<u32>>()
    };
    assert_eq!(step("a=v1", 1), [1, 1]);
    assert_eq!(step("a=v1", 2), [1, 1], "nothing new");
    assert_eq!(step("a=v1 b=v1", 3), [1, 3], "the second server reports");
    assert_eq!(step("a=v1 b=v2", 4), [4, 3], "they differ");
    assert_eq!(step("a=v2 b=v2", 5), [5, 3], "they agree");
    assert_eq!(step("a=v3 b=v3", 6), [6, 3], "the servers agree on another version; the status stays True");
}

#[test]
fn foreign_conditions_stay_and_own_are_not_duplicated() {
    let other = StorageVersionCondition {
        condition_type: "Other".to_owned(),
        status: "True".to_owned(),
        ..StorageVersionCondition::default()
    };
    let mut status = StorageVersionStatus { conditions: vec![other.clone()], ..StorageVersionStatus::default() };
    for _ in 0..2 {
        update_agreement(&mut status, 0, &members(""), time(0));
        assert_eq!(status.conditions.len(), 3);
        assert_eq!(status.conditions[0], other);
    }
}

proptest! {
    #[test]
    fn update_agreement_ignores_entry_order(versions in prop::collection::vec("v[12]", 0..6), rotate in 0_usize..6) {
        let text = versions.iter().enumerate().map(|(at, version)| format!("s{at}={version} ")).collect::<String>();
        let mut status = StorageVersionStatus { storage_versions: entries(&text), ..StorageVersionStatus::default() };
        let mut turned = status.clone();
        turned.storage_versions.rotate_left(rotate.min(versions.len()));
        for status in [&mut status, &mut turned] {
            update_agreement(status, 0, &members("s0 s9"), time(0));
        }
        prop_assert_eq!(describe(&status), describe(&turned));
    }
}

#[test]
fn participants_are_the_members_of_the_components_with_entries() {
    let component = |text: &str| {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once(':'));
        MemberSet::from_components(pairs.map(|(server, component)| (server.into(), component.into())))
    };
    let members = component("a:kube-apiserver b:kube-apiserver x:gadgets y:gadgets");
    let missing = |listed: &str| {
        let mut status = StorageVersionStatus { storage_versions: entries(listed), ..StorageVersionStatus::default() };
        update_agreement(&mut status, 0, &members, time(0));
        status.conditions[1].message.clone()
    };
    assert_eq!(missing("a=v1 b=v1"), "Every server of the cluster has an entry");
    assert_eq!(missing("a=v1"), "No entry of b");
    assert_eq!(missing("x=v1 y=v2"), "Every server of the cluster has an entry");
    assert_eq!(missing("x=v1"), "No entry of y");
    assert_eq!(missing("a=v1 x=v1"), "No entry of b, y");
    assert_eq!(missing("gone=v1"), "No entry of a, b");
}
