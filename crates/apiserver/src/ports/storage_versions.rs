//! StorageVersion objects, through the registry: whether the API is served over REST or not.

use std::sync::Arc;

use api::GroupResource;
use api::metadata::ObjectMeta;
use api::objects::{StorageVersion, from_json, to_stored_json};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use object::Stored;
use registry::{Attempt, Cached, Decision, Item, Registry, Shelf, Written};
use storageversion::ports::{Snapshot, StorageVersions, WriteError};
use store::{Key, Revision};
use tasks::Tasks;
use tokio::sync::watch;

use super::{key, shelf};
use crate::rest;

const RESOURCE: GroupResource<&str> = GroupResource { group: "internal.apiserver.k8s.io", resource: "storageversions" };
/// Where they are, served or not.
pub(super) const STORAGE_VERSIONS: &str = "storageversions";

/// The StorageVersion objects of a cluster. Clones share them.
#[derive(Clone, Debug)]
pub struct StorageVersionObjects {
    registry: Registry,
    shelf: Arc<Shelf>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
}

impl StorageVersionObjects {
    /// Begins to follow them.
    pub fn start(registry: &Registry, prefix: &str, tasks: &Tasks) -> Self {
        let registry = registry.for_server();
        let shelf = shelf(registry.cache(), &key(prefix, STORAGE_VERSIONS));
        let (sender, snapshots) = watch::channel(Arc::default());
        let objects = Self { registry, shelf, snapshots };
        let followed = objects.clone();
        tasks.spawn("storage-versions", |stop| async move {
            stop.run_until_cancelled(followed.follow_for_ever(sender)).await;
        });
        objects
    }

    async fn follow_for_ever(&self, sender: watch::Sender<Arc<Snapshot>>) {
        if self.registry.cache().filled().await.is_err() {
            // The server stops, and nothing will ever be new.
            return std::future::pending().await;
        }
        loop {
            let taken = self.take(&sender.borrow().clone());
            let seen = Revision(taken.through);
            sender.send_replace(Arc::new(taken));
            // Refused if the history was cut in between: then there is a newer state to take.
            if let Ok(mut watcher) = self.registry.watch(&self.shelf, seen) {
                let _ = watcher.next().await;
            }
        }
    }

    /// Everything there is; what did not change is not read again.
    fn take(&self, last: &Snapshot) -> Snapshot {
        // In this order: a snapshot has at least what the cache has come through before.
        let through = self.registry.cache().through();
        let snapshot = self.shelf.snapshot();
        let objects = snapshot.items.iter().filter_map(|(key, cached)| {
            let name = std::str::from_utf8(key.strip_prefix(&**self.shelf.prefix())?).ok()?;
            let known = last.objects.get_key_value(name);
            match known.filter(|(_, object)| object.metadata.resource_version == cached.revision.to_string()) {
                Some((name, object)) => Some((name.clone(), object.clone())),
                None => Some((name.into(), Arc::new(read(cached)?))),
            }
        });
        Snapshot { through: through.max(snapshot.revision).0, objects: objects.collect() }
    }

    fn key(&self, name: &str) -> Key {
        Key::from([self.shelf.prefix().as_ref(), name.as_bytes()].concat())
    }

    async fn write(&self, seen: &ObjectMeta, decision: Decision) -> Result<Option<Stored>, WriteError> {
        let revision = seen.resource_version.parse().ok().map(Revision);
        let key = self.key(&seen.name);
        let written = self.registry.write_once(RESOURCE, &self.shelf, &key, revision, decision).await;
        match written.map_err(unavailable)? {
            Attempt::Written(Written::Put(stored)) => Ok(Some(stored)),
            Attempt::Written(Written::Deleted(_) | Written::Kept) => Ok(None),
            Attempt::Changed(None) => Err(WriteError::Changed(None)),
            Attempt::Changed(Some(found)) => Err(WriteError::Changed(Some(Box::new(parse(&found)?)))),
        }
    }
}

impl StorageVersions for StorageVersionObjects {
    fn follow(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    fn put(&self, mut object: StorageVersion) -> BoxFuture<'_, Result<StorageVersion, WriteError>> {
        async move {
            let seen = object.metadata.clone();
            if object.metadata.uid.is_empty() {
                object.metadata.uid = rest::new_uid();
                object.metadata.creation_timestamp = Some(rest::now());
            }
            object.metadata.resource_version.clear();
            let value = to_stored_json(&object).into();
            let stored = self.write(&seen, Decision::Put { value, ttl: None }).await?;
            let stored = stored.ok_or_else(|| unavailable("the object was not written"))?;
            object.metadata.resource_version = stored.revision.to_string();
            Ok(object)
        }
        .boxed()
    }

    fn delete(&self, seen: &StorageVersion) -> BoxFuture<'_, Result<(), WriteError>> {
        let seen = seen.metadata.clone();
        async move { self.write(&seen, Decision::Delete).await.map(drop) }.boxed()
    }
}

/// What is no StorageVersion, or one of a newer form, is left out: a write to it fails and says why.
fn read(cached: &Cached) -> Option<StorageVersion> {
    match &cached.item {
        Item::Object(stored) => parse(stored).ok(),
        Item::Raw(_) | Item::Undecodable(_) => None,
    }
}

fn parse(stored: &Stored) -> Result<StorageVersion, WriteError> {
    from_json(&stored.body).map_err(|error| unavailable(format!("{}: {error}", stored.name)))
}

#[expect(clippy::needless_pass_by_value, reason = "errors are given to it by value")]
fn unavailable(reason: impl ToString) -> WriteError {
    WriteError::Unavailable { reason: reason.to_string() }
}
