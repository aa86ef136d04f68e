//! Rules and lists of rules that can be searched by resource.

use std::sync::Arc;

use foldhash::HashMap;

use super::PolicyRule;
use super::rule::Question;

/// Fewer items than this are looked through one by one, which costs less than a hash of the resource's name.
const TABLE_ITEMS_MIN: usize = 16;

/// The rules of one role, shared by all who are granted it.
#[derive(Debug, Default)]
pub(super) struct RuleSet {
    rules: Box<[Arc<PolicyRule>]>,
    table: Option<Table>,
}

/// Which of many numbered items can answer a question.
#[derive(Debug, Default)]
pub(super) struct Table {
    by_resource: HashMap<Box<str>, Vec<u32>>,
    wild: Vec<u32>,
    paths: Vec<u32>,
}

impl RuleSet {
    pub(super) fn new(rules: impl IntoIterator<Item = Arc<PolicyRule>>) -> Self {
        let rules: Box<[_]> = rules.into_iter().collect();
        let table = Table::of_many(rules.len(), |item| std::slice::from_ref(&rules[item]));
        Self { rules, table }
    }

    pub(super) fn rules(&self) -> &[Arc<PolicyRule>] {
        &self.rules
    }

    pub(super) fn allows(&self, question: &Question<'_>) -> bool {
        match &self.table {
            None => self.rules.iter().any(|rule| rule.allows(question)),
            Some(table) => table.candidates(question).any(|item| self.rules[item].allows(question)),
        }
    }
}

impl Table {
    /// A table over so many items, each with the rules given; `None` if there are too few to be worth it.
    pub(super) fn of_many<'a>(items: usize, rules_of: impl Fn(usize) -> &'a [Arc<PolicyRule>]) -> Option<Self> {
        if items < TABLE_ITEMS_MIN {
            return None;
        }
        let mut table = Self::default();
        for item in 0..items {
            let number = u32::try_from(item).expect("no subject has billions of roles");
            for rule in rules_of(item) {
                table.add(number, rule);
            }
        }
        Some(table)
    }

    fn add(&mut self, item: u32, rule: &PolicyRule) {
        let push = |list: &mut Vec<u32>| {
            if list.last() != Some(&item) {
                list.push(item);
            }
        };
        if !rule.non_resource_urls.is_empty() {
            push(&mut self.paths);
        }
        if rule.is_wild() {
            push(&mut self.wild);
        }
        for resource in rule.resources.iter().filter(|resource| !resource.starts_with('*')) {
            push(self.by_resource.entry(resource.as_str().into()).or_default());
        }
    }

    pub(super) fn candidates(&self, question: &Question<'_>) -> impl Iterator<Item = usize> {
        let (first, second): (&[u32], &[u32]) = match question {
            Question::Resource { combined, .. } => {
                (self.by_resource.get(*combined).map_or(&[], Vec::as_slice), &self.wild)
            }
            Question::Path { .. } => (&self.paths, &[]),
        };
        first.iter().chain(second).map(|&item| item as usize)
    }
}
