//! The caches of custom resources, which come into being with the first key or the first reader.
//!
//! A key `<group>/<resource>/…` below the root, whose group has a dot, belongs to a custom resource. It is cached whether
//! or not a definition exists, so that a new definition finds its objects complete at the revision of the cache.

use std::collections::HashMap;
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
}
