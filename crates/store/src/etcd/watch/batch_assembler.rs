//! etcd's answers on a watch, put together into batches that keep our contract.
//!
//! What etcd sends is not yet what we promise: it cuts large answers into fragments, also between the events of one
//! transaction; a resumed stream begins before what was delivered; and etcds before 3.4.24, 3.4.25 and 3.4.38 may send events
//! twice, go back in time after they received a snapshot, or show events before a start that lies in the future.

use crate::contract::{Revision, StoreEntry, StoreEvent, WatchBatch};
use crate::etcd::proto::{EVENT_DELETE, WatchEvent, WatchResponse};
use crate::etcd::reads::revision_from_wire;

/// How far a watch has come, and what it holds back because its revision may not be complete.
#[derive(Debug)]
pub(super) struct BatchAssembler {
    /// Everything up to here was delivered.
    delivered_through: Revision,
    /// Events of fragments, newer than `through`.
    pending_events: Vec<StoreEvent>,
}

impl BatchAssembler {
    pub(super) fn new(from: Revision) -> Self {
        Self { delivered_through: Revision(from.0.saturating_sub(1)), pending_events: Vec::new() }
    }

    /// The first revision that was not delivered.
    pub(super) fn next_revision(&self) -> Revision {
        self.delivered_through.next()
    }

    /// Where a stream begins that goes on from here, which forgets what is held.
    ///
    /// One revision earlier than needed, because etcd lets a watch begin at the very revision that it was compacted to, and
    /// before 3.4.36 has then forgotten the removals of that revision without saying so. The extra events are dropped. Never
    /// 0, which means "now" to etcd.
    pub(super) fn resume_revision(&self) -> Revision {
        self.delivered_through.max(Revision(1))
    }

    /// Takes the events of an answer, and returns those that are complete.
    pub(super) fn add_events(&mut self, response: WatchResponse) -> Option<WatchBatch> {
        let through = self.delivered_through;
        self.pending_events
            .extend(response.events.into_iter().filter_map(parse_event).filter(|event| event.revision() > through));
        let last = self.pending_events.last()?.revision();
        let complete = match response.fragment {
            // More of the last revision may follow.
            true => self.pending_events.partition_point(|event| event.revision() < last),
            false => self.pending_events.len(),
        };
        let rest = self.pending_events.split_off(complete);
        let events = std::mem::replace(&mut self.pending_events, rest);
        self.delivered_through = events.last()?.revision();
        Some(WatchBatch { events, complete_through: self.delivered_through })
    }

    /// Takes the news that nothing else happened up to `revision`.
    pub(super) fn add_progress(&mut self, revision: Revision) -> Option<WatchBatch> {
        if revision < self.delivered_through || !self.pending_events.is_empty() {
            return None;
        }
        self.delivered_through = revision;
        Some(WatchBatch { events: Vec::new(), complete_through: revision })
    }

    /// Begins a new stream from [`Self::resume_revision`].
    pub(super) fn start_new_stream(&mut self) {
        self.pending_events.clear();
    }
}

fn parse_event(event: WatchEvent) -> Option<StoreEvent> {
    let kv = event.kv?;
    Some(match event.kind {
        EVENT_DELETE => StoreEvent::Delete { key: kv.key, revision: revision_from_wire(kv.mod_revision) },
        _ => StoreEvent::Put(StoreEntry::from(kv)),
    })
}

#[cfg(test)]
mod tests;
