//! The task that follows the store: fill once, then apply every batch of one watch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use store::{Batch, Entry, Error, Key, Range, Revision, Store, Watch};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Progress, Shelves, Snapshot};

/// How much is read from the store at once while filling.
const PAGE_SIZE: usize = 5_000;
/// The first pause after a failure, doubled up to the last.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_LAST: Duration = Duration::from_secs(2);

pub(super) struct Follower {
    pub(super) store: Arc<dyn Store>,
    pub(super) prefix: Key,
    pub(super) shelves: Arc<Shelves>,
    pub(super) progress: watch::Sender<Progress>,
}

impl Follower {
    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    /// Never returns: fills, watches, and starts over whenever the watch cannot be resumed.
    async fn follow(&self) {
        let mut backoff = BACKOFF_FIRST;
        loop {
            let error = self.fill_and_watch(&mut backoff).await;
            if matches!(error, Error::Compacted { .. }) {
                // What we missed is forgotten by the store, so there is nothing to wait for.
                tracing::warn!("the watch cache fell behind the store's history and is filled anew");
                continue;
            }
            tracing::warn!(%error, "the watch cache cannot be filled; trying again");
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_LAST);
        }
    }

    /// Ends only with the error that makes a new fill necessary.
    async fn fill_and_watch(&self, backoff: &mut Duration) -> Error {
        let mut from = match self.fill().await {
            Ok(revision) => revision.next(),
            Err(error) => return error,
        };
        loop {
            let error = match self.store.watch(self.prefix.clone(), from).await {
                Ok(watch) => self.apply_all(watch, &mut from, backoff).await,
                Err(error) => error,
            };
            self.progress.send_modify(|progress| progress.request = None);
            if matches!(error, Error::Compacted { .. }) {
                return error;
            }
            tracing::warn!(%error, from = %from, "the store's watch ended; resuming");
            tokio::time::sleep(*backoff).await;
            *backoff = (*backoff * 2).min(BACKOFF_LAST);
        }
    }

    async fn fill(&self) -> Result<Revision, Error> {
        let mut by_shelf: HashMap<Key, Vec<Entry>> = HashMap::new();
        let mut range = Range::prefix(self.prefix.clone()).limit(PAGE_SIZE);
        let revision = loop {
            let page = self.store.range(range.clone()).await?;
            let has_more = page.has_more();
            let last_key = page.entries.last().map(|entry| entry.key.clone());
            for entry in page.entries {
                if let Some(shelf) = self.shelves.of_key(&entry.key) {
                    by_shelf.entry(shelf.prefix().clone()).or_default().push(entry);
                }
            }
            match last_key {
                Some(last) if has_more => {
                    range = range.at(page.revision).start([last.as_ref(), b"\0"].concat());
                }
                _ => break range.at.unwrap_or(page.revision),
            }
        };
        for shelf in &self.shelves.shelves {
            shelf.refill(by_shelf.remove(shelf.prefix()).unwrap_or_default(), revision);
        }
        self.progress.send_modify(|progress| {
            progress.through = revision;
            progress.filled = true;
        });
        Ok(revision)
    }

    async fn apply_all(&self, mut watch: Watch, from: &mut Revision, backoff: &mut Duration) -> Error {
        let request = watch.progress();
        self.progress.send_modify(|progress| progress.request = Some(request));
        loop {
            match watch.next().await {
                Some(Ok(batch)) => {
                    *backoff = BACKOFF_FIRST;
                    *from = batch.through.next();
                    self.apply(batch);
                }
                Some(Err(error)) => return error,
                None => return Error::Unavailable { reason: "the store's watch was closed".to_owned() },
            }
        }
    }

    fn apply(&self, batch: Batch) {
        let now = tokio::time::Instant::now();
        let mut touched: Vec<(&Arc<super::Shelf>, Snapshot)> = Vec::new();
        for event in batch.events {
            let Some(shelf) = self.shelves.of_key(event.key()) else { continue };
            let at = match touched.iter().position(|(known, _)| Arc::ptr_eq(known, shelf)) {
                Some(at) => at,
                None => {
                    touched.push((shelf, (*shelf.snapshot()).clone()));
                    touched.len() - 1
                }
            };
            shelf.apply(&mut touched[at].1, event, now);
        }
        for (shelf, snapshot) in touched {
            shelf.publish(snapshot);
        }
        // Last, because whoever waits for this revision reads the snapshots next.
        self.progress.send_modify(|progress| progress.through = batch.through);
    }
}
