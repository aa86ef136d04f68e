//! A small table by server, and feeds that follow it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::PortError;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use peering::ServerId;
use peering::ports::{Feed, Taken, Version};
use tokio::sync::watch;

/// The table.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    held: Mutex<Held<T>>,
    /// The last write.
    last: watch::Sender<Version>,
}

#[derive(Debug)]
struct Held<T> {
    entries: BTreeMap<ServerId, (Version, T)>,
    last: Version,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        let last = Version(0);
        Self { held: Mutex::new(Held { entries: BTreeMap::new(), last }), last: watch::Sender::new(last) }
    }
}

impl<T: Clone> Shelf<T> {
    /// Puts an entry, whatever was there.
    pub(crate) fn put(&self, server: &ServerId, value: T) -> Version {
        self.write(|held| held.insert(server, value))
    }

    /// Puts an entry that is still what was seen; `None`: there must be none.
    pub(crate) fn replace(&self, server: &ServerId, value: T, seen: Option<Version>) -> Result<Version, PortError> {
        self.write(|held| match held.version(server) == seen {
            true => Ok(held.insert(server, value)),
            false => Err(PortError::Conflict),
        })
    }

    /// Removes an entry, if there is one.
    pub(crate) fn remove(&self, server: &ServerId) {
        if self.get(server).is_some() {
            self.write(|held| held.remove(server));
        }
    }

    /// Removes an entry that is still what was seen.
    pub(crate) fn remove_seen(&self, server: &ServerId, seen: Version) -> Result<(), PortError> {
        self.write(|held| match held.version(server) {
            None => Err(PortError::NotFound),
            Some(version) if version == seen => {
                held.remove(server);
                Ok(())
            }
            Some(_) => Err(PortError::Conflict),
        })
    }

    pub(crate) fn get(&self, server: &ServerId) -> Option<(Version, T)> {
        self.held.lock().entries.get(server).cloned()
    }

    fn write<R>(&self, change: impl FnOnce(&mut Held<T>) -> R) -> R {
        let mut held = self.held.lock();
        let result = change(&mut held);
        let last = held.last;
        drop(held);
        self.last.send_if_modified(|before| {
            let is_new = *before < last;
            *before = last.max(*before);
            is_new
        });
        result
    }
}

impl<T> Held<T> {
    fn version(&self, server: &ServerId) -> Option<Version> {
        self.entries.get(server).map(|(version, _)| *version)
    }

    fn insert(&mut self, server: &ServerId, value: T) -> Version {
        self.last = Version(self.last.0 + 1);
        self.entries.insert(server.clone(), (self.last, value));
        self.last
    }

    fn remove(&mut self, server: &ServerId) {
        self.last = Version(self.last.0 + 1);
        self.entries.remove(server);
    }
}

/// Follows a shelf: first everything, then what changes.
pub(crate) struct ShelfFeed<T, G> {
    shelf: Arc<Shelf<T>>,
    last: watch::Receiver<Version>,
    /// What was given; `None` before the first time.
    given: Option<BTreeMap<ServerId, Version>>,
    show: fn(Version, &T) -> G,
}

impl<T, G> ShelfFeed<T, G> {
    pub(crate) fn new(shelf: &Arc<Shelf<T>>, show: fn(Version, &T) -> G) -> Self {
        Self { shelf: shelf.clone(), last: shelf.last.subscribe(), given: None, show }
    }
}

impl<T: Clone + Send + 'static, G> Feed<G> for ShelfFeed<T, G> {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        async move {
            if self.given.is_some() && self.last.changed().await.is_err() {
                std::future::pending().await
            }
        }
        .boxed()
    }

    fn take(&mut self) -> Taken<G> {
        self.last.borrow_and_update();
        let held = self.shelf.held.lock();
        let now: BTreeMap<ServerId, Version> =
            held.entries.iter().map(|(server, (version, _))| (server.clone(), *version)).collect();
        let entries = held.entries.iter();
        let Some(given) = self.given.replace(now) else {
            let all = entries.map(|(server, (version, value))| (server.clone(), (self.show)(*version, value)));
            return Taken::All(all.collect());
        };
        let gone = given.keys().filter(|server| !held.entries.contains_key(*server));
        let gone = gone.map(|server| (server.clone(), None));
        let new = entries.filter(|(server, (version, _))| given.get(*server) != Some(version));
        let new = new.map(|(server, (version, value))| (server.clone(), Some((self.show)(*version, value))));
        Taken::Changes(gone.chain(new).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> ServerId {
        ServerId::from_name(&format!("apiserver-{name}")).unwrap()
    }

    fn shown(taken: Taken<&'static str>) -> String {
        match taken {
            Taken::All(all) => format!("all {all:?}"),
            Taken::Changes(changes) => format!("{changes:?}"),
        }
    }

    #[tokio::test]
    async fn a_feed_gives_everything_and_then_what_changes() {
        let shelf = Arc::new(Shelf::default());
        shelf.put(&server("a"), "1");
        let mut feed = ShelfFeed::new(&shelf, |_, value| *value);
        feed.ready().await;
        assert_eq!(shown(feed.take()), r#"all [(apiserver-a, "1")]"#);
        assert!(feed.ready().now_or_never().is_none());
        shelf.put(&server("b"), "2");
        shelf.remove(&server("a"));
        feed.ready().await;
        assert_eq!(shown(feed.take()), r#"[(apiserver-a, None), (apiserver-b, Some("2"))]"#);
        assert_eq!(shown(feed.take()), "[]");
    }

    #[test]
    fn writes_are_conditional_on_what_was_seen() {
        let shelf = Shelf::default();
        let first = shelf.replace(&server("a"), "1", None).unwrap();
        assert_eq!(shelf.replace(&server("a"), "2", None), Err(PortError::Conflict));
        let second = shelf.replace(&server("a"), "2", Some(first)).unwrap();
        assert_eq!(shelf.remove_seen(&server("a"), first), Err(PortError::Conflict));
        assert_eq!(shelf.remove_seen(&server("a"), second), Ok(()));
        assert_eq!(shelf.remove_seen(&server("a"), second), Err(PortError::NotFound));
    }
}
