//! Storage in memory: leases, records and documents with versions, times to live, feeds and failures on demand.

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
use crate::ports::{
    DocumentStorage, EntryVersion, Feed, FeedProgress, FeedUpdate, LeaseStorage, PortFuture, RecordStorage,
};

/// Storage that several servers of a test share. Clones share it.
#[derive(Clone)]
pub(crate) struct MemoryStorage {
    state: Arc<Mutex<MemoryStorageState>>,
    mode: Arc<Mutex<StorageMode>>,
    leases: MemoryTable<Arc<Lease>>,
    lease_failures: watch::Sender<u64>,
    records: MemoryTable<Arc<Endpoints>>,
    documents: MemoryTable<(EntryVersion, Bytes)>,
    tasks: Tasks,
}

#[derive(Default)]
struct MemoryStorageState {
    revision: u64,
    log: Vec<String>,
}

/// How storage responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StorageMode {
    #[default]
    Working,
    /// Everything but feeds fails.
    Failing,
    /// Everything but feeds hangs.
    Hanging,
}

impl MemoryStorage {
    /// Empty storage; times to live run in these tasks.
    pub(crate) fn new(tasks: &Tasks) -> Self {
        Self {
            state: Arc::default(),
            mode: Arc::default(),
            leases: MemoryTable::default(),
            lease_failures: watch::Sender::new(0),
            records: MemoryTable::default(),
            documents: MemoryTable::default(),
            tasks: tasks.clone(),
        }
    }

    pub(crate) fn set_mode(&self, mode: StorageMode) {
        *self.mode.lock() = mode;
    }

    /// The same storage with a mode of its own, as one server of several sees it.
    pub(crate) fn with_own_mode(&self) -> Self {
        Self { mode: Arc::default(), ..self.clone() }
    }

    /// Takes the log of writes: one word and a name each.
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

    pub(crate) fn document_version(&self, server: &ServerId) -> Option<EntryVersion> {
        self.documents.get(server).map(|(version, _)| version)
    }

    /// Writes a lease unconditionally.
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

    /// Fails to list leases once.
    pub(crate) fn fail_to_list_leases(&self) {
        self.lease_failures.send_modify(|failures| *failures += 1);
    }

    pub(crate) fn remove_lease(&self, server: &ServerId) {
        self.leases.remove(server);
    }

    pub(crate) fn remove_record(&self, server: &ServerId) {
        self.records.remove(server);
    }

    fn next_version(&self) -> EntryVersion {
        let mut state = self.state.lock();
        state.revision += 1;
        EntryVersion(state.revision)
    }

    fn log_write(&self, what: &str, server: &ServerId) {
        self.state.lock().log.push(format!("{what} {}", server.as_str().trim_start_matches("apiserver-")));
    }

    /// Responds as the mode says.
    fn respond<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce() -> Result<T, PortError> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, PortError>> {
        async move {
            let mode = *self.mode.lock();
            match mode {
                StorageMode::Working => act(),
                StorageMode::Failing => Err(PortError::Unavailable { reason: "on purpose".to_owned() }),
                StorageMode::Hanging => std::future::pending().await,
            }
        }
        .boxed()
    }

    fn expire_after<T: Clone + Send + 'static>(
        &self,
        table: &MemoryTable<T>,
        server: &ServerId,
        version: EntryVersion,
        ttl: Duration,
    ) {
        let (locked_table, server) = (table.clone(), server.clone());
        self.tasks.spawn_once("time-to-live", async move {
            tokio::time::sleep(ttl).await;
            if locked_table.get(&server).is_some_and(|(current, _)| current == version) {
                locked_table.remove(&server);
            }
        });
    }
}

impl LeaseStorage for MemoryStorage {
    fn failures(&self) -> Option<watch::Receiver<u64>> {
        Some(self.lease_failures.subscribe())
    }

    fn watch(&self) -> Box<dyn Feed<Arc<Lease>>> {
        self.leases.feed()
    }

    fn get(&self, server: &ServerId) -> PortFuture<'_, Option<Lease>> {
        let server = server.clone();
        self.respond(move || Ok(self.lease(&server).map(|lease| (*lease).clone())))
    }

    fn create(&self, lease: Lease) -> PortFuture<'_, Lease> {
        self.respond(move || {
            let server = ServerId::from_name(&lease.metadata.name).unwrap();
            if self.lease(&server).is_some() {
                return Err(PortError::Conflict);
            }
            self.log_write("create-lease", &server);
            Ok(self.put_lease(lease))
        })
    }

    fn update(&self, lease: Lease) -> PortFuture<'_, Lease> {
        self.respond(move || {
            let server = ServerId::from_name(&lease.metadata.name).unwrap();
            let current = self.lease(&server).ok_or(PortError::NotFound)?;
            if current.metadata.resource_version != lease.metadata.resource_version {
                return Err(PortError::Conflict);
            }
            self.log_write("renew-lease", &server);
            Ok(self.put_lease(lease))
        })
    }

    fn delete(&self, seen: &IdentityLease) -> PortFuture<'_, ()> {
        let seen = seen.clone();
        self.respond(move || {
            let current = self.lease(&seen.server).ok_or(PortError::NotFound)?;
            let preconditions = (&current.metadata.uid, &current.metadata.resource_version);
            if preconditions != (&seen.uid, &seen.resource_version) {
                return Err(PortError::Conflict);
            }
            self.log_write("delete-lease", &seen.server);
            self.leases.remove(&seen.server);
            Ok(())
        })
    }
}

impl RecordStorage for MemoryStorage {
    fn watch(&self) -> Box<dyn Feed<Arc<Endpoints>>> {
        self.records.feed()
    }

    fn get(&self, server: &ServerId) -> PortFuture<'_, Option<Endpoints>> {
        let server = server.clone();
        self.respond(move || Ok(self.record(&server).map(|record| (*record).clone())))
    }

    fn put(&self, server: &ServerId, record: Endpoints, ttl: Duration) -> PortFuture<'_, EntryVersion> {
        let server = server.clone();
        self.respond(move || {
            let version = self.next_version();
            self.log_write("put-record", &server);
            self.records.put(&server, version, Arc::new(record));
            self.expire_after(&self.records, &server, version, ttl);
            Ok(version)
        })
    }

    fn delete(&self, server: &ServerId, put: EntryVersion) -> PortFuture<'_, ()> {
        let server = server.clone();
        self.respond(move || {
            let (current, _) = self.records.get(&server).ok_or(PortError::NotFound)?;
            if current != put {
                return Err(PortError::Conflict);
            }
            self.log_write("delete-record", &server);
            self.records.remove(&server);
            Ok(())
        })
    }
}

impl DocumentStorage for MemoryStorage {
    fn watch(&self) -> Box<dyn Feed<(EntryVersion, Bytes)>> {
        self.documents.feed()
    }

    fn put(
        &self,
        server: &ServerId,
        document: Bytes,
        seen: Option<EntryVersion>,
        ttl: Option<Duration>,
    ) -> PortFuture<'_, EntryVersion> {
        let server = server.clone();
        self.respond(move || {
            if self.documents.get(&server).map(|(version, _)| version) != seen {
                return Err(PortError::Conflict);
            }
            let version = self.next_version();
            self.log_write(if ttl.is_some() { "linger-document" } else { "put-document" }, &server);
            self.documents.put(&server, version, (version, document));
            if let Some(ttl) = ttl {
                self.expire_after(&self.documents, &server, version, ttl);
            }
            Ok(version)
        })
    }

    fn delete(&self, server: &ServerId, seen: EntryVersion) -> PortFuture<'_, ()> {
        let server = server.clone();
        self.respond(move || {
            let (current, _) = self.documents.get(&server).ok_or(PortError::NotFound)?;
            if current != seen {
                return Err(PortError::Conflict);
            }
            self.log_write("delete-document", &server);
            self.documents.remove(&server);
            Ok(())
        })
    }
}

impl FeedProgress for MemoryStorage {
    fn catch_up(&self) -> PortFuture<'_, ()> {
        self.respond(|| Ok(()))
    }
}

/// One table with all its changes.
struct MemoryTable<T> {
    items: Arc<Mutex<TableContents<T>>>,
    changes: Arc<watch::Sender<usize>>,
}

struct TableContents<T> {
    current: BTreeMap<ServerId, (EntryVersion, T)>,
    changes: Vec<(ServerId, Option<T>)>,
}

impl<T> Clone for MemoryTable<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), changes: self.changes.clone() }
    }
}

impl<T> Default for MemoryTable<T> {
    fn default() -> Self {
        let items = TableContents { current: BTreeMap::new(), changes: Vec::new() };
        Self { items: Arc::new(Mutex::new(items)), changes: Arc::new(watch::Sender::new(0)) }
    }
}

impl<T: Clone + Send + 'static> MemoryTable<T> {
    fn get(&self, server: &ServerId) -> Option<(EntryVersion, T)> {
        self.items.lock().current.get(server).cloned()
    }

    fn put(&self, server: &ServerId, version: EntryVersion, value: T) {
        self.change(server, Some((version, value)));
    }

    fn remove(&self, server: &ServerId) {
        self.change(server, None);
    }

    fn change(&self, server: &ServerId, value: Option<(EntryVersion, T)>) {
        let mut items = self.items.lock();
        items.changes.push((server.clone(), value.clone().map(|(_, value)| value)));
        match value {
            Some(value) => items.current.insert(server.clone(), value),
            None => items.current.remove(server),
        };
        self.changes.send_replace(items.changes.len());
    }

    fn feed(&self) -> Box<dyn Feed<T>> {
        Box::new(MemoryFeed { table: self.clone(), position: None, changes: self.changes.subscribe() })
    }
}

struct MemoryFeed<T> {
    table: MemoryTable<T>,
    position: Option<usize>,
    changes: watch::Receiver<usize>,
}

impl<T: Clone + Send + 'static> Feed<T> for MemoryFeed<T> {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        let position = self.position;
        async move {
            if let Some(position) = position {
                self.changes.wait_for(|changes| *changes > position).await.unwrap();
            }
        }
        .boxed()
    }

    fn take_update(&mut self) -> FeedUpdate<T> {
        let items = self.table.items.lock();
        match self.position.replace(items.changes.len()) {
            None => FeedUpdate::All(
                items.current.iter().map(|(server, (_, value))| (server.clone(), value.clone())).collect(),
            ),
            Some(position) => FeedUpdate::Changes(items.changes[position..].to_vec()),
        }
    }
}
