//! Snapshots that readers hold while they send them piece by piece.
//!
//! A snapshot shares all but the recent changes with the current one, so it costs little while the history reaches back to it.
//! When the history does not, its reader could not go on with a watch anyway: the snapshot is released, and the reader expires.
//! Readers that never finish therefore cost no more than one history.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use store::Revision;

use super::{ResourceCache, ResourceSnapshot};

/// The pinned snapshots of one shelf, by the revision that they show.
#[derive(Debug, Default)]
pub(super) struct SnapshotPins(Mutex<PinnedSnapshots>);

#[derive(Debug, Default)]
struct PinnedSnapshots {
    snapshots: BTreeMap<(Revision, u64), Weak<SnapshotSlot>>,
    /// Tells pins of one revision apart.
    next_id: u64,
}

/// A snapshot until it is released.
type SnapshotSlot = Mutex<Option<Arc<ResourceSnapshot>>>;

/// A snapshot that is kept until this is dropped or the history has passed it.
#[derive(Debug)]
pub(crate) struct SnapshotPin {
    resource_cache: Arc<ResourceCache>,
    id: (Revision, u64),
    slot: Arc<SnapshotSlot>,
}

impl SnapshotPins {
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

impl SnapshotPin {
    /// Pins a state of `shelf`.
    pub(crate) fn new(resource_cache: Arc<ResourceCache>, snapshot: Arc<ResourceSnapshot>, revision: Revision) -> Self {
        let slot = Arc::new(Mutex::new(Some(snapshot)));
        let mut pinned = resource_cache.pins().0.lock();
        let id = (revision, pinned.next_id);
        pinned.next_id += 1;
        pinned.snapshots.insert(id, Arc::downgrade(&slot));
        drop(pinned);
        Self { resource_cache, id, slot }
    }

    /// The snapshot, unless it was released.
    pub(crate) fn snapshot(&self) -> Option<Arc<ResourceSnapshot>> {
        self.slot.lock().clone()
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        self.resource_cache.pins().0.lock().snapshots.remove(&self.id);
    }
}
