//! Snapshots that readers hold while they stream them.
//!
//! A snapshot shares all but the recent changes with the current one, so it is cheap as long as the history reaches
//! back to it. Beyond that its reader could not continue with a watch anyway: the snapshot is released, and the reader
//! expires. So readers that never finish cost no more than one history.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use store::Revision;

use super::{ResourceCache, ResourceSnapshot};

/// The pinned snapshots of one resource, by revision.
#[derive(Debug, Default)]
pub(super) struct SnapshotPins(Mutex<PinnedSnapshots>);

#[derive(Debug, Default)]
struct PinnedSnapshots {
    snapshots: BTreeMap<(Revision, u64), Weak<SnapshotSlot>>,
    /// Distinguishes pins of one revision.
    next_id: u64,
}

type SnapshotSlot = Mutex<Option<Arc<ResourceSnapshot>>>;

/// Keeps a snapshot until the pin is dropped or the history has passed its revision.
#[derive(Debug)]
pub(crate) struct SnapshotPin {
    resource_cache: Arc<ResourceCache>,
    id: (Revision, u64),
    slot: Arc<SnapshotSlot>,
}

impl SnapshotPins {
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
    pub(crate) fn new(resource_cache: Arc<ResourceCache>, snapshot: Arc<ResourceSnapshot>, revision: Revision) -> Self {
        let slot = Arc::new(Mutex::new(Some(snapshot)));
        let mut pinned = resource_cache.pins().0.lock();
        let id = (revision, pinned.next_id);
        pinned.next_id += 1;
        pinned.snapshots.insert(id, Arc::downgrade(&slot));
        drop(pinned);
        Self { resource_cache, id, slot }
    }

    /// The snapshot; `None` after it was released.
    pub(crate) fn snapshot(&self) -> Option<Arc<ResourceSnapshot>> {
        self.slot.lock().clone()
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        self.resource_cache.pins().0.lock().snapshots.remove(&self.id);
    }
}
