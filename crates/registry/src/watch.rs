//! Watches of one resource cache from a revision on.

use std::sync::Arc;

use store::Revision;
use tokio::sync::watch;

use crate::Registry;
use crate::cache::{KeyChange, ResourceCache, WatchCache};

/// Changes per read. Bounds what an idle watcher keeps in memory after the history has dropped it.
const CHANGES_PER_READ_MAX: usize = 8;

/// A reader of the changes of one resource cache. It holds a position and no queue: unread changes are in the cache's
/// history, once for all watchers, and a watcher that is too slow finds its position gone.
#[derive(Debug)]
pub struct CacheWatcher {
    resource_cache: Arc<ResourceCache>,
    cache: WatchCache,
    position: u64,
    /// Changes up to this revision are skipped. They may still arrive, since the cache can lag behind a revision that
    /// the client got from a write.
    start_revision: Revision,
    delivered_revision: Revision,
    next_position: watch::Receiver<u64>,
}

/// The requested changes are no longer in the history: the watch started too late or was read too slowly. List again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested}")]
pub struct WatchExpired {
    /// The revision after which changes were requested.
    pub requested: Revision,
}

impl Registry {
    /// Watches the changes of a resource after `revision`.
    pub fn watch(&self, resource_cache: &Arc<ResourceCache>, revision: Revision) -> Result<CacheWatcher, WatchExpired> {
        let next = resource_cache.subscribe();
        let position = resource_cache.position_after(revision).ok_or(WatchExpired { requested: revision })?;
        Ok(CacheWatcher {
            resource_cache: resource_cache.clone(),
            cache: self.cache().clone(),
            position,
            start_revision: revision,
            delivered_revision: revision,
            next_position: next,
        })
    }
}

impl CacheWatcher {
    /// Waits for the next changes and returns at least one. Cancel-safe: dropping the future loses no change.
    pub async fn next_changes(&mut self) -> Result<Vec<Arc<KeyChange>>, WatchExpired> {
        loop {
            self.next_position.mark_unchanged();
            let mut changes =
                self.resource_cache.changes(self.position, CHANGES_PER_READ_MAX).ok_or(self.expired_error())?;
            self.position += changes.len() as u64;
            let was_empty = changes.is_empty();
            changes.retain(|change| change.revision > self.start_revision);
            if let Some(last) = changes.last() {
                self.delivered_revision = self.delivered_revision.max(last.revision);
                return Ok(changes);
            }
            if !was_empty {
                continue;
            }
            // The resource cache outlives the watcher, and so does its sender.
            if self.next_position.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The revision for a bookmark: every change up to it has been returned.
    pub fn delivered_revision(&mut self) -> Revision {
        // Read before the unread changes: a change in between is then newer than the returned revision.
        let cache_through = self.cache.applied_revision();
        if self.resource_cache.changes(self.position, 1).is_some_and(|unread| unread.is_empty()) {
            self.delivered_revision = self.delivered_revision.max(cache_through);
        }
        self.delivered_revision
    }

    fn expired_error(&self) -> WatchExpired {
        WatchExpired { requested: self.delivered_revision }
    }
}
