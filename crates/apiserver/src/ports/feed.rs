//! A shelf of the cache as a feed: first everything, then what changes.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use peering::ServerId;
use peering::ports::{Feed, Taken};
use registry::{Cached, Change, Registry, Shelf, Watcher};
use store::Key;

/// What below a prefix belongs to servers, by their names.
pub(super) struct ShelfFeed<T> {
    registry: Registry,
    shelf: Arc<Shelf>,
    /// Keys begin so, and the name of a server follows.
    within: Key,
    /// What a key holds; `None` if that is as good as nothing.
    read: fn(&Cached) -> Option<T>,
    /// `None` until everything was given, and again after changes were missed.
    watcher: Option<Watcher>,
    /// Seen and not taken yet.
    pending: Vec<(ServerId, Option<T>)>,
}

impl<T> ShelfFeed<T> {
    pub(super) fn new(registry: &Registry, shelf: &Arc<Shelf>, within: Key, read: fn(&Cached) -> Option<T>) -> Self {
        Self { registry: registry.clone(), shelf: shelf.clone(), within, read, watcher: None, pending: Vec::new() }
    }

    fn server(&self, key: &Key) -> Option<ServerId> {
        let name = key.strip_prefix(&*self.within)?;
        ServerId::from_name(std::str::from_utf8(name).ok()?)
    }

    fn note(&mut self, changes: &[Arc<Change>]) {
        for change in changes {
            if let Some(server) = self.server(&change.key) {
                self.pending.push((server, change.current.as_deref().and_then(self.read)));
            }
        }
    }

    /// Everything there is, and from then on its changes. `None` as long as the cache is not filled.
    fn take_all(&mut self) -> Option<Vec<(ServerId, T)>> {
        if !self.registry.cache().is_filled() {
            return None;
        }
        let snapshot = self.shelf.snapshot();
        // Refused if the history was cut in between: then the next try finds a newer snapshot.
        self.watcher = Some(self.registry.watch(&self.shelf, snapshot.revision).ok()?);
        self.pending.clear();
        let below = snapshot.items.range(self.within.clone()..).take_while(|(key, _)| key.starts_with(&self.within));
        Some(below.filter_map(|(key, cached)| Some((self.server(key)?, (self.read)(cached)?))).collect())
    }
}

impl<T: Send + 'static> Feed<T> for ShelfFeed<T> {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if !self.pending.is_empty() {
                return;
            }
            let Some(watcher) = &mut self.watcher else {
                if self.registry.cache().filled().await.is_err() {
                    // The server stops, and nothing will ever be new.
                    std::future::pending::<()>().await;
                }
                return;
            };
            // What comes is kept before anything else is waited for, so that dropping this loses nothing.
            match watcher.next().await {
                Ok(changes) => self.note(&changes),
                Err(_expired) => self.watcher = None,
            }
        })
    }

    fn take(&mut self) -> Taken<T> {
        while let Some(watcher) = &mut self.watcher
            && let Some(next) = watcher.next().now_or_never()
        {
            match next {
                Ok(changes) => self.note(&changes),
                Err(_expired) => self.watcher = None,
            }
        }
        if self.watcher.is_some() {
            return Taken::Changes(std::mem::take(&mut self.pending));
        }
        self.take_all().map_or_else(|| Taken::Changes(Vec::new()), Taken::All)
    }
}
