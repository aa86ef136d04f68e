//! What a surface says of itself in discovery.

use std::sync::Arc;

use api::GroupVersionKind;
use discovery::build::{Part, Source, build};
use discovery::legacy::ApiResourceList;
use discovery::{CreationTimestamp, Freshness, Groups, Interner, Resource, Subresource};

use super::{Served, Surface};
use crate::kind::{self, ResponseKind};
use crate::release::Release;

impl Surface {
    /// The document of `/apis`: every group but core.
    pub fn groups_apis(&self) -> Groups {
        build(&self.parts(|group| !group.is_empty()), self.creation_timestamp())
    }

    /// The document of `/api`: the core group alone.
    pub fn groups_core(&self) -> Groups {
        build(&self.parts(str::is_empty), self.creation_timestamp())
    }

    /// Servers of this release write groups with, or without, a `creationTimestamp` of `null`.
    pub fn creation_timestamp(&self) -> CreationTimestamp {
        if self.release() < Release::R34 { CreationTimestamp::Null } else { CreationTimestamp::Absent }
    }

    /// The legacy document of one version; `None` if nothing of it is served.
    pub fn resource_list(&self, group: &str, version: &str) -> Option<ApiResourceList> {
        let parts = self.parts(|name| name == group);
        let part = parts.into_iter().find(|part| &*part.version == version)?;
        let version = discovery::Version { name: part.version, resources: part.resources, freshness: part.freshness };
        let hash_of =
            |group: &str, resource: &str| self.get(group, &version.name, resource)?.persisted.as_ref()?.hash.clone();
        Some(ApiResourceList::from_version(group, &version, hash_of))
    }

    fn parts(&self, wanted: impl Fn(&str) -> bool) -> Vec<Part> {
        let mut interner = Interner::default();
        let mut parts: Vec<Part> = Vec::new();
        for served in self.served().iter().filter(|served| wanted(served.group.name)) {
            let resource = Arc::new(resource_of(&mut interner, served));
            let (group, version) = (served.group.name, served.version.name);
            match parts.last_mut() {
                Some(part) if &*part.group == group && &*part.version == version => part.resources.push(resource),
                Some(_) | None => parts.push(Part {
                    source: Source::BuiltIn,
                    group: interner.name(group),
                    version: interner.name(version),
                    group_priority: served.group.priority(self.release()),
                    version_priority: served.group.version_priority(version),
                    freshness: Freshness::Current,
                    resources: vec![resource],
                }),
            }
        }
        parts
    }
}

fn resource_of(interner: &mut Interner, served: &Served) -> Resource {
    let kind = served.kind;
    Resource {
        name: interner.name(kind.plural),
        response_kind: Some(sibling(interner, kind.name)),
        scope: kind.scope.into(),
        singular: interner.name(&kind.singular()),
        verbs: Some(interner.names(kind.verbs.names())),
        short_names: interner.names(kind.short_names.iter().copied()),
        categories: interner.names(kind.categories.iter().copied()),
        subresources: served
            .subresources
            .iter()
            .map(|subresource| subresource_of(interner, kind, subresource))
            .collect(),
    }
}

fn subresource_of(interner: &mut Interner, parent: &kind::Kind, subresource: &kind::Subresource) -> Subresource {
    let response_kind = match subresource.kind {
        ResponseKind::Parent => sibling(interner, parent.name),
        ResponseKind::Sibling(kind) => sibling(interner, kind),
        ResponseKind::Foreign(group, version, kind) => {
            GroupVersionKind { group: interner.name(group), version: interner.name(version), kind: interner.name(kind) }
        }
    };
    Subresource {
        name: interner.name(subresource.name),
        response_kind: Some(response_kind),
        accepted_types: Vec::new(),
        verbs: Some(interner.names(subresource.verbs.names())),
    }
}

/// A kind of the group and version that list it: those are left empty.
fn sibling(interner: &mut Interner, kind: &str) -> GroupVersionKind {
    GroupVersionKind { group: interner.name(""), version: interner.name(""), kind: interner.name(kind) }
}
