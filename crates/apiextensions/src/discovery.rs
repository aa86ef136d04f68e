//! The discovery entries of custom resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::GroupVersionKind;
use discovery::build::{DiscoverySource, LocalGroupVersion};
use discovery::{DiscoveryFreshness, Interner, ResourceDiscovery, SubresourceDiscovery};

use crate::definition::{Definition, DefinitionVersion};

/// The priority of groups of custom resources, below that of every built-in group.
const GROUP_PRIORITY: i32 = 1000;
/// The priority of versions of custom resources, which are then ordered by name.
const VERSION_PRIORITY: i32 = 100;
/// In the order of kube-apiserver.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const VERBS_WHILE_TERMINATING: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Lists the served versions of all established definitions, the resources of each version by name.
pub fn group_versions<'a>(definitions: impl Iterator<Item = &'a Definition>) -> Vec<LocalGroupVersion> {
    let mut interner = Interner::default();
    let mut versions: BTreeMap<(&str, &str), Vec<Arc<ResourceDiscovery>>> = BTreeMap::new();
    for definition in definitions.filter(|definition| definition.is_established()) {
        for version in definition.spec.versions.iter().filter(|version| version.served) {
            let resource = Arc::new(resource_discovery(&mut interner, definition, version));
            versions.entry((&definition.spec.group, &version.name)).or_default().push(resource);
        }
    }
    let mut listed = Vec::with_capacity(versions.len());
    for ((group, version), mut resources) in versions {
        resources.sort_by(|a, b| a.name.cmp(&b.name));
        listed.push(LocalGroupVersion {
            source: DiscoverySource::CustomResource,
            group: interner.intern(group),
            version: interner.intern(version),
            group_priority: GROUP_PRIORITY,
            version_priority: VERSION_PRIORITY,
            freshness: DiscoveryFreshness::Current,
            resources,
        });
    }
    listed
}

/// The storageVersionHash of legacy discovery; `None` unless the storage version is served.
pub fn storage_version_hash(definition: &Definition) -> Option<String> {
    let storage = definition.storage_version().filter(|version| version.served)?;
    Some(discovery::legacy::storage_version_hash(&definition.spec.group, &storage.name, &definition.spec.names.kind))
}

fn resource_discovery(
    interner: &mut Interner,
    definition: &Definition,
    version: &DefinitionVersion,
) -> ResourceDiscovery {
    let names = &definition.status.accepted_names;
    let own_kind = GroupVersionKind {
        group: interner.intern(&definition.spec.group),
        version: interner.intern(&version.name),
        kind: interner.intern(&names.kind),
    };
    let verbs: &[&str] = if definition.has_condition("Terminating") { &VERBS_WHILE_TERMINATING } else { &VERBS };
    let mut subresources = Vec::new();
    if version.subresources.status.is_some() {
        subresources.push(subresource_discovery(interner, "status", own_kind.clone()));
    }
    if version.subresources.scale.is_some() {
        let scale = GroupVersionKind {
            group: interner.intern("autoscaling"),
            version: interner.intern("v1"),
            kind: interner.intern("Scale"),
        };
        subresources.push(subresource_discovery(interner, "scale", scale));
    }
    ResourceDiscovery {
        name: interner.intern(&names.plural),
        response_kind: Some(own_kind),
        scope: definition.scope().into(),
        singular: interner.intern(&names.singular),
        verbs: Some(interner.intern_list(verbs.iter().copied())),
        short_names: interner.intern_list(names.short_names.iter().map(String::as_str)),
        categories: interner.intern_list(names.categories.iter().map(String::as_str)),
        subresources,
    }
}

fn subresource_discovery(interner: &mut Interner, name: &str, response_kind: GroupVersionKind) -> SubresourceDiscovery {
    SubresourceDiscovery {
        name: interner.intern(name),
        response_kind: Some(response_kind),
        accepted_types: Vec::new(),
        verbs: Some(interner.intern_list(SUBRESOURCE_VERBS)),
    }
}
