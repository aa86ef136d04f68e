//! etcd's answers on a watch, put together into batches that keep our contract.
//!
//! What etcd sends is not yet what we promise: it cuts large answers into fragments, also between the events of one
//! transaction; a resumed stream begins before what was delivered; and etcds before 3.4.24, 3.4.25 and 3.4.38 may send events
//! twice, go back in time after they received a snapshot, or show events before a start that lies in the future.

use crate::contract::{Batch, Entry, Event, Revision};
use crate::etcd::proto::{EVENT_DELETE, WatchEvent, WatchResponse};
use crate::etcd::reads::from_wire;

/// How far a watch has come, and what it holds back because its revision may not be complete.
#[derive(Debug)]
pub(super) struct Assembly {
    /// Everything up to here was delivered.
    through: Revision,
    /// Events of fragments, newer than `through`.
    held: Vec<Event>,
}

impl Assembly {
    pub(super) fn new(from: Revision) -> Self {
        Self { through: Revision(from.0.saturating_sub(1)), held: Vec::new() }
    }

    /// The first revision that was not delivered.
    pub(super) fn next(&self) -> Revision {
        self.through.next()
    }

    /// Where a stream begins that goes on from here, which forgets what is held.
    ///
    /// One revision earlier than needed, because etcd lets a watch begin at the very revision that it was compacted to, and
    /// before 3.4.36 has then forgotten the removals of that revision without saying so. The extra events are dropped. Never
    /// 0, which means "now" to etcd.
    pub(super) fn resume_at(&self) -> Revision {
        self.through.max(Revision(1))
    }

    /// Takes the events of an answer, and returns those that are complete.
    pub(super) fn events(&mut self, answer: WatchResponse) -> Option<Batch> {
        let through = self.through;
        self.held.extend(answer.events.into_iter().filter_map(event).filter(|event| event.revision() > through));
        let last = self.held.last()?.revision();
        let complete = match answer.fragment {
            // More of the last revision may follow.
            true => self.held.partition_point(|event| event.revision() < last),
            false => self.held.len(),
        };
        let rest = self.held.split_off(complete);
        let events = std::mem::replace(&mut self.held, rest);
        self.through = events.last()?.revision();
        Some(Batch { events, through: self.through })
    }

    /// Takes the news that nothing else happened up to `revision`.
    pub(super) fn progress(&mut self, revision: Revision) -> Option<Batch> {
        if revision < self.through || !self.held.is_empty() {
            return None;
        }
        self.through = revision;
        Some(Batch { events: Vec::new(), through: revision })
    }

    /// Begins a new stream from [`Self::resume_at`].
    pub(super) fn restart(&mut self) {
        self.held.clear();
    }
}

fn event(event: WatchEvent) -> Option<Event> {
    let kv = event.kv?;
    Some(match event.kind {
        EVENT_DELETE => Event::Delete { key: kv.key, revision: from_wire(kv.mod_revision) },
        _ => Event::Put(Entry::from(kv)),
    })
}

#[cfg(test)]
mod tests;
