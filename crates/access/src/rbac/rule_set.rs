//! Rule sets, indexed by resource and filtered by a 64-bit Bloom filter.

use std::sync::Arc;

use foldhash::HashMap;

use super::PolicyRule;
use super::rule::RuleQuery;

/// Below this size a linear scan is cheaper than hashing the resource name.
const LOOKUP_ITEMS_MIN: usize = 16;

/// The rules of one role, shared by all subjects it is granted to.
#[derive(Debug, Default)]
pub(super) struct RuleSet {
    rules: Box<[Arc<PolicyRule>]>,
    lookup: Option<RuleLookup>,
    bloom_filter: RuleBloomFilter,
}

/// A 64-bit Bloom filter over the resources that rules name, to skip rules that cannot match a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleBloomFilter(u64);

/// Maps a resource name to the numbered items that may match it.
#[derive(Debug, Default)]
pub(super) struct RuleLookup {
    by_resource: HashMap<Box<str>, Vec<u32>>,
    wildcard: Vec<u32>,
    paths: Vec<u32>,
}

impl RuleSet {
    pub(super) fn new(rules: impl IntoIterator<Item = Arc<PolicyRule>>) -> Self {
        let rules: Box<[_]> = rules.into_iter().collect();
        let lookup = RuleLookup::build_if_large(rules.len(), |item| std::slice::from_ref(&rules[item]));
        let bloom_filter = rules
            .iter()
            .fold(RuleBloomFilter::default(), |bloom_filter, rule| bloom_filter.union(RuleBloomFilter::for_rule(rule)));
        Self { rules, lookup, bloom_filter }
    }

    pub(super) fn bloom_filter(&self) -> RuleBloomFilter {
        self.bloom_filter
    }

    pub(super) fn rules(&self) -> &[Arc<PolicyRule>] {
        &self.rules
    }

    pub(super) fn allows(&self, query: &RuleQuery<'_>) -> bool {
        match &self.lookup {
            None => self.rules.iter().any(|rule| rule.allows(query)),
            Some(table) => table.candidates(query).any(|item| self.rules[item].allows(query)),
        }
    }
}

impl RuleBloomFilter {
    /// Set for rules with non-resource paths; resources use the other 63 bits.
    const PATHS_BIT: u64 = 1;
    /// Set for rules with wildcard resources, which match any name.
    const ALL_RESOURCE_BITS: u64 = !Self::PATHS_BIT;

    fn for_rule(rule: &PolicyRule) -> Self {
        let paths = if rule.non_resource_urls.is_empty() { 0 } else { Self::PATHS_BIT };
        let resources = match rule.has_wildcard_resource() {
            true => Self::ALL_RESOURCE_BITS,
            false => rule.resources.iter().fold(0, |bits, resource| bits | resource_bit(resource)),
        };
        Self(paths | resources)
    }

    /// Returns the bits of which a matching rule has at least one.
    pub(super) fn for_query(query: &RuleQuery<'_>) -> Self {
        match query {
            RuleQuery::Resource { combined_resource, .. } => Self(resource_bit(combined_resource)),
            RuleQuery::Path { .. } => Self(Self::PATHS_BIT),
        }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns false only if no rule in this filter can match the query.
    pub(super) fn may_match(self, query: Self) -> bool {
        self.0 & query.0 != 0
    }
}

/// Maps a resource name to one of 63 bits by FNV-1a: fast for short names, and the same in every process.
fn resource_bit(resource: &str) -> u64 {
    let hash = resource
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    2 << (hash % 63)
}

impl RuleLookup {
    /// Indexes `items` numbered entries with the rules given for each; `None` below `LOOKUP_ITEMS_MIN`.
    pub(super) fn build_if_large<'a>(items: usize, rules_of: impl Fn(usize) -> &'a [Arc<PolicyRule>]) -> Option<Self> {
        if items < LOOKUP_ITEMS_MIN {
            return None;
        }
        let mut lookup = Self::default();
        for item in 0..items {
            let number = u32::try_from(item).expect("fewer than 2^32 roles per subject");
            for rule in rules_of(item) {
                lookup.add_rule(number, rule);
            }
        }
        Some(lookup)
    }

    fn add_rule(&mut self, item: u32, rule: &PolicyRule) {
        let push = |list: &mut Vec<u32>| {
            if list.last() != Some(&item) {
                list.push(item);
            }
        };
        if !rule.non_resource_urls.is_empty() {
            push(&mut self.paths);
        }
        if rule.has_wildcard_resource() {
            push(&mut self.wildcard);
        }
        for resource in rule.resources.iter().filter(|resource| !resource.starts_with('*')) {
            push(self.by_resource.entry(resource.as_str().into()).or_default());
        }
    }

    /// Returns the items that may match the query; the caller still checks their rules.
    pub(super) fn candidates(&self, query: &RuleQuery<'_>) -> impl Iterator<Item = usize> {
        let (first, second): (&[u32], &[u32]) = match query {
            RuleQuery::Resource { combined_resource, .. } => {
                (self.by_resource.get(*combined_resource).map_or(&[], Vec::as_slice), &self.wildcard)
            }
            RuleQuery::Path { .. } => (&self.paths, &[]),
        };
        first.iter().chain(second).map(|&item| item as usize)
    }
}
