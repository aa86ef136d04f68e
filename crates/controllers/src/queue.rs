//! What is to be done, each thing once, with a pause after failures.
//!
//! No clock of its own: the time comes in. Its length is bounded by what it is about: every key is there once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use tasks::Backoff;
use tokio::time::Instant;

/// Keys to be worked on.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    backoff: Backoff,
    entries: HashMap<K, Entry>,
    ready: VecDeque<K>,
    /// By time; the number tells apart what is due at the same time.
    delayed: BTreeSet<(Instant, u64)>,
    delayed_keys: HashMap<u64, K>,
    number: u64,
}

#[derive(Debug)]
struct Entry {
    since: Instant,
    failures: u32,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Ready,
    Delayed(Instant, u64),
    Running,
    /// Running, and to be done again.
    RunningAgain,
}

/// How work on a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing more to do.
    Done,
    /// Once more, now.
    Again,
    /// Once more, after a pause that grows.
    Failed,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            entries: HashMap::new(),
            ready: VecDeque::new(),
            delayed: BTreeSet::new(),
            delayed_keys: HashMap::new(),
            number: 0,
        }
    }

    /// Adds a key, unless it is there. One that waits after a failure comes to its turn now: something has changed.
    pub(crate) fn add(&mut self, key: &K, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else {
            self.entries.insert(key.clone(), Entry { since: now, failures: 0, state: State::Ready });
            self.ready.push_back(key.clone());
            return;
        };
        match entry.state {
            State::Ready | State::RunningAgain => {}
            State::Running => entry.state = State::RunningAgain,
            State::Delayed(at, number) => {
                entry.state = State::Ready;
                self.delayed.remove(&(at, number));
                self.delayed_keys.remove(&number);
                self.ready.push_back(key.clone());
            }
        }
    }

    /// The next key to work on.
    pub(crate) fn take(&mut self, now: Instant) -> Option<K> {
        while let Some((at, number)) = self.delayed.first().copied().filter(|(at, _)| *at <= now) {
            self.delayed.remove(&(at, number));
            if let Some(key) = self.delayed_keys.remove(&number) {
                self.set(&key, State::Ready);
                self.ready.push_back(key);
            }
        }
        let key = self.ready.pop_front()?;
        self.set(&key, State::Running);
        Some(key)
    }

    /// Work on a key is over.
    pub(crate) fn end(&mut self, key: &K, ended: Ended, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let is_wanted_again = entry.state == State::RunningAgain;
        match ended {
            Ended::Done if !is_wanted_again => {
                self.entries.remove(key);
            }
            Ended::Done | Ended::Again => {
                entry.failures = 0;
                entry.state = State::Ready;
                self.ready.push_back(key.clone());
            }
            Ended::Failed => {
                entry.failures = entry.failures.saturating_add(1);
                let at = now + self.backoff.after(entry.failures);
                self.number += 1;
                entry.state = State::Delayed(at, self.number);
                self.delayed.insert((at, self.number));
                self.delayed_keys.insert(self.number, key.clone());
            }
        }
    }

    /// When something that waits is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// How many keys there are, with those that are worked on.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Since when the oldest has been there.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.entries.values().map(|entry| entry.since).min()
    }

    fn set(&mut self, key: &K, state: State) {
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
    async fn a_key_is_there_once_and_taken_in_order() {
        let (mut queue, now) = (Queue::new(BACKOFF), Instant::now());
        for key in ["a", "b", "a"] {
            queue.add(&key, now);
        }
        assert_eq!((queue.take(now), queue.take(now), queue.take(now)), (Some("a"), Some("b"), None));
        assert_eq!(queue.len(), 2, "what is worked on counts");
        queue.add(&"a", now);
        assert_eq!(queue.take(now), None, "nobody works on one key twice at a time");
        queue.end(&"a", Ended::Done, now);
        assert_eq!(queue.take(now), Some("a"), "it was wanted again");
        queue.end(&"a", Ended::Done, now);
        queue.end(&"b", Ended::Again, now);
        assert_eq!(queue.take(now), Some("b"));
        queue.end(&"b", Ended::Done, now);
        assert_eq!((queue.len(), queue.oldest()), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_and_longer_up_to_a_bound() {
        let (mut queue, start) = (Queue::new(BACKOFF), Instant::now());
        queue.add(&"a", start);
        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..5 {
            assert_eq!(queue.take(now), Some("a"));
            queue.end(&"a", Ended::Failed, now);
            let due = queue.next_due().unwrap();
            assert_eq!(queue.take(now), None, "it is not due");
            waits.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        assert_eq!(queue.oldest(), Some(start));
        queue.take(now);
        queue.end(&"a", Ended::Failed, now);
        queue.add(&"a", now);
        assert_eq!(queue.take(now), Some("a"), "something has changed: it need not wait");
        assert_eq!(queue.next_due(), None);
    }
}
