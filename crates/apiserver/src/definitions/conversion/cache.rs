//! Results of conversions of stored objects, bounded in size.

use std::collections::HashMap;

use bytes::Bytes;

use super::ConversionKey;

/// Memory of an entry beyond its bytes.
const ENTRY_OVERHEAD_BYTES: usize = 160;

/// Two halves: what was not used while one half filled up is dropped.
#[derive(Debug)]
pub(super) struct ResultCache {
    young: HashMap<ConversionKey, Bytes>,
    old: HashMap<ConversionKey, Bytes>,
    young_bytes: usize,
    bytes_max: usize,
}

impl ResultCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_bytes: 0, bytes_max }
    }

    pub(super) fn get(&mut self, key: &ConversionKey) -> Option<Bytes> {
        if let Some(found) = self.young.get(key) {
            return Some(found.clone());
        }
        let (key, found) = self.old.remove_entry(key)?;
        self.insert(key, found.clone());
        Some(found)
    }

    pub(super) fn insert(&mut self, key: ConversionKey, result: Bytes) {
        let bytes = key.content.len() + result.len() + ENTRY_OVERHEAD_BYTES;
        if self.young_bytes + bytes > self.bytes_max / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(key, result).is_none() {
            self.young_bytes += bytes;
        }
    }
}
