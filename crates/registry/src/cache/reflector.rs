//! The task that follows the store: an initial fill, then every batch of one watch.
//!
//! The initial fill starts in the past and catches up through the store's history, so that clients whose watches began
//! at another server resume them here without a new list.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use store::{Error, Key, KeyRange, Revision, Store, StoreEntry, Watch, WatchBatch};
use tasks::Backoff;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{ResourceCache, ResourceCaches, ResourceSnapshot, WatchCacheProgress};

/// Entries per range request during a fill.
const PAGE_SIZE: usize = 5_000;
/// How many revisions the initial fill goes back. The store keeps 5 to 10 minutes, which is this many at 16 to 33
/// writes per second; more would slow down the start.
const REPLAY_REVISIONS_MAX: u64 = 10_000;
/// The backoff after a failed list or watch; reset by the first batch of a watch.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

pub(super) struct Reflector {
    pub(super) store: Arc<dyn Store>,
    pub(super) prefix: Key,
    pub(super) resources: Arc<ResourceCaches>,
    pub(super) progress: watch::Sender<WatchCacheProgress>,
    pub(super) failures: watch::Sender<u64>,
}

impl Reflector {
    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.reflect_forever() => {}
        }
    }

    /// Fills and watches, and starts over whenever the watch cannot be resumed. Never returns.
    async fn reflect_forever(&self) {
        let mut backoff = BACKOFF;
        let mut fill_from = FillFrom::History;
        loop {
            let error = self.list_and_watch(fill_from, &mut backoff).await;
            if matches!(error, Error::Compacted { .. }) {
                // The missed changes are compacted, so waiting does not help.
                tracing::warn!("watch cache fell behind the compacted revision, refilling");
                fill_from = FillFrom::Present;
                continue;
            }
            self.count_failure();
            tracing::warn!(%error, "failed to fill the watch cache, will retry");
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    /// Returns only with an error that requires a new fill.
    async fn list_and_watch(&self, fill_from: FillFrom, backoff: &mut Backoff) -> Error {
        let filling = match fill_from {
            FillFrom::History => self.fill_from_history().await,
            FillFrom::Present => self.fill_from_present().await,
        };
        let (through, mut watch) = match filling {
            Ok((through, watch)) => (through, Ok(watch)),
            Err(error) => return error,
        };
        let mut from = through.next();
        loop {
            let error = match watch {
                Ok(watch) => self.apply_watch(watch, &mut from, backoff).await,
                Err(error) => error,
            };
            self.progress.send_modify(|progress| progress.progress_request = None);
            if matches!(error, Error::Compacted { .. }) {
                return error;
            }
            self.count_failure();
            tracing::warn!(%error, from = %from, "store watch ended, resuming");
            tokio::time::sleep(backoff.next_wait()).await;
            watch = self.store.watch(self.prefix.clone(), from).await;
        }
    }

    /// Fills the caches with the current state and drops their history.
    async fn fill_from_present(&self) -> Result<(Revision, Watch), Error> {
        let (mut entries, revision) = self.read_all(None).await?;
        for resource_cache in self.resources.all_after(revision) {
            resource_cache.reset_history(revision);
            resource_cache.publish(
                resource_cache.build_snapshot(entries.remove(resource_cache.prefix()).unwrap_or_default(), revision),
            );
        }
        self.mark_synced(revision);
        Ok((revision, self.store.watch(self.prefix.clone(), revision.next()).await?))
    }

    /// Fills the caches with a past state and applies the changes since. Publishes nothing before the current revision
    /// is reached.
    async fn fill_from_history(&self) -> Result<(Revision, Watch), Error> {
        let present = self.store.revision().await?;
        // Without progress requests the end of the replay could not be detected. Checked after the first request,
        // because the store knows its features only once it is connected.
        if !self.store.supports_progress_requests() {
            return self.fill_from_present().await;
        }
        let (mut entries, past) = self.read_oldest_replayable(present).await?;
        let mut watch = self.store.watch(self.prefix.clone(), past.next()).await?;
        let mut pending: Vec<(Arc<ResourceCache>, ResourceSnapshot)> = Vec::new();
        for resource_cache in self.resources.all_after(past) {
            resource_cache.reset_history(past);
            let snapshot =
                resource_cache.build_snapshot(entries.remove(resource_cache.prefix()).unwrap_or_default(), past);
            pending.push((resource_cache, snapshot));
        }
        let mut through = past;
        while through < present {
            // Repeated each time: the etcd member that answers may itself lag behind.
            watch.progress_request().send();
            let batch = next_batch(&mut watch).await?;
            through = batch.complete_through;
            self.apply_events(batch, &mut pending);
        }
        pending.into_iter().for_each(|(resource_cache, snapshot)| resource_cache.publish(snapshot));
        self.mark_synced(through);
        Ok((through, watch))
    }

    /// Reads the oldest state within [`REPLAY_REVISIONS_MAX`] that the store still has.
    async fn read_oldest_replayable(&self, present: Revision) -> Result<(EntriesByPrefix, Revision), Error> {
        // Revision 1 is that of an empty store.
        let wanted = Revision(present.0.saturating_sub(REPLAY_REVISIONS_MAX).max(1));
        match self.read_all(Some(wanted)).await {
            Err(Error::Compacted { oldest, .. }) => self.read_all(Some(oldest.min(present))).await,
            read => read,
        }
    }

    /// Reads all entries, now or at a revision, grouped by resource prefix; returns the revision too.
    async fn read_all(&self, at: Option<Revision>) -> Result<(EntriesByPrefix, Revision), Error> {
        let mut entries = EntriesByPrefix::new();
        let mut range = KeyRange { at_revision: at, ..KeyRange::prefix(self.prefix.clone()).limit(PAGE_SIZE) };
        loop {
            let page = self.store.range(range.clone()).await?;
            let has_more = page.has_more();
            let last_key = page.entries.last().map(|entry| entry.key.clone());
            for entry in page.entries {
                if let Some(resource_cache) = self.resources.for_key(&entry.key) {
                    entries.entry(resource_cache.prefix().clone()).or_default().push(entry);
                }
            }
            match last_key {
                Some(last) if has_more => {
                    range = range.at_revision(page.revision).start([last.as_ref(), b"\0"].concat());
                }
                _ => return Ok((entries, range.at_revision.unwrap_or(page.revision))),
            }
        }
    }

    fn count_failure(&self) {
        self.failures.send_modify(|failures| *failures += 1);
    }

    fn mark_synced(&self, revision: Revision) {
        self.progress.send_modify(|progress| {
            progress.applied_revision = revision;
            progress.synced = true;
        });
    }

    /// Applies batches until the watch fails; `from` is the next revision to watch.
    async fn apply_watch(&self, mut watch: Watch, from: &mut Revision, backoff: &mut Backoff) -> Error {
        let request = watch.progress_request();
        self.progress.send_modify(|progress| progress.progress_request = Some(request));
        loop {
            match next_batch(&mut watch).await {
                Ok(batch) => {
                    backoff.reset();
                    *from = batch.complete_through.next();
                    self.apply_batch(batch);
                }
                Err(error) => return error,
            }
        }
    }

    fn apply_batch(&self, batch: WatchBatch) {
        let through = batch.complete_through;
        let mut touched = Vec::new();
        self.apply_events(batch, &mut touched);
        for (resource_cache, snapshot) in touched {
            resource_cache.publish(snapshot);
        }
        // Last, because readers that wait for this revision read the snapshots next.
        self.progress.send_modify(|progress| progress.applied_revision = through);
        self.resources.custom.drop_released(through);
    }

    /// Applies events to unpublished snapshots; a missing one starts as a copy of the published snapshot.
    fn apply_events(&self, batch: WatchBatch, snapshots: &mut Vec<(Arc<ResourceCache>, ResourceSnapshot)>) {
        let now = tokio::time::Instant::now();
        for event in batch.events {
            let Some(resource_cache) = self.resources.for_key(event.key()) else { continue };
            let at = match snapshots.iter().position(|(known, _)| Arc::ptr_eq(known, &resource_cache)) {
                Some(at) => at,
                None => {
                    snapshots.push((resource_cache.clone(), (*resource_cache.snapshot()).clone()));
                    snapshots.len() - 1
                }
            };
            resource_cache.apply(&mut snapshots[at].1, event, now);
        }
    }
}

/// The entries below the prefix of each resource cache, in ascending order of keys.
type EntriesByPrefix = HashMap<Key, Vec<StoreEntry>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FillFrom {
    /// At the oldest readable state within [`REPLAY_REVISIONS_MAX`].
    History,
    Present,
}

async fn next_batch(watch: &mut Watch) -> Result<WatchBatch, Error> {
    let closed = || Error::Unavailable { reason: "the store's watch was closed".to_owned() };
    watch.next_batch().await.ok_or_else(closed)?
}
