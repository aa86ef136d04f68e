//! Which acknowledged writes a watch has told of. Pure.

use std::collections::BTreeSet;

/// The writes of one object and the events of one watch on it.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    acknowledged: BTreeSet<u64>,
    /// Told of before the write was acknowledged, or of writes whose acknowledgement was lost.
    early: BTreeSet<u64>,
}

impl Ledger {
    /// A write was acknowledged at this revision.
    pub fn acknowledge(&mut self, revision: u64) {
        if !self.early.remove(&revision) {
            self.acknowledged.insert(revision);
        }
    }

    /// The watch told of this revision.
    pub fn tell(&mut self, revision: u64) {
        if !self.acknowledged.remove(&revision) {
            self.early.insert(revision);
        }
    }

    /// How many acknowledged writes the watch has not told of yet.
    pub fn missing(&self) -> u64 {
        self.acknowledged.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_missing_until_the_watch_tells_of_it_in_whatever_order() {
        let mut ledger = Ledger::default();
        ledger.acknowledge(5);
        ledger.tell(6);
        assert_eq!(ledger.missing(), 1);
        ledger.acknowledge(6);
        assert_eq!(ledger.missing(), 1);
        ledger.tell(5);
        assert_eq!(ledger.missing(), 0);
        ledger.tell(7);
        assert_eq!(ledger.missing(), 0, "a write whose acknowledgement was lost is nobody's loss");
    }
}
