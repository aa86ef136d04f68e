//! One resource in memory.

use std::sync::Arc;

use arc_swap::ArcSwap;
use imbl::OrdMap;
use parking_lot::RwLock;
use store::{Key, Revision, StoreEntry};
use tokio::sync::watch;

use super::CachedEntry;
use super::change_history::{ChangeHistory, KeyChange};
use super::snapshot_pins::SnapshotPins;

/// What the values below a prefix are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFormat {
    /// Kubernetes objects as JSON.
    Objects,
    /// Bytes that mean something to somebody else.
    Raw,
}

/// The keys below one prefix: how they are now, and what changed lately.
#[derive(Debug)]
pub struct ResourceCache {
    prefix: Key,
    format: ValueFormat,
    snapshot: ArcSwap<ResourceSnapshot>,
    history: RwLock<ChangeHistory>,
    pins: SnapshotPins,
    /// The number of the change that comes next; watchers wait for it to grow.
    next_position: watch::Sender<u64>,
}

/// A shelf at one moment. Immutable; readers hold it as long as they like.
#[derive(Clone, Debug, Default)]
pub struct ResourceSnapshot {
    /// Everything, by key.
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

    /// What the keys of this shelf begin with.
    pub fn prefix(&self) -> &Key {
        &self.prefix
    }

    /// How it is now.
    pub fn snapshot(&self) -> Arc<ResourceSnapshot> {
        self.snapshot.load_full()
    }

    /// One key as it is now.
    pub fn get(&self, key: &[u8]) -> Option<Arc<CachedEntry>> {
        self.snapshot.load().entries.get(key).cloned()
    }

    /// The number of the first change after `revision`, or `None` if some of them are forgotten.
    pub(crate) fn position_after(&self, revision: Revision) -> Option<u64> {
        self.history.read().position_after(revision)
    }

    /// The changes from number `position` on, `max` at most, or `None` if they are forgotten.
    pub(crate) fn changes(&self, position: u64, max: usize) -> Option<Vec<Arc<KeyChange>>> {
        self.history.read().changes(position, max)
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.next_position.subscribe()
    }

    /// Forgets every change; those after `revision` will follow. Watchers are told when the next snapshot is published.
    pub(super) fn reset_history(&self, revision: Revision) {
        self.history.write().reset(revision);
        self.pins.release_before(revision);
    }

    pub(super) fn pins(&self) -> &SnapshotPins {
        &self.pins
    }

    /// What the store held at `revision`, as a snapshot that is published later.
    pub(super) fn build_snapshot(&self, entries: Vec<StoreEntry>, revision: Revision) -> ResourceSnapshot {
        let items = entries
            .into_iter()
            .map(|entry| (entry.key.clone(), Arc::new(CachedEntry::new(entry, self.format))))
            .collect();
        ResourceSnapshot { entries: items, revision }
    }

    /// Takes over a change into `snapshot`, which is published later, and into the history.
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
        // A key that was not there and is not there is no news to anybody.
        if previous.is_some() || current.is_some() {
            let mut history = self.history.write();
            history.push(KeyChange::new(key, revision, previous, current), now);
            let oldest = history.complete_after();
            drop(history);
            self.pins.release_before(oldest);
        }
    }

    /// Lets readers and watchers see what was applied.
    pub(super) fn publish(&self, snapshot: ResourceSnapshot) {
        self.snapshot.store(Arc::new(snapshot));
        let next = self.history.read().next_position();
        self.next_position.send_replace(next);
    }
}
