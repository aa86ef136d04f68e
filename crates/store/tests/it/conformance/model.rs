//! The simplest store that can be right: every value that every key ever had, and nothing else.

use std::collections::BTreeMap;

use bytes::Bytes;
use store::{Compare, Key, KeyRange, Op, RangePage, Revision, StoreEntry, StoreEvent};

/// A whole history. It never forgets, so every state can be asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreModel {
    /// Ascending by revision; `None` where the key was removed.
    versions: BTreeMap<Key, Vec<(Revision, Option<Bytes>)>>,
    /// The events of each revision, in the order of their keys.
    events: BTreeMap<Revision, Vec<StoreEvent>>,
}

impl StoreModel {
    /// What the key held after every write up to `at`.
    pub(crate) fn entry(&self, key: &Key, at: Revision) -> Option<StoreEntry> {
        let versions = self.versions.get(key)?;
        let (revision, value) = versions.iter().rev().find(|(revision, _)| *revision <= at)?;
        Some(StoreEntry { key: key.clone(), value: value.clone()?, revision: *revision })
    }

    /// What a range finds in the state at `at`; what the range itself says about time is not looked at.
    pub(crate) fn range(&self, range: &KeyRange, at: Revision) -> RangePage {
        let keys = self.versions.keys().filter(|key| key.starts_with(&range.prefix) && *key >= range.first_key());
        let mut entries: Vec<_> = keys.filter_map(|key| self.entry(key, at)).collect();
        let count = entries.len() as u64;
        entries.truncate(range.limit.unwrap_or(usize::MAX));
        RangePage { entries, count, revision: at }
    }

    /// What changed below `prefix` from one revision through another.
    pub(crate) fn events(&self, prefix: &Key, from: Revision, through: Revision) -> Vec<StoreEvent> {
        if from > through {
            return Vec::new();
        }
        let events = self.events.range(from..=through).flat_map(|(_, events)| events);
        events.filter(|event| event.key().starts_with(prefix)).cloned().collect()
    }

    /// Whether all comparisons hold in the state at `at`.
    pub(crate) fn holds(&self, compares: &[Compare], at: Revision) -> bool {
        compares.iter().all(|compare| self.entry(&compare.key, at).map(|entry| entry.revision) == compare.revision)
    }

    /// How many keys the operations would change now.
    pub(crate) fn changes(&self, ops: &[Op]) -> usize {
        let changes = |op: &&Op| match op {
            Op::Put { .. } => true,
            Op::Delete { key } => self.entry(key, Revision(u64::MAX)).is_some(),
        };
        ops.iter().filter(changes).count()
    }

    /// Makes the operations happen at `revision`, which must be newer than all before it.
    pub(crate) fn apply(&mut self, revision: Revision, ops: &[Op]) {
        assert!(self.last_revision() < revision, "history is written forwards");
        let mut events = Vec::new();
        for op in ops {
            let value = match op {
                Op::Put { value, .. } => Some(value.clone()),
                Op::Delete { key } if self.entry(key, revision).is_none() => continue,
                Op::Delete { .. } => None,
            };
            let key = op.key().clone();
            self.versions.entry(key.clone()).or_default().push((revision, value.clone()));
            events.push(match value {
                Some(value) => StoreEvent::Put(StoreEntry { key, value, revision }),
                None => StoreEvent::Delete { key, revision },
            });
        }
        events.sort_by(|a, b| a.key().cmp(b.key()));
        self.events.insert(revision, events);
    }

    /// The newest revision.
    pub(crate) fn last_revision(&self) -> Revision {
        self.events.keys().next_back().copied().unwrap_or_default()
    }
}
