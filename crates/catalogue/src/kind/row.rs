//! How a row of the table is written.
//!
//! A row says what is special and leaves out what is usual. Usual is: every verb, served and stored as `v1` in every release,
//! a key prefix equal to the plural, no subresources, no gate, built.

use super::{Group, Kind, KindVersion, ResponseKind, Scope, Storage, Subresource};
use crate::release::{Release, Span};
use crate::verbs::Verbs;

/// A group with the priorities that order groups, and versions within the group.
pub(crate) const fn group(
    name: &'static str,
    priority: i32,
    versions: &'static [(&'static str, i32)],
    kinds: &'static [Kind],
) -> Group {
    Group { name, priority, earlier: None, versions, kinds }
}

/// A kind whose objects live in namespaces.
pub(crate) const fn namespaced(name: &'static str, plural: &'static str) -> Kind {
    Kind {
        name,
        plural,
        scope: Scope::Namespaced,
        verbs: Verbs::ALL,
        short_names: &[],
        categories: &[],
        gate: None,
        built: true,
        subresources: &[],
        versions: V1,
        storage: Storage::Preferred,
        key: None,
    }
}

/// A kind whose objects are one per cluster.
pub(crate) const fn cluster(name: &'static str, plural: &'static str) -> Kind {
    Kind { scope: Scope::Cluster, ..namespaced(name, plural) }
}

const V1: &[KindVersion] = &[v("v1")];

/// A version that is served, and understood in storage, from the oldest release on unless said otherwise.
pub(crate) const fn v(name: &'static str) -> KindVersion {
    KindVersion { name, served: Some(Span::ALWAYS), known: Span::ALWAYS, on_by_default: false }
}

/// A version that is no longer served, but understood in storage.
pub(crate) const fn old(name: &'static str) -> KindVersion {
    KindVersion { name, served: None, known: Span::ALWAYS, on_by_default: false }
}

/// A subresource that answers with its parent's kind.
pub(crate) const fn part(name: &'static str, verbs: Verbs) -> Subresource {
    Subresource {
        name,
        kind: ResponseKind::Parent,
        verbs,
        gate: None,
        connect: false,
        built: true,
        since: Release::OLDEST,
    }
}

/// A subresource that opens a connection to something else; its kind says how.
pub(crate) const fn connection(name: &'static str, kind: &'static str, verbs: Verbs) -> Subresource {
    Subresource { kind: ResponseKind::Sibling(kind), connect: true, ..part(name, verbs) }
}

/// The status of an object, written by its controller.
pub(crate) const STATUS: Subresource = part("status", Verbs::PART);

/// The replica count of an object, in one form for all kinds.
pub(crate) const SCALE: Subresource =
    part("scale", Verbs::PART).kind(ResponseKind::Foreign("autoscaling", "v1", "Scale"));

impl Group {
    /// Before `release` the group had another priority.
    pub(crate) const fn priority_before(self, release: Release, priority: i32) -> Self {
        Self { earlier: Some((release, priority)), ..self }
    }
}

impl Kind {
    pub(crate) const fn short(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    pub(crate) const fn category(self, categories: &'static [&'static str]) -> Self {
        Self { categories, ..self }
    }

    pub(crate) const fn verbs(self, verbs: Verbs) -> Self {
        Self { verbs, ..self }
    }

    pub(crate) const fn gate(self, gate: &'static str) -> Self {
        Self { gate: Some(gate), ..self }
    }

    pub(crate) const fn subresources(self, subresources: &'static [Subresource]) -> Self {
        Self { subresources, ..self }
    }

    /// Has the status subresource and no other.
    pub(crate) const fn status(self) -> Self {
        self.subresources(&[STATUS])
    }

    pub(crate) const fn versions(self, versions: &'static [KindVersion]) -> Self {
        Self { versions, ..self }
    }

    /// Stored in these versions, each from its release on; the first reaches back to the kind's beginning.
    pub(crate) const fn stored(self, since: &'static [(Release, &'static str)]) -> Self {
        Self { storage: Storage::Since(since), ..self }
    }

    /// Stored as the resource of the same name in another group.
    pub(crate) const fn stored_with(self, group: &'static str) -> Self {
        Self { storage: Storage::With(group), ..self }
    }

    /// Answered without being stored.
    pub(crate) const fn computed(self) -> Self {
        Self { storage: Storage::Nowhere, ..self }
    }

    /// Stored under another prefix than the plural.
    pub(crate) const fn key(self, key: &'static str) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Listed, but left to members that have it.
    pub(crate) const fn unbuilt(self) -> Self {
        Self { built: false, ..self }
    }
}

impl KindVersion {
    /// First served by this release.
    pub(crate) const fn since(self, since: Release) -> Self {
        let Span { removed, .. } = Span::ALWAYS;
        Self { served: Some(Span { since, removed }), known: Span { since, removed }, ..self }
    }

    /// No longer served from this release on, but still understood in storage.
    pub(crate) const fn removed(self, removed: Release) -> Self {
        let served = match self.served {
            Some(span) => Some(Span { removed: Some(removed), ..span }),
            None => None,
        };
        Self { served, ..self }
    }

    /// Neither served nor understood from this release on.
    pub(crate) const fn forgotten(self, removed: Release) -> Self {
        Self { known: Span { removed: Some(removed), ..self.known }, ..self.removed(removed) }
    }

    /// On by default although it is a beta version: introduced before those were turned off.
    pub(crate) const fn on_by_default(self) -> Self {
        Self { on_by_default: true, ..self }
    }
}

impl Subresource {
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
    pub(crate) const fn unbuilt(self) -> Self {
        Self { built: false, ..self }
    }
}
