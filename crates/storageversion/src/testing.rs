//! A cluster in memory: StorageVersion objects, members, and leases for the election, with injected failures.

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

use crate::ports::{
    MemberSource, MembersUnknown, StorageVersionClient, StorageVersionSnapshot, StorageVersionWriteError, revision_of,
};
use crate::{
    Config, MemberSet, Metrics, PublicationBarrier, Registration, Registrations, StorageVersionManager,
    StorageVersionPorts, WriteIntent,
};
use crate::{Fence, IntentAuthor, RegistrationPending, WriteOperation};

/// Storage that several test servers share. Clones share it.
#[derive(Clone)]
pub(crate) struct MemoryCluster {
    snapshot: Arc<watch::Sender<Arc<StorageVersionSnapshot>>>,
    members: Arc<watch::Sender<Option<Arc<MemberSet>>>>,
    leases: Arc<Mutex<BTreeMap<String, Lease>>>,
    log: Arc<Mutex<Vec<String>>>,
    /// The name of an object that cannot be written.
    unwritable: Arc<Mutex<String>>,
    behavior: Arc<Mutex<ClusterBehavior>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClusterBehavior {
    #[default]
    Healthy,
    Failing,
    Hanging,
    /// Writes happen and their responses are lost.
    LosingResponses,
    /// The members cannot be read.
    MembersUnknown,
}

impl MemoryCluster {
    pub(crate) fn new() -> Self {
        let snapshot = StorageVersionSnapshot { revision: 1, ..StorageVersionSnapshot::default() };
        Self {
            snapshot: Arc::new(watch::Sender::new(Arc::new(snapshot))),
            members: Arc::new(watch::Sender::new(None)),
            leases: Arc::default(),
            log: Arc::default(),
            unwritable: Arc::default(),
            behavior: Arc::default(),
        }
    }

    /// The same storage with a behavior of its own.
    pub(crate) fn with_own_behavior(&self) -> Self {
        Self { behavior: Arc::default(), ..self.clone() }
    }

    pub(crate) fn set_behavior(&self, mood: ClusterBehavior) {
        *self.behavior.lock() = mood;
    }

    pub(crate) fn make_unwritable(&self, name: &str) {
        name.clone_into(&mut self.unwritable.lock());
    }

    pub(crate) fn set_members(&self, members: &str) {
        self.members.send_replace(Some(Arc::new(members.split_whitespace().collect())));
    }

    /// Disables the collector: another holder has its lease.
    pub(crate) fn without_collector(self) -> Self {
        let mut lease = Lease::default();
        crate::COLLECTOR_LEASE.clone_into(&mut lease.metadata.name);
        lease.metadata.resource_version = "1".to_owned();
        lease.spec.holder_identity = Some("another-holder".to_owned());
        lease.spec.lease_duration_seconds = Some(i32::MAX);
        self.leases.lock().insert(lease.metadata.name.clone(), lease);
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<StorageVersion> {
        self.snapshot.borrow().objects.get(name).map(|object| StorageVersion::clone(object))
    }

    /// The writes so far; empties the log.
    pub(crate) fn take_log(&self) -> String {
        std::mem::take(&mut *self.log.lock()).join(", ")
    }

    /// An object as `a=v1 b=v2 | common | conditions`; `-` if there is none.
    pub(crate) fn describe(&self, name: &str) -> String {
        let Some(object) = self.get(name) else { return "-".to_owned() };
        let entries = object.status.storage_versions.iter();
        let entries: Vec<_> =
            entries.map(|entry| format!("{}={}", entry.api_server_id, entry.encoding_version)).collect();
        let conditions: Vec<_> = object.status.conditions.iter().map(|condition| &*condition.status).collect();
        let common = object.status.common_encoding_version.as_deref().unwrap_or("none");
        format!("{} | {common} | {}", entries.join(" "), conditions.join(" "))
    }

    /// Changes an object directly, as another client would.
    pub(crate) fn tamper(&self, name: &str, change: impl FnOnce(&mut StorageVersion)) {
        let mut object = self.get(name).unwrap_or_default();
        name.clone_into(&mut object.metadata.name);
        change(&mut object);
        self.store(object);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.snapshot.send_modify(|snapshot| {
            let next = Arc::make_mut(snapshot);
            next.revision += 1;
            next.objects.remove(name);
        });
    }

    fn store(&self, mut object: StorageVersion) -> StorageVersion {
        self.snapshot.send_modify(|snapshot| {
            let next = Arc::make_mut(snapshot);
            next.revision += 1;
            object.metadata.resource_version = next.revision.to_string();
            if object.metadata.uid.is_empty() {
                object.metadata.uid = format!("uid-{}", next.revision);
            }
            next.objects.insert(object.metadata.name.as_str().into(), Arc::new(object.clone()));
        });
        object
    }

    fn respond<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce() -> Result<T, StorageVersionWriteError> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, StorageVersionWriteError>> {
        let failed = || StorageVersionWriteError::Unavailable { reason: "on purpose".to_owned() };
        async move {
            // Lets other servers run between a read and the write that follows.
            tokio::task::yield_now().await;
            let mood = *self.behavior.lock();
            match mood {
                ClusterBehavior::Healthy | ClusterBehavior::MembersUnknown => act(),
                ClusterBehavior::Failing => Err(failed()),
                ClusterBehavior::Hanging => std::future::pending().await,
                ClusterBehavior::LosingResponses => act().and_then(|_| Err(failed())),
            }
        }
        .boxed()
    }

    fn check_unchanged(&self, seen: &StorageVersion) -> Result<(), StorageVersionWriteError> {
        let current = self.get(&seen.metadata.name);
        let place = |object: &StorageVersion| (object.metadata.uid.clone(), revision_of(object));
        if current.as_ref().map_or((String::new(), 0), place) == place(seen) {
            return Ok(());
        }
        Err(StorageVersionWriteError::Conflict(current.map(Box::new)))
    }
}

impl StorageVersionClient for MemoryCluster {
    fn subscribe(&self) -> watch::Receiver<Arc<StorageVersionSnapshot>> {
        self.snapshot.subscribe()
    }

    fn put(&self, object: StorageVersion) -> BoxFuture<'_, Result<StorageVersion, StorageVersionWriteError>> {
        self.respond(move || {
            self.check_unchanged(&object)?;
            if *self.unwritable.lock() == object.metadata.name {
                return Err(StorageVersionWriteError::Unavailable { reason: "unwritable".to_owned() });
            }
            self.log.lock().push(format!("put {}", object.metadata.name));
            Ok(self.store(object))
        })
    }

    fn delete(&self, seen: &StorageVersion) -> BoxFuture<'_, Result<(), StorageVersionWriteError>> {
        let seen = seen.clone();
        self.respond(move || {
            self.check_unchanged(&seen)?;
            self.log.lock().push(format!("delete {}", seen.metadata.name));
            self.remove(&seen.metadata.name);
            Ok(())
        })
    }
}

impl MemberSource for MemoryCluster {
    fn subscribe(&self) -> watch::Receiver<Option<Arc<MemberSet>>> {
        self.members.subscribe()
    }

    fn fetch_current(&self) -> BoxFuture<'_, Result<Arc<MemberSet>, MembersUnknown>> {
        async move {
            let mood = *self.behavior.lock();
            if mood == ClusterBehavior::MembersUnknown {
                Err(MembersUnknown)
            } else {
                self.members.borrow().clone().ok_or(MembersUnknown)
            }
        }
        .boxed()
    }
}

impl election::LeaseClient for MemoryCluster {
    fn get(&self, _namespace: &str, name: &str) -> election::LeaseFuture<'_, Option<Lease>> {
        let found = self.leases.lock().get(name).cloned();
        async move { Ok(found) }.boxed()
    }

    fn create(&self, lease: Lease) -> election::LeaseFuture<'_, Lease> {
        self.update(lease)
    }

    fn update(&self, mut lease: Lease) -> election::LeaseFuture<'_, Lease> {
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

pub(crate) struct PublishingServer {
    pub(crate) barrier: PublicationBarrier,
    pub(crate) manager: StorageVersionManager,
    pub(crate) lease_renewals: watch::Sender<Option<Instant>>,
    pub(crate) storage: MemoryCluster,
    pub(crate) tasks: Tasks,
}

pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(30);

/// Parses `apps.deployments=v1 core.pods=v1` into registrations with these encoding versions.
pub(crate) fn parse_registrations(text: &str) -> Registrations {
    let registration = |word: &str| {
        let (name, version) = word.split_once('=').unwrap();
        let resource = crate::names::parse_storage_version_name(name).unwrap().owned();
        let version = version.to_owned();
        let registration = Registration::new(resource, version.clone(), vec![version.clone()], vec![version]);
        (Arc::from(name), Arc::new(registration.unwrap()))
    };
    text.split_whitespace().map(registration).collect()
}

impl PublishingServer {
    /// Starts a server that does not hold its lease yet.
    pub(crate) fn start(name: &str, storage: &MemoryCluster, registered: &str) -> Self {
        let (storage, tasks) = (storage.with_own_behavior(), Tasks::new());
        let metrics = Metrics::new(&prometheus::Registry::new());
        let barrier =
            PublicationBarrier::new(name.into(), LEASE_DURATION, &parse_registrations(registered), metrics.clone());
        let config = Config {
            holder: name.to_owned(),
            request_timeout: Duration::from_secs(4),
            election_timings: election::ElectionTimings::default(),
            clock: || Timestamp::UNIX_EPOCH,
            seed: name.bytes().map(u64::from).sum(),
        };
        let shared = Arc::new(storage.clone());
        let ports =
            StorageVersionPorts { client: shared.clone(), member_source: shared.clone(), lease_client: Some(shared) };
        let (renewed, receiver) = watch::channel(None);
        let versions = StorageVersionManager::start(&config, barrier.clone(), &ports, receiver, &metrics, &tasks);
        Self { barrier, manager: versions, lease_renewals: renewed, storage, tasks }
    }

    pub(crate) fn renew_lease(&self) {
        self.lease_renewals.send_replace(Some(Instant::now()));
    }

    /// The permit for a client's update of an object.
    pub(crate) fn permit(&self, name: &str) -> Result<Option<Fence>, RegistrationPending> {
        self.barrier.permit(&update_of(name))
    }

    pub(crate) async fn stop(self) {
        self.tasks.stop(Duration::from_secs(60)).await.unwrap();
    }
}

/// A client's update of an object with this storage version.
pub(crate) fn update_of(name: &str) -> WriteIntent<'_> {
    let resource =
        crate::names::parse_storage_version_name(name).unwrap_or(GroupResource { group: "", resource: name });
    WriteIntent { resource, path: "default/x", author: IntentAuthor::Client, operation: WriteOperation::UpdateOrDelete }
}

pub(crate) async fn sleep_ms(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
