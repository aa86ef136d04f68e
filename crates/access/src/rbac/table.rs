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
    sieve: Sieve,
}

/// What rules are about, as a few bits: most that cannot answer a question are passed over without a look at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sieve(u64);

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
        let sieve = rules.iter().fold(Sieve::default(), |sieve, rule| sieve.and(Sieve::of_rule(rule)));
        Self { rules, table, sieve }
    }

    pub(super) fn sieve(&self) -> Sieve {
        self.sieve
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

impl Sieve {
    /// Of rules about paths; resources have the other bits.
    const PATHS: u64 = 1;
    /// Of rules about resources that no exact name can stand for.
    const RESOURCES: u64 = !Self::PATHS;

    fn of_rule(rule: &PolicyRule) -> Self {
        let paths = if rule.non_resource_urls.is_empty() { 0 } else { Self::PATHS };
        let resources = match rule.is_wild() {
            true => Self::RESOURCES,
            false => rule.resources.iter().fold(0, |bits, resource| bits | bit_of(resource)),
        };
        Self(paths | resources)
    }

    /// What rules must have to answer a question.
    pub(super) fn of_question(question: &Question<'_>) -> Self {
        match question {
            Question::Resource { combined, .. } => Self(bit_of(combined)),
            Question::Path { .. } => Self(Self::PATHS),
        }
    }

    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether rules with this sieve may answer the question that the other is of.
    pub(super) fn passes(self, question: Self) -> bool {
        self.0 & question.0 != 0
    }
}

/// One of the 63 bits of resources, by FNV-1a: the names are short, and the same name must always have the same bit.
fn bit_of(resource: &str) -> u64 {
    let hash = resource
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    2 << (hash % 63)
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
