//! Discovery documents of the served resources.

use std::sync::Arc;

use api::GroupVersionKind;
use discovery::build::{DiscoverySource, LocalGroupVersion, build};
use discovery::legacy::ApiResourceList;
use discovery::{
    CreationTimestamp, DiscoveryFreshness, GroupDiscoveryList, Interner, ResourceDiscovery, SubresourceDiscovery,
};

use super::{ServedResource, ServedResources};
use crate::kind::{self, ResponseKind};
use crate::release::Release;

impl ServedResources {
    /// The document of `/apis`: every group but core.
    pub fn discovery_of_apis(&self) -> GroupDiscoveryList {
        build(&self.group_versions_matching(|group| !group.is_empty()), self.creation_timestamp())
    }

    /// The document of `/api`: the core group alone.
    pub fn discovery_of_core(&self) -> GroupDiscoveryList {
        build(&self.group_versions_matching(str::is_empty), self.creation_timestamp())
    }

    /// Whether servers of this release write groups with `"creationTimestamp": null`.
    pub fn creation_timestamp(&self) -> CreationTimestamp {
        if self.release() < Release::R34 { CreationTimestamp::Null } else { CreationTimestamp::Absent }
    }

    /// The legacy document of one version; `None` if nothing of it is served.
    pub fn resource_list(&self, group: &str, version: &str) -> Option<ApiResourceList> {
        let parts = self.group_versions_matching(|name| name == group);
        let part = parts.into_iter().find(|part| &*part.version == version)?;
        let version =
            discovery::VersionDiscovery { name: part.version, resources: part.resources, freshness: part.freshness };
        let hash_of = |group: &str, resource: &str| {
            self.get(group, &version.name, resource)?.stored_resource.as_ref()?.storage_version_hash.clone()
        };
        Some(ApiResourceList::from_version(group, &version, hash_of))
    }

    /// Every served group-version with its priorities.
    pub fn group_versions(&self) -> Vec<LocalGroupVersion> {
        self.group_versions_matching(|_| true)
    }

    fn group_versions_matching(&self, includes_group: impl Fn(&str) -> bool) -> Vec<LocalGroupVersion> {
        let mut interner = Interner::default();
        let mut parts: Vec<LocalGroupVersion> = Vec::new();
        for served in self.resources().iter().filter(|served| includes_group(served.group.name)) {
            let resource = Arc::new(resource_discovery(&mut interner, served));
            let (group, version) = (served.group.name, served.version.name);
            match parts.last_mut() {
                Some(part) if &*part.group == group && &*part.version == version => part.resources.push(resource),
                Some(_) | None => parts.push(LocalGroupVersion {
                    source: DiscoverySource::BuiltIn,
                    group: interner.intern(group),
                    version: interner.intern(version),
                    group_priority: served.group.priority(self.release()),
                    version_priority: served.group.version_priority(version),
                    freshness: DiscoveryFreshness::Current,
                    resources: vec![resource],
                }),
            }
        }
        parts
    }
}

fn resource_discovery(interner: &mut Interner, resource: &ServedResource) -> ResourceDiscovery {
    let kind = resource.kind;
    ResourceDiscovery {
        name: interner.intern(kind.plural),
        response_kind: Some(relative_kind(interner, kind.name)),
        scope: kind.scope.into(),
        singular: interner.intern(&kind.singular()),
        verbs: Some(interner.intern_list(kind.verbs.names())),
        short_names: interner.intern_list(kind.short_names.iter().copied()),
        categories: interner.intern_list(kind.categories.iter().copied()),
        subresources: resource
            .subresources
            .iter()
            .map(|subresource| subresource_discovery(interner, kind, subresource))
            .collect(),
    }
}

fn subresource_discovery(
    interner: &mut Interner,
    parent: &kind::BuiltInKind,
    subresource: &kind::BuiltInSubresource,
) -> SubresourceDiscovery {
    let response_kind = match subresource.kind {
        ResponseKind::Parent => relative_kind(interner, parent.name),
        ResponseKind::Sibling(kind) => relative_kind(interner, kind),
        ResponseKind::Foreign(group, version, kind) => GroupVersionKind {
            group: interner.intern(group),
            version: interner.intern(version),
            kind: interner.intern(kind),
        },
    };
    SubresourceDiscovery {
        name: interner.intern(subresource.name),
        response_kind: Some(response_kind),
        accepted_types: Vec::new(),
        verbs: Some(interner.intern_list(subresource.verbs.names())),
    }
}

/// The kind of a response; group and version are empty, meaning those of the list.
fn relative_kind(interner: &mut Interner, kind: &str) -> GroupVersionKind {
    GroupVersionKind { group: interner.intern(""), version: interner.intern(""), kind: interner.intern(kind) }
}
