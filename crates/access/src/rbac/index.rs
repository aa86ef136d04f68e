//! The readers' side: who is granted what, by user and by group.

use std::fmt;
use std::sync::Arc;

use api::quote::Quoted;
use foldhash::HashMap;
use smallvec::SmallVec;

use super::rule::RuleQuery;
use super::rule_set::{RuleBloomFilter, RuleSet};
use super::subject_grants::{ScopeGrants, SearchedRuleSets, SubjectGrants};
use super::{PolicyRule, RBAC_GROUP, RoleBinding, RoleRef};
use crate::attributes::{AccessTarget, Attributes};
use crate::user::User;

/// What every binding grants, at one moment.
///
/// A decision looks up the user and each of its groups once and then reads only rules that were granted to them.
#[derive(Clone, Debug, Default)]
pub struct RbacIndex {
    pub(super) users: HashMap<Arc<str>, SubjectEntry>,
    pub(super) groups: HashMap<Arc<str>, SubjectEntry>,
    pub(super) roles: RoleRules,
}

/// A holder, and what can be told of it without a look: of a hundred groups most have nothing to do with a question.
#[derive(Clone, Debug)]
pub(super) struct SubjectEntry {
    grants: Arc<SubjectGrants>,
    bloom_filter: RuleBloomFilter,
}

/// The rules of every role, aggregation included.
#[derive(Clone, Debug, Default)]
pub(super) struct RoleRules {
    pub(super) cluster: Arc<RulesByName>,
    /// By namespace.
    pub(super) by_namespace: Arc<HashMap<Arc<str>, RulesByName>>,
}

pub(super) type RulesByName = HashMap<Arc<str>, Arc<RuleSet>>;

/// Why something is allowed: prints as `ClusterRoleBinding "a" of ClusterRole "b" to Group "c"`.
#[derive(Clone, Copy, Debug)]
pub struct RbacGrant<'a> {
    /// The binding that grants it.
    pub binding: &'a RoleBinding,
    user: &'a User,
}

/// A role that a binding refers to and that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnresolvedRole {
    /// Prints as Kubernetes does.
    #[error("{resource}.{RBAC_GROUP} {} not found", Quoted(name))]
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

impl RbacIndex {
    /// Whether some binding grants what is asked, and which.
    pub fn decide<'a>(&'a self, attributes: &Attributes<'a>) -> Option<RbacGrant<'a>> {
        // Long enough for every resource name and subresource that exists; longer ones go to the heap.
        let mut joined = SmallVec::<[u8; 96]>::new();
        let query = match attributes.access_target {
            AccessTarget::Path(path) => RuleQuery::Path { verb: attributes.verb, path },
            AccessTarget::Resource(resource) => {
                let mut combined = resource.resource;
                if !resource.subresource.is_empty() {
                    for part in [resource.resource, "/", resource.subresource] {
                        joined.extend_from_slice(part.as_bytes());
                    }
                    combined = std::str::from_utf8(&joined).expect("strings that are joined are a string");
                }
                let (verb, group, subresource, name) =
                    (attributes.verb, resource.group, resource.subresource, resource.name);
                RuleQuery::Resource { verb, group, combined_resource: combined, subresource, name }
            }
        };
        let query_filter = RuleBloomFilter::for_query(&query);
        let mut searched = SearchedRuleSets::new();
        let entries = self.entries_for(attributes.user).filter(|entries| entries.bloom_filter.may_match(query_filter));
        let mut scopes = grants_in_scope(entries, attributes.namespace());
        let binding = scopes.find_map(|grants| grants.find_binding(&query, query_filter, &mut searched))?;
        Some(RbacGrant { binding, user: attributes.user })
    }

    /// Every rule granted to the user in the namespace, each role's once; the empty namespace is the cluster scope.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<&PolicyRule> {
        let mut seen_sets: Vec<*const RuleSet> = Vec::new();
        let mut rules = Vec::new();
        for set in grants_in_scope(self.entries_for(user), namespace).flat_map(ScopeGrants::rule_sets) {
            if !seen_sets.contains(&std::ptr::from_ref(set)) {
                seen_sets.push(set);
                rules.extend(set.rules().iter().map(|rule| &**rule));
            }
        }
        rules
    }

    /// The roles that bindings of the user refer to and that do not exist, each once.
    pub fn unresolved_roles_for(&self, user: &User, namespace: &str) -> Vec<UnresolvedRole> {
        let mut unresolved = Vec::new();
        for missing in grants_in_scope(self.entries_for(user), namespace).flat_map(ScopeGrants::unresolved_roles) {
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
    ) -> Result<impl Iterator<Item = &PolicyRule> + use<'_>, UnresolvedRole> {
        let rules = self.roles.find_rules(role, namespace).ok_or_else(|| UnresolvedRole::from_role_ref(role))?;
        Ok(rules.rules().iter().map(|rule| &**rule))
    }

    fn entries_for<'a>(&'a self, user: &User) -> impl Iterator<Item = &'a SubjectEntry> {
        let of_groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        self.users.get(user.name.as_str()).into_iter().chain(of_groups)
    }
}

/// What applies in a namespace: first everything granted everywhere, then what is granted there.
fn grants_in_scope<'a>(
    entries: impl Iterator<Item = &'a SubjectEntry>,
    namespace: &str,
) -> impl Iterator<Item = &'a ScopeGrants> {
    let holders: SmallVec<[&SubjectGrants; 16]> = entries.map(|held| &*held.grants).collect();
    let namespaced_grants: SmallVec<[&ScopeGrants; 16]> = match namespace {
        "" => SmallVec::new(),
        namespace => holders.iter().filter_map(|holder| holder.by_namespace.get(namespace)).collect(),
    };
    holders.into_iter().map(|holder| &holder.cluster_wide).chain(namespaced_grants)
}

impl From<SubjectGrants> for SubjectEntry {
    fn from(grants: SubjectGrants) -> Self {
        let sieve = grants.bloom_filter();
        Self { grants: Arc::new(grants), bloom_filter: sieve }
    }
}

impl RoleRules {
    pub(super) fn find_rules(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<RuleSet>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster.get(role.name.as_str()),
            "Role" => self.by_namespace.get(namespace)?.get(role.name.as_str()),
            _ => None,
        }
    }
}

impl UnresolvedRole {
    pub(super) fn from_role_ref(role: &RoleRef) -> Self {
        let resource = match role.kind.as_str() {
            "ClusterRole" => "clusterrole",
            "Role" => "role",
            _ => return Self::UnsupportedKind { kind: role.kind.clone() },
        };
        Self::NotFound { resource, name: role.name.clone() }
    }
}

impl fmt::Display for RbacGrant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.binding.describe(self.binding.matching_subject(self.user), f)
    }
}
