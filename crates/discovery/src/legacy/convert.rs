//! Between legacy documents and the values of the aggregated form.

use std::collections::HashMap;
use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind};

use super::{ApiGroup, ApiGroupList, ApiGroupVersion, ApiResource, ApiResourceList, ApiVersions};
use crate::groups::{CreationTimestamp, Freshness, Group, Groups, Name, Resource, Scope, Subresource, Version};
use crate::intern::Interner;

impl ApiVersions {
    /// The versions of the core group, without an address.
    pub fn from_groups(groups: &Groups) -> Self {
        let core = groups.group("").into_iter().flat_map(|core| &core.versions);
        Self { versions: core.map(|version| version.name.clone()).collect(), server_addresses: Vec::new() }
    }
}

impl ApiGroupList {
    /// Every group that has a version, except core, in the same order.
    pub fn from_groups(groups: &Groups) -> Self {
        let named = groups.items().iter().filter(|group| !group.name.is_empty());
        Self { groups: named.filter_map(|group| ApiGroup::from_group(group)).collect() }
    }
}

impl ApiGroup {
    /// The group with its first version preferred; `None` if it has no version.
    pub fn from_group(group: &Group) -> Option<Self> {
        let versions: Vec<_> = group.versions.iter().map(|version| group_version(&group.name, &version.name)).collect();
        let preferred_version = versions.first()?.clone();
        Some(Self { name: group.name.clone(), versions, preferred_version, server_addresses: Vec::new() })
    }
}

impl ApiResourceList {
    /// The resources of a version, each followed by its subresources.
    ///
    /// `hash_of` gives the `storageVersionHash` of a resource of this group, which the aggregated form lacks. A parent that is
    /// listed only for its subresource has no entry of its own.
    pub fn from_version(group: &str, version: &Version, hash_of: impl Fn(&str, &str) -> Option<Name>) -> Self {
        let list = GroupVersion { group, version: &*version.name };
        let mut resources = Vec::with_capacity(version.resources.len());
        for resource in &version.resources {
            if !is_implied(resource) {
                let hash = hash_of(group, &resource.name).unwrap_or_default();
                resources.push(entry_of_resource(list, resource, hash));
            }
            resources.extend(
                resource.subresources.iter().map(|subresource| entry_of_subresource(list, resource, subresource)),
            );
        }
        Self { group_version: list.to_string().into(), resources }
    }

    /// The resources as a version of the aggregated form.
    ///
    /// A subresource whose parent is not listed, or comes later, gets a parent without verbs, as kube-apiserver does.
    pub fn to_version(&self) -> Version {
        let name = self.group_version.rsplit('/').next().unwrap_or_default();
        let mut interner = Interner::default();
        let mut resources: Vec<Resource> = Vec::new();
        let mut positions: HashMap<&str, usize> = HashMap::new();
        let parents = self.resources.iter().filter(|entry| !entry.name.contains('/'));
        for entry in parents {
            positions.entry(&entry.name).or_insert(resources.len());
            resources.push(resource_of_entry(&mut interner, entry));
        }
        for entry in &self.resources {
            let Some((parent, subresource)) = entry.name.split_once('/') else { continue };
            let position = *positions.entry(parent).or_insert_with(|| {
                resources.push(implied_parent(&mut interner, parent, entry));
                resources.len() - 1
            });
            resources[position].subresources.push(subresource_of_entry(&mut interner, subresource, entry));
        }
        let resources = resources.into_iter().map(Arc::new).collect();
        Version { name: interner.name(name), resources, freshness: Freshness::Current }
    }
}

/// The document that `/apis` and the lists of its versions give together. A version without a list is `Stale`: it is known to
/// exist, and what it has could not be learnt.
pub fn groups_of_apis(list: &ApiGroupList, resources: &[ApiResourceList]) -> Groups {
    let versions = versions_of(resources);
    let groups = list.groups.iter().map(|group| {
        let names = group.versions.iter().map(|version| (&*version.group_version, &*version.version));
        Arc::new(group_of(&group.name, names, &versions))
    });
    Groups::new(groups.collect())
}

/// The document that `/api` and the lists of its versions give together, by the rule of [`groups_of_apis`].
pub fn groups_of_api(list: &ApiVersions, resources: &[ApiResourceList]) -> Groups {
    let names = list.versions.iter().map(|version| (&**version, &**version));
    Groups::new(vec![Arc::new(group_of("", names, &versions_of(resources)))])
}

fn versions_of(resources: &[ApiResourceList]) -> HashMap<&str, Version> {
    resources.iter().map(|list| (&*list.group_version, list.to_version())).collect()
}

fn group_of<'a>(
    name: &str,
    versions: impl Iterator<Item = (&'a str, &'a str)>,
    known: &HashMap<&str, Version>,
) -> Group {
    let unknown = |version: &str| Version { name: version.into(), resources: Vec::new(), freshness: Freshness::Stale };
    let versions =
        versions.map(|(group_version, version)| known.get(group_version).cloned().unwrap_or_else(|| unknown(version)));
    Group { name: name.into(), creation_timestamp: CreationTimestamp::Absent, versions: versions.collect() }
}

fn group_version(group: &str, version: &Name) -> ApiGroupVersion {
    let group_version = GroupVersion { group, version: &**version }.to_string().into();
    ApiGroupVersion { group_version, version: version.clone() }
}

fn is_implied(resource: &Resource) -> bool {
    resource.verbs.is_none() && resource.response_kind.as_ref().is_none_or(|kind| kind.kind.is_empty())
}

fn entry_of_resource(list: GroupVersion<&str>, resource: &Resource, storage_version_hash: Name) -> ApiResource {
    let (group, version, kind) = names_of(list, resource.response_kind.as_ref());
    ApiResource {
        name: resource.name.clone(),
        singular_name: resource.singular.clone(),
        namespaced: resource.scope == Scope::Namespaced,
        group,
        version,
        kind,
        verbs: resource.verbs.clone(),
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        storage_version_hash,
    }
}

fn entry_of_subresource(list: GroupVersion<&str>, parent: &Resource, subresource: &Subresource) -> ApiResource {
    let (group, version, kind) = names_of(list, subresource.response_kind.as_ref());
    ApiResource {
        name: format!("{}/{}", parent.name, subresource.name).into(),
        namespaced: parent.scope == Scope::Namespaced,
        group,
        version,
        kind,
        verbs: subresource.verbs.clone(),
        ..ApiResource::default()
    }
}

/// Group, version and kind of an entry: the first two empty if both are those of the list.
fn names_of(list: GroupVersion<&str>, kind: Option<&GroupVersionKind>) -> (Name, Name, Name) {
    match kind.cloned() {
        None => Default::default(),
        Some(kind) if kind.group_version() == list => (Name::default(), Name::default(), kind.kind),
        Some(GroupVersionKind { group, version, kind }) => (group, version, kind),
    }
}

fn resource_of_entry(interner: &mut Interner, entry: &ApiResource) -> Resource {
    Resource {
        name: interner.name(&entry.name),
        response_kind: Some(kind_of_entry(interner, entry)),
        scope: scope_of_entry(entry),
        singular: interner.name(&entry.singular_name),
        verbs: entry.verbs.as_ref().map(|verbs| share(interner, verbs)),
        short_names: share(interner, &entry.short_names),
        categories: share(interner, &entry.categories),
        subresources: Vec::new(),
    }
}

fn implied_parent(interner: &mut Interner, name: &str, entry: &ApiResource) -> Resource {
    let nothing = interner.name("");
    Resource {
        name: interner.name(name),
        response_kind: Some(GroupVersionKind {
            group: nothing.clone(),
            version: nothing.clone(),
            kind: nothing.clone(),
        }),
        scope: scope_of_entry(entry),
        singular: nothing,
        verbs: None,
        short_names: Default::default(),
        categories: Default::default(),
        subresources: Vec::new(),
    }
}

fn subresource_of_entry(interner: &mut Interner, name: &str, entry: &ApiResource) -> Subresource {
    Subresource {
        name: interner.name(name),
        response_kind: Some(kind_of_entry(interner, entry)),
        accepted_types: Vec::new(),
        verbs: entry.verbs.as_ref().map(|verbs| share(interner, verbs)),
    }
}

fn kind_of_entry(interner: &mut Interner, entry: &ApiResource) -> GroupVersionKind {
    let mut name = |text: &str| interner.name(text);
    GroupVersionKind { group: name(&entry.group), version: name(&entry.version), kind: name(&entry.kind) }
}

fn scope_of_entry(entry: &ApiResource) -> Scope {
    if entry.namespaced { Scope::Namespaced } else { Scope::Cluster }
}

fn share(interner: &mut Interner, names: &[Name]) -> crate::groups::Names {
    interner.names(names.iter().map(|name| &**name))
}
