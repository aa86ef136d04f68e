//! Following one shelf from a revision on.

use std::sync::Arc;

use store::Revision;
use tokio::sync::watch;

use crate::Registry;
use crate::cache::{KeyChange, ResourceCache, WatchCache};

/// So many changes are handed over at once. A watcher that is not read keeps them in memory when the history has forgotten them.
const CHANGES_PER_READ_MAX: usize = 8;

/// A reader of a shelf's changes. It holds a position and no queue: what it has not read yet lies in the shelf's history
/// once for all watchers, and a watcher that is too slow finds its position forgotten.
#[derive(Debug)]
pub struct CacheWatcher {
    resource_cache: Arc<ResourceCache>,
    cache: WatchCache,
    position: u64,
    /// Changes up to this one are not news to the watcher. They may still come: the cache can be behind the revision that a
    /// client got from a write.
    start_revision: Revision,
    delivered_revision: Revision,
    next_position: watch::Receiver<u64>,
}

/// The changes that the watcher wants are forgotten: it asked too late or read too slowly. List again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested}")]
pub struct WatchExpired {
    /// The revision after which changes were wanted.
    pub requested: Revision,
}

impl Registry {
    /// The changes of a shelf after `revision`.
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
    /// The next changes, at least one; waits for it. May be dropped at any time without losing one.
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
            // The shelf outlives us, so its sender does too.
            if self.next_position.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Every change up to this revision has been returned: what a bookmark says.
    pub fn delivered_revision(&mut self) -> Revision {
        // Asked before looking for changes: a change that comes in between is then newer than what we claim.
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
