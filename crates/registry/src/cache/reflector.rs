//! The task that follows the store: fill once, then apply every batch of one watch.
//!
//! The first fill begins in the past and catches up by the store's history, so that clients whose watches began at a server
//! before this one resume them here without listing anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use store::{Error, Key, KeyRange, Revision, Store, StoreEntry, Watch, WatchBatch};
use tasks::Backoff;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{ResourceCache, ResourceCaches, ResourceSnapshot, WatchCacheProgress};

/// How much is read from the store at once while filling.
const PAGE_SIZE: usize = 5_000;
/// How many revisions a first fill goes back. The store forgets after 5 to 10 minutes, which is as much at 16 to 33 writes a
/// second; more would make a start slow for the sake of few.
const REPLAY_REVISIONS_MAX: u64 = 10_000;
/// The first pause after a failure, doubled up to the last.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

pub(super) struct Reflector {
    pub(super) store: Arc<dyn Store>,
    pub(super) prefix: Key,
    pub(super) resources: Arc<ResourceCaches>,
    pub(super) progress: watch::Sender<WatchCacheProgress>,
    /// How often that failed.
    pub(super) failures: watch::Sender<u64>,
}

impl Reflector {
    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.reflect_forever() => {}
        }
    }

    /// Never returns: fills, watches, and starts over whenever the watch cannot be resumed.
    async fn reflect_forever(&self) {
        let mut backoff = BACKOFF;
        let mut fill_from = FillFrom::History;
        loop {
            let error = self.list_and_watch(fill_from, &mut backoff).await;
            if matches!(error, Error::Compacted { .. }) {
                // What we missed is forgotten by the store, so there is nothing to wait for.
                tracing::warn!("the watch cache fell behind the store's history and is filled anew");
                fill_from = FillFrom::Present;
                continue;
            }
            self.count_failure();
            tracing::warn!(%error, "the watch cache cannot be filled; trying again");
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    /// Ends only with the error that makes a new fill necessary.
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
            tracing::warn!(%error, from = %from, "the store's watch ended; resuming");
            tokio::time::sleep(backoff.next_wait()).await;
            watch = self.store.watch(self.prefix.clone(), from).await;
        }
    }

    /// Fills the shelves as the store is now. Their past is forgotten.
    async fn fill_from_present(&self) -> Result<(Revision, Watch), Error> {
        let (mut entries, revision) = self.read_all(None).await?;
        for shelf in &self.resources.caches {
            shelf.reset_history(revision);
            shelf.publish(shelf.build_snapshot(entries.remove(shelf.prefix()).unwrap_or_default(), revision));
        }
        self.mark_synced(revision);
        Ok((revision, self.store.watch(self.prefix.clone(), revision.next()).await?))
    }

    /// Fills the shelves as the store was a while ago and takes over what happened since. Nobody sees the past as if it were
    /// the present: nothing is published before the present is reached.
    async fn fill_from_history(&self) -> Result<(Revision, Watch), Error> {
        let present = self.store.revision().await?;
        // Where progress is not told of, nobody would know that there is no more to catch up with. Asked only now, because
        // a store knows what it can do once it was there.
        if !self.store.supports_progress_requests() {
            return self.fill_from_present().await;
        }
        let (mut entries, past) = self.read_oldest_replayable(present).await?;
        let mut watch = self.store.watch(self.prefix.clone(), past.next()).await?;
        let mut pending: Vec<(&Arc<ResourceCache>, ResourceSnapshot)> = Vec::new();
        for shelf in &self.resources.caches {
            shelf.reset_history(past);
            pending.push((shelf, shelf.build_snapshot(entries.remove(shelf.prefix()).unwrap_or_default(), past)));
        }
        let mut through = past;
        while through < present {
            // Again each time: what answers may itself have something to catch up with.
            watch.progress_request().send();
            let batch = next_batch(&mut watch).await?;
            through = batch.complete_through;
            self.apply_events(batch, &mut pending);
        }
        pending.into_iter().for_each(|(shelf, snapshot)| shelf.publish(snapshot));
        self.mark_synced(through);
        Ok((through, watch))
    }

    /// What the store held as long ago as we go back, or as it can tell.
    async fn read_oldest_replayable(&self, present: Revision) -> Result<(EntriesByPrefix, Revision), Error> {
        // The first revision is that of an empty store.
        let wanted = Revision(present.0.saturating_sub(REPLAY_REVISIONS_MAX).max(1));
        match self.read_all(Some(wanted)).await {
            Err(Error::Compacted { oldest, .. }) => self.read_all(Some(oldest.min(present))).await,
            read => read,
        }
    }

    /// Everything by its shelf's prefix, now or at a revision, and that revision.
    async fn read_all(&self, at: Option<Revision>) -> Result<(EntriesByPrefix, Revision), Error> {
        let mut entries = EntriesByPrefix::new();
        let mut range = KeyRange { at_revision: at, ..KeyRange::prefix(self.prefix.clone()).limit(PAGE_SIZE) };
        loop {
            let page = self.store.range(range.clone()).await?;
            let has_more = page.has_more();
            let last_key = page.entries.last().map(|entry| entry.key.clone());
            for entry in page.entries {
                if let Some(shelf) = self.resources.for_key(&entry.key) {
                    entries.entry(shelf.prefix().clone()).or_default().push(entry);
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
        for (shelf, snapshot) in touched {
            shelf.publish(snapshot);
        }
        // Last, because whoever waits for this revision reads the snapshots next.
        self.progress.send_modify(|progress| progress.applied_revision = through);
    }

    /// Takes changes over into snapshots that are published later; those that are missing are taken from their shelves.
    fn apply_events<'a>(&'a self, batch: WatchBatch, snapshots: &mut Vec<(&'a Arc<ResourceCache>, ResourceSnapshot)>) {
        let now = tokio::time::Instant::now();
        for event in batch.events {
            let Some(shelf) = self.resources.for_key(event.key()) else { continue };
            let at = match snapshots.iter().position(|(known, _)| Arc::ptr_eq(known, shelf)) {
                Some(at) => at,
                None => {
                    snapshots.push((shelf, (*shelf.snapshot()).clone()));
                    snapshots.len() - 1
                }
            };
            shelf.apply(&mut snapshots[at].1, event, now);
        }
    }
}

/// What lies below the prefix of each shelf, by ascending key.
type EntriesByPrefix = HashMap<Key, Vec<StoreEntry>>;

/// Where a fill begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FillFrom {
    /// As long ago as the store can tell, within bounds.
    History,
    /// Now.
    Present,
}

async fn next_batch(watch: &mut Watch) -> Result<WatchBatch, Error> {
    let closed = || Error::Unavailable { reason: "the store's watch was closed".to_owned() };
    watch.next_batch().await.ok_or_else(closed)?
}
