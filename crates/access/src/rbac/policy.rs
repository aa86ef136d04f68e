//! The writer's side: the objects as they are now, from which an [`Index`] is made.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::aggregation::aggregate;
use super::table::RuleSet;
use super::{Binding, Index, ObjectError, PolicyRule, Role};
use crate::wire::read;

/// The four kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Rules of a namespace.
    Role,
    /// Rules of the cluster, or to be bound in any namespace.
    ClusterRole,
    /// Grants in one namespace.
    RoleBinding,
    /// Grants everywhere.
    ClusterRoleBinding,
}

/// Whether a new index is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a change is not in effect until an index made after it is published"]
pub enum Change {
    /// Decisions may differ now.
    Due,
    /// Nothing that decisions depend on has changed.
    None,
}

/// Every role and binding there is. Names are keys, so an object put twice replaces itself.
#[derive(Debug, Default)]
pub struct Policy {
    pub(super) cluster_roles: BTreeMap<Arc<str>, StoredRole>,
    pub(super) roles: BTreeMap<(Arc<str>, Arc<str>), StoredRole>,
    pub(super) cluster_role_bindings: BTreeMap<Arc<str>, Arc<Binding>>,
    pub(super) role_bindings: BTreeMap<(Arc<str>, Arc<str>), Arc<Binding>>,
}

/// A role and its rules made ready to be searched.
#[derive(Debug)]
pub(super) struct StoredRole {
    pub(super) object: Role,
    pub(super) rules: Arc<RuleSet>,
}

impl Policy {
    /// Takes in an object as stored. The namespace is empty for the two cluster-scoped kinds.
    ///
    /// Bytes that cannot be read take away what the object of that name granted before, since nobody knows what it grants now.
    pub fn put(&mut self, kind: Kind, namespace: &str, name: &str, json: &[u8]) -> Result<Change, ObjectError> {
        let read = match kind {
            Kind::Role | Kind::ClusterRole => read(json).map(|role| self.put_role(kind, namespace, name, role)),
            Kind::RoleBinding | Kind::ClusterRoleBinding => {
                read(json).map(|binding| self.put_binding(kind, namespace, name, binding))
            }
        };
        read.map_err(|source| {
            let _ = self.remove(kind, namespace, name);
            let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            ObjectError { kind, name, source }
        })
    }

    /// Forgets an object.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> Change {
        let was_there = match kind {
            Kind::ClusterRole => self.cluster_roles.remove(name).is_some(),
            Kind::ClusterRoleBinding => self.cluster_role_bindings.remove(name).is_some(),
            Kind::Role => self.roles.remove(&(namespace.into(), name.into())).is_some(),
            Kind::RoleBinding => self.role_bindings.remove(&(namespace.into(), name.into())).is_some(),
        };
        if was_there { Change::Due } else { Change::None }
    }

    /// The index of what is granted now. Made anew each time: some milliseconds for thousands of bindings, so a writer
    /// takes in what is waiting before it makes one.
    pub fn index(&self) -> Index {
        Index::of(self)
    }

    /// The ClusterRoles whose `rules` are not the union their aggregation rule asks for, with the rules to write.
    pub fn outdated_aggregates(&self) -> Vec<(Arc<str>, Vec<PolicyRule>)> {
        let due = aggregate(&self.cluster_roles).into_iter().map(|(name, rules)| {
            let rules: Vec<PolicyRule> = rules.iter().map(|rule| PolicyRule::clone(rule)).collect();
            (name, rules)
        });
        due.filter(|(name, rules)| self.cluster_roles[name].object.rules != *rules).collect()
    }

    fn put_role(&mut self, kind: Kind, namespace: &str, name: &str, object: Role) -> Change {
        let rules = Arc::new(RuleSet::new(object.rules.iter().cloned().map(Arc::new)));
        let stored = StoredRole { object, rules };
        let is_same = |before: &StoredRole, role: &Role| {
            before.object.rules == role.rules
                && before.object.aggregation_rule == role.aggregation_rule
                && before.object.metadata.labels == role.metadata.labels
        };
        if kind == Kind::ClusterRole {
            let before = self.cluster_roles.insert(name.into(), stored);
            return Change::unless(before.is_some_and(|before| is_same(&before, &self.cluster_roles[name].object)));
        }
        let key: (Arc<str>, Arc<str>) = (namespace.into(), name.into());
        let before = self.roles.insert(key.clone(), stored);
        Change::unless(before.is_some_and(|before| is_same(&before, &self.roles[&key].object)))
    }

    fn put_binding(&mut self, kind: Kind, namespace: &str, name: &str, mut binding: Binding) -> Change {
        // Reasons and service accounts without a namespace go by these; storage keys are the authority on them.
        name.clone_into(&mut binding.metadata.name);
        namespace.clone_into(&mut binding.metadata.namespace);
        let binding = Arc::new(binding);
        let before = match kind {
            Kind::ClusterRoleBinding => self.cluster_role_bindings.insert(name.into(), binding.clone()),
            Kind::RoleBinding | Kind::Role | Kind::ClusterRole => {
                self.role_bindings.insert((namespace.into(), name.into()), binding.clone())
            }
        };
        Change::unless(
            before.is_some_and(|before| before.subjects == binding.subjects && before.role_ref == binding.role_ref),
        )
    }
}

impl Change {
    fn unless(is_same: bool) -> Self {
        if is_same { Self::None } else { Self::Due }
    }
}

impl Kind {
    /// As in `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// As in paths.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
