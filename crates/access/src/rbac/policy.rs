//! The writer's state: the current RBAC objects, from which an [`RbacIndex`] is built.
//!
//! Each index shares unchanged parts with the one before: a changed binding rebuilds the grants of its subjects, a
//! changed role those of the subjects bound to it.

mod pending_changes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use api::wire::read;

use pending_changes::{NamespacedName, PendingChanges, SubjectKey};

use super::aggregation::{SharedRules, aggregate_rules};
use super::index::RulesByName;
use super::rule_set::RuleSet;
use super::subject_grants::SubjectGrants;
use super::{PolicyRule, RbacIndex, RbacObjectError, Role, RoleBinding};

/// The four kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RbacKind {
    /// Rules for one namespace.
    Role,
    /// Rules for the cluster, or to be bound in any namespace.
    ClusterRole,
    /// Grants a role in one namespace.
    RoleBinding,
    /// Grants a ClusterRole cluster-wide.
    ClusterRoleBinding,
}

/// Whether a new index must be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a change is not in effect until an index made after it is published"]
pub enum PolicyChange {
    /// Decisions may change.
    AffectsDecisions,
    /// No field that decisions depend on has changed.
    NoEffect,
}

/// All roles and bindings, and the changes since the last index.
#[derive(Debug, Default)]
pub struct RbacPolicy {
    cluster_roles: BTreeMap<Arc<str>, StoredRole>,
    roles: BTreeMap<NamespacedName, StoredRole>,
    /// Both kinds. The namespace of a ClusterRoleBinding is empty, so those sort first.
    bindings: BTreeMap<NamespacedName, Arc<RoleBinding>>,
    /// The bindings that name each subject.
    bindings_by_subject: HashMap<SubjectKey, BTreeSet<NamespacedName>>,
    pending_changes: PendingChanges,
    /// The index built last.
    index: RbacIndex,
}

/// A role and its indexed rules.
#[derive(Debug)]
pub(super) struct StoredRole {
    pub(super) object: Role,
    pub(super) rules: Arc<RuleSet>,
}

impl RbacPolicy {
    /// Adds or replaces an object. The namespace is empty for the two cluster-scoped kinds.
    ///
    /// If the bytes cannot be decoded, the former object of that name is removed, because its current grants are
    /// unknown.
    pub fn put(
        &mut self,
        kind: RbacKind,
        namespace: &str,
        name: &str,
        json: &[u8],
    ) -> Result<PolicyChange, RbacObjectError> {
        let key: NamespacedName = (namespace.into(), name.into());
        let result = match kind {
            RbacKind::ClusterRole => read(json).map(|role| self.put_cluster_role(&key.1, role)),
            RbacKind::Role => read(json).map(|role| self.put_role(&key, role)),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                read(json).map(|binding| self.put_binding(&key, binding))
            }
        };
        result.map_err(|source| {
            let _ = self.remove(kind, namespace, name);
            let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            RbacObjectError { kind, name, source }
        })
    }

    /// Removes an object; no effect if it is not stored.
    pub fn remove(&mut self, kind: RbacKind, namespace: &str, name: &str) -> PolicyChange {
        let key: NamespacedName = (namespace.into(), name.into());
        let existed = match kind {
            RbacKind::ClusterRole => {
                self.pending_changes.cluster_roles = true;
                self.cluster_roles.remove(name).is_some()
            }
            RbacKind::Role => {
                self.pending_changes.roles.insert(key.clone());
                self.roles.remove(&key).is_some()
            }
            RbacKind::ClusterRoleBinding | RbacKind::RoleBinding => match self.bindings.remove(&key) {
                Some(binding) => {
                    self.unlink_binding(&key, &binding);
                    true
                }
                None => false,
            },
        };
        if existed { PolicyChange::AffectsDecisions } else { PolicyChange::NoEffect }
    }

    /// Applies the pending changes and returns the new index.
    pub fn build_index(&mut self) -> RbacIndex {
        let changes = std::mem::take(&mut self.pending_changes);
        let mut changed_subjects = changes.subjects;
        if changes.cluster_roles {
            let changed = self.resolve_cluster_roles();
            let is_bound = |binding: &RoleBinding| {
                binding.role_ref.kind == "ClusterRole" && changed.contains(binding.role_ref.name.as_str())
            };
            changed_subjects.extend(
                self.bindings
                    .values()
                    .filter(|binding| is_bound(binding))
                    .flat_map(|binding| SubjectKey::subjects_of(binding)),
            );
        }
        if !changes.roles.is_empty() {
            self.index.roles.by_namespace = self.roles_by_namespace();
            let is_bound = |binding: &RoleBinding| {
                let key: NamespacedName =
                    (binding.metadata.namespace.as_str().into(), binding.role_ref.name.as_str().into());
                binding.role_ref.kind == "Role" && changes.roles.contains(&key)
            };
            changed_subjects.extend(
                self.bindings
                    .values()
                    .filter(|binding| is_bound(binding))
                    .flat_map(|binding| SubjectKey::subjects_of(binding)),
            );
        }
        for key in changed_subjects {
            self.rebuild_subject(&key);
        }
        self.index.clone()
    }

    /// Returns the aggregated ClusterRoles whose stored `rules` differ from the computed union, with the rules to
    /// write.
    pub fn outdated_aggregates(&self) -> Vec<(Arc<str>, Vec<PolicyRule>)> {
        let aggregated = aggregate_rules(&self.cluster_roles).into_iter().map(|(name, rules)| {
            let rules: Vec<PolicyRule> = rules.iter().map(|rule| PolicyRule::clone(rule)).collect();
            (name, rules)
        });
        aggregated.filter(|(name, rules)| self.cluster_roles[name].object.rules != *rules).collect()
    }

    fn put_cluster_role(&mut self, name: &Arc<str>, object: Role) -> PolicyChange {
        let stored = StoredRole::new(object, self.cluster_roles.get(name));
        let change = stored.compare_with(self.cluster_roles.get(name));
        self.cluster_roles.insert(name.clone(), stored);
        self.pending_changes.cluster_roles |= change == PolicyChange::AffectsDecisions;
        change
    }

    fn put_role(&mut self, key: &NamespacedName, object: Role) -> PolicyChange {
        let stored = StoredRole::new(object, self.roles.get(key));
        let change = stored.compare_with(self.roles.get(key));
        self.roles.insert(key.clone(), stored);
        if change == PolicyChange::AffectsDecisions {
            self.pending_changes.roles.insert(key.clone());
        }
        change
    }

    fn put_binding(&mut self, key: &NamespacedName, mut binding: RoleBinding) -> PolicyChange {
        // Decision reasons and service account subjects use these fields; the storage key is authoritative for them.
        key.0.as_ref().clone_into(&mut binding.metadata.namespace);
        key.1.as_ref().clone_into(&mut binding.metadata.name);
        if let Some(before) = self.bindings.get(key).cloned() {
            if before.subjects == binding.subjects && before.role_ref == binding.role_ref {
                return PolicyChange::NoEffect;
            }
            self.unlink_binding(key, &before);
        }
        let binding = Arc::new(binding);
        for subject in SubjectKey::subjects_of(&binding) {
            self.bindings_by_subject.entry(subject.clone()).or_default().insert(key.clone());
            self.pending_changes.subjects.insert(subject);
        }
        self.bindings.insert(key.clone(), binding);
        PolicyChange::AffectsDecisions
    }

    /// Removes a binding from its subjects' lists and marks the subjects as changed.
    fn unlink_binding(&mut self, key: &NamespacedName, binding: &RoleBinding) {
        for subject in SubjectKey::subjects_of(binding) {
            if let Some(bindings) = self.bindings_by_subject.get_mut(&subject) {
                bindings.remove(key);
            }
            self.pending_changes.subjects.insert(subject);
        }
    }

    /// Rebuilds the grants of one user or group.
    fn rebuild_subject(&mut self, key: &SubjectKey) {
        let (SubjectKey::User(name) | SubjectKey::Group(name)) = key;
        let entries = match key {
            SubjectKey::User(_) => &mut self.index.users,
            SubjectKey::Group(_) => &mut self.index.groups,
        };
        let Some(bindings) = self.bindings_by_subject.get(key).filter(|bindings| !bindings.is_empty()) else {
            self.bindings_by_subject.remove(key);
            entries.remove(name);
            return;
        };
        let roles = &self.index.roles;
        let bindings = bindings.iter().filter_map(|key| self.bindings.get(key));
        let grants =
            SubjectGrants::from_bindings(bindings, |role, namespace| roles.find_rules(role, namespace).cloned());
        entries.insert(name.clone(), grants.into());
    }

    /// Recomputes aggregation and returns the names of ClusterRoles whose rules changed or that were removed.
    fn resolve_cluster_roles(&mut self) -> BTreeSet<Arc<str>> {
        let before = std::mem::take(&mut self.index.roles.cluster);
        let mut current: RulesByName =
            self.cluster_roles.iter().map(|(name, role)| (name.clone(), role.rules.clone())).collect();
        for (name, rules) in aggregate_rules(&self.cluster_roles) {
            let rules = reuse_or_build_rules(before.get(&name), rules);
            current.insert(name, rules);
        }
        let is_same = |name: &Arc<str>| match (before.get(name), current.get(name)) {
            (Some(before), Some(current)) => Arc::ptr_eq(before, current),
            _ => false,
        };
        let changed = before.keys().chain(current.keys()).filter(|name| !is_same(name)).cloned().collect();
        self.index.roles.cluster = Arc::new(current);
        changed
    }

    fn roles_by_namespace(&self) -> Arc<foldhash::HashMap<Arc<str>, RulesByName>> {
        let mut local = foldhash::HashMap::<Arc<str>, RulesByName>::default();
        for ((namespace, name), role) in &self.roles {
            local.entry(namespace.clone()).or_default().insert(name.clone(), role.rules.clone());
        }
        Arc::new(local)
    }
}

impl StoredRole {
    fn new(object: Role, before: Option<&Self>) -> Self {
        let rules = object.rules.iter().cloned().map(Arc::new).collect();
        let rules = reuse_or_build_rules(before.map(|before| &before.rules), rules);
        Self { object, rules }
    }

    /// Reports whether decisions may differ from those with the previous role.
    fn compare_with(&self, before: Option<&Self>) -> PolicyChange {
        let is_same = before.is_some_and(|before| {
            Arc::ptr_eq(&before.rules, &self.rules)
                && before.object.aggregation_rule == self.object.aggregation_rule
                && before.object.metadata.labels == self.object.metadata.labels
        });
        if is_same { PolicyChange::NoEffect } else { PolicyChange::AffectsDecisions }
    }
}

/// Returns the previous rule set if its rules are the same, so that pointer comparison detects changes.
fn reuse_or_build_rules(before: Option<&Arc<RuleSet>>, rules: SharedRules) -> Arc<RuleSet> {
    match before {
        Some(before) if before.rules() == rules => before.clone(),
        _ => Arc::new(RuleSet::new(rules)),
    }
}

impl RbacKind {
    /// Returns the `kind` field, such as `ClusterRole`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// Returns the plural resource name, such as `clusterroles`.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }
}

impl fmt::Display for RbacKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
