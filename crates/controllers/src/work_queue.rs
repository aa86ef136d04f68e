//! A work queue that holds each key once and delays keys after failures.
//!
//! The caller passes the time in. The length is bounded by the number of distinct keys.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use tasks::Backoff;
use tokio::time::Instant;

/// Keys to process, ready, delayed or running.
#[derive(Debug)]
pub(crate) struct WorkQueue<K> {
    backoff: Backoff,
    entries: HashMap<K, QueueEntry>,
    ready: VecDeque<K>,
    /// By due time; the number distinguishes keys that are due at the same time.
    delayed: BTreeSet<(Instant, u64)>,
    delayed_keys: HashMap<u64, K>,
    last_number: u64,
}

#[derive(Debug)]
struct QueueEntry {
    since: Instant,
    failures: u32,
    state: KeyState,
}

#[derive(Debug, PartialEq, Eq)]
enum KeyState {
    Ready,
    Delayed(Instant, u64),
    Running,
    /// Running, and added again meanwhile.
    RunningAndRequeued,
}

/// The result of processing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkResult {
    /// The key is removed, unless it was added again meanwhile.
    Done,
    /// The key is ready again at once.
    Requeue,
    /// The key is retried after a backoff.
    Failed,
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            entries: HashMap::new(),
            ready: VecDeque::new(),
            delayed: BTreeSet::new(),
            delayed_keys: HashMap::new(),
            last_number: 0,
        }
    }

    /// Adds a key, unless it is already queued. A key in backoff becomes ready, since something has changed.
    pub(crate) fn add(&mut self, key: &K, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else {
            self.entries.insert(key.clone(), QueueEntry { since: now, failures: 0, state: KeyState::Ready });
            self.ready.push_back(key.clone());
            return;
        };
        match entry.state {
            KeyState::Ready | KeyState::RunningAndRequeued => {}
            KeyState::Running => entry.state = KeyState::RunningAndRequeued,
            KeyState::Delayed(at, number) => {
                entry.state = KeyState::Ready;
                self.delayed.remove(&(at, number));
                self.delayed_keys.remove(&number);
                self.ready.push_back(key.clone());
            }
        }
    }

    /// Takes the next ready key, including delayed keys that are due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        while let Some((at, number)) = self.delayed.first().copied().filter(|(at, _)| *at <= now) {
            self.delayed.remove(&(at, number));
            if let Some(key) = self.delayed_keys.remove(&number) {
                self.set_state(&key, KeyState::Ready);
                self.ready.push_back(key);
            }
        }
        let key = self.ready.pop_front()?;
        self.set_state(&key, KeyState::Running);
        Some(key)
    }

    /// Records the result of a key taken by `pop`.
    pub(crate) fn finish(&mut self, key: &K, result: WorkResult, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let is_wanted_again = entry.state == KeyState::RunningAndRequeued;
        match result {
            WorkResult::Done if !is_wanted_again => {
                self.entries.remove(key);
            }
            WorkResult::Done | WorkResult::Requeue => {
                entry.failures = 0;
                entry.state = KeyState::Ready;
                self.ready.push_back(key.clone());
            }
            WorkResult::Failed => {
                entry.failures = entry.failures.saturating_add(1);
                let at = now + self.backoff.after(entry.failures);
                self.last_number += 1;
                entry.state = KeyState::Delayed(at, self.last_number);
                self.delayed.insert((at, self.last_number));
                self.delayed_keys.insert(self.last_number, key.clone());
            }
        }
    }

    /// The time at which the next delayed key is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// The number of keys, including running ones.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The insertion time of the oldest key.
    pub(crate) fn oldest_since(&self) -> Option<Instant> {
        self.entries.values().map(|entry| entry.since).min()
    }

    fn set_state(&mut self, key: &K, state: KeyState) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.state = state;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));

    #[tokio::test(start_paused = true)]
    async fn queue_deduplicates_keys_and_keeps_order() {
        let (mut queue, now) = (WorkQueue::new(BACKOFF), Instant::now());
        for key in ["a", "b", "a"] {
            queue.add(&key, now);
        }
        assert_eq!((queue.pop(now), queue.pop(now), queue.pop(now)), (Some("a"), Some("b"), None));
        assert_eq!(queue.len(), 2, "running keys count");
        queue.add(&"a", now);
        assert_eq!(queue.pop(now), None, "a running key is not started again");
        queue.finish(&"a", WorkResult::Done, now);
        assert_eq!(queue.pop(now), Some("a"), "the key was added while running");
        queue.finish(&"a", WorkResult::Done, now);
        queue.finish(&"b", WorkResult::Requeue, now);
        assert_eq!(queue.pop(now), Some("b"));
        queue.finish(&"b", WorkResult::Done, now);
        assert_eq!((queue.len(), queue.oldest_since()), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_keys_back_off_exponentially_up_to_max() {
        let (mut queue, start) = (WorkQueue::new(BACKOFF), Instant::now());
        queue.add(&"a", start);
        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..5 {
            assert_eq!(queue.pop(now), Some("a"));
            queue.finish(&"a", WorkResult::Failed, now);
            let due = queue.next_due().unwrap();
            assert_eq!(queue.pop(now), None, "the key is in backoff");
            waits.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        assert_eq!(queue.oldest_since(), Some(start));
        queue.pop(now);
        queue.finish(&"a", WorkResult::Failed, now);
        queue.add(&"a", now);
        assert_eq!(queue.pop(now), Some("a"), "adding a key ends its backoff");
        assert_eq!(queue.next_due(), None);
    }
}
