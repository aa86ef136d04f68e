//! Reads one state of a resource entry by entry, for responses that are encoded while the client reads them.

use std::ops::Bound;
use std::sync::Arc;

use store::{Key, Revision};

use crate::Registry;
use crate::cache::{CachedEntry, ResourceCache, ResourceSnapshot, SnapshotPin};
use crate::read::{ListSelection, ReadConsistency, ReadError, check_decodable};
use crate::watch::WatchExpired;

/// A position in an immutable snapshot. The snapshot is shared, so a reader costs only the position.
#[derive(Debug)]
pub struct SnapshotReader {
    pin: SnapshotPin,
    key_prefix: Key,
    last_key: Option<Key>,
    revision: Revision,
}

impl Registry {
    /// Opens a reader of the keys that begin with `within`, in one consistent state. [`ReadConsistency::Exact`] is
    /// taken as [`ReadConsistency::NotOlderThan`].
    pub async fn read_snapshot(
        &self,
        resource_cache: &Arc<ResourceCache>,
        within: Key,
        consistency: ReadConsistency,
    ) -> Result<SnapshotReader, ReadError> {
        let (snapshot, revision) = match self.catch_up_cache(consistency).await? {
            Some(reached_revision) => {
                let snapshot = resource_cache.snapshot();
                let revision = reached_revision.max(snapshot.revision);
                (snapshot, revision)
            }
            None => self.snapshot_from_store(resource_cache, &within).await?,
        };
        for (_, cached) in cached_range(&snapshot, &within, None) {
            check_decodable(cached)?;
        }
        Ok(SnapshotReader {
            pin: SnapshotPin::new(resource_cache.clone(), snapshot, revision),
            key_prefix: within,
            last_key: None,
            revision,
        })
    }

    /// Builds a snapshot from the store, sharing every unchanged entry with the cache.
    async fn snapshot_from_store(
        &self,
        resource_cache: &ResourceCache,
        within: &Key,
    ) -> Result<(Arc<ResourceSnapshot>, Revision), ReadError> {
        let span = ListSelection { prefix: within.clone(), start_key: Key::new(), limit: None, filter: &|_| true };
        let page = self.list_store(&span, None).await?;
        let cache = resource_cache.snapshot();
        let items = page.entries.into_iter().map(|item| {
            let same = cache.entries.get(&item.key).filter(|cached| cached.revision == item.revision);
            (item.key.clone(), same.cloned().unwrap_or(item))
        });
        let snapshot = ResourceSnapshot { entries: items.collect(), revision: page.revision };
        Ok((Arc::new(snapshot), page.revision))
    }
}

impl SnapshotReader {
    /// The revision of the state that is read.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The next entry in ascending order of keys; `None` at the end. [`WatchExpired`] if the reader was so slow that
    /// the history since its state is gone.
    pub fn next_item(&mut self) -> Result<Option<Arc<CachedEntry>>, WatchExpired> {
        let snapshot = self.pin.snapshot().ok_or(WatchExpired { requested: self.revision })?;
        let next = cached_range(&snapshot, &self.key_prefix, self.last_key.as_ref()).next();
        Ok(next.map(|(key, cached)| {
            self.last_key = Some(key.clone());
            cached.clone()
        }))
    }
}

fn cached_range<'a>(
    snapshot: &'a ResourceSnapshot,
    key_prefix: &'a Key,
    after: Option<&Key>,
) -> impl Iterator<Item = (&'a Key, &'a Arc<CachedEntry>)> {
    let start = after.map_or_else(|| Bound::Included(key_prefix.clone()), |last| Bound::Excluded(last.clone()));
    snapshot.entries.range((start, Bound::Unbounded)).take_while(move |(key, _)| key.starts_with(key_prefix))
}
