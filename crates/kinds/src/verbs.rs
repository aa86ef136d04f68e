//! Verbs of a resource, as listed in discovery.

use std::fmt;

/// A set of verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VerbSet(u8);

/// Alphabetical, as built-in resources list them; the position is the bit.
const NAMES: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

impl VerbSet {
    /// Everything a stored resource offers.
    pub const ALL: Self = Self(0xff);
    /// Only create: reviews and bindings.
    pub const CREATE: Self = Self(1);
    const DELETE: Self = Self(1 << 1);
    const DELETE_COLLECTION: Self = Self(1 << 2);
    /// Only get: logs.
    pub const GET: Self = Self(1 << 3);
    const LIST: Self = Self(1 << 4);
    const PATCH: Self = Self(1 << 5);
    /// Only update: finalizing a namespace.
    pub const UPDATE: Self = Self(1 << 6);

    /// Get, patch and update: a part of an object, such as its status.
    pub const GET_PATCH_UPDATE: Self = Self::GET.union(Self::PATCH).union(Self::UPDATE);
    /// Get and list: computed resources that are not stored.
    pub const GET_LIST: Self = Self::GET.union(Self::LIST);
    /// Create and get: a connection that is upgraded, by POST or by GET.
    pub const UPGRADE: Self = Self::CREATE.union(Self::GET);
    /// The methods a proxy passes on.
    pub const PROXY: Self = Self::GET_PATCH_UPDATE.union(Self::CREATE).union(Self::DELETE);
    /// Everything but deleting a collection: namespaces.
    pub const ALL_BUT_DELETE_COLLECTION: Self = Self(Self::ALL.0 & !Self::DELETE_COLLECTION.0);

    const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the verb is among them.
    pub fn contains(self, verb: &str) -> bool {
        self.names().any(|name| name == verb)
    }

    /// The verbs in the order of discovery.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().enumerate().filter(move |(bit, _)| self.0 & (1 << bit) != 0).map(|(_, name)| name)
    }
}

impl fmt::Debug for VerbSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verb_set_names_are_alphabetical() {
        let text = |verbs: VerbSet| verbs.names().collect::<Vec<_>>().join(" ");
        assert_eq!(text(VerbSet::ALL), "create delete deletecollection get list patch update watch");
        assert_eq!(text(VerbSet::ALL_BUT_DELETE_COLLECTION), "create delete get list patch update watch");
        assert_eq!(text(VerbSet::GET_PATCH_UPDATE), "get patch update");
        assert_eq!(text(VerbSet::PROXY), "create delete get patch update");
        assert_eq!(text(VerbSet::UPGRADE), "create get");
        assert_eq!(text(VerbSet::GET_LIST), "get list");
        assert_eq!(format!("{:?}", VerbSet::CREATE), r#"["create"]"#);
    }

    #[test]
    fn verb_set_contains_verbs_by_name() {
        assert!(VerbSet::ALL_BUT_DELETE_COLLECTION.contains("watch"));
        assert!(!VerbSet::ALL_BUT_DELETE_COLLECTION.contains("deletecollection"));
        assert!(!VerbSet::ALL.contains("proxy"));
    }
}
