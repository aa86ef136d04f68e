//! A store that fails at first.

use std::sync::atomic::{AtomicU64, Ordering};

use store::contract::StoreFuture;
use store::{Error, KeyRange, RangePage, Revision, StoreEntry, Transaction, TransactionOutcome, Watch};
use tokio::sync::mpsc;

use super::*;

/// An empty store that fails the given number of requests first.
#[derive(Debug)]
struct FailingAtFirstStore(AtomicU64);

impl Store for FailingAtFirstStore {
    fn get(&self, _: Key) -> StoreFuture<'_, (Option<StoreEntry>, Revision)> {
        unreachable!("the test never gets")
    }

    fn range(&self, range: KeyRange) -> StoreFuture<'_, RangePage> {
        let revision = range.at_revision.unwrap_or(Revision(1));
        Box::pin(std::future::ready(Ok(RangePage { entries: Vec::new(), count: 0, revision })))
    }

    fn commit(&self, _: Transaction) -> StoreFuture<'_, TransactionOutcome> {
        unreachable!("the test never writes")
    }

    fn watch(&self, _: Key, _: Revision) -> StoreFuture<'_, Watch> {
        // Closed at once: the watch ends before any batch.
        let ((_, delivered), (asking, _)) = (mpsc::channel(1), mpsc::channel(1));
        Box::pin(std::future::ready(Ok(Watch::new(delivered, asking))))
    }

    fn revision(&self) -> StoreFuture<'_, Revision> {
        let is_late = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let late = || Err(Error::Unavailable { reason: "on purpose".to_owned() });
        Box::pin(std::future::ready(if is_late { late() } else { Ok(Revision(1)) }))
    }

    fn supports_progress_requests(&self) -> bool {
        false
    }

    fn compact(&self, _: Revision) -> StoreFuture<'_, ()> {
        unreachable!("the test never compacts")
    }
}

#[tokio::test(start_paused = true)]
async fn cache_counts_failed_lists_and_watches() {
    let tasks = Tasks::new();
    let cache = WatchCache::start(Arc::new(FailingAtFirstStore(AtomicU64::new(3))), PREFIX.into(), Vec::new(), &tasks);
    let mut failures = cache.failure_count();
    assert_eq!(*failures.borrow(), 0);
    cache.wait_for_sync().await.unwrap();
    assert!(*failures.borrow() >= 3, "{}", *failures.borrow());
    // Also each time that the watch ends.
    failures.wait_for(|failures| *failures >= 5).await.unwrap();
    tasks.stop(Duration::from_secs(30)).await.unwrap();
}
