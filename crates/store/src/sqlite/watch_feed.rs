//! The task of one watch, until its consumer is gone.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::Revision;
use crate::sqlite::change_waiter::ChangeWaker;
use crate::sqlite::history;
use crate::sqlite::reader_pool::ReaderPool;
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::watch_hub::{HubSlot, JoinError, Subscription, WatchHub};

/// Feeds a watch from the log while it is behind, and waits while the hub feeds it.
#[derive(Debug)]
pub(super) struct WatchFeed {
    pub(super) subscription: Subscription,
    pub(super) progress_requests: mpsc::Receiver<()>,
    /// The last requested progress, if it may be unanswered.
    pub(super) requested_progress: Option<Revision>,
    pub(super) watch_hub: Arc<WatchHub>,
    pub(super) reader_pool: ReaderPool,
    pub(super) revision_file: Arc<RevisionFile>,
    pub(super) tail_waker: ChangeWaker,
}

/// The consumer is gone, or the watch has ended.
struct FeedEnded;

impl WatchFeed {
    pub(super) async fn run(mut self) {
        let mut next = self.subscription.from;
        loop {
            let step = match self.watch_hub.join(&self.subscription, next) {
                Ok(membership) => self.wait_in_hub(membership).await,
                Err(JoinError::Behind) => self.catch_up(next).await,
                Err(JoinError::Closed) => Err(FeedEnded),
            };
            match step {
                Ok(unseen) => next = unseen,
                Err(FeedEnded) => return,
            }
        }
    }

    /// Waits while the hub feeds the watch; returns the first unseen revision when it fell behind.
    async fn wait_in_hub(&mut self, mut hub_slot: HubSlot) -> Result<Revision, FeedEnded> {
        if let Some(requested) = self.requested_progress {
            self.watch_hub.request_progress(hub_slot.id, requested);
        }
        loop {
            tokio::select! {
                left = &mut hub_slot.detached => return left.map_err(|_| FeedEnded),
                request = self.progress_requests.recv() => {
                    // The sender is part of the `Watch`, so the consumer is gone.
                    let Some(()) = request else { break };
                    self.request_progress(hub_slot.id);
                }
                () = self.subscription.batches.closed() => break,
            }
        }
        self.watch_hub.leave(hub_slot.id);
        Err(FeedEnded)
    }

    /// Sends one batch of history; returns the revision after it. At most one batch waits for the consumer meanwhile, so that a
    /// long history is not read into memory as a whole.
    async fn catch_up(&mut self, next: Revision) -> Result<Revision, FeedEnded> {
        let batches = &self.subscription.batches;
        drop(batches.reserve_many(batches.max_capacity() - 1).await.map_err(|_| FeedEnded)?);
        if self.progress_requests.try_recv().is_ok() {
            self.requested_progress = self.revision_file.read().ok();
        }
        let prefix = self.subscription.prefix.clone();
        let piece = self.reader_pool.read(move |reader| history::read_batch(reader, &prefix, next)).await;
        if piece.is_err() && self.watch_hub.is_closed() {
            return Err(FeedEnded);
        }
        let (is_news, unseen) = match &piece {
            Ok(batch) => {
                let is_answer = self.requested_progress.is_some_and(|requested| requested <= batch.complete_through);
                let is_answer = is_answer && batch.complete_through >= self.subscription.from;
                self.requested_progress = self.requested_progress.filter(|_| !is_answer);
                (is_answer || !batch.events.is_empty(), Ok(next.max(batch.complete_through.next())))
            }
            Err(_) => (true, Err(FeedEnded)),
        };
        if is_news {
            self.subscription.batches.send(piece).await.map_err(|_| FeedEnded)?;
        }
        unseen
    }

    /// Asks the hub for progress up to the current revision. Ignores an unreadable revision file, which fails every
    /// read of the store anyway.
    fn request_progress(&mut self, id: u64) {
        if let Ok(requested) = self.revision_file.read() {
            self.requested_progress = Some(requested);
            self.watch_hub.request_progress(id, requested);
            self.tail_waker.wake();
        }
    }
}
