//! The servers that take part: those that hold a valid identity lease.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Names of servers, such as `apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSet(BTreeSet<Arc<str>>);

impl MemberSet {
    /// Whether this server takes part.
    pub fn contains(&self, server: &str) -> bool {
        self.0.contains(server)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }
}

impl<Name: Into<Arc<str>>> FromIterator<Name> for MemberSet {
    fn from_iter<Names: IntoIterator<Item = Name>>(names: Names) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}
