//! Builder functions for the rows of the table.
//!
//! A row states only deviations from the defaults: every verb, served and stored as `v1` in every release, a key prefix
//! equal to the plural, no subresources, no feature gate, implemented.

use super::{BuiltInGroup, BuiltInKind, BuiltInSubresource, KindScope, KindStorage, KindVersion, ResponseKind};
use crate::release::{Release, ReleaseRange};
use crate::strategy::KindStrategy;
use crate::verbs::VerbSet;

/// A group with the priorities that order groups, and versions within the group.
pub(crate) const fn group(
    name: &'static str,
    priority: i32,
    versions: &'static [(&'static str, i32)],
    kinds: &'static [BuiltInKind],
) -> BuiltInGroup {
    BuiltInGroup { name, priority, earlier_priority: None, versions, kinds }
}

/// A namespaced kind with the defaults.
pub(crate) const fn namespaced_kind(name: &'static str, plural: &'static str) -> BuiltInKind {
    BuiltInKind {
        name,
        plural,
        scope: KindScope::Namespaced,
        verbs: VerbSet::ALL,
        short_names: &[],
        categories: &[],
        gate: None,
        is_implemented: true,
        subresources: &[],
        versions: V1,
        strategy: &KindStrategy::DEFAULT,
        storage: KindStorage::PreferredVersion,
        key_override: None,
    }
}

/// A cluster-scoped kind with the defaults.
pub(crate) const fn cluster_scoped_kind(name: &'static str, plural: &'static str) -> BuiltInKind {
    BuiltInKind { scope: KindScope::Cluster, ..namespaced_kind(name, plural) }
}

const V1: &[KindVersion] = &[version("v1")];

/// A version that every release serves and decodes from storage.
pub(crate) const fn version(name: &'static str) -> KindVersion {
    KindVersion { name, served: Some(ReleaseRange::ALL), decodable: ReleaseRange::ALL, enabled_by_default: false }
}

/// A version that no release serves and every release decodes from storage.
pub(crate) const fn stored_only(name: &'static str) -> KindVersion {
    KindVersion { name, served: None, decodable: ReleaseRange::ALL, enabled_by_default: false }
}

/// A subresource whose responses have the parent's kind.
pub(crate) const fn subresource(name: &'static str, verbs: VerbSet) -> BuiltInSubresource {
    BuiltInSubresource {
        name,
        kind: ResponseKind::Parent,
        verbs,
        gate: None,
        is_connect: false,
        is_implemented: true,
        since: Release::OLDEST,
    }
}

/// A subresource that opens a connection; `kind` is the kind of its options.
pub(crate) const fn connect_subresource(name: &'static str, kind: &'static str, verbs: VerbSet) -> BuiltInSubresource {
    BuiltInSubresource { kind: ResponseKind::Sibling(kind), is_connect: true, ..subresource(name, verbs) }
}

/// The `status` subresource.
pub(crate) const STATUS: BuiltInSubresource = subresource("status", VerbSet::GET_PATCH_UPDATE);

/// The `scale` subresource, with the kind `Scale` of `autoscaling/v1`.
pub(crate) const SCALE: BuiltInSubresource =
    subresource("scale", VerbSet::GET_PATCH_UPDATE).kind(ResponseKind::Foreign("autoscaling", "v1", "Scale"));

impl BuiltInGroup {
    /// Before `release` the group had another priority.
    pub(crate) const fn priority_before(self, release: Release, priority: i32) -> Self {
        Self { earlier_priority: Some((release, priority)), ..self }
    }
}

impl BuiltInKind {
    pub(crate) const fn short_names(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    pub(crate) const fn categories(self, categories: &'static [&'static str]) -> Self {
        Self { categories, ..self }
    }

    pub(crate) const fn verbs(self, verbs: VerbSet) -> Self {
        Self { verbs, ..self }
    }

    pub(crate) const fn gate(self, gate: &'static str) -> Self {
        Self { gate: Some(gate), ..self }
    }

    pub(crate) const fn subresources(self, subresources: &'static [BuiltInSubresource]) -> Self {
        Self { subresources, ..self }
    }

    pub(crate) const fn strategy(self, strategy: &'static KindStrategy) -> Self {
        Self { strategy, ..self }
    }

    /// Has the status subresource and no other.
    pub(crate) const fn status(self) -> Self {
        self.subresources(&[STATUS])
    }

    pub(crate) const fn versions(self, versions: &'static [KindVersion]) -> Self {
        Self { versions, ..self }
    }

    /// Stored in these versions, each from its release on; the first reaches back to the kind's beginning.
    pub(crate) const fn storage_versions(self, since: &'static [(Release, &'static str)]) -> Self {
        Self { storage: KindStorage::VersionSince(since), ..self }
    }

    /// Stored as the resource of the same name in another group.
    pub(crate) const fn stored_in_group(self, group: &'static str) -> Self {
        Self { storage: KindStorage::SharedWithGroup(group), ..self }
    }

    /// Not stored; the response is computed.
    pub(crate) const fn not_stored(self) -> Self {
        Self { storage: KindStorage::NotStored, ..self }
    }

    /// Stored under another prefix than the plural.
    pub(crate) const fn key_override(self, key: &'static str) -> Self {
        Self { key_override: Some(key), ..self }
    }

    /// Listed, but left to members that have it.
    pub(crate) const fn not_implemented(self) -> Self {
        Self { is_implemented: false, ..self }
    }
}

impl KindVersion {
    /// First served by this release.
    pub(crate) const fn since(self, since: Release) -> Self {
        let ReleaseRange { removed, .. } = ReleaseRange::ALL;
        Self { served: Some(ReleaseRange { since, removed }), decodable: ReleaseRange { since, removed }, ..self }
    }

    /// No longer served from this release on, but still decoded from storage.
    pub(crate) const fn removed(self, removed: Release) -> Self {
        let served = match self.served {
            Some(span) => Some(ReleaseRange { removed: Some(removed), ..span }),
            None => None,
        };
        Self { served, ..self }
    }

    /// Neither served nor decoded from this release on.
    pub(crate) const fn undecodable_since(self, removed: Release) -> Self {
        Self { decodable: ReleaseRange { removed: Some(removed), ..self.decodable }, ..self.removed(removed) }
    }

    /// Enabled by default although it is a beta version: introduced before beta versions became disabled by default.
    pub(crate) const fn enabled_by_default(self) -> Self {
        Self { enabled_by_default: true, ..self }
    }
}

impl BuiltInSubresource {
    pub(crate) const fn kind(self, kind: ResponseKind) -> Self {
        Self { kind, ..self }
    }

    pub(crate) const fn gate(self, gate: &'static str) -> Self {
        Self { gate: Some(gate), ..self }
    }

    pub(crate) const fn since(self, since: Release) -> Self {
        Self { since, ..self }
    }

    /// Listed, but left to members that have it.
    pub(crate) const fn not_implemented(self) -> Self {
        Self { is_implemented: false, ..self }
    }
}
