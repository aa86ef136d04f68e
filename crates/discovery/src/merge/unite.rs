//! The union of named things that several documents list.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::order::order;

/// Which document a thing stands in, and whether somebody live stands behind it there.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) document: usize,
    pub(super) live: bool,
}

/// A thing, and where it stands.
pub(super) struct Listed<'a, T: ?Sized> {
    pub(super) origin: Origin,
    pub(super) value: &'a T,
}

impl<T: ?Sized> Clone for Listed<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Listed<'_, T> {}

impl<T: ?Sized> Listed<'_, T> {
    /// Something that belongs to this thing.
    pub(super) fn with<'b, U: ?Sized>(&self, value: &'b U) -> Listed<'b, U> {
        Listed { origin: self.origin, value }
    }
}

/// For every name in any of the lists, all that bear it; the names in the order the lists agree on, else in that of `tie`.
pub(super) fn unite<'a, T>(
    lists: &[Listed<'a, [T]>],
    name_of: impl Fn(&T) -> &str,
    tie: impl Fn(&str, &str) -> Ordering,
) -> Vec<Vec<Listed<'a, T>>> {
    let mut numbers: HashMap<&str, usize> = HashMap::with_capacity(lists.first().map_or(0, |list| list.value.len()));
    let mut entries: Vec<Entry<'a, T>> = Vec::new();
    let mut chains: Vec<Vec<usize>> = Vec::with_capacity(lists.len());
    for (at, list) in lists.iter().enumerate() {
        let mut chain = Vec::with_capacity(list.value.len());
        for value in list.value {
            let name = name_of(value);
            let number = *numbers.entry(name).or_insert_with(|| {
                entries.push(Entry { name, list: None, bearers: Vec::with_capacity(1) });
                entries.len() - 1
            });
            let entry = &mut entries[number];
            if entry.list != Some(at) {
                entry.list = Some(at);
                chain.push(number);
            }
            entry.bearers.push(list.with(value));
        }
        chains.push(chain);
    }
    if !chains.iter().all(|chain| chain.iter().copied().eq(0..entries.len())) {
        entries = in_order(entries, &chains, tie);
    }
    entries.into_iter().map(|entry| entry.bearers).collect()
}

/// One name, and all that bear it.
struct Entry<'a, T> {
    name: &'a str,
    /// The last list that had it: a list that names it twice puts it where it came first.
    list: Option<usize>,
    bearers: Vec<Listed<'a, T>>,
}

fn in_order<'a, T>(
    mut entries: Vec<Entry<'a, T>>,
    chains: &[Vec<usize>],
    tie: impl Fn(&str, &str) -> Ordering,
) -> Vec<Entry<'a, T>> {
    let mut by_rank: Vec<usize> = (0..entries.len()).collect();
    by_rank.sort_unstable_by(|a, b| tie(entries[*a].name, entries[*b].name));
    let mut ranks = vec![0; entries.len()];
    by_rank.iter().enumerate().for_each(|(rank, number)| ranks[*number] = rank);
    let chains: Vec<Vec<usize>> =
        chains.iter().map(|chain| chain.iter().map(|number| ranks[*number]).collect()).collect();
    let mut slots: Vec<_> = entries.drain(..).map(Some).collect();
    order(&chains, by_rank.len()).into_iter().filter_map(|rank| slots[by_rank[rank]].take()).collect()
}
