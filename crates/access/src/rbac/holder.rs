//! What one user or group holds: the roles that bindings grant to it.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::HashMap;
use smallvec::SmallVec;

use super::rule::Question;
use super::table::{RuleSet, Sieve, Table};
use super::{Binding, RoleRef, Unresolved};

/// Rule sets that are remembered as searched, so that the many groups of one user do not search the same role again.
const SEARCHED_MAX: usize = 32;

/// The rule sets that were searched for one question, by address.
pub(super) type Searched = SmallVec<[*const RuleSet; SEARCHED_MAX]>;

/// A user or group that bindings name.
#[derive(Debug, Default)]
pub(super) struct Holder {
    pub(super) everywhere: Grants,
    pub(super) in_namespace: HashMap<Arc<str>, Grants>,
}

/// The roles granted to one holder in one scope; of several bindings to one role, the first by name.
#[derive(Debug, Default)]
pub(super) struct Grants {
    roles: Vec<Granted>,
    unresolved: Vec<Unresolved>,
    table: Option<Table>,
    sieve: Sieve,
}

#[derive(Debug)]
struct Granted {
    binding: Arc<Binding>,
    rules: Arc<RuleSet>,
}

impl Holder {
    /// What these bindings grant, given in the order of their names.
    pub(super) fn of<'a>(
        bindings: impl Iterator<Item = &'a Arc<Binding>>,
        rules_of: impl Fn(&RoleRef, &str) -> Option<Arc<RuleSet>>,
    ) -> Self {
        let mut holder = Self::default();
        for binding in bindings {
            let namespace = binding.metadata.namespace.as_str();
            let grants = match namespace {
                "" => &mut holder.everywhere,
                _ => holder.in_namespace.entry(namespace.into()).or_default(),
            };
            match rules_of(&binding.role_ref, namespace) {
                Some(rules) => grants.roles.push(Granted { binding: binding.clone(), rules }),
                None => grants.miss(Unresolved::of(&binding.role_ref)),
            }
        }
        holder.everywhere.finish();
        holder.in_namespace.values_mut().for_each(Grants::finish);
        holder
    }

    /// Of all that it holds, wherever.
    pub(super) fn sieve(&self) -> Sieve {
        self.in_namespace.values().fold(self.everywhere.sieve, |sieve, grants| sieve.and(grants.sieve))
    }
}

impl Grants {
    pub(super) fn find(&self, question: &Question<'_>, sieve: Sieve, searched: &mut Searched) -> Option<&Binding> {
        if !self.sieve.passes(sieve) {
            return None;
        }
        let mut allows = |granted: &&Granted| {
            if !granted.rules.sieve().passes(sieve) {
                return false;
            }
            let address = Arc::as_ptr(&granted.rules);
            if searched.contains(&address) {
                return false;
            }
            if searched.len() < SEARCHED_MAX {
                searched.push(address);
            }
            granted.rules.allows(question)
        };
        let granted = match &self.table {
            None => self.roles.iter().find(&mut allows),
            Some(table) => table.candidates(question).map(|item| &self.roles[item]).find(&mut allows),
        };
        granted.map(|granted| &*granted.binding)
    }

    pub(super) fn rule_sets(&self) -> impl Iterator<Item = &RuleSet> {
        self.roles.iter().map(|granted| &*granted.rules)
    }

    pub(super) fn unresolved(&self) -> &[Unresolved] {
        &self.unresolved
    }

    fn miss(&mut self, unresolved: Unresolved) {
        if !self.unresolved.contains(&unresolved) {
            self.unresolved.push(unresolved);
        }
    }

    /// Drops bindings to a role that an earlier one grants, and makes long lists searchable.
    fn finish(&mut self) {
        if self.roles.len() > 1 {
            let mut seen = HashSet::new();
            self.roles.retain(|granted| seen.insert(Arc::as_ptr(&granted.rules)));
        }
        self.table = Table::of_many(self.roles.len(), |item| self.roles[item].rules.rules());
        self.sieve = self.roles.iter().fold(Sieve::default(), |sieve, granted| sieve.and(granted.rules.sieve()));
    }
}
