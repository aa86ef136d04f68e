use std::sync::Arc;

use api::media::AggregatedVersion;
use expect_test::{Expect, expect};

use super::*;
use crate::aggregated;
use crate::groups::{CreationTimestamp, DiscoveryFreshness, GroupDiscovery, ResourceDiscovery};
use crate::testing::{groups_from_notation, resource_from_notation, to_notation};

/// Builds inputs of servers `a`, `b`, …; parentheses mark the document of a server that is not live.
fn inputs(documents: &[&str]) -> Vec<MergeInput> {
    let servers = ('a'..='z').map(|letter| SharedStr::from(letter.to_string()));
    servers
        .zip(documents)
        .map(|(server, text)| match text.strip_prefix('(') {
            Some(text) => MergeInput {
                server,
                liveness: ServerLiveness::NotLive,
                groups: groups_from_notation(text.trim_end_matches(')')),
            },
            None => MergeInput { server, liveness: ServerLiveness::Live, groups: groups_from_notation(text) },
        })
        .collect()
}

#[track_caller]
fn check(documents: &[&str], expected: &Expect) {
    let mut inputs = inputs(documents);
    let merged = merge(&inputs);
    expected.assert_eq(&to_notation(&merged.groups));
    inputs.reverse();
    assert_eq!(merge(&inputs).groups, merged.groups, "the order of arrival matters");
    let result = MergeInput { server: "".into(), liveness: ServerLiveness::Live, groups: merged.groups.clone() };
    inputs.push(result.clone());
    assert_eq!(merge(&inputs).groups, merged.groups, "merging the result again changes it");
    inputs.into_iter().for_each(|input| {
        assert_eq!(merge(&[result.clone(), input]).groups, merged.groups, "an input changes the result");
    });
}

#[track_caller]
fn check_conflicts(documents: &[&str], expected: &Expect) {
    let lines: Vec<String> = merge(&inputs(documents)).conflicts.iter().map(ToString::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn merge_of_no_groups_is_empty() {
    check(&[], &expect![""]);
    check(&["", ""], &expect![""]);
}

#[test]
fn merge_of_equal_documents_returns_an_input() {
    let inputs = inputs(&["b/v1 xs:get | a/v1 ys:get", "b/v1 xs:get | a/v1 ys:get", "b/v1 xs:get | a/v1 ys:get"]);
    let merged = merge(&inputs);
    assert!(inputs.iter().any(|input| Arc::ptr_eq(&input.groups, &merged.groups)));
    assert!(Arc::ptr_eq(&merge(&inputs[..1]).groups, &inputs[0].groups));
}

#[test]
fn merge_unites_groups_versions_and_resources() {
    check(&["a/v1 xs:get", "b/v1 ys:get"], &expect!["a/v1 xs:get | b/v1 ys:get"]);
    check(&["a/v1 xs:get", "a/v2 xs:get"], &expect!["a/v2 xs:get | a/v1 xs:get"]);
    check(&["a/v1 xs:get", "a/v1 ys:get"], &expect!["a/v1 xs:get ys:get"]);
    check(&["", "a/v1 xs:get"], &expect!["a/v1 xs:get"]);
    check(
        &["apps/v1 ds:get", "batch/v1 js:get", "apps/v1 rs:get | c/v1 cs:get"],
        &expect!["apps/v1 ds:get rs:get | batch/v1 js:get | c/v1 cs:get"],
    );
    check(&["v1 pods:get", "v1 pods:get services:get"], &expect!["v1 pods:get services:get"]);
}

#[test]
fn merge_sorts_verbs_that_differ() {
    check(&["a/v1 xs:get,list", "a/v1 xs:watch,get"], &expect!["a/v1 xs:get,list,watch"]);
    check(&["a/v1 xs:list,get ys:get", "a/v1 xs:list,get zs:get"], &expect!["a/v1 xs:list,get ys:get zs:get"]);
    check(&["a/v1 xs:list,get", "a/v1 xs:get,list"], &expect!["a/v1 xs:get,list"]);
}

#[test]
fn merge_ignores_null_and_empty_verbs() {
    check(&["a/v1 xs xs/status:get", "a/v1 xs:list,get"], &expect!["a/v1 xs:list,get xs/status:get"]);
    check(&["a/v1 xs:", "a/v1 xs:list,get"], &expect!["a/v1 xs:list,get"]);
    check(&["a/v1 xs xs/status:get", "a/v1 xs xs/scale:get"], &expect!["a/v1 xs xs/scale:get xs/status:get"]);
    check(&["a/v1 xs:", "a/v1 xs"], &expect!["a/v1 xs:"]);
}

#[test]
fn merge_unites_subresources_and_their_verbs() {
    check(
        &["a/v1 xs:get xs/status:get", "a/v1 xs:get xs/log:get xs/status:get,patch"],
        &expect!["a/v1 xs:get xs/log:get xs/status:get,patch"],
    );
    check(
        &["a/v1 xs:get xs/status:get xs/scale:get", "a/v1 xs:get,list xs/status:get xs/scale:get"],
        &expect!["a/v1 xs:get,list xs/status:get xs/scale:get"],
    );
}

#[test]
fn merge_keeps_agreed_order() {
    check(
        &["z/v1 xs:get | m/v1 xs:get | a/v1 xs:get", "z/v1 xs:get | n/v1 xs:get | a/v1 xs:get"],
        &expect!["z/v1 xs:get | m/v1 xs:get | n/v1 xs:get | a/v1 xs:get"],
    );
    check(
        &["a/v2 xs:get | a/v1 xs:get | a/v2beta1 xs:get", "a/v2 xs:get | a/v2beta1 xs:get | a/v2beta2 xs:get"],
        &expect!["a/v2 xs:get | a/v1 xs:get | a/v2beta1 xs:get | a/v2beta2 xs:get"],
    );
}

#[test]
fn merge_sorts_unrelated_versions_in_kube_order() {
    check(&["a/v1alpha1 xs:get", "a/v1beta1 xs:get"], &expect!["a/v1beta1 xs:get | a/v1alpha1 xs:get"]);
    check(
        &["a/v10 xs:get", "a/v9 xs:get", "a/v11beta1 xs:get"],
        &expect!["a/v10 xs:get | a/v9 xs:get | a/v11beta1 xs:get"],
    );
}

#[test]
fn merge_reorders_only_contradicting_entries() {
    check(
        &[
            "z/v1 xs:get | q/v1 xs:get | p/v1 xs:get | a/v1 xs:get",
            "z/v1 xs:get | p/v1 xs:get | q/v1 xs:get | a/v1 xs:get",
        ],
        &expect!["z/v1 xs:get | p/v1 xs:get | q/v1 xs:get | a/v1 xs:get"],
    );
    check(&["a/v1 xs:get | a/v2 xs:get", "a/v2 xs:get | a/v1 xs:get"], &expect!["a/v2 xs:get | a/v1 xs:get"]);
}

#[test]
fn merge_marks_stale_only_what_no_live_server_serves() {
    check(&["a/v1 xs:get", "(a/v1 xs:get)"], &expect!["a/v1 xs:get"]);
    check(&["(a/v1 xs:get)", "(a/v1 xs:get)"], &expect!["a/v1! xs:get"]);
    check(&["a/v1 xs:get", "(a/v1 xs:get | b/v1 ys:get)"], &expect!["a/v1 xs:get | b/v1! ys:get"]);
    check(&["a/v1 xs:get", "(a/v2 xs:get | a/v1 xs:get)"], &expect!["a/v2! xs:get | a/v1 xs:get"]);
    check(&["a/v1 xs:get", "(a/v1 xs:list ys:get)"], &expect!["a/v1 xs:get,list ys:get"]);
}

#[test]
fn merge_takes_best_freshness() {
    check(&["a/v1! xs:get", "a/v1 xs:get"], &expect!["a/v1 xs:get"]);
    check(&["a/v1!", "a/v1 xs:get"], &expect!["a/v1 xs:get"]);
    check(&["a/v1 xs:get", "a/v1!"], &expect!["a/v1 xs:get"]);
    check(&["(a/v1 xs:get)", "a/v1! xs:get"], &expect!["a/v1! xs:get"]);
}

#[test]
fn version_without_resources_does_not_keep_it_current() {
    check(&["a/v1", "(a/v1 xs:get)"], &expect!["a/v1! xs:get"]);
    check(&["a/v1", "(a/v1)"], &expect!["a/v1"]);
    check(&["a/v1", "a/v1!"], &expect!["a/v1"]);
}

#[test]
fn merge_of_recovered_server_equals_merge_before_crash() {
    let live = merge(&inputs(&["a/v1 xs:get", "a/v1 xs:get | b/v1 ys:get"])).groups;
    let crashed = merge(&inputs(&["a/v1 xs:get", "(a/v1 xs:get | b/v1 ys:get)"])).groups;
    assert_ne!(live.etag(), crashed.etag());
    assert_eq!(to_notation(&live), to_notation(&crashed).replace('!', ""));
}

#[test]
fn conflict_prefers_live_then_smallest_value() {
    check(&["a/v1 xs@Cluster:get", "a/v1 xs:get"], &expect!["a/v1 xs@Cluster:get"]);
    check(&["(a/v1 xs@Cluster:get)", "a/v1 xs:get"], &expect!["a/v1 xs:get"]);
    check(&["a/v1! xs@Cluster:get", "a/v1 xs:get"], &expect!["a/v1 xs:get"]);
    check(&["a/v1 xs=Zebra:get", "a/v1 xs=Ape:get", "a/v1 xs=Zebra:get,list"], &expect!["a/v1 xs=Ape:get,list"]);
}

#[test]
fn conflict_reports_winning_value_first() {
    check_conflicts(
        &["a/v1 xs@Cluster:get", "a/v1 xs:get", "a/v1 xs:get", "a/v1 xs:list"],
        &expect!["scope of xs in a/v1: Cluster (a), Namespaced (b and 2 more)"],
    );
    check_conflicts(
        &["(v1 xs=Ape:get)", "v1 xs=Zebra:get"],
        &expect!["kind of xs in v1: /v1, Kind=Zebra (b), /v1, Kind=Ape (a)"],
    );
    check_conflicts(
        &["a/v1 xs:get xs/s=Ape:get", "a/v1 xs:get xs/s=Cat:get xs/t:get"],
        &expect!["kind of xs/s in a/v1: a/v1, Kind=Ape (a), a/v1, Kind=Cat (b)"],
    );
    check_conflicts(&["a/v1 xs:get", "a/v1 xs:list xs/status:get", "(a/v1 ys:get)"], &expect![""]);
}

#[test]
fn conflicting_singular_name_is_reported() {
    let with_singular = |server: &str, singular: &str| {
        let resource = ResourceDiscovery { singular: singular.into(), ..resource_from_notation("xs:get") };
        input_of(server, resource, CreationTimestamp::Absent)
    };
    let merged = merge(&[with_singular("a", "ex"), with_singular("b", ""), with_singular("c", "x")]);
    assert_eq!(&*merged.groups.version("g", "v1").unwrap().resources[0].singular, "ex");
    expect!["singular of xs in g/v1: ex (a), x (c)"].assert_eq(&merged.conflicts[0].to_string());
    assert_eq!(merged.conflicts.len(), 1);
}

#[test]
fn relative_and_full_kind_do_not_conflict() {
    let mut in_full = resource_from_notation("xs:get");
    in_full.response_kind = Some(api::GroupVersionKind { group: "g".into(), version: "v1".into(), kind: "X".into() });
    let implied = |kind: Option<&str>| ResourceDiscovery {
        response_kind: kind.map(|kind| api::GroupVersionKind {
            group: "".into(),
            version: "".into(),
            kind: kind.into(),
        }),
        ..resource_from_notation("xs")
    };
    let inputs = [
        input_of("a", in_full, CreationTimestamp::Absent),
        input_of("b", resource_from_notation("xs:get"), CreationTimestamp::Absent),
        input_of("c", implied(Some("")), CreationTimestamp::Absent),
        input_of("d", implied(None), CreationTimestamp::Absent),
    ];
    let merged = merge(&inputs);
    assert_eq!(merged.conflicts, []);
    assert_eq!(to_notation(&merged.groups), "g/v1 xs:get");
    let merged = merge(&inputs[2..]);
    assert_eq!(to_notation(&merged.groups), "g/v1 xs=");
}

#[test]
fn merge_unites_short_names_and_categories() {
    let with_names = |server: &str, short: &[&str], categories: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| SharedStr::from(*name)).collect();
        let resource = ResourceDiscovery {
            short_names: names(short),
            categories: names(categories),
            ..resource_from_notation("xs:get")
        };
        input_of(server, resource, CreationTimestamp::Absent)
    };
    let merged = merge(&[with_names("a", &["z", "x"], &["b", "a"]), with_names("b", &["y"], &[])]).groups;
    let resource = &merged.version("g", "v1").unwrap().resources[0];
    assert_eq!(resource.short_names.join(","), "x,y,z");
    assert_eq!(resource.categories.join(","), "b,a");
}

#[test]
fn merge_keeps_null_creation_timestamp_only_if_unanimous() {
    let stamped = |server, word, timestamp| input_of(server, resource_from_notation(word), timestamp);
    let timestamp_of = |inputs: &[MergeInput]| merge(inputs).groups.items()[0].creation_timestamp;
    let (old, newer) = (CreationTimestamp::Null, CreationTimestamp::Absent);
    assert_eq!(timestamp_of(&[stamped("a", "xs:get", old), stamped("b", "ys:get", old)]), old);
    assert_eq!(timestamp_of(&[stamped("a", "xs:get", old), stamped("b", "ys:get", newer)]), newer);
}

#[test]
fn merge_deduplicates_resources() {
    check(&["a/v1 xs:get xs:list", "a/v1 ys:get"], &expect!["a/v1 xs:get,list ys:get"]);
    check(
        &["a/v1 xs:get | b/v1 ys:get | a/v1 xs:list", "b/v1 zs:get"],
        &expect!["a/v1 xs:get,list | b/v1 ys:get zs:get"],
    );
}

#[test]
fn merged_bytes_do_not_depend_on_input_order() {
    let seen_by_a = inputs(&["z/v1 xs:get | a/v1 ys:get", "z/v1 xs:list | b/v1 ys:get"]);
    let mut seen_by_b = seen_by_a.clone();
    seen_by_b.reverse();
    let bytes_of =
        |inputs: &[MergeInput]| aggregated::encode_json(&merge(inputs).groups, AggregatedVersion::V2).identity;
    assert_eq!(bytes_of(&seen_by_a), bytes_of(&seen_by_b));
}

#[test]
fn merged_etag_follows_inputs() {
    let etag_of = |documents: &[&str]| merge(&inputs(documents)).groups.etag();
    let before = etag_of(&["a/v1 xs:get", "b/v1 ys:get"]);
    assert_ne!(before, etag_of(&["a/v1 xs:get", "b/v1 ys:get zs:get"]));
    assert_eq!(before, etag_of(&["a/v1 xs:get", "b/v1 ys:get"]));
}

#[test]
fn merge_shares_memory_of_equal_groups() {
    let inputs = inputs(&["a/v1 xs:get | b/v1 ys:get", "b/v1 ys:get | c/v1 zs:get"]);
    let merged = merge(&inputs).groups;
    assert!(Arc::ptr_eq(merged.group("a").unwrap(), inputs[0].groups.group("a").unwrap()));
    assert!(inputs.iter().any(|input| Arc::ptr_eq(merged.group("b").unwrap(), input.groups.group("b").unwrap())));
}

fn input_of(server: &str, resource: ResourceDiscovery, creation_timestamp: CreationTimestamp) -> MergeInput {
    let version = crate::VersionDiscovery {
        name: "v1".into(),
        resources: vec![Arc::new(resource)],
        freshness: DiscoveryFreshness::Current,
    };
    let group = GroupDiscovery { name: "g".into(), creation_timestamp, versions: vec![version] };
    MergeInput {
        server: server.into(),
        liveness: ServerLiveness::Live,
        groups: Arc::new(GroupDiscoveryList::new(vec![Arc::new(group)])),
    }
}
