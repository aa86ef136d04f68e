//! The policy changes since the last index was built.

use std::collections::HashSet;
use std::sync::Arc;

use crate::rbac::RoleBinding;
use crate::user::service_account_name;

/// Namespace and name; the namespace is empty for cluster-scoped objects.
pub(super) type NamespacedName = (Arc<str>, Arc<str>);

/// A user or group that bindings can name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SubjectKey {
    User(Arc<str>),
    Group(Arc<str>),
}

#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    /// Subjects whose bindings changed.
    pub(super) subjects: HashSet<SubjectKey>,
    /// True if any ClusterRole changed; aggregation determines which roles are affected.
    pub(super) cluster_roles: bool,
    pub(super) roles: HashSet<NamespacedName>,
}

impl SubjectKey {
    /// Returns every subject of a binding; service accounts become users.
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
