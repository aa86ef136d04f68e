use expect_test::{Expect, expect};

use super::*;
use crate::groups::GroupDiscoveryList;
use crate::parse::{parse_api_versions, parse_group, parse_group_list, parse_resource_list};
use crate::testing::{groups_from_notation as groups, to_notation};

#[track_caller]
fn check(document: &EncodedDocument, expected: &Expect) {
    assert_eq!(document.etag, None);
    assert_eq!(document.content_type, "application/json");
    expected.assert_eq(std::str::from_utf8(&document.identity).unwrap());
}

fn no_hash(_: &str, _: &str) -> Option<SharedStr> {
    None
}

fn resource_list(groups: &GroupDiscoveryList) -> ApiResourceList {
    let (group, version) = groups.versions().next().unwrap();
    ApiResourceList::from_version(&group.name, version, no_hash)
}

#[test]
fn storage_version_hash_matches_kubernetes() {
    assert_eq!(storage_version_hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
    assert_eq!(storage_version_hash("", "v1", "ConfigMap"), "qFsyl6wFWjQ=");
    assert_eq!(storage_version_hash("apps", "v1", "Deployment"), "8aSe+NMegvE=");
    assert_eq!(storage_version_hash("batch", "v1", "Job"), "mudhfqk/qZY=");
}

#[test]
fn api_versions_lists_core_versions() {
    let mut versions = ApiVersions::from_groups(&groups("v1 pods:get | apps/v1 xs:get"));
    versions.server_addresses =
        vec![ServerAddress { client_cidr: "0.0.0.0/0".into(), server_address: "10.0.0.1:6443".into() }];
    let document = versions.to_document();
    check(
        &document,
        &expect![[r#"
        {"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"}]}
    "#]],
    );
    assert_eq!(parse_api_versions(&document.identity).unwrap(), versions);
}

#[test]
fn api_group_list_omits_core_and_names_preferred_version() {
    let list = ApiGroupList::from_groups(&groups("v1 pods:get | b/v2 xs:get | b/v1! xs:get | a/v1 ys:get"));
    let document = list.to_document();
    check(
        &document,
        &expect![[r#"
        {"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"b","versions":[{"groupVersion":"b/v2","version":"v2"},{"groupVersion":"b/v1","version":"v1"}],"preferredVersion":{"groupVersion":"b/v2","version":"v2"}},{"name":"a","versions":[{"groupVersion":"a/v1","version":"v1"}],"preferredVersion":{"groupVersion":"a/v1","version":"v1"}}]}
    "#]],
    );
    assert_eq!(parse_group_list(&document.identity).unwrap(), list);
    check(
        &ApiGroupList::default().to_document(),
        &expect![[r#"
        {"kind":"APIGroupList","apiVersion":"v1","groups":[]}
    "#]],
    );
}

#[test]
fn api_group_round_trips() {
    let groups = groups("apps/v1 xs:get");
    let group = ApiGroup::from_group(groups.group("apps").unwrap()).unwrap();
    let document = group.to_document();
    check(
        &document,
        &expect![[r#"
        {"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}
    "#]],
    );
    assert_eq!(parse_group(&document.identity).unwrap(), group);
}

#[test]
fn api_group_list_omits_groups_without_versions() {
    let empty =
        crate::GroupDiscovery { name: "a".into(), creation_timestamp: Default::default(), versions: Vec::new() };
    assert_eq!(ApiGroup::from_group(&empty), None);
    assert_eq!(ApiGroupList::from_groups(&GroupDiscoveryList::new(vec![empty.into()])).groups, []);
}

#[test]
fn api_resource_list_lists_resources_and_subresources() {
    let groups = groups("apps/v1 ds:get,list ds/status:get cs@Cluster:create es es/sub:get");
    let (group, version) = groups.versions().next().unwrap();
    let hash_of =
        |group: &str, resource: &str| (resource == "ds").then(|| storage_version_hash(group, "v1", "D").into());
    let list = ApiResourceList::from_version(&group.name, version, hash_of);
    check(
        &list.to_document(),
        &expect![[r#"
        {"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"ds","singularName":"d","namespaced":true,"kind":"D","verbs":["get","list"],"storageVersionHash":"x6GpdWW8tyg="},{"name":"ds/status","singularName":"","namespaced":true,"kind":"D","verbs":["get"]},{"name":"cs","singularName":"c","namespaced":false,"kind":"C","verbs":["create"]},{"name":"es","singularName":"e","namespaced":true,"kind":"E","verbs":null},{"name":"es/sub","singularName":"","namespaced":true,"kind":"E","verbs":["get"]}]}
    "#]],
    );
    assert_eq!(parse_resource_list(&list.to_document().identity).unwrap(), list);
}

#[test]
fn core_resource_list_omits_api_version() {
    check(
        &resource_list(&groups("v1 pods:get")).to_document(),
        &expect![[r#"
        {"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get"]}]}
    "#]],
    );
}

#[test]
fn resource_list_omits_group_version_equal_to_its_own() {
    let mut parent = crate::testing::resource_from_notation("xs:get xs/scale:get");
    let kind = |group: &str, version: &str, kind: &str| {
        Some(api::GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() })
    };
    parent.response_kind = kind("g", "v1", "X");
    parent.subresources[0].response_kind = kind("autoscaling", "v1", "Scale");
    let version = crate::VersionDiscovery {
        name: "v1".into(),
        resources: vec![parent.into()],
        freshness: crate::DiscoveryFreshness::Current,
    };
    check(
        &ApiResourceList::from_version("g", &version, no_hash).to_document(),
        &expect![[r#"
        {"kind":"APIResourceList","apiVersion":"v1","groupVersion":"g/v1","resources":[{"name":"xs","singularName":"x","namespaced":true,"kind":"X","verbs":["get"]},{"name":"xs/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get"]}]}
    "#]],
    );
}

#[test]
fn implied_parent_has_no_resource_list_entry() {
    let entry =
        |name: &str| ApiResource { name: name.into(), kind: "P".into(), namespaced: true, ..ApiResource::default() };
    let list = ApiResourceList {
        group_version: "g/v1".into(),
        resources: vec![entry("xs/cpu"), entry("ys"), entry("xs/memory")],
    };
    let version = list.to_version();
    let implied = &version.resources[1];
    assert_eq!((&*implied.name, implied.verbs.as_ref(), implied.subresources.len()), ("xs", None, 2));
    let names = |list: &ApiResourceList| list.resources.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&ApiResourceList::from_version("g", &version, no_hash)), ["ys", "xs/cpu", "xs/memory"]);
}

#[test]
fn groups_from_apis_rebuilds_aggregated_document() {
    let groups = groups("b/v2 xs:get xs/status:get | b/v1 xs:list | a/v1 ys@Cluster:get");
    let list = ApiGroupList::from_groups(&groups);
    let lists: Vec<_> = groups
        .versions()
        .map(|(group, version)| ApiResourceList::from_version(&group.name, version, no_hash))
        .collect();
    assert_eq!(groups_from_apis(&list, &lists), *groups);
    expect!["b/v2 xs:get xs/status:get | b/v1! | a/v1!"].assert_eq(&to_notation(&groups_from_apis(&list, &lists[..1])));
}

#[test]
fn groups_from_api_rebuilds_core_group() {
    let core = groups("v1 pods:get pods/log:get");
    assert_eq!(groups_from_api(&ApiVersions::from_groups(&core), &[resource_list(&core)]), *core);
}
