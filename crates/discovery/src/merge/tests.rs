use std::sync::Arc;

use api::media::AggregatedVersion;
use expect_test::{Expect, expect};

use super::*;
use crate::aggregated;
use crate::groups::{CreationTimestamp, Freshness, Group, Resource};
use crate::testing::{document, notation, resource};

/// Servers `a`, `b`, … with these documents; a document in parentheses is that of a server that is not live.
fn inputs(documents: &[&str]) -> Vec<Input> {
    let servers = ('a'..='z').map(|letter| Name::from(letter.to_string()));
    servers
        .zip(documents)
        .map(|(server, text)| match text.strip_prefix('(') {
            Some(text) => Input { server, standing: Standing::Stale, groups: document(text.trim_end_matches(')')) },
            None => Input { server, standing: Standing::Current, groups: document(text) },
        })
        .collect()
}

#[track_caller]
fn check(documents: &[&str], expected: &Expect) {
    let mut inputs = inputs(documents);
    let merged = merge(&inputs);
    expected.assert_eq(&notation(&merged.groups));
    inputs.reverse();
    assert_eq!(merge(&inputs).groups, merged.groups, "the order of arrival has a say");
    let result = Input { server: "".into(), standing: Standing::Current, groups: merged.groups.clone() };
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
fn nothing_merges_to_an_empty_document() {
    check(&[], &expect![""]);
    check(&["", ""], &expect![""]);
}

#[test]
fn one_document_or_equal_ones_are_taken_as_they_are() {
    let inputs = inputs(&["b/v1 xs:get | a/v1 ys:get", "b/v1 xs:get | a/v1 ys:get", "b/v1 xs:get | a/v1 ys:get"]);
    let merged = merge(&inputs);
    assert!(inputs.iter().any(|input| Arc::ptr_eq(&input.groups, &merged.groups)));
    assert!(Arc::ptr_eq(&merge(&inputs[..1]).groups, &inputs[0].groups));
}

#[test]
fn groups_versions_and_resources_are_unions() {
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
fn verbs_are_a_sorted_union_unless_they_are_equal() {
    check(&["a/v1 xs:get,list", "a/v1 xs:watch,get"], &expect!["a/v1 xs:get,list,watch"]);
    check(&["a/v1 xs:list,get ys:get", "a/v1 xs:list,get zs:get"], &expect!["a/v1 xs:list,get ys:get zs:get"]);
    check(&["a/v1 xs:list,get", "a/v1 xs:get,list"], &expect!["a/v1 xs:get,list"]);
}

#[test]
fn verbs_that_nobody_states_add_nothing() {
    check(&["a/v1 xs xs/status:get", "a/v1 xs:list,get"], &expect!["a/v1 xs:list,get xs/status:get"]);
    check(&["a/v1 xs:", "a/v1 xs:list,get"], &expect!["a/v1 xs:list,get"]);
    check(&["a/v1 xs xs/status:get", "a/v1 xs xs/scale:get"], &expect!["a/v1 xs xs/scale:get xs/status:get"]);
    check(&["a/v1 xs:", "a/v1 xs"], &expect!["a/v1 xs:"]);
}

#[test]
fn subresources_are_a_union_with_the_verbs_of_all() {
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
fn an_order_that_all_agree_on_is_kept() {
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
fn versions_that_the_inputs_do_not_compare_follow_kubernetes_order() {
    check(&["a/v1alpha1 xs:get", "a/v1beta1 xs:get"], &expect!["a/v1beta1 xs:get | a/v1alpha1 xs:get"]);
    check(
        &["a/v10 xs:get", "a/v9 xs:get", "a/v11beta1 xs:get"],
        &expect!["a/v10 xs:get | a/v9 xs:get | a/v11beta1 xs:get"],
    );
}

#[test]
fn a_contradiction_reorders_only_what_takes_part_in_it() {
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
fn a_crashed_server_stales_only_what_nobody_else_serves() {
    check(&["a/v1 xs:get", "(a/v1 xs:get)"], &expect!["a/v1 xs:get"]);
    check(&["(a/v1 xs:get)", "(a/v1 xs:get)"], &expect!["a/v1! xs:get"]);
    check(&["a/v1 xs:get", "(a/v1 xs:get | b/v1 ys:get)"], &expect!["a/v1 xs:get | b/v1! ys:get"]);
    check(&["a/v1 xs:get", "(a/v2 xs:get | a/v1 xs:get)"], &expect!["a/v2! xs:get | a/v1 xs:get"]);
    check(&["a/v1 xs:get", "(a/v1 xs:list ys:get)"], &expect!["a/v1 xs:get,list ys:get"]);
}

#[test]
fn the_best_freshness_wins_whoever_has_it() {
    check(&["a/v1! xs:get", "a/v1 xs:get"], &expect!["a/v1 xs:get"]);
    check(&["a/v1!", "a/v1 xs:get"], &expect!["a/v1 xs:get"]);
    check(&["a/v1 xs:get", "a/v1!"], &expect!["a/v1 xs:get"]);
    check(&["(a/v1 xs:get)", "a/v1! xs:get"], &expect!["a/v1! xs:get"]);
}

#[test]
fn who_lists_a_version_without_resources_serves_none_of_it() {
    check(&["a/v1", "(a/v1 xs:get)"], &expect!["a/v1! xs:get"]);
    check(&["a/v1", "(a/v1)"], &expect!["a/v1"]);
    check(&["a/v1", "a/v1!"], &expect!["a/v1"]);
}

#[test]
fn a_server_that_recovers_leaves_no_trace_of_its_crash() {
    let live = merge(&inputs(&["a/v1 xs:get", "a/v1 xs:get | b/v1 ys:get"])).groups;
    let crashed = merge(&inputs(&["a/v1 xs:get", "(a/v1 xs:get | b/v1 ys:get)"])).groups;
    assert_ne!(live.etag(), crashed.etag());
    assert_eq!(notation(&live), notation(&crashed).replace('!', ""));
}

#[test]
fn conflicts_are_settled_for_the_live_then_for_the_smallest() {
    check(&["a/v1 xs@Cluster:get", "a/v1 xs:get"], &expect!["a/v1 xs@Cluster:get"]);
    check(&["(a/v1 xs@Cluster:get)", "a/v1 xs:get"], &expect!["a/v1 xs:get"]);
    check(&["a/v1! xs@Cluster:get", "a/v1 xs:get"], &expect!["a/v1 xs:get"]);
    check(&["a/v1 xs=Zebra:get", "a/v1 xs=Ape:get", "a/v1 xs=Zebra:get,list"], &expect!["a/v1 xs=Ape:get,list"]);
}

#[test]
fn conflicts_are_reported_with_the_winner_first() {
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
fn a_singular_name_in_conflict_is_reported() {
    let with_singular = |server: &str, singular: &str| {
        let resource = Resource { singular: singular.into(), ..resource("xs:get") };
        input_of(server, resource, CreationTimestamp::Absent)
    };
    let merged = merge(&[with_singular("a", "ex"), with_singular("b", ""), with_singular("c", "x")]);
    assert_eq!(&*merged.groups.version("g", "v1").unwrap().resources[0].singular, "ex");
    expect!["singular of xs in g/v1: ex (a), x (c)"].assert_eq(&merged.conflicts[0].to_string());
    assert_eq!(merged.conflicts.len(), 1);
}

#[test]
fn a_kind_said_in_two_ways_is_no_conflict() {
    let mut in_full = resource("xs:get");
    in_full.response_kind = Some(api::GroupVersionKind { group: "g".into(), version: "v1".into(), kind: "X".into() });
    let implied = |kind: Option<&str>| Resource {
        response_kind: kind.map(|kind| api::GroupVersionKind {
            group: "".into(),
            version: "".into(),
            kind: kind.into(),
        }),
        ..resource("xs")
    };
    let inputs = [
        input_of("a", in_full, CreationTimestamp::Absent),
        input_of("b", resource("xs:get"), CreationTimestamp::Absent),
        input_of("c", implied(Some("")), CreationTimestamp::Absent),
        input_of("d", implied(None), CreationTimestamp::Absent),
    ];
    let merged = merge(&inputs);
    assert_eq!(merged.conflicts, []);
    assert_eq!(notation(&merged.groups), "g/v1 xs:get");
    let merged = merge(&inputs[2..]);
    assert_eq!(notation(&merged.groups), "g/v1 xs=");
}

#[test]
fn short_names_and_categories_are_unions() {
    let with_names = |server: &str, short: &[&str], categories: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| Name::from(*name)).collect();
        let resource = Resource { short_names: names(short), categories: names(categories), ..resource("xs:get") };
        input_of(server, resource, CreationTimestamp::Absent)
    };
    let merged = merge(&[with_names("a", &["z", "x"], &["b", "a"]), with_names("b", &["y"], &[])]).groups;
    let resource = &merged.version("g", "v1").unwrap().resources[0];
    assert_eq!(resource.short_names.join(","), "x,y,z");
    assert_eq!(resource.categories.join(","), "b,a");
}

#[test]
fn a_null_creation_timestamp_stays_only_if_all_say_it() {
    let stamped = |server, word, timestamp| input_of(server, resource(word), timestamp);
    let timestamp_of = |inputs: &[Input]| merge(inputs).groups.items()[0].creation_timestamp;
    let (old, newer) = (CreationTimestamp::Null, CreationTimestamp::Absent);
    assert_eq!(timestamp_of(&[stamped("a", "xs:get", old), stamped("b", "ys:get", old)]), old);
    assert_eq!(timestamp_of(&[stamped("a", "xs:get", old), stamped("b", "ys:get", newer)]), newer);
}

#[test]
fn a_resource_listed_twice_is_one() {
    check(&["a/v1 xs:get xs:list", "a/v1 ys:get"], &expect!["a/v1 xs:get,list ys:get"]);
    check(
        &["a/v1 xs:get | b/v1 ys:get | a/v1 xs:list", "b/v1 zs:get"],
        &expect!["a/v1 xs:get,list | b/v1 ys:get zs:get"],
    );
}

#[test]
fn every_server_writes_the_same_bytes() {
    let seen_by_a = inputs(&["z/v1 xs:get | a/v1 ys:get", "z/v1 xs:list | b/v1 ys:get"]);
    let mut seen_by_b = seen_by_a.clone();
    seen_by_b.reverse();
    let bytes_of = |inputs: &[Input]| aggregated::json(&merge(inputs).groups, AggregatedVersion::V2).identity;
    assert_eq!(bytes_of(&seen_by_a), bytes_of(&seen_by_b));
}

#[test]
fn a_changed_input_changes_the_etag_and_its_return_restores_it() {
    let etag_of = |documents: &[&str]| merge(&inputs(documents)).groups.etag();
    let before = etag_of(&["a/v1 xs:get", "b/v1 ys:get"]);
    assert_ne!(before, etag_of(&["a/v1 xs:get", "b/v1 ys:get zs:get"]));
    assert_eq!(before, etag_of(&["a/v1 xs:get", "b/v1 ys:get"]));
}

#[test]
fn what_is_equal_keeps_its_memory() {
    let inputs = inputs(&["a/v1 xs:get | b/v1 ys:get", "b/v1 ys:get | c/v1 zs:get"]);
    let merged = merge(&inputs).groups;
    assert!(Arc::ptr_eq(merged.group("a").unwrap(), inputs[0].groups.group("a").unwrap()));
    assert!(inputs.iter().any(|input| Arc::ptr_eq(merged.group("b").unwrap(), input.groups.group("b").unwrap())));
}

fn input_of(server: &str, resource: Resource, creation_timestamp: CreationTimestamp) -> Input {
    let version =
        crate::Version { name: "v1".into(), resources: vec![Arc::new(resource)], freshness: Freshness::Current };
    let group = Group { name: "g".into(), creation_timestamp, versions: vec![version] };
    Input { server: server.into(), standing: Standing::Current, groups: Arc::new(Groups::new(vec![Arc::new(group)])) }
}
