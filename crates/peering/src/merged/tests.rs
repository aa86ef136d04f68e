use api::GroupVersion;
use discovery::Freshness;
use expect_test::{Expect, expect};

use super::*;
use crate::testing::{inputs, view};
use crate::view::{Inputs, View};

/// Group-versions with their resources, `!` for stale.
fn show(groups: &Groups) -> String {
    let versions = groups.versions().map(|(group, version)| {
        let name = GroupVersion { group: &*group.name, version: &*version.name };
        let mark = if version.freshness == Freshness::Stale { "!" } else { "" };
        let resources: Vec<_> = version.resources.iter().map(|resource| &*resource.name).collect();
        format!("{name}{mark} {}", resources.join(" "))
    });
    versions.collect::<Vec<_>>().join(" | ")
}

#[track_caller]
fn check(cluster: &str, expected: &Expect) {
    expected.assert_eq(&show(view(cluster).merged().apis()));
}

#[test]
fn a_server_alone_gives_its_own_document() {
    let view = view("here: v1 pods:get | apps/v1 deployments:get; b unknown; c mute");
    assert!(Arc::ptr_eq(view.merged().apis(), view.local().apis()));
}

#[test]
fn what_live_members_serve_is_current_and_what_others_alone_serve_is_stale() {
    check(
        "here: apps/v1 xs:get; b live: batch/v1 ys:get; c suspect: batch/v1 ys:get | c/v1 zs:get; d left: d/v1 zs:get",
        &expect!["apps/v1 xs | batch/v1 ys | c/v1! zs | d/v1! zs"],
    );
}

#[test]
fn core_is_merged_apart() {
    let view = view("here: v1 pods:get | apps/v1 xs:get; b live: v1 pods:get pods/resize:get nodes:get");
    assert_eq!(show(view.merged().apis()), "apps/v1 xs");
    assert_eq!(show(view.merged().core()), "v1 pods nodes");
}

#[test]
fn shared_state_counts_only_from_our_own_document() {
    let peers = "b live: e.com/v1 xs:get ys:get | f.com/v1 zs:get | g.com/v1!; c suspect: f.com/v1 zs:get";
    check(
        &format!("here: e.com/v1 xs:get; shared: e.com/v1/xs g.com/v1; deleted: f.com/v1/zs; {peers}"),
        &expect!["e.com/v1 xs ys"],
    );
    check(&format!("here: a/v1 xs:get; {peers}"), &expect!["a/v1 xs | e.com/v1 xs ys | f.com/v1 zs | g.com/v1! "]);
}

#[test]
fn all_servers_give_the_same_bytes() {
    let (a, b) = ("apps/v1 xs:get ys:get | b/v1 zs:get", "apps/v1 ys:get,list ws:get | c/v1 zs:get");
    let of_a = view(&format!("here: {a}; b live: {b}"));
    let of_b = view(&format!("here: {b}; a live: {a}"));
    assert_eq!(of_a.merged().json(AggregatedVersion::V2).identity, of_b.merged().json(AggregatedVersion::V2).identity);
    assert_eq!(of_a.merged().json(AggregatedVersion::V2).etag, of_b.merged().protobuf().etag);
}

#[test]
fn conflicts_are_values() {
    let mut inputs = inputs("here: a/v1 xs:get; b live: a/v1 xs:get,list");
    let groups = crate::testing::document("a/v1 xs:get");
    let mut group = (*groups.items()[0]).clone();
    let mut resource = (*group.versions[0].resources[0]).clone();
    resource.scope = discovery::Scope::Cluster;
    group.versions[0].resources = vec![Arc::new(resource)];
    let apis = Arc::new(Groups::new(vec![Arc::new(group)]));
    inputs.local = Arc::new(ServerDocument::new(Arc::new(Groups::new(Vec::new())), apis));
    let view = View::new(inputs, None);
    let shown: Vec<_> = view.merged().conflicts().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["scope of xs in a/v1: Cluster (apiserver-me), Namespaced (apiserver-b)"]);
}

#[test]
fn documents_are_made_anew_only_if_an_input_was_replaced() {
    let first = inputs("here: a/v1 xs:get; b live: b/v1 ys:get");
    let view = View::new(first.clone(), None);

    let mut moved = first.clone();
    let mut members = first.members.to_vec();
    members[0].address = crate::Address::new("elsewhere.example", 1);
    moved.members = members.clone().into();
    let next = View::new(moved, Some(&view));
    assert!(Arc::ptr_eq(next.merged(), view.merged()) && Arc::ptr_eq(next.table(), view.table()));
    assert_ne!(next.address(crate::MemberIndex(0)), view.address(crate::MemberIndex(0)));

    members[0].state = crate::members::State::Suspect;
    let next = View::new(Inputs { members: members.into(), ..first.clone() }, Some(&view));
    assert_eq!(show(next.merged().apis()), "a/v1 xs | b/v1! ys");

    let local = inputs("here: a/v1 zs:get").local;
    let next = View::new(Inputs { local, ..first.clone() }, Some(&view));
    assert_eq!(show(next.merged().apis()), "a/v1 zs | b/v1 ys");

    let exclusion = inputs("shared: b/v1/ys").exclusion;
    let next = View::new(Inputs { exclusion, ..first }, Some(&view));
    assert_eq!(show(next.merged().apis()), "a/v1 xs");
}
