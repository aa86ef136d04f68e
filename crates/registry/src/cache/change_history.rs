//! The recent changes of one shelf, bounded by age and by bytes.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use store::{Key, Revision};
use tokio::time::Instant;

use super::{CachedEntry, CachedValue};

/// Clients resume a watch within this time without listing anew. The store forgets after 5 to 10 minutes, so must we.
const HISTORY_AGE_MAX: Duration = Duration::from_secs(5 * 60);
/// What one shelf keeps of its past. A watcher that is further behind than this is ended, not waited for.
const HISTORY_BYTES_MAX: usize = 8 << 20;
/// So many changes are kept whatever their age: a quiet resource's watchers resume after a long time too.
const HISTORY_CHANGES_MIN: usize = 100;

/// One key changed.
#[derive(Debug)]
pub struct KeyChange {
    /// The key in the store.
    pub key: Key,
    /// The revision of the change.
    pub revision: Revision,
    /// What it held before; `None`: it was not there.
    pub previous: Option<Arc<CachedEntry>>,
    /// What it holds since; `None`: it is gone.
    pub current: Option<Arc<CachedEntry>>,
    frame: OnceLock<Bytes>,
}

impl KeyChange {
    pub(super) fn new(
        key: Key,
        revision: Revision,
        previous: Option<Arc<CachedEntry>>,
        current: Option<Arc<CachedEntry>>,
    ) -> Self {
        Self { key, revision, previous, current, frame: OnceLock::new() }
    }

    /// The change as it goes to every watcher that sees it unfiltered: made by the first who needs it, shared by the rest.
    pub fn get_or_encode_frame(&self, encode: impl FnOnce() -> Bytes) -> Bytes {
        self.frame.get_or_init(encode).clone()
    }

    fn approximate_bytes(&self) -> usize {
        let weigh = |cached: &Arc<CachedEntry>| match &cached.value {
            CachedValue::Object(stored) => stored.memory_bytes(),
            CachedValue::Raw(bytes) => bytes.len(),
            CachedValue::Undecodable(_) => 0,
        };
        // The current value is counted although the snapshot shares it: it will be replaced there and stay here.
        self.key.len() + self.current.as_ref().or(self.previous.as_ref()).map_or(0, weigh) + size_of::<Self>()
    }
}

/// Changes in the order of their revisions, numbered without gaps.
#[derive(Debug, Default)]
pub(super) struct ChangeHistory {
    changes: VecDeque<(Instant, Arc<KeyChange>)>,
    /// The number of the first change that is still here.
    first_position: u64,
    /// Every change after this revision is here.
    complete_after: Revision,
    bytes: usize,
}

impl ChangeHistory {
    pub(super) fn push(&mut self, change: KeyChange, now: Instant) {
        self.bytes += change.approximate_bytes();
        self.changes.push_back((now, Arc::new(change)));
        while let Some((at, oldest)) = self.changes.front() {
            let too_many_bytes = self.bytes > HISTORY_BYTES_MAX && self.changes.len() > 1;
            let too_old = self.changes.len() > HISTORY_CHANGES_MIN && now.duration_since(*at) > HISTORY_AGE_MAX;
            if !too_many_bytes && !too_old {
                return;
            }
            self.bytes -= oldest.approximate_bytes();
            self.complete_after = oldest.revision;
            self.first_position += 1;
            self.changes.pop_front();
        }
    }

    /// Forgets everything; changes after `revision` will follow. The number of the next is past every position that was ever
    /// handed out, so that no watcher goes on as if nothing were missing.
    pub(super) fn reset(&mut self, revision: Revision) {
        self.first_position = self.next_position() + 1;
        self.changes.clear();
        self.bytes = 0;
        self.complete_after = revision;
    }

    /// Every change after this revision is here.
    pub(super) fn complete_after(&self) -> Revision {
        self.complete_after
    }

    pub(super) fn next_position(&self) -> u64 {
        self.first_position + self.changes.len() as u64
    }

    pub(super) fn position_after(&self, revision: Revision) -> Option<u64> {
        if revision < self.complete_after {
            return None;
        }
        let before = self.changes.partition_point(|(_, change)| change.revision <= revision);
        Some(self.first_position + before as u64)
    }

    pub(super) fn changes(&self, position: u64, max: usize) -> Option<Vec<Arc<KeyChange>>> {
        let skip = usize::try_from(position.checked_sub(self.first_position)?).ok()?;
        Some(self.changes.iter().skip(skip).take(max).map(|(_, change)| change.clone()).collect())
    }
}
