//! Matches acknowledged writes with watch events. Pure.

use std::collections::BTreeSet;

/// Writes to one object, and events of one watch on it.
#[derive(Clone, Debug, Default)]
pub struct EventTracker {
    awaited: BTreeSet<u64>,
    /// Events that arrived before their write was acknowledged, or whose acknowledgement was lost.
    unmatched: BTreeSet<u64>,
}

impl EventTracker {
    /// Records a write that was acknowledged at this revision.
    pub fn write_acknowledged(&mut self, revision: u64) {
        if !self.unmatched.remove(&revision) {
            self.awaited.insert(revision);
        }
    }

    /// Records an event for this revision.
    pub fn event_received(&mut self, revision: u64) {
        if !self.awaited.remove(&revision) {
            self.unmatched.insert(revision);
        }
    }

    /// Number of acknowledged writes without an event so far.
    pub fn missing_events(&self) -> u64 {
        self.awaited.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_is_missing_until_its_event_arrives_in_any_order() {
        let mut ledger = EventTracker::default();
        ledger.write_acknowledged(5);
        ledger.event_received(6);
        assert_eq!(ledger.missing_events(), 1);
        ledger.write_acknowledged(6);
        assert_eq!(ledger.missing_events(), 1);
        ledger.event_received(5);
        assert_eq!(ledger.missing_events(), 0);
        ledger.event_received(7);
        assert_eq!(ledger.missing_events(), 0, "an event without an acknowledged write is not a loss");
    }
}
