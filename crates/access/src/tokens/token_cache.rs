//! A cache of tokens whose signature is verified, keyed by digest.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::TokenDigest;

/// A bounded cache with approximate LRU eviction.
///
/// It has two generations: a used entry moves to the recent one; when that is full, the previous generation is
/// dropped and the recent one takes its place. The most recently used half of the capacity is therefore always kept,
/// without timestamps.
#[derive(Debug)]
pub(super) struct VerifiedTokenCache<V> {
    generation_capacity: usize,
    generations: Mutex<CacheGenerations<V>>,
}

#[derive(Debug)]
struct CacheGenerations<V> {
    recent: HashMap<TokenDigest, Arc<V>>,
    previous: HashMap<TokenDigest, Arc<V>>,
}

impl<V> VerifiedTokenCache<V> {
    pub(super) fn new(entries_max: usize) -> Self {
        let generations = Mutex::new(CacheGenerations { recent: HashMap::new(), previous: HashMap::new() });
        Self { generation_capacity: (entries_max / 2).max(1), generations }
    }

    pub(super) fn get(&self, key: &TokenDigest) -> Option<Arc<V>> {
        let mut generations = self.generations.lock();
        if let Some(value) = generations.recent.get(key) {
            return Some(value.clone());
        }
        let value = generations.previous.remove(key)?;
        self.insert(&mut generations, *key, value.clone());
        Some(value)
    }

    pub(super) fn put(&self, key: TokenDigest, value: Arc<V>) {
        self.insert(&mut self.generations.lock(), key, value);
    }

    fn insert(&self, generations: &mut CacheGenerations<V>, key: TokenDigest, value: Arc<V>) {
        if generations.recent.len() >= self.generation_capacity {
            generations.previous = std::mem::take(&mut generations.recent);
        }
        generations.recent.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_digest(number: u8) -> TokenDigest {
        [number; 32]
    }

    #[test]
    fn cache_keeps_recently_used_and_evicts_the_rest() {
        let cache = VerifiedTokenCache::new(4);
        for number in 0..100 {
            cache.put(test_digest(number), Arc::new(number));
            assert_eq!(cache.get(&test_digest(0)).as_deref(), Some(&0), "after {number}");
            let kept = (0..=number).filter(|number| cache.generations.lock().contains(&test_digest(*number))).count();
            assert!(kept <= 4, "{kept}");
        }
        assert_eq!(cache.get(&test_digest(50)), None);
        assert_eq!(cache.get(&test_digest(99)).as_deref(), Some(&99));
    }

    impl<V> CacheGenerations<V> {
        fn contains(&self, key: &TokenDigest) -> bool {
            self.recent.contains_key(key) || self.previous.contains_key(key)
        }
    }
}
