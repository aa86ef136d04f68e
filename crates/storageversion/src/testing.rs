//! A cluster in memory: StorageVersion objects, members, and leases for the election, with trouble on demand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::GroupResource;
use api::objects::{Lease, StorageVersion};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ports::{Membership, NotKnown, Snapshot, StorageVersions, WriteError, revision_of};
use crate::{Author, Closed, Fence, Novelty};
use crate::{Barrier, Config, Members, Metrics, Ports, Registration, Registrations, StorageVersioning, Write};

/// Storage that several servers of a test share. Clones share it.
#[derive(Clone)]
pub(crate) struct Memory {
    snapshot: Arc<watch::Sender<Arc<Snapshot>>>,
    members: Arc<watch::Sender<Option<Arc<Members>>>>,
    leases: Arc<Mutex<BTreeMap<String, Lease>>>,
    log: Arc<Mutex<Vec<String>>>,
    mood: Arc<Mutex<Mood>>,
}

/// How storage answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    Failing,
    Hanging,
    /// Writes happen and their answers are lost.
    Mumbling,
    /// Nobody knows who takes part.
    Lost,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let snapshot = Snapshot { through: 1, ..Snapshot::default() };
        Self {
            snapshot: Arc::new(watch::Sender::new(Arc::new(snapshot))),
            members: Arc::new(watch::Sender::new(None)),
            leases: Arc::default(),
            log: Arc::default(),
            mood: Arc::default(),
        }
    }

    /// The same storage, with a mood of its own.
    pub(crate) fn seen_by_another(&self) -> Self {
        Self { mood: Arc::default(), ..self.clone() }
    }

    pub(crate) fn set_mood(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    pub(crate) fn set_members(&self, members: &str) {
        self.members.send_replace(Some(Arc::new(members.split_whitespace().collect())));
    }

    /// Nobody collects garbage: somebody else holds the lease.
    pub(crate) fn without_collector(self) -> Self {
        let mut lease = Lease::default();
        crate::COLLECTOR_LEASE.clone_into(&mut lease.metadata.name);
        lease.metadata.resource_version = "1".to_owned();
        lease.spec.holder_identity = Some("somebody".to_owned());
        lease.spec.lease_duration_seconds = Some(i32::MAX);
        self.leases.lock().insert(lease.metadata.name.clone(), lease);
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<StorageVersion> {
        self.snapshot.borrow().objects.get(name).map(|object| StorageVersion::clone(object))
    }

    /// What was written so far; the log is emptied.
    pub(crate) fn take_log(&self) -> String {
        std::mem::take(&mut *self.log.lock()).join(", ")
    }

    /// An object as `a=v1 b=v2 | common | conditions`; `-` if there is none.
    pub(crate) fn shown(&self, name: &str) -> String {
        let Some(object) = self.get(name) else { return "-".to_owned() };
        let entries = object.status.storage_versions.iter();
        let entries: Vec<_> =
            entries.map(|entry| format!("{}={}", entry.api_server_id, entry.encoding_version)).collect();
        let conditions: Vec<_> = object.status.conditions.iter().map(|condition| &*condition.status).collect();
        let common = object.status.common_encoding_version.as_deref().unwrap_or("none");
        format!("{} | {common} | {}", entries.join(" "), conditions.join(" "))
    }

    /// Does something to an object behind everybody's back.
    pub(crate) fn tamper(&self, name: &str, change: impl FnOnce(&mut StorageVersion)) {
        let mut object = self.get(name).unwrap_or_default();
        name.clone_into(&mut object.metadata.name);
        change(&mut object);
        self.store(object);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.snapshot.send_modify(|snapshot| {
            let next = Arc::make_mut(snapshot);
            next.through += 1;
            next.objects.remove(name);
        });
    }

    fn store(&self, mut object: StorageVersion) -> StorageVersion {
        self.snapshot.send_modify(|snapshot| {
            let next = Arc::make_mut(snapshot);
            next.through += 1;
            object.metadata.resource_version = next.through.to_string();
            if object.metadata.uid.is_empty() {
                object.metadata.uid = format!("uid-{}", next.through);
            }
            next.objects.insert(object.metadata.name.as_str().into(), Arc::new(object.clone()));
        });
        object
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce() -> Result<T, WriteError> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, WriteError>> {
        let failed = || WriteError::Unavailable { reason: "on purpose".to_owned() };
        async move {
            // Others get their turn between a read and the write that follows.
            tokio::task::yield_now().await;
            let mood = *self.mood.lock();
            match mood {
                Mood::Well | Mood::Lost => act(),
                Mood::Failing => Err(failed()),
                Mood::Hanging => std::future::pending().await,
                Mood::Mumbling => act().and_then(|_| Err(failed())),
            }
        }
        .boxed()
    }

    fn compare(&self, seen: &StorageVersion) -> Result<(), WriteError> {
        let current = self.get(&seen.metadata.name);
        let place = |object: &StorageVersion| (object.metadata.uid.clone(), revision_of(object));
        if current.as_ref().map_or((String::new(), 0), place) == place(seen) {
            return Ok(());
        }
        Err(WriteError::Changed(current.map(Box::new)))
    }
}

impl StorageVersions for Memory {
    fn follow(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    fn put(&self, object: StorageVersion) -> BoxFuture<'_, Result<StorageVersion, WriteError>> {
        self.answer(move || {
            self.compare(&object)?;
            self.log.lock().push(format!("put {}", object.metadata.name));
            Ok(self.store(object))
        })
    }

    fn delete(&self, seen: &StorageVersion) -> BoxFuture<'_, Result<(), WriteError>> {
        let seen = seen.clone();
        self.answer(move || {
            self.compare(&seen)?;
            self.log.lock().push(format!("delete {}", seen.metadata.name));
            self.remove(&seen.metadata.name);
            Ok(())
        })
    }
}

impl Membership for Memory {
    fn follow(&self) -> watch::Receiver<Option<Arc<Members>>> {
        self.members.subscribe()
    }

    fn now(&self) -> BoxFuture<'_, Result<Arc<Members>, NotKnown>> {
        async move {
            let mood = *self.mood.lock();
            if mood == Mood::Lost { Err(NotKnown) } else { self.members.borrow().clone().ok_or(NotKnown) }
        }
        .boxed()
    }
}

impl election::Leases for Memory {
    fn get(&self, _namespace: &str, name: &str) -> election::Pending<'_, Option<Lease>> {
        let found = self.leases.lock().get(name).cloned();
        async move { Ok(found) }.boxed()
    }

    fn create(&self, lease: Lease) -> election::Pending<'_, Lease> {
        self.update(lease)
    }

    fn update(&self, mut lease: Lease) -> election::Pending<'_, Lease> {
        let mut leases = self.leases.lock();
        let current = leases.get(&lease.metadata.name).map(|lease| lease.metadata.resource_version.clone());
        if current.clone().unwrap_or_default() != lease.metadata.resource_version {
            return async { Err(api::PortError::Conflict) }.boxed();
        }
        let version: u64 = current.map_or(0, |version| version.parse().unwrap());
        lease.metadata.resource_version = (version + 1).to_string();
        leases.insert(lease.metadata.name.clone(), lease.clone());
        async move { Ok(lease) }.boxed()
    }
}

/// A server of a test.
pub(crate) struct Server {
    pub(crate) barrier: Barrier,
    pub(crate) versions: StorageVersioning,
    pub(crate) renewed: watch::Sender<Option<Instant>>,
    pub(crate) storage: Memory,
    pub(crate) tasks: Tasks,
}

/// How long leases last in these tests.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// What `apps.deployments=v1 core.pods=v1` registers, each with the version that it encodes.
pub(crate) fn registrations(text: &str) -> Registrations {
    let registration = |word: &str| {
        let (name, version) = word.split_once('=').unwrap();
        let resource = crate::names::resource_of(name).unwrap().owned();
        let version = version.to_owned();
        let registration = Registration::new(resource, version.clone(), vec![version.clone()], vec![version]);
        (Arc::from(name), Arc::new(registration.unwrap()))
    };
    text.split_whitespace().map(registration).collect()
}

impl Server {
    /// Starts one that does not hold its lease yet.
    pub(crate) fn start(name: &str, storage: &Memory, registered: &str) -> Self {
        let (storage, tasks) = (storage.seen_by_another(), Tasks::new());
        let metrics = Metrics::new(&prometheus::Registry::new());
        let barrier = Barrier::new(name.into(), LEASE, &registrations(registered), metrics.clone());
        let config = Config {
            holder: name.to_owned(),
            call_timeout: Duration::from_secs(4),
            election: election::Pace::default(),
            clock: || Timestamp::UNIX_EPOCH,
            seed: name.bytes().map(u64::from).sum(),
        };
        let shared = Arc::new(storage.clone());
        let ports = Ports { objects: shared.clone(), membership: shared.clone(), leases: shared };
        let (renewed, receiver) = watch::channel(None);
        let versions = StorageVersioning::start(&config, barrier.clone(), &ports, receiver, &metrics, &tasks);
        Self { barrier, versions, renewed, storage, tasks }
    }

    /// Its lease is held from now on, for the time that leases last.
    pub(crate) fn renew(&self) {
        self.renewed.send_replace(Some(Instant::now()));
    }

    /// What a client's write of an object would need.
    pub(crate) fn permit(&self, name: &str) -> Result<Option<Fence>, Closed> {
        self.barrier.permit(&write_of(name))
    }

    pub(crate) async fn stop(self) {
        self.tasks.stop(Duration::from_secs(60)).await.unwrap();
    }
}

/// A client's write of something that has this storage version.
pub(crate) fn write_of(name: &str) -> Write<'_> {
    let resource = crate::names::resource_of(name).unwrap_or(GroupResource { group: "", resource: name });
    Write { resource, path: "default/x", author: Author::Client, novelty: Novelty::Existing }
}

pub(crate) async fn wait(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
