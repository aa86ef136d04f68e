//! Documents recorded from kube-apiservers; read only if `UNSKEW_DISCOVERY_DATA` names their folder.
//!
//! `discovery/<release>/` holds every discovery document of a release with everything enabled, as JSON with sorted
//! keys; `discovery-default/<release>/` some of a server without flags, also as raw bytes with ETags. The documents are
//! not part of this project.

use std::fs;
use std::path::{Path, PathBuf};

use api::media::AggregatedVersion;
use discovery::EncodedDocument;
use discovery::aggregated;
use discovery::legacy::{ApiGroup, ApiGroupList, ApiVersions};
use discovery::parse::parse_api_versions;
use kinds::{FeatureGates, Release, RuntimeConfig, ServedResources};
use serde_json::Value;

/// Flags with which `discovery/` was recorded. In 1.31 the beta gates had their defaults, which changes no document.
const EVERYTHING: (&str, &str) = ("AllAlpha=true,AllBeta=true,OpenAPIEnums=false", "api/all=true");

/// Flags that make this server behave like a kube-apiserver without flags.
const DEFAULTS: (&str, &str) = ("StorageVersionAPI=false", "");

#[test]
fn documents_with_everything_enabled_match_recorded() {
    for (release, folder) in releases("discovery") {
        let served_resources = served_resources_for(release, EVERYTHING);
        let count = check_documents(&served_resources, &folder);
        let lists = served_resources.discovery_of_apis().versions().count();
        println!("{release}: {count} documents, {lists} group-versions besides core, equal");
        assert!(count > lists, "{release}: only {count} documents in {}", folder.display());
    }
}

#[test]
fn default_documents_match_recorded() {
    for (release, folder) in releases("discovery-default") {
        let count = check_documents(&served_resources_for(release, DEFAULTS), &folder);
        println!("{release} by default: {count} documents equal");
    }
}

#[test]
fn encoded_bytes_and_etag_match_live_server() {
    for (release, folder) in releases("discovery-default") {
        let served_resources = served_resources_for(release, DEFAULTS);
        for (name, groups) in
            [("aggregated_v2", served_resources.discovery_of_apis()), ("api_v2", served_resources.discovery_of_core())]
        {
            let document = aggregated::encode_json(&groups, AggregatedVersion::V2);
            let sent = fs::read(folder.join(name).with_extension("raw")).unwrap();
            assert!(document.identity == sent, "{release} {name} is written otherwise");
            let etag = fs::read_to_string(folder.join(name).with_extension("etag")).unwrap();
            assert_eq!(document.etag.unwrap(), etag.trim(), "{release} {name}");
        }
    }
}

fn served_resources_for(release: Release, (gates, config): (&str, &str)) -> ServedResources {
    let gates = FeatureGates::parse(release, gates).unwrap();
    ServedResources::new(&gates, &RuntimeConfig::parse(release, config).unwrap())
}

/// Compares every JSON document of a folder with ours for the same URL; returns their number.
fn check_documents(served_resources: &ServedResources, folder: &Path) -> usize {
    let mut paths = entries(folder);
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    for path in &paths {
        let bytes = fs::read(path).unwrap();
        let expected: Value = serde_json::from_slice(&bytes).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let ours =
            document_of(served_resources, name, &bytes).unwrap_or_else(|| panic!("{} is not served", path.display()));
        let ours: Value = serde_json::from_slice(&ours.identity).unwrap();
        assert_eq!(ours, expected, "{}", path.display());
    }
    paths.len()
}

/// Our document for a URL path; `__` stands for a slash.
fn document_of(served_resources: &ServedResources, name: &str, real: &[u8]) -> Option<EncodedDocument> {
    let groups = served_resources.discovery_of_apis();
    let parts: Vec<_> = name.split("__").collect();
    match parts[..] {
        ["aggregated_v2"] => Some(aggregated::encode_json(&groups, AggregatedVersion::V2)),
        ["aggregated_v2beta1"] => Some(aggregated::encode_json(&groups, AggregatedVersion::V2Beta1)),
        // The address in the document depends on the requesting client.
        ["api"] => {
            let versions =
                served_resources.discovery_of_core().versions().map(|(_, version)| version.name.clone()).collect();
            let server_addresses = parse_api_versions(real).unwrap().server_addresses;
            Some(ApiVersions { versions, server_addresses }.to_document())
        }
        ["api", version] => Some(served_resources.resource_list("", version)?.to_document()),
        ["apis"] => Some(ApiGroupList::from_groups(&groups).to_document()),
        ["apis", group] => Some(ApiGroup::from_group(groups.group(group)?)?.to_document()),
        ["apis", group, version] => Some(served_resources.resource_list(group, version)?.to_document()),
        _ => panic!("{name} is no document of discovery"),
    }
}

/// The folders of all releases; empty without `UNSKEW_DISCOVERY_DATA`.
fn releases(below: &str) -> Vec<(Release, PathBuf)> {
    #[expect(clippy::disallowed_methods, reason = "the data of a test, named by the person who runs it")]
    let Ok(folder) = std::env::var("UNSKEW_DISCOVERY_DATA") else {
        println!("given nothing: UNSKEW_DISCOVERY_DATA names no folder of real documents");
        return Vec::new();
    };
    let folders = entries(&Path::new(&folder).join(below));
    assert!(!folders.is_empty(), "UNSKEW_DISCOVERY_DATA={folder} holds no releases");
    let release_of = |folder: &PathBuf| folder.file_name().unwrap().to_str().unwrap().parse().unwrap();
    folders.into_iter().map(|folder| (release_of(&folder), folder)).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
