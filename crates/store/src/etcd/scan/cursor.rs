//! The part of the key space that the next page of a scan covers. Pure.

use crate::contract::{Key, prefix_end};
use crate::etcd::reads::{ZERO_KEY, range_begin};

/// A part with fewer keys is followed by a wider one, so that sparse parts cost few requests.
const SPARSE_KEYS: u64 = 1_000;

/// The position of a scan. The first part is the whole prefix, which also gives the total.
#[derive(Debug)]
pub(super) struct ScanCursor {
    start: Key,
    /// The end of the current part, in etcd's encoding.
    stop: Key,
    /// The end of the prefix, in etcd's encoding.
    end: Key,
    /// The number of leading bytes that all keys of a part share; grows with dense keys and shrinks with sparse ones.
    shared: usize,
    is_complete: bool,
}

impl ScanCursor {
    pub(super) fn new(prefix: &Key) -> Self {
        let end = prefix_end(prefix).unwrap_or(Key::from_static(ZERO_KEY));
        Self { start: range_begin(prefix), stop: end.clone(), end, shared: 0, is_complete: false }
    }

    /// The start and end of the next range to request; `None` after the last.
    pub(super) fn next_range(&self) -> Option<(Key, Key)> {
        (!self.is_complete).then(|| (self.start.clone(), self.stop.clone()))
    }

    /// Moves on after a page with these first and last keys, out of `count` keys in the range.
    pub(super) fn advance(&mut self, keys: Option<(&Key, &Key)>, entries: u64, count: u64) {
        match keys {
            Some((first, last)) if count > entries => {
                let common = first.iter().zip(last.iter()).take_while(|(one, other)| one == other).count();
                self.shared = (common + 1).min(last.len());
                self.start = [&last[..], ZERO_KEY].concat().into();
            }
            Some(_) | None if self.stop == self.end => self.is_complete = true,
            Some(_) | None => {
                self.start = self.stop.clone();
                self.shared = self.shared.min(self.start.len());
                if count < SPARSE_KEYS {
                    self.shared = self.shared.saturating_sub(1);
                }
            }
        }
        let part_end = if self.shared == 0 { None } else { prefix_end(&self.start[..self.shared]) };
        let is_within = |part_end: &Key| self.end == ZERO_KEY || *part_end < self.end;
        self.stop = part_end.filter(is_within).unwrap_or(self.end.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Scans a set of keys as etcd would answer; the keys found, and the number of keys that etcd visits.
    fn scan(keys: &BTreeSet<Key>, prefix: &str, limit: usize) -> (Vec<Key>, u64) {
        let mut cursor = ScanCursor::new(&Key::copy_from_slice(prefix.as_bytes()));
        let (mut found, mut visited) = (Vec::new(), 0);
        let mut requests = 0;
        while let Some((start, stop)) = cursor.next_range() {
            let is_within = |key: &&Key| **key >= start && (stop == ZERO_KEY || **key < stop);
            let range: Vec<Key> = keys.iter().filter(is_within).cloned().collect();
            let page = &range[..limit.min(range.len())];
            found.extend_from_slice(page);
            visited += range.len() as u64;
            cursor.advance(page.first().zip(page.last()), page.len() as u64, range.len() as u64);
            requests += 1;
            assert!(requests < 10_000, "the scan ends");
        }
        (found, visited)
    }

    #[test]
    fn scan_finds_every_key_once_and_in_order() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut key = || -> Key {
                let name = (0..random.usize(1..6)).map(|_| *random.choice(&[0, b'a', b'b', b'/', 0xfe, 0xff]).unwrap());
                [&b"/r/"[..], &name.collect::<Vec<u8>>()].concat().into()
            };
            let mut keys: BTreeSet<Key> = (0..100).map(|_| key()).collect();
            let below: Vec<Key> = keys.iter().cloned().collect();
            keys.extend(["/q", "/r", "/s", "/r0", "\u{ff}"].map(Key::from));
            for limit in [1, 2, 7, 1_000] {
                assert_eq!(scan(&keys, "/r/", limit).0, below, "seed {seed}, limit {limit}");
                assert_eq!(scan(&keys, "", limit).0.len(), keys.len(), "seed {seed}, limit {limit}");
            }
        }
        assert_eq!(scan(&BTreeSet::new(), "/r/", 5).0, Vec::<Key>::new());
    }

    #[test]
    fn scan_of_many_keys_visits_few_keys_twice() {
        let key = |number: usize| Key::from(format!("/r/pods/ns{:02}/pod-{number:05}", number % 20));
        let keys: BTreeSet<Key> = (0..20_000).map(key).collect();
        let (found, visited) = scan(&keys, "/r/", 100);
        assert_eq!(found.len(), keys.len());
        assert!(visited < 20 * keys.len() as u64, "{visited} visits; open-ended pages need two million");
    }
}
