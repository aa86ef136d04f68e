//! What has changed since the last index was made.

use std::collections::HashSet;
use std::sync::Arc;

use crate::rbac::Binding;
use crate::user::service_account_name;

/// Namespace and name; the namespace is empty for what has none.
pub(super) type Key = (Arc<str>, Arc<str>);

/// Somebody who can hold roles.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum HolderKey {
    User(Arc<str>),
    Group(Arc<str>),
}

#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Those whose bindings changed.
    pub(super) holders: HashSet<HolderKey>,
    /// Whether any ClusterRole changed: which others change with it, aggregation knows.
    pub(super) cluster_roles: bool,
    /// The Roles that changed.
    pub(super) roles: HashSet<Key>,
}

impl HolderKey {
    /// Everybody whom a binding names; service accounts are users.
    pub(super) fn of(binding: &Binding) -> impl Iterator<Item = Self> {
        binding.subjects.iter().filter_map(|subject| match subject.kind.as_str() {
            "User" => Some(Self::User(subject.name.as_str().into())),
            "Group" => Some(Self::Group(subject.name.as_str().into())),
            "ServiceAccount" => match subject.namespace_in(&binding.metadata.namespace) {
                "" => None,
                namespace => Some(Self::User(service_account_name(namespace, &subject.name).into())),
            },
            _ => None,
        })
    }
}
