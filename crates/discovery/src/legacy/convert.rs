//! Conversion between legacy documents and the aggregated data model.

use std::collections::HashMap;
use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind};

use super::{ApiGroup, ApiGroupList, ApiGroupVersion, ApiResource, ApiResourceList, ApiVersions};
use crate::groups::{
    CreationTimestamp, DiscoveryFreshness, DiscoveryScope, GroupDiscovery, GroupDiscoveryList, ResourceDiscovery,
    SharedStr, SubresourceDiscovery, VersionDiscovery,
};
use crate::intern::Interner;

impl ApiVersions {
    /// Lists the versions of the core group, without server addresses.
    pub fn from_groups(groups: &GroupDiscoveryList) -> Self {
        let core = groups.group("").into_iter().flat_map(|core| &core.versions);
        Self { versions: core.map(|version| version.name.clone()).collect(), server_addresses: Vec::new() }
    }
}

impl ApiGroupList {
    /// Lists every group that has a version, except core, in the same order.
    pub fn from_groups(groups: &GroupDiscoveryList) -> Self {
        let named = groups.items().iter().filter(|group| !group.name.is_empty());
        Self { groups: named.filter_map(|group| ApiGroup::from_group(group)).collect() }
    }
}

impl ApiGroup {
    /// Converts a group, preferring its first version; `None` if it has no version.
    pub fn from_group(group: &GroupDiscovery) -> Option<Self> {
        let versions: Vec<_> =
            group.versions.iter().map(|version| api_group_version(&group.name, &version.name)).collect();
        let preferred_version = versions.first()?.clone();
        Some(Self { name: group.name.clone(), versions, preferred_version, server_addresses: Vec::new() })
    }
}

impl ApiResourceList {
    /// Lists the resources of a version, each followed by its subresources.
    ///
    /// `hash_of` returns the `storageVersionHash` of a group and resource, which aggregated documents lack. A parent
    /// that is listed only because of its subresource gets no entry.
    pub fn from_version(
        group: &str,
        version: &VersionDiscovery,
        hash_of: impl Fn(&str, &str) -> Option<SharedStr>,
    ) -> Self {
        let list = GroupVersion { group, version: &*version.name };
        let mut resources = Vec::with_capacity(version.resources.len());
        for resource in &version.resources {
            if !is_implied_parent(resource) {
                let hash = hash_of(group, &resource.name).unwrap_or_default();
                resources.push(entry_from_resource(list, resource, hash));
            }
            resources.extend(
                resource.subresources.iter().map(|subresource| entry_from_subresource(list, resource, subresource)),
            );
        }
        Self { group_version: list.to_string().into(), resources }
    }

    /// Converts the list to a version of the aggregated data model.
    ///
    /// A subresource whose parent is missing gets a parent without verbs, as in kube-apiserver.
    pub fn to_version(&self) -> VersionDiscovery {
        let name = self.group_version.rsplit('/').next().unwrap_or_default();
        let mut interner = Interner::default();
        let mut resources: Vec<ResourceDiscovery> = Vec::new();
        let mut positions: HashMap<&str, usize> = HashMap::new();
        let parents = self.resources.iter().filter(|entry| !entry.name.contains('/'));
        for entry in parents {
            positions.entry(&entry.name).or_insert(resources.len());
            resources.push(resource_from_entry(&mut interner, entry));
        }
        for entry in &self.resources {
            let Some((parent, subresource)) = entry.name.split_once('/') else { continue };
            let position = *positions.entry(parent).or_insert_with(|| {
                resources.push(implied_parent(&mut interner, parent, entry));
                resources.len() - 1
            });
            resources[position].subresources.push(subresource_from_entry(&mut interner, subresource, entry));
        }
        let resources = resources.into_iter().map(Arc::new).collect();
        VersionDiscovery { name: interner.intern(name), resources, freshness: DiscoveryFreshness::Current }
    }
}

/// Combines `/apis` and its resource lists into one document. A version without a resource list is `Stale`: it
/// exists, but its resources are unknown.
pub fn groups_from_apis(list: &ApiGroupList, resources: &[ApiResourceList]) -> GroupDiscoveryList {
    let versions = versions_by_group_version(resources);
    let groups = list.groups.iter().map(|group| {
        let names = group.versions.iter().map(|version| (&*version.group_version, &*version.version));
        Arc::new(group_from_versions(&group.name, names, &versions))
    });
    GroupDiscoveryList::new(groups.collect())
}

/// Combines `/api` and its resource lists into one document, like [`groups_from_apis`].
pub fn groups_from_api(list: &ApiVersions, resources: &[ApiResourceList]) -> GroupDiscoveryList {
    let names = list.versions.iter().map(|version| (&**version, &**version));
    GroupDiscoveryList::new(vec![Arc::new(group_from_versions("", names, &versions_by_group_version(resources)))])
}

fn versions_by_group_version(resources: &[ApiResourceList]) -> HashMap<&str, VersionDiscovery> {
    resources.iter().map(|list| (&*list.group_version, list.to_version())).collect()
}

fn group_from_versions<'a>(
    name: &str,
    versions: impl Iterator<Item = (&'a str, &'a str)>,
    known: &HashMap<&str, VersionDiscovery>,
) -> GroupDiscovery {
    let unknown = |version: &str| VersionDiscovery {
        name: version.into(),
        resources: Vec::new(),
        freshness: DiscoveryFreshness::Stale,
    };
    let versions =
        versions.map(|(group_version, version)| known.get(group_version).cloned().unwrap_or_else(|| unknown(version)));
    GroupDiscovery { name: name.into(), creation_timestamp: CreationTimestamp::Absent, versions: versions.collect() }
}

fn api_group_version(group: &str, version: &SharedStr) -> ApiGroupVersion {
    let group_version = GroupVersion { group, version: &**version }.to_string().into();
    ApiGroupVersion { group_version, version: version.clone() }
}

/// Reports whether the resource is listed only because of its subresources.
fn is_implied_parent(resource: &ResourceDiscovery) -> bool {
    resource.verbs.is_none() && resource.response_kind.as_ref().is_none_or(|kind| kind.kind.is_empty())
}

fn entry_from_resource(
    list: GroupVersion<&str>,
    resource: &ResourceDiscovery,
    storage_version_hash: SharedStr,
) -> ApiResource {
    let (group, version, kind) = kind_relative_to_list(list, resource.response_kind.as_ref());
    ApiResource {
        name: resource.name.clone(),
        singular_name: resource.singular.clone(),
        namespaced: resource.scope == DiscoveryScope::Namespaced,
        group,
        version,
        kind,
        verbs: resource.verbs.clone(),
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        storage_version_hash,
    }
}

fn entry_from_subresource(
    list: GroupVersion<&str>,
    parent: &ResourceDiscovery,
    subresource: &SubresourceDiscovery,
) -> ApiResource {
    let (group, version, kind) = kind_relative_to_list(list, subresource.response_kind.as_ref());
    ApiResource {
        name: format!("{}/{}", parent.name, subresource.name).into(),
        namespaced: parent.scope == DiscoveryScope::Namespaced,
        group,
        version,
        kind,
        verbs: subresource.verbs.clone(),
        ..ApiResource::default()
    }
}

/// Returns group, version and kind of an entry; the first two are empty if both equal the list's.
fn kind_relative_to_list(
    list: GroupVersion<&str>,
    kind: Option<&GroupVersionKind>,
) -> (SharedStr, SharedStr, SharedStr) {
    match kind.cloned() {
        None => Default::default(),
        Some(kind) if kind.group_version() == list => (SharedStr::default(), SharedStr::default(), kind.kind),
        Some(GroupVersionKind { group, version, kind }) => (group, version, kind),
    }
}

fn resource_from_entry(interner: &mut Interner, entry: &ApiResource) -> ResourceDiscovery {
    ResourceDiscovery {
        name: interner.intern(&entry.name),
        response_kind: Some(kind_from_entry(interner, entry)),
        scope: scope_from_entry(entry),
        singular: interner.intern(&entry.singular_name),
        verbs: entry.verbs.as_ref().map(|verbs| intern_names(interner, verbs)),
        short_names: intern_names(interner, &entry.short_names),
        categories: intern_names(interner, &entry.categories),
        subresources: Vec::new(),
    }
}

/// Creates the missing parent of a subresource.
fn implied_parent(interner: &mut Interner, name: &str, entry: &ApiResource) -> ResourceDiscovery {
    let empty = interner.intern("");
    ResourceDiscovery {
        name: interner.intern(name),
        response_kind: Some(GroupVersionKind { group: empty.clone(), version: empty.clone(), kind: empty.clone() }),
        scope: scope_from_entry(entry),
        singular: empty,
        verbs: None,
        short_names: Default::default(),
        categories: Default::default(),
        subresources: Vec::new(),
    }
}

fn subresource_from_entry(interner: &mut Interner, name: &str, entry: &ApiResource) -> SubresourceDiscovery {
    SubresourceDiscovery {
        name: interner.intern(name),
        response_kind: Some(kind_from_entry(interner, entry)),
        accepted_types: Vec::new(),
        verbs: entry.verbs.as_ref().map(|verbs| intern_names(interner, verbs)),
    }
}

fn kind_from_entry(interner: &mut Interner, entry: &ApiResource) -> GroupVersionKind {
    let mut name = |text: &str| interner.intern(text);
    GroupVersionKind { group: name(&entry.group), version: name(&entry.version), kind: name(&entry.kind) }
}

fn scope_from_entry(entry: &ApiResource) -> DiscoveryScope {
    if entry.namespaced { DiscoveryScope::Namespaced } else { DiscoveryScope::Cluster }
}

fn intern_names(interner: &mut Interner, names: &[SharedStr]) -> crate::groups::SharedStrList {
    interner.intern_list(names.iter().map(|name| &**name))
}
