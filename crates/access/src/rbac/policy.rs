//! The writer's side: the objects as they are now, from which an [`Index`] is made.
//!
//! An index shares what did not change with the one before it: a changed binding costs what its own subjects hold, and a
//! changed role what those hold who are bound to it.

mod changes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use api::wire::read;

use changes::{Changes, HolderKey, Key};

use super::aggregation::{SharedRules, aggregate};
use super::holder::Holder;
use super::index::RulesByName;
use super::table::RuleSet;
use super::{Binding, Index, ObjectError, PolicyRule, Role};

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
    cluster_roles: BTreeMap<Arc<str>, StoredRole>,
    roles: BTreeMap<Key, StoredRole>,
    /// Of both kinds: the namespace of a ClusterRoleBinding is empty, so that those come first.
    bindings: BTreeMap<Key, Arc<Binding>>,
    /// Which bindings name a holder.
    bindings_of: HashMap<HolderKey, BTreeSet<Key>>,
    changes: Changes,
    /// What was published last.
    index: Index,
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
        let key: Key = (namespace.into(), name.into());
        let read = match kind {
            Kind::ClusterRole => read(json).map(|role| self.put_cluster_role(&key.1, role)),
            Kind::Role => read(json).map(|role| self.put_role(&key, role)),
            Kind::RoleBinding | Kind::ClusterRoleBinding => read(json).map(|binding| self.put_binding(&key, binding)),
        };
        read.map_err(|source| {
            let _ = self.remove(kind, namespace, name);
            let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            ObjectError { kind, name, source }
        })
    }

    /// Forgets an object.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> Change {
        let key: Key = (namespace.into(), name.into());
        let was_there = match kind {
            Kind::ClusterRole => {
                self.changes.cluster_roles = true;
                self.cluster_roles.remove(name).is_some()
            }
            Kind::Role => {
                self.changes.roles.insert(key.clone());
                self.roles.remove(&key).is_some()
            }
            Kind::ClusterRoleBinding | Kind::RoleBinding => match self.bindings.remove(&key) {
                Some(binding) => {
                    self.unlink(&key, &binding);
                    true
                }
                None => false,
            },
        };
        if was_there { Change::Due } else { Change::None }
    }

    /// The index of what is granted now.
    pub fn index(&mut self) -> Index {
        let changes = std::mem::take(&mut self.changes);
        let mut due = changes.holders;
        if changes.cluster_roles {
            let changed = self.resolve_cluster_roles();
            let is_bound = |binding: &Binding| {
                binding.role_ref.kind == "ClusterRole" && changed.contains(binding.role_ref.name.as_str())
            };
            due.extend(
                self.bindings.values().filter(|binding| is_bound(binding)).flat_map(|binding| HolderKey::of(binding)),
            );
        }
        if !changes.roles.is_empty() {
            self.index.roles.local = self.local_roles();
            let is_bound = |binding: &Binding| {
                let key: Key = (binding.metadata.namespace.as_str().into(), binding.role_ref.name.as_str().into());
                binding.role_ref.kind == "Role" && changes.roles.contains(&key)
            };
            due.extend(
                self.bindings.values().filter(|binding| is_bound(binding)).flat_map(|binding| HolderKey::of(binding)),
            );
        }
        for key in due {
            self.renew(&key);
        }
        self.index.clone()
    }

    /// The ClusterRoles whose `rules` are not the union their aggregation rule asks for, with the rules to write.
    pub fn outdated_aggregates(&self) -> Vec<(Arc<str>, Vec<PolicyRule>)> {
        let due = aggregate(&self.cluster_roles).into_iter().map(|(name, rules)| {
            let rules: Vec<PolicyRule> = rules.iter().map(|rule| PolicyRule::clone(rule)).collect();
            (name, rules)
        });
        due.filter(|(name, rules)| self.cluster_roles[name].object.rules != *rules).collect()
    }

    fn put_cluster_role(&mut self, name: &Arc<str>, object: Role) -> Change {
        let stored = StoredRole::new(object, self.cluster_roles.get(name));
        let change = stored.change_from(self.cluster_roles.get(name));
        self.cluster_roles.insert(name.clone(), stored);
        self.changes.cluster_roles |= change == Change::Due;
        change
    }

    fn put_role(&mut self, key: &Key, object: Role) -> Change {
        let stored = StoredRole::new(object, self.roles.get(key));
        let change = stored.change_from(self.roles.get(key));
        self.roles.insert(key.clone(), stored);
        if change == Change::Due {
            self.changes.roles.insert(key.clone());
        }
        change
    }

    fn put_binding(&mut self, key: &Key, mut binding: Binding) -> Change {
        // Reasons and service accounts without a namespace go by these; storage keys are the authority on them.
        key.0.as_ref().clone_into(&mut binding.metadata.namespace);
        key.1.as_ref().clone_into(&mut binding.metadata.name);
        if let Some(before) = self.bindings.get(key).cloned() {
            if before.subjects == binding.subjects && before.role_ref == binding.role_ref {
                return Change::None;
            }
            self.unlink(key, &before);
        }
        let binding = Arc::new(binding);
        for holder in HolderKey::of(&binding) {
            self.bindings_of.entry(holder.clone()).or_default().insert(key.clone());
            self.changes.holders.insert(holder);
        }
        self.bindings.insert(key.clone(), binding);
        Change::Due
    }

    fn unlink(&mut self, key: &Key, binding: &Binding) {
        for holder in HolderKey::of(binding) {
            if let Some(bindings) = self.bindings_of.get_mut(&holder) {
                bindings.remove(key);
            }
            self.changes.holders.insert(holder);
        }
    }

    /// Makes anew what one user or group holds.
    fn renew(&mut self, key: &HolderKey) {
        let (HolderKey::User(name) | HolderKey::Group(name)) = key;
        let of_kind = match key {
            HolderKey::User(_) => &mut self.index.users,
            HolderKey::Group(_) => &mut self.index.groups,
        };
        let Some(bindings) = self.bindings_of.get(key).filter(|bindings| !bindings.is_empty()) else {
            self.bindings_of.remove(key);
            of_kind.remove(name);
            return;
        };
        let roles = &self.index.roles;
        let bindings = bindings.iter().filter_map(|key| self.bindings.get(key));
        let holder = Holder::of(bindings, |role, namespace| roles.find(role, namespace).cloned());
        of_kind.insert(name.clone(), holder.into());
    }

    /// Resolves aggregation; says whose rules are others now, or there no more.
    fn resolve_cluster_roles(&mut self) -> BTreeSet<Arc<str>> {
        let before = std::mem::take(&mut self.index.roles.cluster);
        let mut now: RulesByName =
            self.cluster_roles.iter().map(|(name, role)| (name.clone(), role.rules.clone())).collect();
        for (name, rules) in aggregate(&self.cluster_roles) {
            let rules = rules_or_same(before.get(&name), rules);
            now.insert(name, rules);
        }
        let is_same = |name: &Arc<str>| match (before.get(name), now.get(name)) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            _ => false,
        };
        let changed = before.keys().chain(now.keys()).filter(|name| !is_same(name)).cloned().collect();
        self.index.roles.cluster = Arc::new(now);
        changed
    }

    fn local_roles(&self) -> Arc<foldhash::HashMap<Arc<str>, RulesByName>> {
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
        let rules = rules_or_same(before.map(|before| &before.rules), rules);
        Self { object, rules }
    }

    fn change_from(&self, before: Option<&Self>) -> Change {
        let is_same = before.is_some_and(|before| {
            Arc::ptr_eq(&before.rules, &self.rules)
                && before.object.aggregation_rule == self.object.aggregation_rule
                && before.object.metadata.labels == self.object.metadata.labels
        });
        if is_same { Change::None } else { Change::Due }
    }
}

/// The rules made ready to be searched, or those from before if they are the same.
fn rules_or_same(before: Option<&Arc<RuleSet>>, rules: SharedRules) -> Arc<RuleSet> {
    match before {
        Some(before) if before.rules() == rules => before.clone(),
        _ => Arc::new(RuleSet::new(rules)),
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
