//! Assembles etcd's watch responses into batches that keep the contract of the store.
//!
//! etcd promises less than the contract: it splits large responses into fragments, even within a transaction; a resumed
//! stream starts before the last delivered revision; and etcd before 3.4.24, 3.4.25 and 3.4.38 may send events twice,
//! go back in time after receiving a snapshot, or send events before a start revision in the future.

use crate::contract::{Revision, StoreEntry, StoreEvent, WatchBatch};
use crate::etcd::proto::{EVENT_DELETE, WatchEvent, WatchResponse};
use crate::etcd::reads::revision_from_wire;

/// The progress of a watch, with the events of a possibly incomplete revision.
#[derive(Debug)]
pub(super) struct BatchAssembler {
    /// Everything up to this revision was delivered.
    delivered_through: Revision,
    /// Events of fragments, newer than `delivered_through`.
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

    /// The start revision for a stream that resumes this watch.
    ///
    /// One revision earlier than needed, because etcd accepts a watch from the very revision that it was compacted to,
    /// and before 3.4.36 has then silently lost the deletes of that revision. The repeated events are dropped. Never 0,
    /// which etcd takes for the current revision.
    pub(super) fn resume_revision(&self) -> Revision {
        self.delivered_through.max(Revision(1))
    }

    /// Adds the events of a response and returns those of complete transactions.
    pub(super) fn add_events(&mut self, response: WatchResponse) -> Option<WatchBatch> {
        let through = self.delivered_through;
        self.pending_events
            .extend(response.events.into_iter().filter_map(parse_event).filter(|event| event.revision() > through));
        let last = self.pending_events.last()?.revision();
        let complete = match response.fragment {
            // More events of the last revision may follow.
            true => self.pending_events.partition_point(|event| event.revision() < last),
            false => self.pending_events.len(),
        };
        let rest = self.pending_events.split_off(complete);
        let events = std::mem::replace(&mut self.pending_events, rest);
        self.delivered_through = events.last()?.revision();
        Some(WatchBatch { events, complete_through: self.delivered_through })
    }

    /// Records that all events up to `revision` were sent; returns nothing if a transaction is incomplete.
    pub(super) fn add_progress(&mut self, revision: Revision) -> Option<WatchBatch> {
        if revision < self.delivered_through || !self.pending_events.is_empty() {
            return None;
        }
        self.delivered_through = revision;
        Some(WatchBatch { events: Vec::new(), complete_through: revision })
    }

    /// Drops pending events, which the new stream repeats from [`Self::resume_revision`].
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
