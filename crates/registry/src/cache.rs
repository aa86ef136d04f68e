//! The content of the store in memory: per resource a snapshot and its recent changes.
//!
//! One task, the reflector, follows the store and is the only writer. It publishes the snapshots of a batch before it
//! advances [`WatchCache::applied_revision`], so a reader that waits for a revision finds every change up to it.

mod change_history;
mod custom_caches;
mod reflector;
mod resource_cache;
mod snapshot_pins;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object::{StoredObject, StoredObjectError};
use store::{Key, Revision, Store, StoreEntry};
use tasks::Tasks;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;

pub use change_history::KeyChange;
use custom_caches::CustomCaches;
pub use resource_cache::{ResourceCache, ResourceSnapshot, ValueFormat};
pub(crate) use snapshot_pins::SnapshotPin;

/// One key with its decoded value.
#[derive(Debug)]
pub struct CachedEntry {
    /// The key in the store.
    pub key: Key,
    /// The revision of the last put.
    pub revision: Revision,
    /// The decoded value.
    pub value: CachedValue,
}

/// A decoded value.
#[derive(Debug)]
pub enum CachedValue {
    /// An object, ready to be sent.
    Object(StoredObject),
    /// Bytes of internal records that are not served by the REST API.
    Raw(Bytes),
    /// A value that should be an object and is not. Reading it is an error; it is never skipped.
    Undecodable(StoredObjectError),
}

impl CachedEntry {
    pub(crate) fn new(entry: StoreEntry, format: ValueFormat) -> Self {
        let item = match format {
            ValueFormat::Raw => CachedValue::Raw(entry.value),
            ValueFormat::Objects => match StoredObject::from_storage(&entry.value, entry.revision.0) {
                Ok(stored) => CachedValue::Object(stored),
                Err(undecodable) => {
                    tracing::error!(key = %entry.key.escape_ascii(), %undecodable, "failed to decode stored object");
                    CachedValue::Undecodable(undecodable)
                }
            },
        };
        Self { key: entry.key, revision: entry.revision, value: item }
    }
}

/// A cache of the store's content below a prefix. Clones share it.
#[derive(Clone, Debug)]
pub struct WatchCache {
    resources: Arc<ResourceCaches>,
    progress: watch::Receiver<WatchCacheProgress>,
    failures: watch::Receiver<u64>,
}

#[derive(Clone, Debug, Default)]
struct WatchCacheProgress {
    /// Every change up to this revision is in the snapshots.
    applied_revision: Revision,
    /// True after the initial fill.
    synced: bool,
    /// Requests progress of the store's watch; `None` while there is no watch.
    progress_request: Option<store::contract::ProgressRequest>,
}

/// All resource caches. A key belongs to at most one of them.
#[derive(Debug)]
struct ResourceCaches {
    /// The prefixes known at start, in ascending order. No prefix begins with another.
    fixed: Vec<Arc<ResourceCache>>,
    custom: CustomCaches,
}

impl WatchCache {
    /// Starts to follow the store. `resources` lists the key prefixes to cache, with the format of their values; other
    /// keys are ignored, except those of custom resources. The cache is empty until [`WatchCache::wait_for_sync`].
    pub fn start(store: Arc<dyn Store>, prefix: Key, resources: Vec<(Key, ValueFormat)>, tasks: &Tasks) -> Self {
        let resource_caches = Arc::new(ResourceCaches::new(prefix.clone(), resources));
        let (progress_sender, progress) = watch::channel(WatchCacheProgress::default());
        let (failures_sender, failures) = watch::channel(0);
        let follower = reflector::Reflector {
            store,
            prefix,
            resources: resource_caches.clone(),
            progress: progress_sender,
            failures: failures_sender,
        };
        tasks.spawn("watch-cache", |stop| follower.run(stop));
        Self { resources: resource_caches, progress, failures }
    }

    /// The cache of a prefix that was passed to [`WatchCache::start`].
    pub fn resource_cache(&self, prefix: &[u8]) -> Option<&Arc<ResourceCache>> {
        self.resources.fixed_for_key(prefix).filter(|resource_cache| resource_cache.prefix() == prefix)
    }

    /// The cache of a custom resource; `None` if its keys belong to a prefix that was passed to [`WatchCache::start`].
    ///
    /// Objects of custom resources are cached whether or not anything defines the resource, so this cache is complete
    /// from the first call on.
    pub fn custom_resource_cache(&self, group: &str, resource: &str) -> Option<Arc<ResourceCache>> {
        self.resources.for_custom_resource(group, resource)
    }

    /// Allows to drop the cache of a custom resource that nothing defines any more, once it is empty and has no reader.
    pub fn release_custom_resource(&self, group: &str, resource: &str) {
        self.resources.custom.release(self.resources.custom.prefix_of(group, resource));
    }

    /// Every change up to this revision is in the snapshots.
    pub fn applied_revision(&self) -> Revision {
        self.progress.borrow().applied_revision
    }

    /// The number of failed lists and watches of the store so far.
    pub fn failure_count(&self) -> watch::Receiver<u64> {
        self.failures.clone()
    }

    /// True after the initial fill.
    pub fn has_synced(&self) -> bool {
        self.progress.borrow().synced
    }

    /// Waits for the initial fill.
    pub async fn wait_for_sync(&self) -> Result<(), CacheStopped> {
        let mut progress = self.progress.clone();
        progress.wait_for(|progress| progress.synced).await.map_err(|_| CacheStopped)?;
        Ok(())
    }

    /// Waits until every change up to `revision` is in the snapshots; `false` after `timeout`.
    pub async fn wait_for_revision(&self, revision: Revision, timeout: Duration) -> Result<bool, CacheStopped> {
        let mut progress = self.progress.clone();
        let reached = async {
            loop {
                {
                    let now = progress.borrow_and_update();
                    if now.synced && now.applied_revision >= revision {
                        return Ok(());
                    }
                    // Repeated each time: the etcd member that answers may itself lag behind.
                    if let Some(request) = &now.progress_request {
                        request.send();
                    }
                }
                progress.changed().await?;
            }
        };
        match tokio::time::timeout(timeout, reached).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err::<_, RecvError>(_)) => Err(CacheStopped),
            Err(_) => Ok(false),
        }
    }
}

/// The cache no longer follows the store, because the server is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is shutting down")]
pub struct CacheStopped;

impl ResourceCaches {
    fn new(root: Key, prefixes: Vec<(Key, ValueFormat)>) -> Self {
        let mut resource_caches: Vec<_> =
            prefixes.into_iter().map(|(prefix, form)| Arc::new(ResourceCache::new(prefix, form))).collect();
        resource_caches.sort_by(|a, b| a.prefix().cmp(b.prefix()));
        debug_assert!(
            resource_caches.windows(2).all(|pair| !pair[1].prefix().starts_with(pair[0].prefix())),
            "a key must belong to one resource cache only"
        );
        Self { fixed: resource_caches, custom: CustomCaches::new(root) }
    }

    fn fixed_for_key(&self, key: &[u8]) -> Option<&Arc<ResourceCache>> {
        let after = self.fixed.partition_point(|resource_cache| resource_cache.prefix().as_ref() <= key);
        let resource_cache = &self.fixed[after.checked_sub(1)?];
        key.starts_with(resource_cache.prefix()).then_some(resource_cache)
    }

    /// The cache of the resource, built-in or custom, to which a storage key belongs.
    fn for_key(&self, key: &[u8]) -> Option<Arc<ResourceCache>> {
        self.fixed_for_key(key).cloned().or_else(|| self.custom.for_key(key))
    }

    fn for_custom_resource(&self, group: &str, resource: &str) -> Option<Arc<ResourceCache>> {
        let prefix = self.custom.prefix_of(group, resource);
        if self.fixed_for_key(&prefix).is_some() { None } else { self.custom.for_key(&prefix) }
    }

    /// Every cache. Custom caches that are created later are complete after `complete_after`.
    fn all_after(&self, complete_after: Revision) -> Vec<Arc<ResourceCache>> {
        self.fixed.iter().cloned().chain(self.custom.all_after(complete_after)).collect()
    }
}
