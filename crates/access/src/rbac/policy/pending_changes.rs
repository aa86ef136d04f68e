//! What has changed since the last index was made.

use std::collections::HashSet;
use std::sync::Arc;

use crate::rbac::RoleBinding;
use crate::user::service_account_name;

/// Namespace and name; the namespace is empty for what has none.
pub(super) type NamespacedName = (Arc<str>, Arc<str>);

/// Somebody who can hold roles.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SubjectKey {
    User(Arc<str>),
    Group(Arc<str>),
}

#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    /// Those whose bindings changed.
    pub(super) subjects: HashSet<SubjectKey>,
    /// Whether any ClusterRole changed: which others change with it, aggregation knows.
    pub(super) cluster_roles: bool,
    /// The Roles that changed.
    pub(super) roles: HashSet<NamespacedName>,
}

impl SubjectKey {
    /// Everybody whom a binding names; service accounts are users.
    pub(super) fn subjects_of(binding: &RoleBinding) -> impl Iterator<Item = Self> {
        binding.subjects.iter().filter_map(|subject| match subject.kind.as_str() {
            "User" => Some(Self::User(subject.name.as_str().into())),
            "Group" => Some(Self::Group(subject.name.as_str().into())),
            "ServiceAccount" => match subject.effective_namespace(&binding.metadata.namespace) {
                "" => None,
                namespace => Some(Self::User(service_account_name(namespace, &subject.name).into())),
            },
            _ => None,
        })
    }
}
