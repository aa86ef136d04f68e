//! Aggregated ClusterRoles.
//!
//! In Kubernetes a controller writes the union into the role some time after a source role changed. Here the union is
//! part of the index, so decisions never use an outdated one;
//! [`outdated_aggregates`](super::RbacPolicy::outdated_aggregates) returns the rules to write into the object.
//!
//! Aggregated roles may aggregate each other. The result is the least fixed point: a rule that two roles would have
//! only from each other, neither has.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::PolicyRule;
use super::policy::StoredRole;

/// Rules shared between the roles that contain them.
pub(super) type SharedRules = Vec<Arc<PolicyRule>>;

/// Computes the rules of every aggregated role, in the order of its selectors and of the selected names.
pub(super) fn aggregate_rules(roles: &BTreeMap<Arc<str>, StoredRole>) -> BTreeMap<Arc<str>, SharedRules> {
    let aggregates: Vec<AggregatedRole<'_>> =
        roles.iter().filter_map(|(name, role)| AggregatedRole::from_role(name, role, roles)).collect();
    let position_of: BTreeMap<&str, usize> =
        aggregates.iter().enumerate().map(|(position, aggregate)| (&**aggregate.name, position)).collect();
    let mut dependents = vec![Vec::new(); aggregates.len()];
    for (position, aggregate) in aggregates.iter().enumerate() {
        for (source, _) in &aggregate.sources {
            if let Some(&source) = position_of.get(&***source) {
                dependents[source].push(position);
            }
        }
    }
    let mut results = vec![SharedRules::new(); aggregates.len()];
    let mut needs_update = vec![true; aggregates.len()];
    // A chain of aggregated roles is at most as long as their number; cycles have converged by then.
    for _ in 0..=aggregates.len() {
        let mut has_changed = false;
        for (position, aggregate) in aggregates.iter().enumerate() {
            if !std::mem::take(&mut needs_update[position]) {
                continue;
            }
            let result = aggregate.union(&position_of, &results);
            if result != results[position] {
                results[position] = result;
                has_changed = true;
                dependents[position].iter().for_each(|&dependent| needs_update[dependent] = true);
            }
        }
        if !has_changed {
            break;
        }
    }
    aggregates.into_iter().map(|aggregate| aggregate.name.clone()).zip(results).collect()
}

struct AggregatedRole<'a> {
    name: &'a Arc<str>,
    sources: Vec<(&'a Arc<str>, &'a StoredRole)>,
}

impl<'a> AggregatedRole<'a> {
    /// Collects the roles that the selectors match; `None` if the role does not aggregate.
    fn from_role(name: &'a Arc<str>, role: &StoredRole, roles: &'a BTreeMap<Arc<str>, StoredRole>) -> Option<Self> {
        let selectors = &role.object.aggregation_rule.as_ref()?.cluster_role_selectors;
        let sources = selectors.iter().flat_map(|selector| {
            roles.iter().filter(move |(other, role)| *other != name && selector.matches(&role.object.metadata.labels))
        });
        Some(Self { name, sources: sources.collect() })
    }

    /// Unites the rules of the sources without duplicates; aggregated sources contribute their current result.
    fn union(&self, position_of: &BTreeMap<&str, usize>, results: &[SharedRules]) -> SharedRules {
        let mut seen = HashSet::new();
        let of_source = |(name, role): &(&'a Arc<str>, &'a StoredRole)| match position_of.get(&***name) {
            Some(&position) => results[position].clone(),
            None => role.rules.rules().to_vec(),
        };
        self.sources.iter().flat_map(of_source).filter(|rule| seen.insert(rule.clone())).collect()
    }
}
