//! Storage in memory, for tests: leases, records and documents with versions, times to live, feeds and trouble on demand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use api::objects::{Endpoints, Lease};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tasks::Tasks;
use tokio::sync::watch;

use crate::identity::{IdentityLease, ServerId};
use crate::ports::{Documents, Feed, Leases, Pending, Progress, Records, Taken, Version};

/// Storage that several servers of a test share. Clones share it.
#[derive(Clone)]
pub(crate) struct Memory {
    state: Arc<Mutex<State>>,
    mood: Arc<Mutex<Mood>>,
    leases: Shelf<Arc<Lease>>,
    lease_failures: watch::Sender<u64>,
    records: Shelf<Arc<Endpoints>>,
    documents: Shelf<(Version, Bytes)>,
    tasks: Tasks,
}

#[derive(Default)]
struct State {
    revision: u64,
    log: Vec<String>,
}

/// How storage answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// Everything but feeds fails.
    Failing,
    /// Everything but feeds hangs.
    Hanging,
}

impl Memory {
    /// Empty storage; times to live run in these tasks.
    pub(crate) fn new(tasks: &Tasks) -> Self {
        Self {
            state: Arc::default(),
            mood: Arc::default(),
            leases: Shelf::default(),
            lease_failures: watch::Sender::new(0),
            records: Shelf::default(),
            documents: Shelf::default(),
            tasks: tasks.clone(),
        }
    }

    pub(crate) fn set_mood(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    /// The same storage, with a mood of its own: as one server of several sees it.
    pub(crate) fn seen_by_another(&self) -> Self {
        Self { mood: Arc::default(), ..self.clone() }
    }

    /// What was written so far, one word and a name each; the log is emptied.
    pub(crate) fn take_log(&self) -> String {
        std::mem::take(&mut self.state.lock().log).join(", ")
    }

    pub(crate) fn lease(&self, server: &ServerId) -> Option<Arc<Lease>> {
        self.leases.get(server).map(|(_, lease)| lease)
    }

    pub(crate) fn record(&self, server: &ServerId) -> Option<Arc<Endpoints>> {
        self.records.get(server).map(|(_, record)| record)
    }

    pub(crate) fn document(&self, server: &ServerId) -> Option<crate::documents::StoredDocument> {
        let (_, (_, bytes)) = self.documents.get(server)?;
        Some(crate::documents::StoredDocument::decode(&bytes).unwrap())
    }

    pub(crate) fn document_version(&self, server: &ServerId) -> Option<Version> {
        self.documents.get(server).map(|(version, _)| version)
    }

    /// Puts a lease as it is, whatever was there.
    pub(crate) fn put_lease(&self, mut lease: Lease) -> Lease {
        let version = self.next_version();
        lease.metadata.resource_version = version.0.to_string();
        if lease.metadata.uid.is_empty() {
            lease.metadata.uid = format!("uid-{}", version.0);
        }
        let server = ServerId::from_name(&lease.metadata.name).unwrap();
        self.leases.put(&server, version, Arc::new(lease.clone()));
        lease
    }

    /// The feed of leases fails once more, and recovers.
    pub(crate) fn fail_to_list_leases(&self) {
        self.lease_failures.send_modify(|failures| *failures += 1);
    }

    pub(crate) fn remove_lease(&self, server: &ServerId) {
        self.leases.remove(server);
    }

    pub(crate) fn remove_record(&self, server: &ServerId) {
        self.records.remove(server);
    }

    fn next_version(&self) -> Version {
        let mut state = self.state.lock();
        state.revision += 1;
        Version(state.revision)
    }

    fn note(&self, what: &str, server: &ServerId) {
        self.state.lock().log.push(format!("{what} {}", server.as_str().trim_start_matches("apiserver-")));
    }

    /// Answers in the mood that storage is in.
    fn answer<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce() -> Result<T, PortError> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, PortError>> {
        async move {
            let mood = *self.mood.lock();
            match mood {
                Mood::Well => act(),
                Mood::Failing => Err(PortError::Unavailable { reason: "on purpose".to_owned() }),
                Mood::Hanging => std::future::pending().await,
            }
        }
        .boxed()
    }

    fn expire<T: Clone + Send + 'static>(&self, shelf: &Shelf<T>, server: &ServerId, version: Version, ttl: Duration) {
        let (shelf, server) = (shelf.clone(), server.clone());
        self.tasks.spawn_once("time-to-live", async move {
            tokio::time::sleep(ttl).await;
            if shelf.get(&server).is_some_and(|(current, _)| current == version) {
                shelf.remove(&server);
            }
        });
    }
}

impl Leases for Memory {
    fn failures(&self) -> Option<watch::Receiver<u64>> {
        Some(self.lease_failures.subscribe())
    }

    fn follow(&self) -> Box<dyn Feed<Arc<Lease>>> {
        self.leases.feed()
    }

    fn get(&self, server: &ServerId) -> Pending<'_, Option<Lease>> {
        let server = server.clone();
        self.answer(move || Ok(self.lease(&server).map(|lease| (*lease).clone())))
    }

    fn create(&self, lease: Lease) -> Pending<'_, Lease> {
        self.answer(move || {
            let server = ServerId::from_name(&lease.metadata.name).unwrap();
            if self.lease(&server).is_some() {
                return Err(PortError::Conflict);
            }
            self.note("create-lease", &server);
            Ok(self.put_lease(lease))
        })
    }

    fn update(&self, lease: Lease) -> Pending<'_, Lease> {
        self.answer(move || {
            let server = ServerId::from_name(&lease.metadata.name).unwrap();
            let current = self.lease(&server).ok_or(PortError::NotFound)?;
            if current.metadata.resource_version != lease.metadata.resource_version {
                return Err(PortError::Conflict);
            }
            self.note("renew-lease", &server);
            Ok(self.put_lease(lease))
        })
    }

    fn delete(&self, seen: &IdentityLease) -> Pending<'_, ()> {
        let seen = seen.clone();
        self.answer(move || {
            let current = self.lease(&seen.server).ok_or(PortError::NotFound)?;
            let preconditions = (&current.metadata.uid, &current.metadata.resource_version);
            if preconditions != (&seen.uid, &seen.resource_version) {
                return Err(PortError::Conflict);
            }
            self.note("delete-lease", &seen.server);
            self.leases.remove(&seen.server);
            Ok(())
        })
    }
}

impl Records for Memory {
    fn follow(&self) -> Box<dyn Feed<Arc<Endpoints>>> {
        self.records.feed()
    }

    fn get(&self, server: &ServerId) -> Pending<'_, Option<Endpoints>> {
        let server = server.clone();
        self.answer(move || Ok(self.record(&server).map(|record| (*record).clone())))
    }

    fn put(&self, server: &ServerId, record: Endpoints, ttl: Duration) -> Pending<'_, Version> {
        let server = server.clone();
        self.answer(move || {
            let version = self.next_version();
            self.note("put-record", &server);
            self.records.put(&server, version, Arc::new(record));
            self.expire(&self.records, &server, version, ttl);
            Ok(version)
        })
    }

    fn delete(&self, server: &ServerId, put: Version) -> Pending<'_, ()> {
        let server = server.clone();
        self.answer(move || {
            let (current, _) = self.records.get(&server).ok_or(PortError::NotFound)?;
            if current != put {
                return Err(PortError::Conflict);
            }
            self.note("delete-record", &server);
            self.records.remove(&server);
            Ok(())
        })
    }
}

impl Documents for Memory {
    fn follow(&self) -> Box<dyn Feed<(Version, Bytes)>> {
        self.documents.feed()
    }

    fn put(
        &self,
        server: &ServerId,
        document: Bytes,
        seen: Option<Version>,
        ttl: Option<Duration>,
    ) -> Pending<'_, Version> {
        let server = server.clone();
        self.answer(move || {
            if self.documents.get(&server).map(|(version, _)| version) != seen {
                return Err(PortError::Conflict);
            }
            let version = self.next_version();
            self.note(if ttl.is_some() { "linger-document" } else { "put-document" }, &server);
            self.documents.put(&server, version, (version, document));
            if let Some(ttl) = ttl {
                self.expire(&self.documents, &server, version, ttl);
            }
            Ok(version)
        })
    }

    fn delete(&self, server: &ServerId, seen: Version) -> Pending<'_, ()> {
        let server = server.clone();
        self.answer(move || {
            let (current, _) = self.documents.get(&server).ok_or(PortError::NotFound)?;
            if current != seen {
                return Err(PortError::Conflict);
            }
            self.note("delete-document", &server);
            self.documents.remove(&server);
            Ok(())
        })
    }
}

impl Progress for Memory {
    fn catch_up(&self) -> Pending<'_, ()> {
        self.answer(|| Ok(()))
    }
}

/// One table, and all that ever happened to it.
struct Shelf<T> {
    items: Arc<Mutex<Items<T>>>,
    changes: Arc<watch::Sender<usize>>,
}

struct Items<T> {
    current: BTreeMap<ServerId, (Version, T)>,
    changes: Vec<(ServerId, Option<T>)>,
}

impl<T> Clone for Shelf<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), changes: self.changes.clone() }
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        let items = Items { current: BTreeMap::new(), changes: Vec::new() };
        Self { items: Arc::new(Mutex::new(items)), changes: Arc::new(watch::Sender::new(0)) }
    }
}

impl<T: Clone + Send + 'static> Shelf<T> {
    fn get(&self, server: &ServerId) -> Option<(Version, T)> {
        self.items.lock().current.get(server).cloned()
    }

    fn put(&self, server: &ServerId, version: Version, value: T) {
        self.change(server, Some((version, value)));
    }

    fn remove(&self, server: &ServerId) {
        self.change(server, None);
    }

    fn change(&self, server: &ServerId, value: Option<(Version, T)>) {
        let mut items = self.items.lock();
        items.changes.push((server.clone(), value.clone().map(|(_, value)| value)));
        match value {
            Some(value) => items.current.insert(server.clone(), value),
            None => items.current.remove(server),
        };
        self.changes.send_replace(items.changes.len());
    }

    fn feed(&self) -> Box<dyn Feed<T>> {
        Box::new(ShelfFeed { shelf: self.clone(), position: None, changes: self.changes.subscribe() })
    }
}

struct ShelfFeed<T> {
    shelf: Shelf<T>,
    position: Option<usize>,
    changes: watch::Receiver<usize>,
}

impl<T: Clone + Send + 'static> Feed<T> for ShelfFeed<T> {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        let position = self.position;
        async move {
            if let Some(position) = position {
                self.changes.wait_for(|changes| *changes > position).await.unwrap();
            }
        }
        .boxed()
    }

    fn take(&mut self) -> Taken<T> {
        let items = self.shelf.items.lock();
        match self.position.replace(items.changes.len()) {
            None => {
                Taken::All(items.current.iter().map(|(server, (_, value))| (server.clone(), value.clone())).collect())
            }
            Some(position) => Taken::Changes(items.changes[position..].to_vec()),
        }
    }
}
