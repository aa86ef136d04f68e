use expect_test::{Expect, expect};

use super::*;
use crate::documents::ServerDocument;
use crate::exclusion::{DELETED_GRACE_PERIOD, DefinedResource, Exclusion, ExclusionManager};
use crate::testing::server_document_from_notation;

/// Builds a table from the local document and those of members; `~` marks a member that is not live.
fn build_table(here: &str, members: &[&str], exclusion: &Exclusion) -> RoutingTable {
    let mut documents: Vec<Arc<ServerDocument>> = Vec::new();
    for notation in members {
        let document = server_document_from_notation(notation.trim_start_matches('~')).intern_among(&documents);
        documents.push(document);
    }
    let members_with_documents: Vec<_> = documents
        .iter()
        .zip(members)
        .enumerate()
        .map(|(at, (document, notation))| ServingMember {
            member: MemberIndex(u32::try_from(at).unwrap()),
            is_live: !notation.starts_with('~'),
            document,
        })
        .collect();
    RoutingTable::default().rebuild(&server_document_from_notation(here), &members_with_documents, exclusion)
}

/// One line per entry: its local support, live and unreachable members.
pub(crate) fn describe(table: &RoutingTable) -> String {
    let verbs_of = |verbs: RequestVerbs| verbs.iter().map(Verb::as_str).collect::<Vec<_>>().join(",");
    let serving_of = |serving: &ServingMembers| {
        let numbers = |members: &[MemberIndex]| members.iter().map(|member| member.0).collect::<Vec<_>>();
        let by_verb = serving.by_verb.iter();
        let mut parts: Vec<_> =
            by_verb.map(|(verbs, members)| format!("{:?}:{}", numbers(members), verbs_of(*verbs))).collect();
        if let Some(any) = serving.any().filter(|_| parts.len() > 1) {
            parts.push(format!("any {:?}", numbers(any)));
        }
        parts.join(" ")
    };
    let mut lines: Vec<_> = table
        .iter()
        .map(|([group, version, resource, subresource], entry)| {
            let here = match entry.local {
                LocalSupport::NotListed => String::new(),
                LocalSupport::NotImplemented => "unbuilt".to_owned(),
                LocalSupport::Serves(verbs) => verbs_of(verbs),
            };
            let (live, away) = (serving_of(entry.live), serving_of(entry.unreachable));
            let line = format!("{group}/{version}/{resource}/{subresource} | {here} | {live} | {away}");
            format!("{}\n", line.trim_end())
        })
        .collect();
    lines.sort();
    lines.concat()
}

#[track_caller]
fn check(here: &str, members: &[&str], expected: &Expect) {
    expected.assert_eq(&describe(&build_table(here, members, &Exclusion::default())));
}

#[test]
fn table_lists_local_and_member_resources() {
    check(
        "v1 pods:get,list | apps/v1 deployments:get",
        &["v1 pods:get,list", "batch/v1 jobs:get,list"],
        &expect![[r#"
            /v1/pods/ | get,list | [0]:get,list |
            apps/v1/deployments/ | get |  |
            batch/v1/jobs/ |  | [1]:get,list |
        "#]],
    );
}

#[test]
fn members_with_equal_documents_share_one_member_slice() {
    let table = build_table("", &["a/v1 xs:get ys:get", "b/v1 xs:get", "a/v1 xs:get ys:get"], &Exclusion::default());
    expect![[r#"
        a/v1/xs/ |  | [0, 2]:get |
        a/v1/ys/ |  | [0, 2]:get |
        b/v1/xs/ |  | [1]:get |
    "#]]
    .assert_eq(&describe(&table));
    let slices: Vec<_> = table
        .iter()
        .filter(|([group, ..], _)| *group == "a")
        .filter_map(|(_, entry)| entry.live.with_verb(Verb::Get))
        .collect();
    assert!(Arc::ptr_eq(slices[0], slices[1]));
}

#[test]
fn verbs_and_subresources_map_to_members_that_have_them() {
    check(
        "",
        &["v1 pods:get,list pods/exec:create", "v1 pods:get,patch pods/resize:get"],
        &expect![[r#"
            /v1/pods/ |  | [0, 1]:get [0]:list [1]:patch any [0, 1] |
            /v1/pods/exec |  | [0]:create |
            /v1/pods/resize |  | [1]:get |
        "#]],
    );
}

#[test]
fn unreachable_members_are_kept_apart_from_live_ones() {
    check(
        "",
        &["a/v1 xs:get", "~a/v1 xs:get", "~b/v1 ys:get"],
        &expect![[r#"
            a/v1/xs/ |  | [0]:get | [1]:get
            b/v1/ys/ |  |  | [2]:get
        "#]],
    );
}

#[test]
fn parent_resource_without_verbs_is_not_listed() {
    check(
        "v1 pods/exec:create",
        &["v1 nodes/proxy:get"],
        &expect![[r#"
            /v1/nodes/proxy |  | [0]:get |
            /v1/pods/exec | create |  |
        "#]],
    );
}

#[test]
fn unimplemented_resource_is_not_served() {
    check(
        "v1 pods:get ?pods/exec:create",
        &["v1 pods:get ?pods/exec:create", "v1 pods/exec:create,get"],
        &expect![[r#"
            /v1/pods/ | get | [0]:get |
            /v1/pods/exec | unbuilt | [1]:get,create |
        "#]],
    );
}

#[test]
fn exclusion_removes_resources_of_members_only() {
    let name = DefinedResource::Resource { group: "example.com".into(), version: "v1".into(), resource: "xs".into() };
    let exclusion =
        ExclusionManager::new(DELETED_GRACE_PERIOD).observe(&Arc::new([name].into()), tokio::time::Instant::now());
    let document = "example.com/v1 xs:get xs/status:get ys:get";
    expect![[r#"
        example.com/v1/xs/ | get |  |
        example.com/v1/xs/status | get |  |
        example.com/v1/ys/ | get | [0]:get | [1]:get
    "#]]
    .assert_eq(&describe(&build_table(document, &[document, &format!("~{document}")], &exclusion)));
}

#[test]
fn duplicate_resource_has_union_of_verbs() {
    check(
        "a/v1 xs:get xs:list",
        &["a/v1 xs:get xs:watch"],
        &expect![[r#"
            a/v1/xs/ | get,list | [0]:get,watch |
        "#]],
    );
}

#[test]
fn lookup_finds_names_longer_than_stack_key() {
    let long = "a".repeat(300);
    let table = build_table(&format!("{long}/v1 xs:get"), &[], &Exclusion::default());
    let path = format!("/apis/{long}/v1/xs/name");
    let api::Target::Resource(resource) = api::Target::parse("GET", &path).unwrap() else { panic!("{path}") };
    assert!(table.lookup(&resource).is_some());
}
