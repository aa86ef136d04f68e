use expect_test::{Expect, expect};

use super::*;
use crate::documents::ServerDocument;
use crate::exclusion::{Definitions, Exclusion, GRACE, SharedName};
use crate::testing::server_document;

/// Builds a table from what is here and what members list; `~` before a document says that its member is away.
fn build(here: &str, members: &[&str], exclusion: &Exclusion) -> Table {
    let mut documents: Vec<Arc<ServerDocument>> = Vec::new();
    for notation in members {
        let document = server_document(notation.trim_start_matches('~')).sharing_with(&documents);
        documents.push(document);
    }
    let bearers: Vec<_> = documents
        .iter()
        .zip(members)
        .enumerate()
        .map(|(at, (document, notation))| Bearer {
            member: MemberIndex(u32::try_from(at).unwrap()),
            is_live: !notation.starts_with('~'),
            document,
        })
        .collect();
    Table::default().next(&server_document(here), &bearers, exclusion)
}

/// One line for each entry: who serves it here, live and away.
pub(crate) fn show(table: &Table) -> String {
    let verbs_of = |verbs: Verbs| verbs.iter().map(Verb::as_str).collect::<Vec<_>>().join(",");
    let bearers_of = |bearers: &Bearers| {
        let numbers = |members: &[MemberIndex]| members.iter().map(|member| member.0).collect::<Vec<_>>();
        let by_verb = bearers.by_verb.iter();
        let mut parts: Vec<_> =
            by_verb.map(|(verbs, members)| format!("{:?}:{}", numbers(members), verbs_of(*verbs))).collect();
        if let Some(any) = bearers.any().filter(|_| parts.len() > 1) {
            parts.push(format!("any {:?}", numbers(any)));
        }
        parts.join(" ")
    };
    let mut lines: Vec<_> = table
        .all()
        .map(|([group, version, resource, subresource], entry)| {
            let here = match entry.here {
                Here::Nothing => String::new(),
                Here::Unbuilt => "unbuilt".to_owned(),
                Here::Serves(verbs) => verbs_of(verbs),
            };
            let (live, away) = (bearers_of(entry.live), bearers_of(entry.away));
            let line = format!("{group}/{version}/{resource}/{subresource} | {here} | {live} | {away}");
            format!("{}\n", line.trim_end())
        })
        .collect();
    lines.sort();
    lines.concat()
}

#[track_caller]
fn check(here: &str, members: &[&str], expected: &Expect) {
    expected.assert_eq(&show(&build(here, members, &Exclusion::default())));
}

#[test]
fn what_is_here_and_what_members_have_stand_side_by_side() {
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
fn members_with_equal_documents_share_one_slice() {
    let table = build("", &["a/v1 xs:get ys:get", "b/v1 xs:get", "a/v1 xs:get ys:get"], &Exclusion::default());
    expect![[r#"
        a/v1/xs/ |  | [0, 2]:get |
        a/v1/ys/ |  | [0, 2]:get |
        b/v1/xs/ |  | [1]:get |
    "#]]
    .assert_eq(&show(&table));
    let slices: Vec<_> = table
        .all()
        .filter(|([group, ..], _)| *group == "a")
        .filter_map(|(_, entry)| entry.live.of_verb(Verb::Get))
        .collect();
    assert!(Arc::ptr_eq(slices[0], slices[1]));
}

#[test]
fn verbs_and_subresources_are_listed_by_whoever_has_them() {
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
fn members_that_are_away_stand_apart_also_with_equal_documents() {
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
fn a_parent_without_verbs_is_not_served() {
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
fn what_a_server_has_not_built_is_not_its_to_serve() {
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
fn what_is_struck_is_taken_from_members_and_not_from_us() {
    let name = SharedName::Resource { group: "example.com".into(), version: "v1".into(), resource: "xs".into() };
    let exclusion = Definitions::new(GRACE).see(&Arc::new([name].into()), tokio::time::Instant::now());
    let document = "example.com/v1 xs:get xs/status:get ys:get";
    expect![[r#"
        example.com/v1/xs/ | get |  |
        example.com/v1/xs/status | get |  |
        example.com/v1/ys/ | get | [0]:get | [1]:get
    "#]]
    .assert_eq(&show(&build(document, &[document, &format!("~{document}")], &exclusion)));
}

#[test]
fn a_resource_listed_twice_has_the_verbs_of_both() {
    check(
        "a/v1 xs:get xs:list",
        &["a/v1 xs:get xs:watch"],
        &expect![[r#"
            a/v1/xs/ | get,list | [0]:get,watch |
        "#]],
    );
}

#[test]
fn long_names_are_found_too() {
    let long = "a".repeat(300);
    let table = build(&format!("{long}/v1 xs:get"), &[], &Exclusion::default());
    let path = format!("/apis/{long}/v1/xs/name");
    let api::Target::Resource(resource) = api::Target::parse("GET", &path).unwrap() else { panic!("{path}") };
    assert!(table.find(&resource).is_some());
}
