//! Remembers whether decoding a stored object under a schema changes it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether decoding changes an object, remembered for one schema at a time. Readers of a cached object share it.
///
/// Two objects do not differ by what is remembered of them.
#[derive(Debug, Default)]
pub struct FormMemo(AtomicU64);

impl FormMemo {
    /// True if decoding under a schema leaves the object as it is. `is_unchanged` decides it at the first call for the
    /// schema. Schemas are numbered from 1; a number is never used for another schema.
    pub fn is_unchanged(&self, schema: u64, is_unchanged: impl FnOnce() -> bool) -> bool {
        // The lowest bit has the answer.
        let known = self.0.load(Ordering::Relaxed);
        if known >> 1 == schema {
            return known & 1 == 1;
        }
        let unchanged = is_unchanged();
        self.0.store(schema << 1 | u64::from(unchanged), Ordering::Relaxed);
        unchanged
    }
}

impl Clone for FormMemo {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl PartialEq for FormMemo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for FormMemo {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memo_holds_for_one_schema_and_is_decided_again_for_another() {
        let memo = FormMemo::default();
        assert!(memo.is_unchanged(1, || true));
        assert!(memo.is_unchanged(1, || panic!("known")));
        assert!(!memo.is_unchanged(2, || false));
        assert!(!memo.is_unchanged(2, || panic!("known")));
        assert!(memo.is_unchanged(1, || true));
    }
}
