//! A table of entries keyed by server, and membership feeds of its changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use membership::ServerId;
use membership::ports::{EntryVersion, Feed, FeedUpdate};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Entries keyed by server; every write and removal increments the version.
#[derive(Debug)]
pub(crate) struct VersionedTable<T> {
    state: Mutex<TableState<T>>,
    /// Version of the last change; wakes the feeds.
    last_version: watch::Sender<EntryVersion>,
}

#[derive(Debug)]
struct TableState<T> {
    entries: BTreeMap<ServerId, (EntryVersion, T)>,
    last_version: EntryVersion,
}

impl<T> Default for VersionedTable<T> {
    fn default() -> Self {
        let last = EntryVersion(0);
        Self {
            state: Mutex::new(TableState { entries: BTreeMap::new(), last_version: last }),
            last_version: watch::Sender::new(last),
        }
    }
}

impl<T: Clone> VersionedTable<T> {
    /// Inserts or replaces an entry and returns its version.
    pub(crate) fn put(&self, server: &ServerId, value: T) -> EntryVersion {
        self.update(|state| state.insert(server, value))
    }

    /// Removes an entry; no-op if absent.
    pub(crate) fn remove(&self, server: &ServerId) {
        if self.get(server).is_some() {
            self.update(|state| state.remove(server));
        }
    }

    /// Removes an entry if its version is still `expected`.
    pub(crate) fn remove_if(&self, server: &ServerId, expected: EntryVersion) {
        self.update(|state| {
            if state.entries.get(server).is_some_and(|(version, _)| *version == expected) {
                state.remove(server);
            }
        });
    }

    pub(crate) fn get(&self, server: &ServerId) -> Option<(EntryVersion, T)> {
        self.state.lock().entries.get(server).cloned()
    }

    fn update<R>(&self, change: impl FnOnce(&mut TableState<T>) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let last = state.last_version;
        drop(state);
        self.last_version.send_if_modified(|before| {
            let is_new = *before < last;
            *before = last.max(*before);
            is_new
        });
        result
    }
}

impl<T> TableState<T> {
    fn insert(&mut self, server: &ServerId, value: T) -> EntryVersion {
        self.last_version = EntryVersion(self.last_version.0 + 1);
        self.entries.insert(server.clone(), (self.last_version, value));
        self.last_version
    }

    fn remove(&mut self, server: &ServerId) {
        self.last_version = EntryVersion(self.last_version.0 + 1);
        self.entries.remove(server);
    }
}

/// Feed of a table: delivers all entries first, then changes.
pub(crate) struct TableFeed<T, G> {
    table: Arc<VersionedTable<T>>,
    last_version: watch::Receiver<EntryVersion>,
    /// Versions in the last delivery; `None` before the first one.
    delivered: Option<BTreeMap<ServerId, EntryVersion>>,
    convert: fn(EntryVersion, &T) -> G,
}

impl<T, G> TableFeed<T, G> {
    pub(crate) fn new(table: &Arc<VersionedTable<T>>, convert: fn(EntryVersion, &T) -> G) -> Self {
        Self { table: table.clone(), last_version: table.last_version.subscribe(), delivered: None, convert }
    }
}

impl<T: Clone + Send + 'static, G> Feed<G> for TableFeed<T, G> {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        async move {
            if self.delivered.is_some() && self.last_version.changed().await.is_err() {
                std::future::pending().await
            }
        }
        .boxed()
    }

    fn take_update(&mut self) -> FeedUpdate<G> {
        self.last_version.borrow_and_update();
        let state = self.table.state.lock();
        let now: BTreeMap<ServerId, EntryVersion> =
            state.entries.iter().map(|(server, (version, _))| (server.clone(), *version)).collect();
        let entries = state.entries.iter();
        let Some(delivered) = self.delivered.replace(now) else {
            let all = entries.map(|(server, (version, value))| (server.clone(), (self.convert)(*version, value)));
            return FeedUpdate::All(all.collect());
        };
        let removed = delivered.keys().filter(|server| !state.entries.contains_key(*server));
        let removed = removed.map(|server| (server.clone(), None));
        let changed = entries.filter(|(server, (version, _))| delivered.get(*server) != Some(version));
        let changed = changed.map(|(server, (version, value))| (server.clone(), Some((self.convert)(*version, value))));
        FeedUpdate::Changes(removed.chain(changed).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> ServerId {
        ServerId::from_name(&format!("apiserver-{name}")).unwrap()
    }

    fn describe_update(update: FeedUpdate<&'static str>) -> String {
        match update {
            FeedUpdate::All(all) => format!("all {all:?}"),
            FeedUpdate::Changes(changes) => format!("{changes:?}"),
        }
    }

    #[tokio::test]
    async fn feed_delivers_all_entries_then_changes() {
        let table = Arc::new(VersionedTable::default());
        table.put(&server("a"), "1");
        let mut feed = TableFeed::new(&table, |_, value| *value);
        feed.ready().await;
        assert_eq!(describe_update(feed.take_update()), r#"all [(apiserver-a, "1")]"#);
        assert!(feed.ready().now_or_never().is_none());
        table.put(&server("b"), "2");
        table.remove(&server("a"));
        feed.ready().await;
        assert_eq!(describe_update(feed.take_update()), r#"[(apiserver-a, None), (apiserver-b, Some("2"))]"#);
        assert_eq!(describe_update(feed.take_update()), "[]");
    }

    #[test]
    fn remove_if_spares_replaced_entry() {
        let table = VersionedTable::default();
        let first = table.put(&server("a"), "1");
        let second = table.put(&server("a"), "2");
        table.remove_if(&server("a"), first);
        assert_eq!(table.get(&server("a")), Some((second, "2")));
        table.remove_if(&server("a"), second);
        assert_eq!(table.get(&server("a")), None);
    }
}
