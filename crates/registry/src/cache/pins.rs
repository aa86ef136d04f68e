//! Snapshots that readers hold while they send them piece by piece.
//!
//! A snapshot shares all but the recent changes with the current one, so it costs little while the history reaches back to it.
//! When the history does not, its reader could not go on with a watch anyway: the snapshot is released, and the reader expires.
//! Readers that never finish therefore cost no more than one history.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use store::Revision;

use super::{Shelf, Snapshot};

/// The pinned snapshots of one shelf, by the revision that they show.
#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<Pinned>);

#[derive(Debug, Default)]
struct Pinned {
    snapshots: BTreeMap<(Revision, u64), Weak<Held>>,
    /// Tells pins of one revision apart.
    next: u64,
}

/// A snapshot until it is released.
type Held = Mutex<Option<Arc<Snapshot>>>;

/// A snapshot that is kept until this is dropped or the history has passed it.
#[derive(Debug)]
pub(crate) struct Pin {
    shelf: Arc<Shelf>,
    id: (Revision, u64),
    held: Arc<Held>,
}

impl Pins {
    /// Releases every snapshot of before `oldest`.
    pub(super) fn release_before(&self, oldest: Revision) {
        let mut pinned = self.0.lock();
        if pinned.snapshots.first_key_value().is_none_or(|((revision, _), _)| *revision >= oldest) {
            return;
        }
        let kept = pinned.snapshots.split_off(&(oldest, 0));
        let released = std::mem::replace(&mut pinned.snapshots, kept);
        drop(pinned);
        for held in released.into_values().filter_map(|held| held.upgrade()) {
            drop(held.lock().take());
        }
    }
}

impl Pin {
    /// Pins a state of `shelf`.
    pub(crate) fn new(shelf: Arc<Shelf>, snapshot: Arc<Snapshot>, revision: Revision) -> Self {
        let held = Arc::new(Mutex::new(Some(snapshot)));
        let mut pinned = shelf.pins().0.lock();
        let id = (revision, pinned.next);
        pinned.next += 1;
        pinned.snapshots.insert(id, Arc::downgrade(&held));
        drop(pinned);
        Self { shelf, id, held }
    }

    /// The snapshot, unless it was released.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.held.lock().clone()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shelf.pins().0.lock().snapshots.remove(&self.id);
    }
}
