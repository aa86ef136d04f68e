//! StorageVersion objects, read and written through the registry whether the server serves the API over REST or not.

use std::sync::Arc;

use api::GroupResource;
use api::metadata::ObjectMeta;
use api::objects::{StorageVersion, from_json, to_stored_json};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use object::StoredObject;
use registry::{CachedEntry, CachedValue, Registry, ResourceCache, WriteDecision, WriteOnceOutcome, WriteOutcome};
use storageversion::ports::{StorageVersionClient, StorageVersionSnapshot, StorageVersionWriteError};
use store::{Key, Revision};
use tasks::Tasks;
use tokio::sync::watch;

use super::{key_prefix, resource_cache};
use crate::rest;

const STORAGE_VERSION_RESOURCE: GroupResource<&str> =
    GroupResource { group: "internal.apiserver.k8s.io", resource: "storageversions" };
pub(super) const STORAGE_VERSIONS_PREFIX: &str = "storageversions";

/// The StorageVersion objects of the cluster. Clones share the snapshots.
#[derive(Clone, Debug)]
pub struct StorageVersionObjects {
    registry: Registry,
    resource_cache: Arc<ResourceCache>,
    snapshots: watch::Receiver<Arc<StorageVersionSnapshot>>,
}

impl StorageVersionObjects {
    /// Starts the task that publishes a snapshot of the objects after every change.
    pub fn start(registry: &Registry, prefix: &str, tasks: &Tasks) -> Self {
        let registry = registry.with_server_author();
        let resource_cache = resource_cache(registry.cache(), &key_prefix(prefix, STORAGE_VERSIONS_PREFIX));
        let (sender, snapshots) = watch::channel(Arc::default());
        let objects = Self { registry, resource_cache, snapshots };
        let publishing = objects.clone();
        tasks.spawn("storage-versions", |stop| async move {
            stop.run_until_cancelled(publishing.publish_snapshots(sender)).await;
        });
        objects
    }

    async fn publish_snapshots(&self, sender: watch::Sender<Arc<StorageVersionSnapshot>>) {
        if self.registry.cache().wait_for_sync().await.is_err() {
            // The server stops: no change will follow.
            return std::future::pending().await;
        }
        loop {
            let snapshot = self.read_snapshot(&sender.borrow().clone());
            let revision = Revision(snapshot.revision);
            sender.send_replace(Arc::new(snapshot));
            // Fails if the revision was compacted in between; the loop then takes a newer snapshot.
            if let Ok(mut watcher) = self.registry.watch(&self.resource_cache, revision) {
                let _ = watcher.next_changes().await;
            }
        }
    }

    /// Reads all objects, reusing the unchanged ones of the previous snapshot.
    fn read_snapshot(&self, previous: &StorageVersionSnapshot) -> StorageVersionSnapshot {
        // The order matters: a snapshot taken after reading `applied_revision` contains at least that revision.
        let through = self.registry.cache().applied_revision();
        let snapshot = self.resource_cache.snapshot();
        let objects = snapshot.entries.iter().filter_map(|(key, cached)| {
            let name = std::str::from_utf8(key.strip_prefix(&**self.resource_cache.prefix())?).ok()?;
            let reusable = previous.objects.get_key_value(name);
            match reusable.filter(|(_, object)| object.metadata.resource_version == cached.revision.to_string()) {
                Some((name, object)) => Some((name.clone(), object.clone())),
                None => Some((name.into(), Arc::new(decode_cached(cached)?))),
            }
        });
        StorageVersionSnapshot { revision: through.max(snapshot.revision).0, objects: objects.collect() }
    }

    fn object_key(&self, name: &str) -> Key {
        Key::from([self.resource_cache.prefix().as_ref(), name.as_bytes()].concat())
    }

    async fn write_if_unchanged(
        &self,
        observed: &ObjectMeta,
        decision: WriteDecision,
    ) -> Result<Option<StoredObject>, StorageVersionWriteError> {
        let revision = observed.resource_version.parse().ok().map(Revision);
        let key = self.object_key(&observed.name);
        let written =
            self.registry.write_once(STORAGE_VERSION_RESOURCE, &self.resource_cache, &key, revision, decision).await;
        match written.map_err(unavailable)? {
            WriteOnceOutcome::Written(WriteOutcome::Put(stored)) => Ok(Some(stored)),
            WriteOnceOutcome::Written(WriteOutcome::Deleted(_) | WriteOutcome::Unchanged) => Ok(None),
            WriteOnceOutcome::Conflict(None) => Err(StorageVersionWriteError::Conflict(None)),
            WriteOnceOutcome::Conflict(Some(found)) => {
                Err(StorageVersionWriteError::Conflict(Some(Box::new(decode_stored(&found)?))))
            }
        }
    }
}

impl StorageVersionClient for StorageVersionObjects {
    fn subscribe(&self) -> watch::Receiver<Arc<StorageVersionSnapshot>> {
        self.snapshots.clone()
    }

    fn put(&self, mut object: StorageVersion) -> BoxFuture<'_, Result<StorageVersion, StorageVersionWriteError>> {
        async move {
            let observed = object.metadata.clone();
            if object.metadata.uid.is_empty() {
                object.metadata.uid = rest::new_uid();
                object.metadata.creation_timestamp = Some(rest::current_time());
            }
            object.metadata.resource_version.clear();
            let value = to_stored_json(&object).into();
            let stored = self.write_if_unchanged(&observed, WriteDecision::Put { value, ttl: None }).await?;
            let stored = stored.ok_or_else(|| unavailable("the object was not written"))?;
            object.metadata.resource_version = stored.revision.to_string();
            Ok(object)
        }
        .boxed()
    }

    fn delete(&self, observed: &StorageVersion) -> BoxFuture<'_, Result<(), StorageVersionWriteError>> {
        let seen = observed.metadata.clone();
        async move { self.write_if_unchanged(&seen, WriteDecision::Delete).await.map(drop) }.boxed()
    }
}

/// `None` for an undecodable object, such as one of a newer format; writing it fails with the reason.
fn decode_cached(cached: &CachedEntry) -> Option<StorageVersion> {
    match &cached.value {
        CachedValue::Object(stored) => decode_stored(stored).ok(),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
    }
}

fn decode_stored(stored: &StoredObject) -> Result<StorageVersion, StorageVersionWriteError> {
    from_json(&stored.body).map_err(|error| unavailable(format!("{}: {error}", stored.name)))
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err, which passes errors by value")]
fn unavailable(reason: impl ToString) -> StorageVersionWriteError {
    StorageVersionWriteError::Unavailable { reason: reason.to_string() }
}
