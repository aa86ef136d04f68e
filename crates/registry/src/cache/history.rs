//! The recent changes of one shelf, bounded by age and by bytes.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use store::{Key, Revision};
use tokio::time::Instant;

use super::{Cached, Item};

/// Clients resume a watch within this time without listing anew. The store forgets after 5 to 10 minutes, so must we.
const AGE_MAX: Duration = Duration::from_secs(5 * 60);
/// What one shelf keeps of its past. A watcher that is further behind than this is ended, not waited for.
const BYTES_MAX: usize = 8 << 20;
/// So many changes are kept whatever their age: a quiet resource's watchers resume after a long time too.
const CHANGES_MIN: usize = 100;

/// One key changed.
#[derive(Debug)]
pub struct Change {
    /// The key in the store.
    pub key: Key,
    /// The revision of the change.
    pub revision: Revision,
    /// What it held before; `None`: it was not there.
    pub previous: Option<Arc<Cached>>,
    /// What it holds since; `None`: it is gone.
    pub current: Option<Arc<Cached>>,
    frame: OnceLock<Bytes>,
}

impl Change {
    pub(super) fn new(
        key: Key,
        revision: Revision,
        previous: Option<Arc<Cached>>,
        current: Option<Arc<Cached>>,
    ) -> Self {
        Self { key, revision, previous, current, frame: OnceLock::new() }
    }

    /// The change as it goes to every watcher that sees it unfiltered: made by the first who needs it, shared by the rest.
    pub fn frame(&self, make: impl FnOnce() -> Bytes) -> Bytes {
        self.frame.get_or_init(make).clone()
    }

    fn weight(&self) -> usize {
        let weigh = |cached: &Arc<Cached>| match &cached.item {
            Item::Object(stored) => stored.weight(),
            Item::Raw(bytes) => bytes.len(),
            Item::Undecodable(_) => 0,
        };
        // The current value is counted although the snapshot shares it: it will be replaced there and stay here.
        self.key.len() + self.current.as_ref().or(self.previous.as_ref()).map_or(0, weigh) + size_of::<Self>()
    }
}

/// Changes in the order of their revisions, numbered without gaps.
#[derive(Debug, Default)]
pub(super) struct History {
    changes: VecDeque<(Instant, Arc<Change>)>,
    /// The number of the first change that is still here.
    first: u64,
    /// Every change after this revision is here.
    complete_after: Revision,
    bytes: usize,
}

impl History {
    pub(super) fn push(&mut self, change: Change, now: Instant) {
        self.bytes += change.weight();
        self.changes.push_back((now, Arc::new(change)));
        while let Some((at, oldest)) = self.changes.front() {
            let too_many_bytes = self.bytes > BYTES_MAX && self.changes.len() > 1;
            let too_old = self.changes.len() > CHANGES_MIN && now.duration_since(*at) > AGE_MAX;
            if !too_many_bytes && !too_old {
                return;
            }
            self.bytes -= oldest.weight();
            self.complete_after = oldest.revision;
            self.first += 1;
            self.changes.pop_front();
        }
    }

    /// Forgets everything; changes after `revision` will follow. The number of the next is past every position that was ever
    /// handed out, so that no watcher goes on as if nothing were missing.
    pub(super) fn restart(&mut self, revision: Revision) {
        self.first = self.next() + 1;
        self.changes.clear();
        self.bytes = 0;
        self.complete_after = revision;
    }

    /// Every change after this revision is here.
    pub(super) fn complete_after(&self) -> Revision {
        self.complete_after
    }

    pub(super) fn next(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    pub(super) fn position_after(&self, revision: Revision) -> Option<u64> {
        if revision < self.complete_after {
            return None;
        }
        let before = self.changes.partition_point(|(_, change)| change.revision <= revision);
        Some(self.first + before as u64)
    }

    pub(super) fn changes(&self, position: u64, max: usize) -> Option<Vec<Arc<Change>>> {
        let skip = usize::try_from(position.checked_sub(self.first)?).ok()?;
        Some(self.changes.iter().skip(skip).take(max).map(|(_, change)| change.clone()).collect())
    }
}
