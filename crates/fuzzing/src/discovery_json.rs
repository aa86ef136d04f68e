//! Discovery documents of peers.

use std::sync::Arc;

use api::media::AggregatedVersion;
use discovery::legacy::{ApiResourceList, groups_from_api, groups_from_apis};
use discovery::parse::{parse_aggregated, parse_api_versions, parse_group, parse_group_list, parse_resource_list};
use discovery::{EncodedDocument, GroupDiscoveryList, MergeInput, ParseError, ServerLiveness, aggregated, merge};

pub(crate) const SEEDS: &[&str] = &[
    r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apps","creationTimestamp":null},"versions":[{"version":"v1","resources":[{"resource":"deployments","responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment","verbs":["create","get"],"shortNames":["deploy"],"categories":["all"],"subresources":[{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"acceptedTypes":[{"group":"g","version":"v","kind":"K"}],"verbs":["get"]}]}],"freshness":"Current"},{"version":"v1beta1","freshness":"Stale"}]}]}"#,
    "{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/v2beta1\",\"items\":[{\"metadata\":{\"name\":\"a\"},\"versions\":[{\"version\":\"v1\",\"resources\":[{\"resource\":\"xs\",\"scope\":\"Cluster\",\"verbs\":null}]}]}]}\n{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/v2\",\"items\":[{\"metadata\":{\"name\":\"a\"},\"versions\":[{\"version\":\"v2\",\"resources\":[{\"resource\":\"xs\",\"scope\":\"Namespaced\",\"verbs\":[\"get\"]}]},{\"version\":\"v1\",\"resources\":[{\"resource\":\"xs\",\"scope\":\"Namespaced\",\"verbs\":[\"list\"]}]}]},{\"metadata\":{\"name\":\"b\"}}]}",
    r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"}]}"#,
    r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}"#,
    r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#,
    r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","verbs":["get"],"shortNames":["deploy"],"categories":["all"],"storageVersionHash":"8aSe+NMegvE="},{"name":"deployments/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get"]},{"name":"pods/eviction","namespaced":true,"kind":"E","verbs":null}]}"#,
];
pub(crate) const DICTIONARY: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "\"\"",
    "\n",
    "\"items\":",
    "\"versions\":",
    "\"resources\":",
    "\"subresources\":",
    "\"verbs\":",
    "\"freshness\":\"Stale\",",
    "\"scope\":",
    "\"responseKind\":{}",
    "\"metadata\":{}",
    "\\u2028",
    "<",
    "\"v1\"",
    "{\"version\":\"v2\"},",
    "{\"metadata\":{\"name\":\"a\"}},",
    "{\"resource\":\"xs\"},",
];

/// A document parses or gives an error. A parsed one is encoded back equal with the same ETag; several, one per line,
/// merge to the same bytes in any order, and merging the result again changes nothing.
pub fn discovery_json(input: &[u8]) {
    let lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').take(DOCUMENTS_MAX).collect();
    let documents: Vec<Arc<GroupDiscoveryList>> = lines.iter().filter_map(|line| check_aggregated(line)).collect();
    check_merge(&documents);
    let first = lines.first().copied().unwrap_or_default();
    check_legacy(first, parse_api_versions, |versions| versions.to_document());
    check_legacy(first, parse_group_list, |list| list.to_document());
    check_legacy(first, parse_group, |group| group.to_document());
    check_legacy(first, parse_resource_list, ApiResourceList::to_document);
    check_conversions(&lines);
}

/// Merging is checked in pairs, so the time grows with the square of this.
const DOCUMENTS_MAX: usize = 4;

fn check_aggregated(bytes: &[u8]) -> Option<Arc<GroupDiscoveryList>> {
    let groups = match parse_aggregated(bytes) {
        Ok(groups) => groups,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    for version in [AggregatedVersion::V2, AggregatedVersion::V2Beta1] {
        let document = aggregated::encode_json(&groups, version);
        let again = parse_aggregated(&document.identity).expect("encoded document parses");
        assert_eq!(again.items(), groups.items());
        assert_eq!(again.etag(), groups.etag());
        assert_eq!(aggregated::encode_json(&again, version).identity, document.identity);
        let indented = parse_aggregated(&document.to_indented().identity).expect("indented document parses");
        assert_eq!(indented, groups);
        let protobuf = aggregated::encode_protobuf(&groups, version);
        assert!(protobuf.identity.starts_with(b"k8s\0") && protobuf.etag == document.etag);
    }
    Some(Arc::new(groups))
}

fn check_merge(documents: &[Arc<GroupDiscoveryList>]) {
    let inputs: Vec<MergeInput> = documents.iter().enumerate().map(|(at, groups)| merge_input(at, groups)).collect();
    let merged = merge(&inputs);
    let reversed: Vec<MergeInput> = inputs.iter().rev().cloned().collect();
    let of_reversed = merge(&reversed);
    assert_eq!(encode_json(&of_reversed.groups), encode_json(&merged.groups), "the result depends on the order");
    assert_eq!(of_reversed.conflicts.len(), merged.conflicts.len());
    if inputs.is_empty() {
        return;
    }
    let read = parse_aggregated(&encode_json(&merged.groups)).expect("merged document round-trips");
    assert_eq!(read.items(), merged.groups.items());
    for input in &inputs {
        let of_result = MergeInput { liveness: ServerLiveness::Live, ..merge_input(0, &merged.groups) };
        let again = merge(&[input.clone(), of_result]);
        assert_eq!(encode_json(&again.groups), encode_json(&merged.groups), "merging again changes the result");
    }
}

/// Merge input whose last server is not live.
fn merge_input(at: usize, groups: &Arc<GroupDiscoveryList>) -> MergeInput {
    let liveness = if at == DOCUMENTS_MAX - 1 { ServerLiveness::NotLive } else { ServerLiveness::Live };
    MergeInput { server: format!("apiserver-{at}").into(), liveness, groups: groups.clone() }
}

fn encode_json(groups: &GroupDiscoveryList) -> Vec<u8> {
    aggregated::encode_json(groups, AggregatedVersion::V2).identity.to_vec()
}

fn check_legacy<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, ParseError>,
    write: impl Fn(&T) -> EncodedDocument,
) {
    match parse(bytes) {
        Ok(value) => {
            let document = write(&value);
            assert_eq!(parse(&document.identity).expect("encoded document parses"), value);
            assert_eq!(parse(&document.to_indented().identity).expect("indented document parses"), value);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Legacy documents always convert to a valid aggregated document.
fn check_conversions(lines: &[&[u8]]) {
    let resources: Vec<ApiResourceList> = lines.iter().filter_map(|line| parse_resource_list(line).ok()).collect();
    let api = lines.iter().find_map(|line| parse_api_versions(line).ok()).unwrap_or_default();
    let apis = lines.iter().find_map(|line| parse_group_list(line).ok()).unwrap_or_default();
    for groups in [groups_from_api(&api, &resources), groups_from_apis(&apis, &resources)] {
        let read = parse_aggregated(&encode_json(&groups)).expect("converted document round-trips");
        assert_eq!(read, groups);
    }
    resources.iter().for_each(check_resource_list);
}

/// Facts that aggregated discovery cannot express, such as a resource without kind and verbs, are lost only in the
/// first conversion.
fn check_resource_list(list: &ApiResourceList) {
    let group = list.group_version.rsplit_once('/').map_or("", |(group, _)| group);
    let convert = |list: &ApiResourceList| ApiResourceList::from_version(group, &list.to_version(), |_, _| None);
    let converted = convert(list);
    assert_eq!(converted.group_version, list.group_version);
    assert_eq!(convert(&converted), converted);
}
