//! The recent changes of one resource, bounded by age and by bytes.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use store::{Key, Revision};
use tokio::time::Instant;

use super::{CachedEntry, CachedValue};

/// Clients resume a watch within this time without a new list. The store itself keeps 5 to 10 minutes of history.
const HISTORY_AGE_MAX: Duration = Duration::from_secs(5 * 60);
/// Bytes of history per resource. A watcher that lags further behind is ended.
const HISTORY_BYTES_MAX: usize = 8 << 20;
/// Changes that are kept regardless of age, so that watches of a quiet resource can be resumed after a long time.
const HISTORY_CHANGES_MIN: usize = 100;

/// One change of one key.
#[derive(Debug)]
pub struct KeyChange {
    /// The key in the store.
    pub key: Key,
    /// The revision of the change.
    pub revision: Revision,
    /// The entry before the change; `None`: the key was created.
    pub previous: Option<Arc<CachedEntry>>,
    /// The entry after the change; `None`: the key was deleted.
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

    /// The encoded watch event for all watchers without a filter; the first caller encodes it, the others share the
    /// bytes.
    pub fn get_or_encode_frame(&self, encode: impl FnOnce() -> Bytes) -> Bytes {
        self.frame.get_or_init(encode).clone()
    }

    fn approximate_bytes(&self) -> usize {
        let weigh = |cached: &Arc<CachedEntry>| match &cached.value {
            CachedValue::Object(stored) => stored.memory_bytes(),
            CachedValue::Raw(bytes) => bytes.len(),
            CachedValue::Undecodable(_) => 0,
        };
        // The current value counts although the snapshot shares it, since it stays here after it is replaced there.
        self.key.len() + self.current.as_ref().or(self.previous.as_ref()).map_or(0, weigh) + size_of::<Self>()
    }
}

/// Changes in order of revision, numbered without gaps.
#[derive(Debug, Default)]
pub(super) struct ChangeHistory {
    changes: VecDeque<(Instant, Arc<KeyChange>)>,
    /// The position of the oldest kept change.
    first_position: u64,
    /// Every change after this revision is kept.
    complete_after: Revision,
    bytes: usize,
}

impl ChangeHistory {
    /// Adds a change and drops the oldest changes beyond the limits.
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

    /// Drops all changes; changes after `revision` will follow. The next position is beyond every position ever
    /// returned, so that no watcher misses the gap.
    pub(super) fn reset(&mut self, revision: Revision) {
        self.first_position = self.next_position() + 1;
        self.changes.clear();
        self.bytes = 0;
        self.complete_after = revision;
    }

    /// Every change after this revision is kept.
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
