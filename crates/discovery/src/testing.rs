//! A compact notation for discovery documents in tests.
//!
//! `apps/v1 deployments:get,list deployments/scale:get | batch/v1! jobs@Cluster=Task:get` has two group-versions, the
//! second `Stale` (`!`). A resource is namespaced and its kind derived from its name unless `@scope` or `=Kind`
//! follow; without a colon its verbs are `null`. `v1` alone is the core group.

use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind};

use crate::groups::{
    CreationTimestamp, DiscoveryFreshness, DiscoveryScope, GroupDiscovery, GroupDiscoveryList, ResourceDiscovery,
    SharedStrList, SubresourceDiscovery, VersionDiscovery,
};

/// Parses a document.
pub(crate) fn groups_from_notation(notation: &str) -> Arc<GroupDiscoveryList> {
    let mut groups: Vec<GroupDiscovery> = Vec::new();
    for part in notation.split('|').map(str::trim).filter(|part| !part.is_empty()) {
        let mut words = part.split_whitespace();
        let head = words.next().unwrap();
        let GroupVersion { group, version } = GroupVersion::parse(head.trim_end_matches('!')).unwrap();
        let freshness = if head.ends_with('!') { DiscoveryFreshness::Stale } else { DiscoveryFreshness::Current };
        let version = VersionDiscovery { name: version.into(), resources: resources_from_words(words), freshness };
        match groups.last_mut().filter(|last| &*last.name == group) {
            Some(last) => last.versions.push(version),
            None => groups.push(GroupDiscovery {
                name: group.into(),
                creation_timestamp: CreationTimestamp::Absent,
                versions: vec![version],
            }),
        }
    }
    Arc::new(GroupDiscoveryList::new(groups.into_iter().map(Arc::new).collect()))
}

/// Parses a single resource.
pub(crate) fn resource_from_notation(notation: &str) -> ResourceDiscovery {
    let resources = resources_from_words(notation.split_whitespace());
    Arc::unwrap_or_clone(resources.into_iter().next().unwrap())
}

/// Formats a document; defaults are omitted.
pub(crate) fn to_notation(groups: &GroupDiscoveryList) -> String {
    let parts: Vec<_> = groups.versions().map(|(group, version)| notation_of_version(group, version)).collect();
    parts.join(" | ")
}

fn resources_from_words<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Arc<ResourceDiscovery>> {
    let mut resources: Vec<ResourceDiscovery> = Vec::new();
    for word in words {
        let (head, verbs) = word.split_once(':').map_or((word, None), |(head, verbs)| (head, Some(verbs)));
        let verbs: Option<SharedStrList> =
            verbs.map(|verbs| verbs.split(',').filter(|verb| !verb.is_empty()).map(Into::into).collect());
        let (head, kind) = head.split_once('=').map_or((head, None), |(head, kind)| (head, Some(kind)));
        let (name, scope) = head.split_once('@').unwrap_or((head, "Namespaced"));
        match name.split_once('/') {
            Some((parent, name)) => {
                let response_kind = Some(kind_named(kind.unwrap_or(&kind_from_resource_name(parent))));
                let subresource =
                    SubresourceDiscovery { name: name.into(), response_kind, accepted_types: Vec::new(), verbs };
                resources
                    .iter_mut()
                    .rfind(|resource| &*resource.name == parent)
                    .unwrap()
                    .subresources
                    .push(subresource);
            }
            None => resources.push(ResourceDiscovery {
                name: name.into(),
                response_kind: Some(kind_named(kind.unwrap_or(&kind_from_resource_name(name)))),
                scope: if scope == "Cluster" { DiscoveryScope::Cluster } else { DiscoveryScope::Namespaced },
                singular: kind_from_resource_name(name).to_lowercase().into(),
                verbs,
                short_names: SharedStrList::default(),
                categories: SharedStrList::default(),
                subresources: Vec::new(),
            }),
        }
    }
    resources.into_iter().map(Arc::new).collect()
}

fn notation_of_version(group: &GroupDiscovery, version: &VersionDiscovery) -> String {
    let mark = if version.freshness == DiscoveryFreshness::Stale { "!" } else { "" };
    let mut words = vec![format!("{}{mark}", GroupVersion { group: &*group.name, version: &*version.name })];
    for resource in &version.resources {
        let kind = notation_of_kind(&kind_from_resource_name(&resource.name), resource.response_kind.as_ref());
        let scope =
            if resource.scope == DiscoveryScope::Namespaced { String::new() } else { format!("@{}", resource.scope) };
        words.push(format!("{}{scope}{kind}{}", resource.name, notation_of_verbs(resource.verbs.as_ref())));
        for subresource in &resource.subresources {
            let kind = notation_of_kind(&kind_from_resource_name(&resource.name), subresource.response_kind.as_ref());
            let verbs = notation_of_verbs(subresource.verbs.as_ref());
            words.push(format!("{}/{}{kind}{verbs}", resource.name, subresource.name));
        }
    }
    words.join(" ")
}

fn notation_of_kind(usual: &str, kind: Option<&GroupVersionKind>) -> String {
    match kind.map_or("", |kind| &kind.kind) {
        kind if kind == usual => String::new(),
        kind => format!("={kind}"),
    }
}

fn notation_of_verbs(verbs: Option<&SharedStrList>) -> String {
    verbs.map_or_else(String::new, |verbs| format!(":{}", verbs.join(",")))
}

fn kind_named(kind: &str) -> GroupVersionKind {
    GroupVersionKind { group: "".into(), version: "".into(), kind: kind.into() }
}

/// Derives the kind: `jobs` becomes `Job`.
fn kind_from_resource_name(resource: &str) -> String {
    let singular = resource.strip_suffix('s').unwrap_or(resource);
    let mut letters = singular.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
