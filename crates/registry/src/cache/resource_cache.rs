//! The cache of one resource.

use std::sync::Arc;

use arc_swap::ArcSwap;
use imbl::OrdMap;
use parking_lot::RwLock;
use store::{Key, Revision, StoreEntry};
use tokio::sync::watch;

use super::CachedEntry;
use super::change_history::{ChangeHistory, KeyChange};
use super::snapshot_pins::SnapshotPins;

/// The format of the values below a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFormat {
    /// Kubernetes objects as JSON.
    Objects,
    /// Bytes of internal records, kept undecoded.
    Raw,
}

/// The keys below one prefix: a snapshot of their current state, and their recent changes.
#[derive(Debug)]
pub struct ResourceCache {
    prefix: Key,
    format: ValueFormat,
    snapshot: ArcSwap<ResourceSnapshot>,
    history: RwLock<ChangeHistory>,
    pins: SnapshotPins,
    /// The position of the next change; watchers wait for it to grow.
    next_position: watch::Sender<u64>,
}

/// The state of a resource at one revision. Immutable; readers may hold it for any time.
#[derive(Clone, Debug, Default)]
pub struct ResourceSnapshot {
    /// All entries, by key.
    pub entries: OrdMap<Key, Arc<CachedEntry>>,
    /// The revision of the last change.
    pub revision: Revision,
}

impl ResourceCache {
    pub(super) fn new(prefix: Key, format: ValueFormat) -> Self {
        Self {
            prefix,
            format,
            snapshot: ArcSwap::default(),
            history: RwLock::new(ChangeHistory::default()),
            pins: SnapshotPins::default(),
            next_position: watch::Sender::new(0),
        }
    }

    /// The prefix of all keys of this resource.
    pub fn prefix(&self) -> &Key {
        &self.prefix
    }

    /// The current state.
    pub fn snapshot(&self) -> Arc<ResourceSnapshot> {
        self.snapshot.load_full()
    }

    /// The current entry of a key.
    pub fn get(&self, key: &[u8]) -> Option<Arc<CachedEntry>> {
        self.snapshot.load().entries.get(key).cloned()
    }

    /// The position of the first change after `revision`; `None` if some of these changes are no longer in the history.
    pub(crate) fn position_after(&self, revision: Revision) -> Option<u64> {
        self.history.read().position_after(revision)
    }

    /// At most `max` changes from `position` on; `None` if they are no longer in the history.
    pub(crate) fn changes(&self, position: u64, max: usize) -> Option<Vec<Arc<KeyChange>>> {
        self.history.read().changes(position, max)
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.next_position.subscribe()
    }

    /// Drops the history; changes after `revision` will follow. Watchers notice when the next snapshot is published.
    pub(super) fn reset_history(&self, revision: Revision) {
        self.history.write().reset(revision);
        self.pins.release_before(revision);
    }

    pub(super) fn pins(&self) -> &SnapshotPins {
        &self.pins
    }

    /// Builds a snapshot of the state at `revision`, to be published later.
    pub(super) fn build_snapshot(&self, entries: Vec<StoreEntry>, revision: Revision) -> ResourceSnapshot {
        let items = entries
            .into_iter()
            .map(|entry| (entry.key.clone(), Arc::new(CachedEntry::new(entry, self.format))))
            .collect();
        ResourceSnapshot { entries: items, revision }
    }

    /// Applies an event to `snapshot`, which is published later, and to the history.
    pub(super) fn apply(&self, snapshot: &mut ResourceSnapshot, event: store::StoreEvent, now: tokio::time::Instant) {
        let revision = event.revision();
        let (key, previous, current) = match event {
            store::StoreEvent::Put(entry) => {
                let key = entry.key.clone();
                let current = Arc::new(CachedEntry::new(entry, self.format));
                let previous = snapshot.entries.insert(key.clone(), current.clone());
                (key, previous, Some(current))
            }
            store::StoreEvent::Delete { key, .. } => {
                let previous = snapshot.entries.remove(&key);
                (key, previous, None)
            }
        };
        snapshot.revision = revision;
        // Deleting an absent key is no change.
        if previous.is_some() || current.is_some() {
            let mut history = self.history.write();
            history.push(KeyChange::new(key, revision, previous, current), now);
            let oldest = history.complete_after();
            drop(history);
            self.pins.release_before(oldest);
        }
    }

    /// Makes applied changes visible to readers and watchers.
    pub(super) fn publish(&self, snapshot: ResourceSnapshot) {
        self.snapshot.store(Arc::new(snapshot));
        let next = self.history.read().next_position();
        self.next_position.send_replace(next);
    }
}
