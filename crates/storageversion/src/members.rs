//! The members of the cluster: servers with a valid identity lease, each of a component.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The component of the API servers of the cluster.
pub const API_SERVER_COMPONENT: &str = "kube-apiserver";

/// Server names, such as `apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe`, with the component of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSet(BTreeMap<Arc<str>, Arc<str>>);

impl MemberSet {
    /// Servers, each with the component that its identity lease names.
    pub fn from_components(members: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        Self(members.into_iter().collect())
    }

    /// True if `server` holds a valid identity lease, of whatever component.
    pub fn contains(&self, server: &str) -> bool {
        self.0.contains_key(server)
    }

    /// The members that store a resource for which these servers have entries: all of their components. If none of the servers is
    /// a member, those are the API servers.
    pub fn participants(&self, reporting: &BTreeSet<&str>) -> impl Iterator<Item = &Arc<str>> {
        let components: BTreeSet<&str> =
            reporting.iter().filter_map(|server| self.0.get(*server)).map(|component| &**component).collect();
        let takes_part = move |component: &str| match components.is_empty() {
            true => component == API_SERVER_COMPONENT,
            false => components.contains(component),
        };
        self.0.iter().filter(move |(_, component)| takes_part(component)).map(|(server, _)| server)
    }
}

/// API servers of the cluster.
impl<Name: Into<Arc<str>>> FromIterator<Name> for MemberSet {
    fn from_iter<Names: IntoIterator<Item = Name>>(names: Names) -> Self {
        let component: Arc<str> = API_SERVER_COMPONENT.into();
        Self(names.into_iter().map(|name| (name.into(), component.clone())).collect())
    }
}
