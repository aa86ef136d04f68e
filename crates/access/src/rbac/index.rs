//! The RBAC index that readers decide by: grants per user and per group.

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

/// An immutable snapshot of what all bindings grant.
///
/// A decision looks up the user and each of its groups once and then checks only the rules granted to them.
#[derive(Clone, Debug, Default)]
pub struct RbacIndex {
    pub(super) users: HashMap<Arc<str>, SubjectEntry>,
    pub(super) groups: HashMap<Arc<str>, SubjectEntry>,
    pub(super) roles: RoleRules,
}

/// The grants of one user or group, with a Bloom filter over them: most of a user's groups grant nothing for a given
/// query and are skipped by the filter alone.
#[derive(Clone, Debug)]
pub(super) struct SubjectEntry {
    grants: Arc<SubjectGrants>,
    bloom_filter: RuleBloomFilter,
}

/// The rules of every role, after aggregation.
#[derive(Clone, Debug, Default)]
pub(super) struct RoleRules {
    pub(super) cluster: Arc<RulesByName>,
    pub(super) by_namespace: Arc<HashMap<Arc<str>, RulesByName>>,
}

pub(super) type RulesByName = HashMap<Arc<str>, Arc<RuleSet>>;

/// The binding that allows a query. Displays as `ClusterRoleBinding "a" of ClusterRole "b" to Group "c"`.
#[derive(Clone, Copy, Debug)]
pub struct RbacGrant<'a> {
    /// The first binding found that allows the query.
    pub binding: &'a RoleBinding,
    user: &'a User,
}

/// A role reference that cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnresolvedRole {
    /// No such role; displays as in Kubernetes.
    #[error("{resource}.{RBAC_GROUP} {} not found", Quoted(name))]
    NotFound {
        /// `role` or `clusterrole`.
        resource: &'static str,
        /// The missing role's name.
        name: String,
    },
    /// The reference's kind is neither Role nor ClusterRole.
    #[error("unsupported role reference kind: {}", Quoted(kind))]
    UnsupportedKind {
        /// The unsupported kind.
        kind: String,
    },
}

impl RbacIndex {
    /// Returns the first binding that grants the query.
    pub fn decide<'a>(&'a self, attributes: &Attributes<'a>) -> Option<RbacGrant<'a>> {
        // 96 bytes hold every existing resource and subresource name; longer ones allocate.
        let mut joined = SmallVec::<[u8; 96]>::new();
        let query = match attributes.access_target {
            AccessTarget::Path(path) => RuleQuery::Path { verb: attributes.verb, path },
            AccessTarget::Resource(resource) => {
                let mut combined = resource.resource;
                if !resource.subresource.is_empty() {
                    for part in [resource.resource, "/", resource.subresource] {
                        joined.extend_from_slice(part.as_bytes());
                    }
                    combined = std::str::from_utf8(&joined).expect("joined UTF-8 strings are UTF-8");
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

    /// Returns every rule granted to the user in the namespace, each role's once; the empty namespace is cluster scope.
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

    /// Returns the missing roles that the user's bindings refer to, each once.
    pub fn unresolved_roles_for(&self, user: &User, namespace: &str) -> Vec<UnresolvedRole> {
        let mut unresolved = Vec::new();
        for missing in grants_in_scope(self.entries_for(user), namespace).flat_map(ScopeGrants::unresolved_roles) {
            if !unresolved.contains(missing) {
                unresolved.push(missing.clone());
            }
        }
        unresolved
    }

    /// Returns the rules of the role that a binding in the namespace refers to; the namespace is empty for a
    /// ClusterRoleBinding.
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

/// Returns the grants that apply in a namespace: cluster-wide ones first, then the namespace's own.
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
        let bloom_filter = grants.bloom_filter();
        Self { grants: Arc::new(grants), bloom_filter }
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
