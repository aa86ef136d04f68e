//! Short notations for tests.
//!
//! A document: `v1 pods:get,list pods/exec:create | batch/v1! jobs:get` is the core group with one resource and its
//! subresource, and a stale version of another group. Without a colon a resource has no verbs of its own.

use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind};
use discovery::{CreationTimestamp, Freshness, Group, Groups, Names, Resource, Scope, Subresource, Version};

use crate::documents::{ServerDocument, Unbuilt};
use crate::identity::ServerId;

/// The document in this notation.
pub(crate) fn document(notation: &str) -> Arc<Groups> {
    let mut groups: Vec<Group> = Vec::new();
    for part in notation.split('|').map(str::trim).filter(|part| !part.is_empty()) {
        let (head, resources) = part.split_once(' ').unwrap_or((part, ""));
        let name = GroupVersion::parse(head.trim_end_matches('!')).unwrap();
        let version = Version {
            name: name.version.into(),
            resources: resources_of(resources),
            freshness: if head.ends_with('!') { Freshness::Stale } else { Freshness::Current },
        };
        if groups.last().is_none_or(|last| &*last.name != name.group) {
            let creation_timestamp = CreationTimestamp::Absent;
            groups.push(Group { name: name.group.into(), creation_timestamp, versions: Vec::new() });
        }
        groups.last_mut().unwrap().versions.push(version);
    }
    Arc::new(Groups::new(groups.into_iter().map(Arc::new).collect()))
}

/// What a server serves, in this notation. A subresource or resource that begins with `?` is listed and not built.
pub(crate) fn server_document(notation: &str) -> ServerDocument {
    let mut unbuilt = Vec::new();
    for part in notation.split('|').map(str::trim).filter(|part| !part.is_empty()) {
        let mut words = part.split_whitespace();
        let group = GroupVersion::parse(words.next().unwrap().trim_end_matches('!')).unwrap().group;
        for word in words.filter_map(|word| word.strip_prefix('?')) {
            let (path, _) = word.split_once(':').unwrap_or((word, ""));
            let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
            unbuilt.push(Unbuilt { group: group.into(), resource: resource.into(), subresource: subresource.into() });
        }
    }
    ServerDocument::from_whole(&document(&notation.replace('?', ""))).with_unbuilt(unbuilt)
}

/// The server of this short name.
pub(crate) fn server(name: &str) -> ServerId {
    ServerId::from_name(&format!("apiserver-{name}")).unwrap()
}

fn resources_of(notation: &str) -> Vec<Arc<Resource>> {
    let mut resources: Vec<Resource> = Vec::new();
    for word in notation.split_whitespace() {
        let (path, verbs) = word.split_once(':').map_or((word, None), |(path, verbs)| (path, Some(verbs)));
        let verbs: Option<Names> = verbs.map(|verbs| verbs.split(',').map(Into::into).collect());
        let Some((parent, name)) = path.split_once('/') else {
            resources.push(resource(path, verbs));
            continue;
        };
        if resources.last().is_none_or(|last| &*last.name != parent) {
            resources.push(resource(parent, None));
        }
        let name = name.into();
        let subresource = Subresource { name, response_kind: None, accepted_types: Vec::new(), verbs };
        resources.last_mut().unwrap().subresources.push(subresource);
    }
    resources.into_iter().map(Arc::new).collect()
}

fn resource(name: &str, verbs: Option<Names>) -> Resource {
    Resource {
        name: name.into(),
        response_kind: Some(GroupVersionKind { group: "".into(), version: "".into(), kind: name.into() }),
        scope: Scope::Namespaced,
        singular: "".into(),
        verbs,
        short_names: Names::default(),
        categories: Names::default(),
        subresources: Vec::new(),
    }
}
