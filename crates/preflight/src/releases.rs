//! What releases know of built-in kinds: the only module that uses the catalogue.

pub use catalogue::Release;
use catalogue::kinds::GROUPS;
use catalogue::{BuiltInGroup, BuiltInKind};

/// A built-in resource with a place in storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredKind {
    /// The API group; empty for core.
    pub group: &'static str,
    /// The plural, `pods`.
    pub resource: &'static str,
    /// The key after the prefix, `services/specs`.
    pub key_prefix: &'static str,
}

/// Every built-in resource of every release, once for each place in storage.
pub fn stored_kinds() -> impl Iterator<Item = StoredKind> {
    let kinds = GROUPS.into_iter().flat_map(|group| group.kinds.iter().map(move |kind| (group, kind)));
    kinds.filter(|(_, kind)| is_stored_under_own_group(kind)).map(|(group, kind)| stored_kind(group, kind))
}

fn is_stored_under_own_group(kind: &BuiltInKind) -> bool {
    let has_place = Release::ALL.into_iter().any(|release| kind.storage_version(release).is_some());
    has_place && kind.storage_group().is_none()
}

fn stored_kind(group: &BuiltInGroup, kind: &BuiltInKind) -> StoredKind {
    StoredKind { group: group.name, resource: kind.plural, key_prefix: kind.key_prefix() }
}
