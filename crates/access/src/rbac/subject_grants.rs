//! The roles that bindings grant to one user or group.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::HashMap;
use smallvec::SmallVec;

use super::rule::RuleQuery;
use super::rule_set::{RuleBloomFilter, RuleLookup, RuleSet};
use super::{RoleBinding, RoleRef, UnresolvedRole};

/// Limit on rule sets remembered as already checked, so that a user's groups do not check the same role twice.
const SEARCHED_RULE_SETS_MAX: usize = 32;

/// The rule sets already checked for one query, by address.
pub(super) type SearchedRuleSets = SmallVec<[*const RuleSet; SEARCHED_RULE_SETS_MAX]>;

/// The grants of one user or group.
#[derive(Debug, Default)]
pub(super) struct SubjectGrants {
    pub(super) cluster_wide: ScopeGrants,
    pub(super) by_namespace: HashMap<Arc<str>, ScopeGrants>,
}

/// The roles granted to one subject in one scope. If several bindings grant a role, the first by name is kept.
#[derive(Debug, Default)]
pub(super) struct ScopeGrants {
    roles: Vec<GrantedRole>,
    unresolved_roles: Vec<UnresolvedRole>,
    lookup: Option<RuleLookup>,
    bloom_filter: RuleBloomFilter,
}

#[derive(Debug)]
struct GrantedRole {
    binding: Arc<RoleBinding>,
    rules: Arc<RuleSet>,
}

impl SubjectGrants {
    /// Collects the grants of the bindings, which must be sorted by name.
    pub(super) fn from_bindings<'a>(
        bindings: impl Iterator<Item = &'a Arc<RoleBinding>>,
        rules_of: impl Fn(&RoleRef, &str) -> Option<Arc<RuleSet>>,
    ) -> Self {
        let mut subject_grants = Self::default();
        for binding in bindings {
            let namespace = binding.metadata.namespace.as_str();
            let grants = match namespace {
                "" => &mut subject_grants.cluster_wide,
                _ => subject_grants.by_namespace.entry(namespace.into()).or_default(),
            };
            match rules_of(&binding.role_ref, namespace) {
                Some(rules) => grants.roles.push(GrantedRole { binding: binding.clone(), rules }),
                None => grants.record_unresolved(UnresolvedRole::from_role_ref(&binding.role_ref)),
            }
        }
        subject_grants.cluster_wide.dedup_and_index();
        subject_grants.by_namespace.values_mut().for_each(ScopeGrants::dedup_and_index);
        subject_grants
    }

    /// Returns the union of the filters of all scopes.
    pub(super) fn bloom_filter(&self) -> RuleBloomFilter {
        self.by_namespace
            .values()
            .fold(self.cluster_wide.bloom_filter, |bloom_filter, grants| bloom_filter.union(grants.bloom_filter))
    }
}

impl ScopeGrants {
    /// Returns a binding of this scope that grants the query, skipping rule sets that were already checked for it.
    pub(super) fn find_binding(
        &self,
        query: &RuleQuery<'_>,
        query_filter: RuleBloomFilter,
        searched: &mut SearchedRuleSets,
    ) -> Option<&RoleBinding> {
        if !self.bloom_filter.may_match(query_filter) {
            return None;
        }
        let mut allows = |granted: &&GrantedRole| {
            if !granted.rules.bloom_filter().may_match(query_filter) {
                return false;
            }
            let address = Arc::as_ptr(&granted.rules);
            if searched.contains(&address) {
                return false;
            }
            if searched.len() < SEARCHED_RULE_SETS_MAX {
                searched.push(address);
            }
            granted.rules.allows(query)
        };
        let granted = match &self.lookup {
            None => self.roles.iter().find(&mut allows),
            Some(table) => table.candidates(query).map(|item| &self.roles[item]).find(&mut allows),
        };
        granted.map(|granted| &*granted.binding)
    }

    pub(super) fn rule_sets(&self) -> impl Iterator<Item = &RuleSet> {
        self.roles.iter().map(|granted| &*granted.rules)
    }

    pub(super) fn unresolved_roles(&self) -> &[UnresolvedRole] {
        &self.unresolved_roles
    }

    fn record_unresolved(&mut self, unresolved: UnresolvedRole) {
        if !self.unresolved_roles.contains(&unresolved) {
            self.unresolved_roles.push(unresolved);
        }
    }

    /// Drops bindings to a role that an earlier binding grants, and indexes long lists.
    fn dedup_and_index(&mut self) {
        if self.roles.len() > 1 {
            let mut seen = HashSet::new();
            self.roles.retain(|granted| seen.insert(Arc::as_ptr(&granted.rules)));
        }
        self.lookup = RuleLookup::build_if_large(self.roles.len(), |item| self.roles[item].rules.rules());
        self.bloom_filter = self
            .roles
            .iter()
            .fold(RuleBloomFilter::default(), |bloom_filter, granted| bloom_filter.union(granted.rules.bloom_filter()));
    }
}
