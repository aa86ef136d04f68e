//! Which values this process computed, so that a later computation knows since when no other writer put a key.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{Key, KeyState, Op, Revision, StoreEntry};

/// Keys that are remembered. A forgotten key looks as if another writer had put it.
const KEYS_MAX: usize = 4096;

/// The last computed put of each key. Only the writer thread uses it.
#[derive(Debug, Default)]
pub(super) struct ComputedHistory(Mutex<HashMap<Key, ComputedPut>>);

#[derive(Debug)]
struct ComputedPut {
    /// If the commit fails, another process may use the revision for a put of its own: then the value differs, or means
    /// the same.
    revision: Revision,
    value: Bytes,
    since: Revision,
}

impl ComputedHistory {
    /// The state of a key as computations see it.
    pub(super) fn state_of(&self, entry: StoreEntry) -> KeyState {
        let puts = self.0.lock();
        let last = puts.get(&entry.key).filter(|put| put.revision == entry.revision && put.value == entry.value);
        KeyState { since: last.map_or(entry.revision, |put| put.since), value: entry.value }
    }

    /// Records the puts that a transaction at `revision` computed from `current`.
    pub(super) fn record(&self, keys: &[Key], current: &[Option<KeyState>], puts: &[Op], revision: Revision) {
        let mut history = self.0.lock();
        if history.len() + puts.len() > KEYS_MAX {
            history.clear();
        }
        for (key, state) in keys.iter().zip(current) {
            let put = puts.iter().find_map(|op| match op {
                Op::Put { key: put, value, .. } if put == key => Some(value.clone()),
                Op::Put { .. } | Op::Delete { .. } => None,
            });
            if let (Some(value), Some(state)) = (put, state) {
                history.insert(key.clone(), ComputedPut { revision, value, since: state.since });
            }
        }
    }
}
