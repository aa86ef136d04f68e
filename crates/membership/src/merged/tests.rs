use api::GroupVersion;
use discovery::DiscoveryFreshness;
use expect_test::{Expect, expect};

use super::*;
use crate::testing::{view_from_notation, view_inputs_from_notation};
use crate::view::{View, ViewInputs};

/// Group-versions with their resources, `!` for stale.
fn to_notation(groups: &GroupDiscoveryList) -> String {
    let versions = groups.versions().map(|(group, version)| {
        let name = GroupVersion { group: &*group.name, version: &*version.name };
        let mark = if version.freshness == DiscoveryFreshness::Stale { "!" } else { "" };
        let resources: Vec<_> = version.resources.iter().map(|resource| &*resource.name).collect();
        format!("{name}{mark} {}", resources.join(" "))
    });
    versions.collect::<Vec<_>>().join(" | ")
}

#[track_caller]
fn check(cluster: &str, expected: &Expect) {
    expected.assert_eq(&to_notation(view_from_notation(cluster).merged_documents().apis()));
}

#[test]
fn merged_document_of_single_server_is_its_own() {
    let view = view_from_notation("here: v1 pods:get | apps/v1 deployments:get; b unknown; c mute");
    assert!(Arc::ptr_eq(view.merged_documents().apis(), view.local_document().apis()));
}

#[test]
fn group_version_is_stale_without_live_member() {
    check(
        "here: apps/v1 xs:get; b live: batch/v1 ys:get; c suspect: batch/v1 ys:get | c/v1 zs:get; d left: d/v1 zs:get",
        &expect!["apps/v1 xs | batch/v1 ys | c/v1! zs | d/v1! zs"],
    );
}

#[test]
fn core_group_is_merged_separately() {
    let view = view_from_notation("here: v1 pods:get | apps/v1 xs:get; b live: v1 pods:get pods/resize:get nodes:get");
    assert_eq!(to_notation(view.merged_documents().apis()), "apps/v1 xs");
    assert_eq!(to_notation(view.merged_documents().core()), "v1 pods nodes");
}

#[test]
fn excluded_resources_come_from_local_document_only() {
    let peers = "b live: e.com/v1 xs:get ys:get | f.com/v1 zs:get | g.com/v1!; c suspect: f.com/v1 zs:get";
    check(
        &format!("here: e.com/v1 xs:get; shared: e.com/v1/xs g.com/v1; deleted: f.com/v1/zs; {peers}"),
        &expect!["e.com/v1 xs ys"],
    );
    check(&format!("here: a/v1 xs:get; {peers}"), &expect!["a/v1 xs | e.com/v1 xs ys | f.com/v1 zs | g.com/v1! "]);
}

#[test]
fn merged_bytes_are_equal_on_all_servers() {
    let (a, b) = ("apps/v1 xs:get ys:get | b/v1 zs:get", "apps/v1 ys:get,list ws:get | c/v1 zs:get");
    let of_a = view_from_notation(&format!("here: {a}; b live: {b}"));
    let of_b = view_from_notation(&format!("here: {b}; a live: {a}"));
    assert_eq!(
        of_a.merged_documents().json(AggregatedVersion::V2).identity,
        of_b.merged_documents().json(AggregatedVersion::V2).identity
    );
    assert_eq!(of_a.merged_documents().json(AggregatedVersion::V2).etag, of_b.merged_documents().protobuf().etag);
}

#[test]
fn merge_conflicts_are_reported() {
    let mut inputs = view_inputs_from_notation("here: a/v1 xs:get; b live: a/v1 xs:get,list");
    let groups = crate::testing::groups_from_notation("a/v1 xs:get");
    let mut group = (*groups.items()[0]).clone();
    let mut resource = (*group.versions[0].resources[0]).clone();
    resource.scope = discovery::DiscoveryScope::Cluster;
    group.versions[0].resources = vec![Arc::new(resource)];
    let apis = Arc::new(GroupDiscoveryList::new(vec![Arc::new(group)]));
    inputs.local_document = Arc::new(ServerDocument::new(Arc::new(GroupDiscoveryList::new(Vec::new())), apis));
    let view = View::new(inputs, None);
    let shown: Vec<_> = view.merged_documents().conflicts().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["scope of xs in a/v1: Cluster (apiserver-me), Namespaced (apiserver-b)"]);
}

#[test]
fn merged_documents_are_rebuilt_only_when_inputs_change() {
    let first = view_inputs_from_notation("here: a/v1 xs:get; b live: b/v1 ys:get");
    let view = View::new(first.clone(), None);

    let mut moved = first.clone();
    let mut members = first.members.to_vec();
    members[0].address = api::Address::new("elsewhere.example", 1);
    moved.members = members.clone().into();
    let next = View::new(moved, Some(&view));
    assert!(
        Arc::ptr_eq(next.merged_documents(), view.merged_documents())
            && Arc::ptr_eq(next.routing_table(), view.routing_table())
    );
    assert_ne!(next.address(crate::MemberIndex(0)), view.address(crate::MemberIndex(0)));

    members[0].state = crate::members::MemberState::Suspect;
    let next = View::new(ViewInputs { members: members.into(), ..first.clone() }, Some(&view));
    assert_eq!(to_notation(next.merged_documents().apis()), "a/v1 xs | b/v1! ys");

    let local = view_inputs_from_notation("here: a/v1 zs:get").local_document;
    let next = View::new(ViewInputs { local_document: local, ..first.clone() }, Some(&view));
    assert_eq!(to_notation(next.merged_documents().apis()), "a/v1 zs | b/v1 ys");

    let exclusion = view_inputs_from_notation("shared: b/v1/ys").exclusion;
    let next = View::new(ViewInputs { exclusion, ..first }, Some(&view));
    assert_eq!(to_notation(next.merged_documents().apis()), "a/v1 xs");
}
