//! Following one shelf from a revision on.

use std::sync::Arc;

use store::Revision;
use tokio::sync::watch;

use crate::Registry;
use crate::cache::{Cache, Change, Shelf};

/// So many changes are handed over at once. A watcher that is not read keeps them in memory when the history has forgotten them.
const CHANGES_AT_ONCE: usize = 8;

/// A reader of a shelf's changes. It holds a position and no queue: what it has not read yet lies in the shelf's history
/// once for all watchers, and a watcher that is too slow finds its position forgotten.
#[derive(Debug)]
pub struct Watcher {
    shelf: Arc<Shelf>,
    cache: Cache,
    position: u64,
    /// Changes up to this one are not news to the watcher. They may still come: the cache can be behind the revision that a
    /// client got from a write.
    after: Revision,
    through: Revision,
    next: watch::Receiver<u64>,
}

/// The changes that the watcher wants are forgotten: it asked too late or read too slowly. List again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested}")]
pub struct Expired {
    /// The revision after which changes were wanted.
    pub requested: Revision,
}

impl Registry {
    /// The changes of a shelf after `revision`.
    pub fn watch(&self, shelf: &Arc<Shelf>, revision: Revision) -> Result<Watcher, Expired> {
        let next = shelf.subscribe();
        let position = shelf.position_after(revision).ok_or(Expired { requested: revision })?;
        Ok(Watcher {
            shelf: shelf.clone(),
            cache: self.cache().clone(),
            position,
            after: revision,
            through: revision,
            next,
        })
    }
}

impl Watcher {
    /// The next changes, at least one; waits for it. May be dropped at any time without losing one.
    pub async fn next(&mut self) -> Result<Vec<Arc<Change>>, Expired> {
        loop {
            self.next.mark_unchanged();
            let mut changes = self.shelf.changes(self.position, CHANGES_AT_ONCE).ok_or(self.expired())?;
            self.position += changes.len() as u64;
            let was_empty = changes.is_empty();
            changes.retain(|change| change.revision > self.after);
            if let Some(last) = changes.last() {
                self.through = self.through.max(last.revision);
                return Ok(changes);
            }
            if !was_empty {
                continue;
            }
            // The shelf outlives us, so its sender does too.
            if self.next.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Every change up to this revision has been returned: what a bookmark says.
    pub fn through(&mut self) -> Revision {
        // Asked before looking for changes: a change that comes in between is then newer than what we claim.
        let cache_through = self.cache.through();
        if self.shelf.changes(self.position, 1).is_some_and(|unread| unread.is_empty()) {
            self.through = self.through.max(cache_through);
        }
        self.through
    }

    fn expired(&self) -> Expired {
        Expired { requested: self.through }
    }
}
