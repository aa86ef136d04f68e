use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

/// Parses lines such as `apps/v1 deployments Deployment ns get,list,delete`; a version that ends in `!` is stale.
pub(crate) fn parse_resources(lines: &[&str]) -> DiscoveredResources {
    type Versions = Vec<(String, Vec<Value>)>;
    let mut groups: Vec<(String, Versions)> = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let GroupVersion { group, version } = GroupVersion::parse(words[0]).unwrap();
        let scope = if words[3] == "ns" { "Namespaced" } else { "Cluster" };
        let verbs: Vec<&str> = words[4].split(',').collect();
        let resource = json!({"resource": words[1], "scope": scope, "singularResource": "", "verbs": verbs,
            "responseKind": {"group": "", "version": "", "kind": words[2]}});
        let at = groups.iter().position(|(name, _)| name == group).unwrap_or_else(|| {
            groups.push((group.to_owned(), Vec::new()));
            groups.len() - 1
        });
        let versions = &mut groups[at].1;
        match versions.iter_mut().find(|(name, _)| name == version) {
            Some((_, resources)) => resources.push(resource),
            None => versions.push((version.to_owned(), vec![resource])),
        }
    }
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions = versions.iter().map(|(version, resources)| {
                let freshness = if version.ends_with('!') { "Stale" } else { "Current" };
                json!({"version": version.trim_end_matches('!'), "resources": resources, "freshness": freshness})
            });
            json!({"metadata": {"name": group}, "versions": versions.collect::<Vec<_>>()})
        })
        .collect();
    let document = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items});
    let document = discovery::parse::parse_aggregated(document.to_string().as_bytes()).unwrap();
    DiscoveredResources::from_documents(&GroupDiscoveryList::new(Vec::new()), &document)
}

#[track_caller]
fn check(lines: &[&str], expected: &Expect) {
    let resources = parse_resources(lines);
    let mut text = String::new();
    for resource in resources.all() {
        text += &format!("{} {} {:?}\n", resource.path("n"), resource.kind, resource.discovery_state);
    }
    for stale in resources.stale_versions() {
        text += &format!("stale {stale}\n");
    }
    expected.assert_eq(&text);
}

#[test]
fn from_documents_picks_one_version_and_prefers_confirmed() {
    check(
        &[
            "v1 pods Pod ns list,delete",
            "v1 nodes Node cluster list,delete",
            "batch/v2! jobs Job ns list,delete",
            "batch/v2! planets Planet ns list",
            "batch/v1 jobs Job ns list,delete",
            "autoscaling/v2 hpas HPA ns list,delete",
            "autoscaling/v1 hpas HPA ns list,delete",
        ],
        &expect![[r#"
            /api/v1/namespaces/n/pods Pod Confirmed
            /api/v1/nodes Node Confirmed
            /apis/batch/v1/namespaces/n/jobs Job Confirmed
            /apis/batch/v2/namespaces/n/planets Planet Stale
            /apis/autoscaling/v2/namespaces/n/hpas HPA Confirmed
            stale batch/v2
        "#]],
    );
}

#[test]
fn find_by_kind_accepts_any_version_of_the_group() {
    let resources = parse_resources(&["apps/v1 deployments Deployment ns get", "v1 pods Pod ns get"]);
    let path = |api_version: &str, kind: &str| {
        resources.find_by_kind(api_version, kind).map(|resource| resource.object_path("n", "a/b"))
    };
    let found = Some("/apis/apps/v1/namespaces/n/deployments/a%2Fb".to_owned());
    assert_eq!(path("apps/v1", "Deployment"), found);
    assert_eq!(path("apps/v1beta1", "Deployment"), found, "objects are the same in all versions");
    assert_eq!(path("v1", "Deployment"), None);
    assert_eq!(path("a/b/c", "Pod"), None);
}

#[test]
fn keep_unlisted_retains_resource_missing_from_discovery() {
    let before = parse_resources(&["batch/v2 planets Planet ns list,delete", "v1 pods Pod ns list,delete"]);
    let mut after = parse_resources(&["v1 pods Pod ns list,delete"]);
    let missing = before.missing_in(&after);
    assert_eq!(missing.len(), 1);
    after.keep_unlisted(&missing[0]);
    assert_eq!(after.find_by_kind("batch/v2", "Planet").unwrap().discovery_state, DiscoveryState::Unlisted);
    assert!(before.missing_in(&after).is_empty());
    assert_eq!(after.deletable().count(), 2);
}
