//! What the store holds, in memory: per resource a snapshot and its recent changes.
//!
//! One task follows the store and is the only writer. A batch is applied to the snapshots first and only then counted in
//! [`WatchCache::applied_revision`], so whoever waits for a revision finds every change up to it.

mod change_history;
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
pub use resource_cache::{ResourceCache, ResourceSnapshot, ValueFormat};
pub(crate) use snapshot_pins::SnapshotPin;

/// One key as the cache holds it.
#[derive(Debug)]
pub struct CachedEntry {
    /// The key in the store.
    pub key: Key,
    /// The revision that put it.
    pub revision: Revision,
    /// What it holds.
    pub value: CachedValue,
}

/// What a key holds.
#[derive(Debug)]
pub enum CachedValue {
    /// An object, ready to be sent.
    Object(StoredObject),
    /// Bytes that are not for the REST API.
    Raw(Bytes),
    /// Something that should be an object and is not. Reading it is an error; it is never skipped.
    Undecodable(StoredObjectError),
}

impl CachedEntry {
    /// Reads what the store gave.
    pub(crate) fn new(entry: StoreEntry, format: ValueFormat) -> Self {
        let item = match format {
            ValueFormat::Raw => CachedValue::Raw(entry.value),
            ValueFormat::Objects => match StoredObject::from_storage(&entry.value, entry.revision.0) {
                Ok(stored) => CachedValue::Object(stored),
                Err(undecodable) => {
                    tracing::error!(key = %entry.key.escape_ascii(), %undecodable, "a stored object cannot be read");
                    CachedValue::Undecodable(undecodable)
                }
            },
        };
        Self { key: entry.key, revision: entry.revision, value: item }
    }
}

/// What the store holds below a prefix. Clones share it.
#[derive(Clone, Debug)]
pub struct WatchCache {
    resources: Arc<ResourceCaches>,
    progress: watch::Receiver<WatchCacheProgress>,
    failures: watch::Receiver<u64>,
}

/// How far the cache has come.
#[derive(Clone, Debug, Default)]
struct WatchCacheProgress {
    /// Every change up to this revision is in the snapshots.
    applied_revision: Revision,
    /// Whether the first fill is over.
    synced: bool,
    /// Asks the store's watch how far it is; absent while there is no watch.
    progress_request: Option<store::contract::ProgressRequest>,
}

/// All shelves, by ascending prefix. No prefix begins with another.
#[derive(Debug)]
struct ResourceCaches {
    caches: Vec<Arc<ResourceCache>>,
}

impl WatchCache {
    /// Starts to follow the store. `shelves` says what to keep: a key prefix each, and what its values are; other keys are
    /// passed over. The cache is empty until [`WatchCache::wait_for_sync`].
    pub fn start(store: Arc<dyn Store>, prefix: Key, resources: Vec<(Key, ValueFormat)>, tasks: &Tasks) -> Self {
        let shelves = Arc::new(ResourceCaches::new(resources));
        let (progress_sender, progress) = watch::channel(WatchCacheProgress::default());
        let (failures_sender, failures) = watch::channel(0);
        let follower = reflector::Reflector {
            store,
            prefix,
            resources: shelves.clone(),
            progress: progress_sender,
            failures: failures_sender,
        };
        tasks.spawn("watch-cache", |stop| follower.run(stop));
        Self { resources: shelves, progress, failures }
    }

    /// The shelf of a prefix that was given at the start.
    pub fn resource_cache(&self, prefix: &[u8]) -> Option<&Arc<ResourceCache>> {
        self.resources.for_key(prefix).filter(|shelf| shelf.prefix() == prefix)
    }

    /// Every shelf, by ascending prefix.
    pub fn resource_caches(&self) -> &[Arc<ResourceCache>] {
        &self.resources.caches
    }

    /// Every change up to this revision is in the snapshots.
    pub fn applied_revision(&self) -> Revision {
        self.progress.borrow().applied_revision
    }

    /// How often the store could not be listed or followed so far.
    pub fn failure_count(&self) -> watch::Receiver<u64> {
        self.failures.clone()
    }

    /// Whether the first fill is over.
    pub fn has_synced(&self) -> bool {
        self.progress.borrow().synced
    }

    /// Waits for the first fill.
    pub async fn wait_for_sync(&self) -> Result<(), CacheStopped> {
        let mut progress = self.progress.clone();
        progress.wait_for(|progress| progress.synced).await.map_err(|_| CacheStopped)?;
        Ok(())
    }

    /// Waits until every change up to `revision` is in the snapshots, `patience` at most. `false`: it is not.
    pub async fn wait_for_revision(&self, revision: Revision, timeout: Duration) -> Result<bool, CacheStopped> {
        let mut progress = self.progress.clone();
        let reached = async {
            loop {
                {
                    let now = progress.borrow_and_update();
                    if now.synced && now.applied_revision >= revision {
                        return Ok(());
                    }
                    // Again each time: what answers may itself have something to catch up with.
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

/// The cache no longer follows the store: the server is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is shutting down")]
pub struct CacheStopped;

impl ResourceCaches {
    fn new(prefixes: Vec<(Key, ValueFormat)>) -> Self {
        let mut shelves: Vec<_> =
            prefixes.into_iter().map(|(prefix, form)| Arc::new(ResourceCache::new(prefix, form))).collect();
        shelves.sort_by(|a, b| a.prefix().cmp(b.prefix()));
        debug_assert!(
            shelves.windows(2).all(|pair| !pair[1].prefix().starts_with(pair[0].prefix())),
            "a key must belong to one shelf only"
        );
        Self { caches: shelves }
    }

    fn for_key(&self, key: &[u8]) -> Option<&Arc<ResourceCache>> {
        let after = self.caches.partition_point(|shelf| shelf.prefix().as_ref() <= key);
        let shelf = &self.caches[after.checked_sub(1)?];
        key.starts_with(shelf.prefix()).then_some(shelf)
    }
}
