//! What one may do with a resource, as the words of discovery.

use std::fmt;

/// A set of verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verbs(u8);

/// Alphabetical, as built-in resources list them; the position is the bit.
const NAMES: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

impl Verbs {
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
    pub const PART: Self = Self::GET.and(Self::PATCH).and(Self::UPDATE);
    /// Get and list: what is computed, not stored.
    pub const READ: Self = Self::GET.and(Self::LIST);
    /// Create and get: a connection that is upgraded, by POST or by GET.
    pub const UPGRADE: Self = Self::CREATE.and(Self::GET);
    /// The methods a proxy passes on.
    pub const PROXY: Self = Self::PART.and(Self::CREATE).and(Self::DELETE);
    /// Everything but deleting a collection: namespaces.
    pub const ONE_BY_ONE: Self = Self(Self::ALL.0 & !Self::DELETE_COLLECTION.0);

    const fn and(self, other: Self) -> Self {
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

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_listed_alphabetically() {
        let text = |verbs: Verbs| verbs.names().collect::<Vec<_>>().join(" ");
        assert_eq!(text(Verbs::ALL), "create delete deletecollection get list patch update watch");
        assert_eq!(text(Verbs::ONE_BY_ONE), "create delete get list patch update watch");
        assert_eq!(text(Verbs::PART), "get patch update");
        assert_eq!(text(Verbs::PROXY), "create delete get patch update");
        assert_eq!(text(Verbs::UPGRADE), "create get");
        assert_eq!(text(Verbs::READ), "get list");
        assert_eq!(format!("{:?}", Verbs::CREATE), r#"["create"]"#);
    }

    #[test]
    fn a_set_knows_its_members_by_name() {
        assert!(Verbs::ONE_BY_ONE.contains("watch"));
        assert!(!Verbs::ONE_BY_ONE.contains("deletecollection"));
        assert!(!Verbs::ALL.contains("proxy"));
    }
}
