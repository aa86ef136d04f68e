//! The caches of custom resources, which come into being with the first key or the first reader.
//!
//! A key `<group>/<resource>/…` below the root, whose group has a dot, belongs to a custom resource. It is cached whether
//! or not a definition exists, so that a new definition finds its objects complete at the revision of the cache. The cache
//! of a resource whose definition is gone is dropped once it is empty and has no reader.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use store::{Key, Revision};

use super::{ResourceCache, ValueFormat};

#[derive(Debug)]
pub(super) struct CustomCaches {
    /// The prefix of all keys, with its trailing slash.
    root: Key,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    by_prefix: HashMap<Key, Arc<ResourceCache>>,
    /// No key of a cache that does not exist yet has changed since this revision.
    complete_after: Revision,
    /// Prefixes whose definition is gone.
    released: HashSet<Key>,
}

impl CustomCaches {
    pub(super) fn new(root: Key) -> Self {
        Self { root, state: RwLock::default() }
    }

    /// The prefix of all keys of a custom resource.
    pub(super) fn prefix_of(&self, group: &str, resource: &str) -> Key {
        [&self.root, group.as_bytes(), b"/", resource.as_bytes(), b"/"].concat().into()
    }

    /// The cache of the custom resource that a key belongs to, if its form is that of one.
    pub(super) fn for_key(&self, key: &[u8]) -> Option<Arc<ResourceCache>> {
        let prefix = self.prefix_of_key(key)?;
        if let Some(known) = self.state.read().by_prefix.get(prefix) {
            return Some(known.clone());
        }
        let mut state = self.state.write();
        let complete_after = state.complete_after;
        let cache = state.by_prefix.entry(Key::copy_from_slice(prefix)).or_insert_with_key(|prefix| {
            let cache = ResourceCache::new(prefix.clone(), ValueFormat::Objects);
            cache.reset_history(complete_after);
            Arc::new(cache)
        });
        Some(cache.clone())
    }

    /// Every cache there is. Caches that are created later are complete after `complete_after`.
    pub(super) fn all_after(&self, complete_after: Revision) -> Vec<Arc<ResourceCache>> {
        let mut state = self.state.write();
        state.complete_after = complete_after;
        state.by_prefix.values().cloned().collect()
    }

    /// Allows to drop the cache of a prefix.
    pub(super) fn release(&self, prefix: Key) {
        self.state.write().released.insert(prefix);
    }

    /// Drops the released caches that are empty at `applied_revision` and have no reader. Called by the writer of the
    /// caches between two changes.
    pub(super) fn drop_released(&self, applied_revision: Revision) {
        if self.state.read().released.is_empty() {
            return;
        }
        let State { by_prefix, complete_after, released } = &mut *self.state.write();
        released.retain(|prefix| {
            let Some(cache) = by_prefix.get(prefix) else { return false };
            // No reader can come in between: each takes its cache from the map.
            if Arc::strong_count(cache) > 1 || !cache.snapshot().entries.is_empty() {
                return true;
            }
            by_prefix.remove(prefix);
            *complete_after = (*complete_after).max(applied_revision);
            false
        });
    }

    fn prefix_of_key<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let below = key.strip_prefix(self.root.as_ref())?;
        let mut slashes = below.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let (group_end, resource_end) = (slashes.next()?, slashes.next()?);
        let has_dot = below[..group_end].contains(&b'.');
        (has_dot && resource_end > group_end + 1).then(|| &key[..self.root.len() + resource_end + 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_custom_resources_have_a_group_with_a_dot() {
        let caches = CustomCaches::new(Key::from("/registry/"));
        for (key, expected) in [
            ("/registry/ex.io/foos/ns/a", Some("/registry/ex.io/foos/")),
            ("/registry/ex.io/foos/", Some("/registry/ex.io/foos/")),
            ("/registry/ex.io/foos", None),
            ("/registry/ex.io//a", None),
            ("/registry/pods/ns/a.b", None),
            ("/registry/_unskew/documents/a.b", None),
            ("/other/ex.io/foos/ns/a", None),
        ] {
            let found = caches.for_key(key.as_bytes()).map(|cache| cache.prefix().clone());
            assert_eq!(found, expected.map(Key::from), "{key}");
        }
        assert_eq!(caches.all_after(Revision(1)).len(), 1, "the caches of one prefix are one");
    }

    #[test]
    fn released_cache_is_dropped_without_reader_and_its_history_starts_again() {
        let caches = CustomCaches::new(Key::from("/registry/"));
        let prefix = Key::from("/registry/ex.io/foos/");
        let reader = caches.for_key(&prefix).unwrap();
        caches.drop_released(Revision(5));
        caches.release(prefix.clone());
        caches.drop_released(Revision(7));
        assert!(Arc::ptr_eq(&reader, &caches.for_key(&prefix).unwrap()), "a reader keeps the cache");
        drop(reader);
        caches.drop_released(Revision(9));
        assert_eq!(caches.state.read().by_prefix.len(), 0);
        let again = caches.for_key(&prefix).unwrap();
        assert!(again.position_after(Revision(8)).is_none() && again.position_after(Revision(9)).is_some());
        caches.drop_released(Revision(11));
        drop(again);
        caches.drop_released(Revision(12));
        assert_eq!(caches.state.read().by_prefix.len(), 1, "a cache is dropped once per release");
    }
}
