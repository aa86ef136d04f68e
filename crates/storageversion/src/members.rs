//! The members of the cluster: servers with a valid identity lease.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Server names, such as `apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSet(BTreeSet<Arc<str>>);

impl MemberSet {
    /// True if `server` holds a valid identity lease.
    pub fn contains(&self, server: &str) -> bool {
        self.0.contains(server)
    }

    /// All members, in order of names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }
}

impl<Name: Into<Arc<str>>> FromIterator<Name> for MemberSet {
    fn from_iter<Names: IntoIterator<Item = Name>>(names: Names) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}
