//! [`Feed`] over a resource cache: the full state first, then changes.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use membership::ServerId;
use membership::ports::{Feed, FeedUpdate};
use registry::{CacheWatcher, CachedEntry, KeyChange, Registry, ResourceCache};
use store::Key;

/// A feed of the entries below a prefix, keyed by server.
pub(super) struct ResourceFeed<T> {
    registry: Registry,
    resource_cache: Arc<ResourceCache>,
    /// Followed by the server's id in each key.
    key_prefix: Key,
    /// Decodes an entry; `None` counts as absent.
    decode: fn(&CachedEntry) -> Option<T>,
    /// `None` before the first full state, and after the watcher expired: the next update is then a full state.
    watcher: Option<CacheWatcher>,
    /// Changes not yet taken by `take_update`.
    pending: Vec<(ServerId, Option<T>)>,
}

impl<T> ResourceFeed<T> {
    pub(super) fn new(
        registry: &Registry,
        resource_cache: &Arc<ResourceCache>,
        key_prefix: Key,
        read: fn(&CachedEntry) -> Option<T>,
    ) -> Self {
        Self {
            registry: registry.clone(),
            resource_cache: resource_cache.clone(),
            key_prefix,
            decode: read,
            watcher: None,
            pending: Vec::new(),
        }
    }

    fn server_of_key(&self, key: &Key) -> Option<ServerId> {
        let name = key.strip_prefix(&*self.key_prefix)?;
        ServerId::from_name(std::str::from_utf8(name).ok()?)
    }

    fn queue_changes(&mut self, changes: &[Arc<KeyChange>]) {
        for change in changes {
            if let Some(server) = self.server_of_key(&change.key) {
                self.pending.push((server, change.current.as_deref().and_then(self.decode)));
            }
        }
    }

    /// Returns the full state and starts watching from it. `None` if the cache has not synced.
    fn relist(&mut self) -> Option<Vec<(ServerId, T)>> {
        if !self.registry.cache().has_synced() {
            return None;
        }
        let snapshot = self.resource_cache.snapshot();
        // Fails if the revision was compacted in between; the next call then takes a newer snapshot.
        self.watcher = Some(self.registry.watch(&self.resource_cache, snapshot.revision).ok()?);
        self.pending.clear();
        let entries =
            snapshot.entries.range(self.key_prefix.clone()..).take_while(|(key, _)| key.starts_with(&self.key_prefix));
        Some(entries.filter_map(|(key, cached)| Some((self.server_of_key(key)?, (self.decode)(cached)?))).collect())
    }
}

impl<T: Send + 'static> Feed<T> for ResourceFeed<T> {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if !self.pending.is_empty() {
                return;
            }
            let Some(watcher) = &mut self.watcher else {
                if self.registry.cache().wait_for_sync().await.is_err() {
                    // The server stops: no change will follow.
                    std::future::pending::<()>().await;
                }
                return;
            };
            // Cancel-safe: changes are queued before the next await.
            match watcher.next_changes().await {
                Ok(changes) => self.queue_changes(&changes),
                Err(_expired) => self.watcher = None,
            }
        })
    }

    fn take_update(&mut self) -> FeedUpdate<T> {
        while let Some(watcher) = &mut self.watcher
            && let Some(next) = watcher.next_changes().now_or_never()
        {
            match next {
                Ok(changes) => self.queue_changes(&changes),
                Err(_expired) => self.watcher = None,
            }
        }
        if self.watcher.is_some() {
            return FeedUpdate::Changes(std::mem::take(&mut self.pending));
        }
        self.relist().map_or_else(|| FeedUpdate::Changes(Vec::new()), FeedUpdate::All)
    }
}
