//! One resource in memory.

use std::sync::Arc;

use arc_swap::ArcSwap;
use imbl::OrdMap;
use parking_lot::RwLock;
use store::{Entry, Key, Revision};
use tokio::sync::watch;

use super::Cached;
use super::history::{Change, History};
use super::pins::Pins;

/// What the values below a prefix are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Kubernetes objects as JSON.
    Objects,
    /// Bytes that mean something to somebody else.
    Raw,
}

/// The keys below one prefix: how they are now, and what changed lately.
#[derive(Debug)]
pub struct Shelf {
    prefix: Key,
    form: Form,
    snapshot: ArcSwap<Snapshot>,
    history: RwLock<History>,
    pins: Pins,
    /// The number of the change that comes next; watchers wait for it to grow.
    next: watch::Sender<u64>,
}

/// A shelf at one moment. Immutable; readers hold it as long as they like.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Everything, by key.
    pub items: OrdMap<Key, Arc<Cached>>,
    /// The revision of the last change.
    pub revision: Revision,
}

impl Shelf {
    pub(super) fn new(prefix: Key, form: Form) -> Self {
        Self {
            prefix,
            form,
            snapshot: ArcSwap::default(),
            history: RwLock::new(History::default()),
            pins: Pins::default(),
            next: watch::Sender::new(0),
        }
    }

    /// What the keys of this shelf begin with.
    pub fn prefix(&self) -> &Key {
        &self.prefix
    }

    /// How it is now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// One key as it is now.
    pub fn get(&self, key: &[u8]) -> Option<Arc<Cached>> {
        self.snapshot.load().items.get(key).cloned()
    }

    /// The number of the first change after `revision`, or `None` if some of them are forgotten.
    pub(crate) fn position_after(&self, revision: Revision) -> Option<u64> {
        self.history.read().position_after(revision)
    }

    /// The changes from number `position` on, `max` at most, or `None` if they are forgotten.
    pub(crate) fn changes(&self, position: u64, max: usize) -> Option<Vec<Arc<Change>>> {
        self.history.read().changes(position, max)
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }

    /// Forgets every change; those after `revision` will follow. Watchers are told when the next snapshot is published.
    pub(super) fn restart(&self, revision: Revision) {
        self.history.write().restart(revision);
        self.pins.release_before(revision);
    }

    pub(super) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// What the store held at `revision`, as a snapshot that is published later.
    pub(super) fn filled(&self, entries: Vec<Entry>, revision: Revision) -> Snapshot {
        let items =
            entries.into_iter().map(|entry| (entry.key.clone(), Arc::new(Cached::new(entry, self.form)))).collect();
        Snapshot { items, revision }
    }

    /// Takes over a change into `snapshot`, which is published later, and into the history.
    pub(super) fn apply(&self, snapshot: &mut Snapshot, event: store::Event, now: tokio::time::Instant) {
        let revision = event.revision();
        let (key, previous, current) = match event {
            store::Event::Put(entry) => {
                let key = entry.key.clone();
                let current = Arc::new(Cached::new(entry, self.form));
                let previous = snapshot.items.insert(key.clone(), current.clone());
                (key, previous, Some(current))
            }
            store::Event::Delete { key, .. } => {
                let previous = snapshot.items.remove(&key);
                (key, previous, None)
            }
        };
        snapshot.revision = revision;
        // A key that was not there and is not there is no news to anybody.
        if previous.is_some() || current.is_some() {
            let mut history = self.history.write();
            history.push(Change::new(key, revision, previous, current), now);
            let oldest = history.complete_after();
            drop(history);
            self.pins.release_before(oldest);
        }
    }

    /// Lets readers and watchers see what was applied.
    pub(super) fn publish(&self, snapshot: Snapshot) {
        self.snapshot.store(Arc::new(snapshot));
        let next = self.history.read().next();
        self.next.send_replace(next);
    }
}
