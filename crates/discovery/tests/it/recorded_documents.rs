//! Tests with documents of real servers, if `UNSKEW_DISCOVERY_DATA` names a directory with them.
//!
//! `discovery/<release>/` has every discovery document of a release as JSON with sorted keys;
//! `discovery-default/<release>/` also has the original bytes and ETags of a live server. The documents are not part
//! of this project.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::media::AggregatedVersion;
use discovery::aggregated;
use discovery::legacy::{self, ApiGroup, ApiGroupList, ApiResourceList};
use discovery::parse::{parse_aggregated, parse_api_versions, parse_group, parse_group_list, parse_resource_list};
use discovery::{EncodedDocument, GroupDiscoveryList, MergeInput, ServerLiveness, merge};
use serde_json::Value;

#[test]
fn recorded_documents_round_trip() {
    let mut count = 0;
    for path in releases().iter().flat_map(|release| documents(release, "json")) {
        let bytes = fs::read(&path).unwrap();
        let expected: Value = serde_json::from_slice(&bytes).unwrap();
        let written: Value = serde_json::from_slice(&rewrite(&path, &bytes).identity).unwrap();
        assert_eq!(written, expected, "{}", path.display());
        count += 1;
    }
    println!("{count} documents");
}

#[test]
fn encoded_bytes_and_etag_match_live_server() {
    for path in releases().iter().flat_map(|release| documents(release, "raw")) {
        let sent = fs::read(&path).unwrap();
        let etag = fs::read_to_string(path.with_extension("etag")).unwrap();
        let groups = parse_aggregated(&sent).unwrap();
        assert_eq!(groups.etag().to_string(), etag.trim(), "{}", path.display());
        let document = aggregated::encode_json(&groups, AggregatedVersion::V2);
        assert!(document.identity == sent, "{} is written otherwise", path.display());
        assert_eq!(document.etag.unwrap(), etag.trim(), "{}", path.display());
    }
}

#[test]
fn legacy_documents_derive_from_recorded_aggregated() {
    for release in releases() {
        let Some(groups) = aggregated_of(&release) else { continue };
        let list = ApiGroupList::from_groups(&groups);
        assert_eq!(
            Ok(&list),
            parse_file(&release.join("apis.json"), parse_group_list).as_ref(),
            "{}",
            release.display()
        );
        for group in groups.items() {
            let path = release.join(format!("apis__{}.json", group.name));
            if path.exists() {
                assert_eq!(ApiGroup::from_group(group), parse_file(&path, parse_group).ok(), "{}", path.display());
            }
        }
        for path in documents(&release, "json").into_iter().filter(|path| is_resource_list(path)) {
            check_resource_list(&groups, &path);
        }
    }
}

#[test]
fn aggregated_document_derives_from_recorded_legacy() {
    for release in releases().iter().filter(|release| release.join("apis__apps__v1.json").exists()) {
        let list = parse_file(&release.join("apis.json"), parse_group_list).unwrap();
        let lists = documents(release, "json").into_iter().filter(|path| is_resource_list(path));
        let lists: Vec<_> = lists.map(|path| parse_file(&path, parse_resource_list).unwrap()).collect();
        let from_legacy = legacy::groups_from_apis(&list, &lists);
        let expected = aggregated_of(release).unwrap();
        for ((group, version), (_, expected)) in from_legacy.versions().zip(expected.versions()) {
            assert_eq!(version, expected, "{} {}", release.display(), group.name);
        }
    }
}

#[test]
fn merging_releases_keeps_shared_order() {
    let documents: Vec<_> = releases().iter().filter_map(|release| aggregated_of(release)).map(Arc::new).collect();
    for (a, b) in documents.iter().flat_map(|a| documents.iter().map(move |b| (a, b))) {
        let input = |server: &str, groups: &Arc<GroupDiscoveryList>| MergeInput {
            server: server.into(),
            liveness: ServerLiveness::Live,
            groups: groups.clone(),
        };
        let merged = merge(&[input("a", a), input("b", b)]);
        assert_eq!(merged.conflicts, []);
        let [a, b, merged] = [a, b, &merged.groups].map(|groups| positions(groups));
        for (first, second) in a.keys().flat_map(|first| a.keys().map(move |second| (first, second))) {
            let (Some(b_first), Some(b_second)) = (b.get(first), b.get(second)) else { continue };
            if a[first] < a[second] && b_first < b_second {
                assert!(merged[first] < merged[second], "{first:?} comes after {second:?}");
            }
        }
    }
}

/// Maps each group-version to its position.
fn positions(groups: &GroupDiscoveryList) -> HashMap<(&str, &str), usize> {
    let names = groups.versions().map(|(group, version)| (&*group.name, &*version.name));
    names.enumerate().map(|(position, names)| (names, position)).collect()
}

fn check_resource_list(groups: &GroupDiscoveryList, path: &Path) {
    let expected = parse_file(path, parse_resource_list).unwrap();
    let Some((group, version)) = expected.group_version.split_once('/') else { return };
    let hash_of = |_: &str, resource: &str| {
        expected.resources.iter().find(|entry| &*entry.name == resource).map(|entry| entry.storage_version_hash.clone())
    };
    let version = groups.version(group, version).unwrap();
    assert_eq!(ApiResourceList::from_version(group, version, hash_of), expected, "{}", path.display());
}

/// Re-encodes the document and parses it with the parser of its path.
fn rewrite(path: &Path, bytes: &[u8]) -> EncodedDocument {
    let name = path.file_stem().unwrap().to_str().unwrap();
    match name {
        "aggregated_v2" => aggregated::encode_json(&parse_aggregated(bytes).unwrap(), AggregatedVersion::V2),
        "aggregated_v2beta1" => aggregated::encode_json(&parse_aggregated(bytes).unwrap(), AggregatedVersion::V2Beta1),
        "api" => parse_api_versions(bytes).unwrap().to_document(),
        "apis" => parse_group_list(bytes).unwrap().to_document(),
        _ if is_resource_list(path) => parse_resource_list(bytes).unwrap().to_document(),
        _ => parse_group(bytes).unwrap().to_document(),
    }
}

/// Formats as `api__v1` or `apis__<group>__<version>`.
fn is_resource_list(path: &Path) -> bool {
    let name = path.file_stem().unwrap().to_str().unwrap();
    name == "api__v1" || name.matches("__").count() == 2
}

fn aggregated_of(release: &Path) -> Option<GroupDiscoveryList> {
    let path = release.join("aggregated_v2.json");
    path.exists().then(|| parse_file(&path, parse_aggregated).unwrap())
}

fn parse_file<T>(path: &Path, parse: impl Fn(&[u8]) -> Result<T, discovery::ParseError>) -> Result<T, String> {
    parse(&fs::read(path).unwrap()).map_err(|error| error.to_string())
}

fn documents(release: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths = entries(release);
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths
}

/// Lists the directories of all releases; empty if no directory is configured.
fn releases() -> Vec<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "the environment names the test data")]
    let Ok(folder) = std::env::var("UNSKEW_DISCOVERY_DATA") else {
        println!("given nothing: UNSKEW_DISCOVERY_DATA names no folder of real documents");
        return Vec::new();
    };
    let releases: Vec<_> = ["discovery", "discovery-default"]
        .iter()
        .flat_map(|folder_of| entries(&Path::new(&folder).join(folder_of)))
        .collect();
    assert!(!releases.is_empty(), "UNSKEW_DISCOVERY_DATA={folder} holds no releases");
    releases
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
