//! Tokens whose signature was verified before, by digest.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Digest;

/// A bounded map that forgets what was not used lately.
///
/// Two halves: what is used moves to the younger one; when that is full, the older one is dropped and the younger takes its
/// place. So the most recently used half of the bound is always kept, and nothing needs a clock.
#[derive(Debug)]
pub(super) struct Cache<V> {
    half: usize,
    halves: Mutex<Halves<V>>,
}

#[derive(Debug)]
struct Halves<V> {
    young: HashMap<Digest, Arc<V>>,
    old: HashMap<Digest, Arc<V>>,
}

impl<V> Cache<V> {
    pub(super) fn new(entries_max: usize) -> Self {
        let halves = Mutex::new(Halves { young: HashMap::new(), old: HashMap::new() });
        Self { half: (entries_max / 2).max(1), halves }
    }

    pub(super) fn get(&self, key: &Digest) -> Option<Arc<V>> {
        let mut halves = self.halves.lock();
        if let Some(value) = halves.young.get(key) {
            return Some(value.clone());
        }
        let value = halves.old.remove(key)?;
        self.insert(&mut halves, *key, value.clone());
        Some(value)
    }

    pub(super) fn put(&self, key: Digest, value: Arc<V>) {
        self.insert(&mut self.halves.lock(), key, value);
    }

    fn insert(&self, halves: &mut Halves<V>, key: Digest, value: Arc<V>) {
        if halves.young.len() >= self.half {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Digest {
        [number; 32]
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten() {
        let cache = Cache::new(4);
        for number in 0..100 {
            cache.put(key(number), Arc::new(number));
            assert_eq!(cache.get(&key(0)).as_deref(), Some(&0), "after {number}");
            let kept = (0..=number).filter(|number| cache.halves.lock().has(&key(*number))).count();
            assert!(kept <= 4, "{kept}");
        }
        assert_eq!(cache.get(&key(50)), None);
        assert_eq!(cache.get(&key(99)).as_deref(), Some(&99));
    }

    impl<V> Halves<V> {
        fn has(&self, key: &Digest) -> bool {
            self.young.contains_key(key) || self.old.contains_key(key)
        }
    }
}
