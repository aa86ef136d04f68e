//! What one user or group holds: the roles that bindings grant to it.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::HashMap;
use smallvec::SmallVec;

use super::rule::RuleQuery;
use super::rule_set::{RuleBloomFilter, RuleLookup, RuleSet};
use super::{RoleBinding, RoleRef, UnresolvedRole};

/// Rule sets that are remembered as searched, so that the many groups of one user do not search the same role again.
const SEARCHED_RULE_SETS_MAX: usize = 32;

/// The rule sets that were searched for one question, by address.
pub(super) type SearchedRuleSets = SmallVec<[*const RuleSet; SEARCHED_RULE_SETS_MAX]>;

/// A user or group that bindings name.
#[derive(Debug, Default)]
pub(super) struct SubjectGrants {
    pub(super) cluster_wide: ScopeGrants,
    pub(super) by_namespace: HashMap<Arc<str>, ScopeGrants>,
}

/// The roles granted to one holder in one scope; of several bindings to one role, the first by name.
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
    /// What these bindings grant, given in the order of their names.
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

    /// Of all that it holds, wherever.
    pub(super) fn bloom_filter(&self) -> RuleBloomFilter {
        self.by_namespace
            .values()
            .fold(self.cluster_wide.bloom_filter, |sieve, grants| sieve.union(grants.bloom_filter))
    }
}

impl ScopeGrants {
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

    /// Drops bindings to a role that an earlier one grants, and makes long lists searchable.
    fn dedup_and_index(&mut self) {
        if self.roles.len() > 1 {
            let mut seen = HashSet::new();
            self.roles.retain(|granted| seen.insert(Arc::as_ptr(&granted.rules)));
        }
        self.lookup = RuleLookup::build_if_large(self.roles.len(), |item| self.roles[item].rules.rules());
        self.bloom_filter = self
            .roles
            .iter()
            .fold(RuleBloomFilter::default(), |sieve, granted| sieve.union(granted.rules.bloom_filter()));
    }
}
