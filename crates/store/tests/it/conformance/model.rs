//! The reference model of a store: every value that every key ever had.

use std::collections::BTreeMap;

use bytes::Bytes;
use store::{Compare, Key, KeyRange, Op, RangePage, Revision, StoreEntry, StoreEvent};

/// A complete history without compaction, so every past state can be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreModel {
    /// Ascending by revision; `None` marks a deletion.
    versions: BTreeMap<Key, Vec<(Revision, Option<Bytes>)>>,
    /// The events of each revision, in order of keys.
    events: BTreeMap<Revision, Vec<StoreEvent>>,
}

impl StoreModel {
    /// The entry of a key at revision `at`.
    pub(crate) fn entry(&self, key: &Key, at: Revision) -> Option<StoreEntry> {
        let versions = self.versions.get(key)?;
        let (revision, value) = versions.iter().rev().find(|(revision, _)| *revision <= at)?;
        Some(StoreEntry { key: key.clone(), value: value.clone()?, revision: *revision })
    }

    /// The result of a range at revision `at`, ignoring the range's own revision.
    pub(crate) fn range(&self, range: &KeyRange, at: Revision) -> RangePage {
        let keys = self.versions.keys().filter(|key| key.starts_with(&range.prefix) && *key >= range.first_key());
        let mut entries: Vec<_> = keys.filter_map(|key| self.entry(key, at)).collect();
        let count = entries.len() as u64;
        entries.truncate(range.limit.unwrap_or(usize::MAX));
        RangePage { entries, count, revision: at }
    }

    /// The changes below `prefix` from one revision through another.
    pub(crate) fn events(&self, prefix: &Key, from: Revision, through: Revision) -> Vec<StoreEvent> {
        if from > through {
            return Vec::new();
        }
        let events = self.events.range(from..=through).flat_map(|(_, events)| events);
        events.filter(|event| event.key().starts_with(prefix)).cloned().collect()
    }

    /// True if all comparisons hold at revision `at`.
    pub(crate) fn holds(&self, compares: &[Compare], at: Revision) -> bool {
        compares.iter().all(|compare| self.entry(&compare.key, at).map(|entry| entry.revision) == compare.revision)
    }

    /// The number of keys that the operations would change in the newest state.
    pub(crate) fn changes(&self, ops: &[Op]) -> usize {
        let changes = |op: &&Op| match op {
            Op::Put { .. } => true,
            Op::Delete { key } => self.entry(key, Revision(u64::MAX)).is_some(),
        };
        ops.iter().filter(changes).count()
    }

    /// Applies the operations at `revision`, which must be newer than all before it.
    pub(crate) fn apply(&mut self, revision: Revision, ops: &[Op]) {
        assert!(self.last_revision() < revision, "revisions must grow");
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

    pub(crate) fn last_revision(&self) -> Revision {
        self.events.keys().next_back().copied().unwrap_or_default()
    }
}
