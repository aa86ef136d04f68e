//! Collects equally named items of several documents.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::order::topological_order;

/// The source document of an item, and whether a live server publishes it.
#[derive(Clone, Copy)]
pub(super) struct ItemSource {
    pub(super) document: usize,
    pub(super) is_live: bool,
}

/// An item and its source.
pub(super) struct SourcedItem<'a, T: ?Sized> {
    pub(super) source: ItemSource,
    pub(super) value: &'a T,
}

impl<T: ?Sized> Clone for SourcedItem<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for SourcedItem<'_, T> {}

impl<T: ?Sized> SourcedItem<'_, T> {
    /// Returns a part of this item, with the same source.
    pub(super) fn with_value<'b, U: ?Sized>(&self, value: &'b U) -> SourcedItem<'b, U> {
        SourcedItem { source: self.source, value }
    }
}

/// Groups the items of all lists by name. Names are in the order that the lists agree on, else in that of `tie_break`.
pub(super) fn group_by_name<'a, T>(
    lists: &[SourcedItem<'a, [T]>],
    name_of: impl Fn(&T) -> &str,
    tie_break: impl Fn(&str, &str) -> Ordering,
) -> Vec<Vec<SourcedItem<'a, T>>> {
    let mut numbers: HashMap<&str, usize> = HashMap::with_capacity(lists.first().map_or(0, |list| list.value.len()));
    let mut entries: Vec<NamedItems<'a, T>> = Vec::new();
    let mut chains: Vec<Vec<usize>> = Vec::with_capacity(lists.len());
    for (at, list) in lists.iter().enumerate() {
        let mut chain = Vec::with_capacity(list.value.len());
        for value in list.value {
            let name = name_of(value);
            let number = *numbers.entry(name).or_insert_with(|| {
                entries.push(NamedItems { name, last_list: None, items: Vec::with_capacity(1) });
                entries.len() - 1
            });
            let entry = &mut entries[number];
            if entry.last_list != Some(at) {
                entry.last_list = Some(at);
                chain.push(number);
            }
            entry.items.push(list.with_value(value));
        }
        chains.push(chain);
    }
    if !chains.iter().all(|chain| chain.iter().copied().eq(0..entries.len())) {
        entries = sort_named_items(entries, &chains, tie_break);
    }
    entries.into_iter().map(|entry| entry.items).collect()
}

/// All items with one name.
struct NamedItems<'a, T> {
    name: &'a str,
    /// The last list that contained the name: if a list repeats a name, its first position counts.
    last_list: Option<usize>,
    items: Vec<SourcedItem<'a, T>>,
}

fn sort_named_items<'a, T>(
    mut entries: Vec<NamedItems<'a, T>>,
    chains: &[Vec<usize>],
    tie_break: impl Fn(&str, &str) -> Ordering,
) -> Vec<NamedItems<'a, T>> {
    let mut by_rank: Vec<usize> = (0..entries.len()).collect();
    by_rank.sort_unstable_by(|a, b| tie_break(entries[*a].name, entries[*b].name));
    let mut ranks = vec![0; entries.len()];
    by_rank.iter().enumerate().for_each(|(rank, number)| ranks[*number] = rank);
    let chains: Vec<Vec<usize>> =
        chains.iter().map(|chain| chain.iter().map(|number| ranks[*number]).collect()).collect();
    let mut slots: Vec<_> = entries.drain(..).map(Some).collect();
    topological_order(&chains, by_rank.len()).into_iter().filter_map(|rank| slots[by_rank[rank]].take()).collect()
}
