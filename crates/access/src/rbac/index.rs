//! The readers' side: who is granted what, by user and by group.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::aggregation::aggregate;
use super::policy::StoredRole;
use super::rule::Question;
use super::table::{RuleSet, Table};
use super::{Binding, GROUP, Policy, PolicyRule, RoleRef, Subject};
use crate::attributes::{Asked, Attributes};
use crate::quote::Quoted;
use crate::user::{User, service_account_name};

/// What every binding grants, at one moment.
///
/// A decision looks up the user and each of its groups once and then reads only rules that were granted to them.
#[derive(Debug, Default)]
pub struct Index {
    users: HashMap<Box<str>, Holder>,
    groups: HashMap<Box<str>, Holder>,
    cluster_roles: HashMap<Arc<str>, Arc<RuleSet>>,
    roles: HashMap<Arc<str>, HashMap<Arc<str>, Arc<RuleSet>>>,
}

/// Why something is allowed: prints as `ClusterRoleBinding "a" of ClusterRole "b" to Group "c"`.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The binding that grants it.
    pub binding: &'a Binding,
    user: &'a User,
}

/// A role that a binding refers to and that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// Prints as Kubernetes does.
    #[error("{resource}.{GROUP} {} not found", Quoted(name))]
    NotFound {
        /// `role` or `clusterrole`.
        resource: &'static str,
        /// The name of the missing role.
        name: String,
    },
    /// A kind of role that nobody knows.
    #[error("unsupported role reference kind: {}", Quoted(kind))]
    UnsupportedKind {
        /// The kind.
        kind: String,
    },
}

/// A user or group that bindings name.
#[derive(Debug, Default)]
struct Holder {
    everywhere: Grants,
    in_namespace: HashMap<Box<str>, Grants>,
}

/// The roles granted to one holder in one scope; of several bindings to one role, the first by name.
#[derive(Debug, Default)]
struct Grants {
    roles: Vec<Granted>,
    table: Option<Table>,
}

#[derive(Debug)]
struct Granted {
    binding: Arc<Binding>,
    /// `None` if the role does not exist.
    rules: Option<Arc<RuleSet>>,
}

impl Index {
    pub(super) fn of(policy: &Policy) -> Self {
        let mut index = Self { cluster_roles: cluster_roles(policy), ..Self::default() };
        for ((namespace, name), StoredRole { rules, .. }) in &policy.roles {
            index.roles.entry(namespace.clone()).or_default().insert(name.clone(), rules.clone());
        }
        for binding in policy.cluster_role_bindings.values().chain(policy.role_bindings.values()) {
            let rules = index.rules_of(&binding.role_ref, &binding.metadata.namespace).cloned();
            for subject in &binding.subjects {
                index.grant(subject, binding, rules.as_ref());
            }
        }
        for holder in index.users.values_mut().chain(index.groups.values_mut()) {
            holder.everywhere.finish();
            holder.in_namespace.values_mut().for_each(Grants::finish);
        }
        index
    }

    /// Whether some binding grants what is asked, and which.
    pub fn decide<'a>(&'a self, asked: &Attributes<'a>) -> Option<Grant<'a>> {
        // Long enough for every resource name and subresource that exists; longer ones go to the heap.
        let mut joined = SmallVec::<[u8; 96]>::new();
        let question = match asked.object {
            Asked::Path(path) => Question::Path { verb: asked.verb, path },
            Asked::Resource(resource) => {
                let mut combined = resource.resource;
                if !resource.subresource.is_empty() {
                    for part in [resource.resource, "/", resource.subresource] {
                        joined.extend_from_slice(part.as_bytes());
                    }
                    combined = std::str::from_utf8(&joined).expect("strings that are joined are a string");
                }
                let (verb, group, subresource, name) =
                    (asked.verb, resource.group, resource.subresource, resource.name);
                Question::Resource { verb, group, combined, subresource, name }
            }
        };
        let binding = self.scopes(asked.user, asked.namespace()).find_map(|grants| grants.find(&question))?;
        Some(Grant { binding, user: asked.user })
    }

    /// Every rule granted to the user in the namespace, each role's once; the empty namespace is the cluster scope.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<&PolicyRule> {
        let mut seen: Vec<*const RuleSet> = Vec::new();
        let sets =
            self.scopes(user, namespace).flat_map(|grants| &grants.roles).filter_map(|role| role.rules.as_deref());
        let mut rules = Vec::new();
        for set in sets {
            if !seen.contains(&std::ptr::from_ref(set)) {
                seen.push(set);
                rules.extend(set.rules().iter().map(|rule| &**rule));
            }
        }
        rules
    }

    /// The roles that bindings of the user refer to and that do not exist, each once.
    pub fn unresolved_for(&self, user: &User, namespace: &str) -> Vec<Unresolved> {
        let mut unresolved = Vec::new();
        for granted in self.scopes(user, namespace).flat_map(|grants| &grants.roles) {
            if granted.rules.is_none() {
                let why = Unresolved::of(&granted.binding.role_ref);
                if !unresolved.contains(&why) {
                    unresolved.push(why);
                }
            }
        }
        unresolved
    }

    /// The rules of the role that a binding in the namespace refers to (empty for a ClusterRoleBinding).
    pub fn rules_of_role(
        &self,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<impl Iterator<Item = &PolicyRule> + use<'_>, Unresolved> {
        let rules = self.rules_of(role, namespace).ok_or_else(|| Unresolved::of(role))?;
        Ok(rules.rules().iter().map(|rule| &**rule))
    }

    fn rules_of(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<RuleSet>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(role.name.as_str()),
            "Role" => self.roles.get(namespace)?.get(role.name.as_str()),
            _ => None,
        }
    }

    /// What applies to the user: first everything granted everywhere, then what is granted in the namespace.
    fn scopes<'a>(&'a self, user: &User, namespace: &str) -> impl Iterator<Item = &'a Grants> + use<'a> {
        let of_groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        let holders: SmallVec<[&Holder; 16]> =
            self.users.get(user.name.as_str()).into_iter().chain(of_groups).collect();
        let local: SmallVec<[&Grants; 16]> = match namespace {
            "" => SmallVec::new(),
            namespace => holders.iter().filter_map(|holder| holder.in_namespace.get(namespace)).collect(),
        };
        holders.into_iter().map(|holder| &holder.everywhere).chain(local)
    }

    fn grant(&mut self, subject: &Subject, binding: &Arc<Binding>, rules: Option<&Arc<RuleSet>>) {
        let namespace = binding.metadata.namespace.as_str();
        let holder = match subject.kind.as_str() {
            "User" => self.users.entry(subject.name.as_str().into()),
            "Group" => self.groups.entry(subject.name.as_str().into()),
            "ServiceAccount" => match subject.namespace_in(namespace) {
                "" => return,
                of_account => self.users.entry(service_account_name(of_account, &subject.name).into()),
            },
            _ => return,
        };
        let holder = holder.or_default();
        let grants = match namespace {
            "" => &mut holder.everywhere,
            namespace => match holder.in_namespace.entry(namespace.into()) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(free) => free.insert(Grants::default()),
            },
        };
        grants.roles.push(Granted { binding: binding.clone(), rules: rules.cloned() });
    }
}

impl Grants {
    /// Drops bindings to a role that an earlier one grants, and makes long lists searchable.
    fn finish(&mut self) {
        let mut seen = std::collections::HashSet::new();
        self.roles.retain(|granted| {
            let RoleRef { kind, name, .. } = &granted.binding.role_ref;
            seen.insert((kind.clone(), name.clone()))
        });
        let rules_of = |item: usize| self.roles[item].rules.as_ref().map_or(&[][..], |rules| rules.rules());
        self.table = Table::of_many(self.roles.len(), rules_of);
    }

    fn find(&self, question: &Question<'_>) -> Option<&Binding> {
        let allows = |granted: &&Granted| granted.rules.as_ref().is_some_and(|rules| rules.allows(question));
        let granted = match &self.table {
            None => self.roles.iter().find(allows),
            Some(table) => table.candidates(question).map(|item| &self.roles[item]).find(allows),
        };
        granted.map(|granted| &*granted.binding)
    }
}

impl Unresolved {
    fn of(role: &RoleRef) -> Self {
        let resource = match role.kind.as_str() {
            "ClusterRole" => "clusterrole",
            "Role" => "role",
            _ => return Self::UnsupportedKind { kind: role.kind.clone() },
        };
        Self::NotFound { resource, name: role.name.clone() }
    }
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.binding.describe(self.binding.subject_of(self.user), f)
    }
}

fn cluster_roles(policy: &Policy) -> HashMap<Arc<str>, Arc<RuleSet>> {
    let mut roles: HashMap<Arc<str>, Arc<RuleSet>> =
        policy.cluster_roles.iter().map(|(name, role)| (name.clone(), role.rules.clone())).collect();
    for (name, rules) in aggregate(&policy.cluster_roles) {
        roles.insert(name, Arc::new(RuleSet::new(rules)));
    }
    roles
}
