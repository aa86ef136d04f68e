//! The readers' side: who is granted what, by user and by group.

use std::fmt;
use std::sync::Arc;

use api::quote::Quoted;
use foldhash::HashMap;
use smallvec::SmallVec;

use super::holder::{Grants, Holder, Searched};
use super::rule::Question;
use super::table::{RuleSet, Sieve};
use super::{Binding, GROUP, PolicyRule, RoleRef};
use crate::attributes::{Asked, Attributes};
use crate::user::User;

/// What every binding grants, at one moment.
///
/// A decision looks up the user and each of its groups once and then reads only rules that were granted to them.
#[derive(Clone, Debug, Default)]
pub struct Index {
    pub(super) users: HashMap<Arc<str>, Held>,
    pub(super) groups: HashMap<Arc<str>, Held>,
    pub(super) roles: Roles,
}

/// A holder, and what can be told of it without a look: of a hundred groups most have nothing to do with a question.
#[derive(Clone, Debug)]
pub(super) struct Held {
    holder: Arc<Holder>,
    sieve: Sieve,
}

/// The rules of every role, aggregation included.
#[derive(Clone, Debug, Default)]
pub(super) struct Roles {
    pub(super) cluster: Arc<RulesByName>,
    /// By namespace.
    pub(super) local: Arc<HashMap<Arc<str>, RulesByName>>,
}

pub(super) type RulesByName = HashMap<Arc<str>, Arc<RuleSet>>;

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

impl Index {
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
        let sieve = Sieve::of_question(&question);
        let mut searched = Searched::new();
        let held = self.held_by(asked.user).filter(|held| held.sieve.passes(sieve));
        let mut scopes = scopes(held, asked.namespace());
        let binding = scopes.find_map(|grants| grants.find(&question, sieve, &mut searched))?;
        Some(Grant { binding, user: asked.user })
    }

    /// Every rule granted to the user in the namespace, each role's once; the empty namespace is the cluster scope.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<&PolicyRule> {
        let mut seen: Vec<*const RuleSet> = Vec::new();
        let mut rules = Vec::new();
        for set in scopes(self.held_by(user), namespace).flat_map(Grants::rule_sets) {
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
        for missing in scopes(self.held_by(user), namespace).flat_map(Grants::unresolved) {
            if !unresolved.contains(missing) {
                unresolved.push(missing.clone());
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
        let rules = self.roles.find(role, namespace).ok_or_else(|| Unresolved::of(role))?;
        Ok(rules.rules().iter().map(|rule| &**rule))
    }

    fn held_by<'a>(&'a self, user: &User) -> impl Iterator<Item = &'a Held> {
        let of_groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        self.users.get(user.name.as_str()).into_iter().chain(of_groups)
    }
}

/// What applies in a namespace: first everything granted everywhere, then what is granted there.
fn scopes<'a>(held: impl Iterator<Item = &'a Held>, namespace: &str) -> impl Iterator<Item = &'a Grants> {
    let holders: SmallVec<[&Holder; 16]> = held.map(|held| &*held.holder).collect();
    let local: SmallVec<[&Grants; 16]> = match namespace {
        "" => SmallVec::new(),
        namespace => holders.iter().filter_map(|holder| holder.in_namespace.get(namespace)).collect(),
    };
    holders.into_iter().map(|holder| &holder.everywhere).chain(local)
}

impl From<Holder> for Held {
    fn from(holder: Holder) -> Self {
        let sieve = holder.sieve();
        Self { holder: Arc::new(holder), sieve }
    }
}

impl Roles {
    pub(super) fn find(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<RuleSet>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster.get(role.name.as_str()),
            "Role" => self.local.get(namespace)?.get(role.name.as_str()),
            _ => None,
        }
    }
}

impl Unresolved {
    pub(super) fn of(role: &RoleRef) -> Self {
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
