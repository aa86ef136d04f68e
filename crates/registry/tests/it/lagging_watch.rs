//! A store whose watch is served by a lagging member, as in an etcd cluster.

use std::sync::atomic::{AtomicU64, Ordering};

use store::contract::StoreFuture;
use store::{KeyRange, RangePage, Revision, StoreEntry, Transaction, TransactionOutcome, Watch, WatchBatch};
use tokio::sync::mpsc;

use super::*;

/// An empty store whose watch advances by three revisions per progress request.
#[derive(Debug)]
struct LaggingStore {
    newest: AtomicU64,
    tasks: Tasks,
}

impl Store for LaggingStore {
    fn get(&self, _: Key) -> StoreFuture<'_, (Option<StoreEntry>, Revision)> {
        Box::pin(std::future::ready(Ok((None, self.newest_revision()))))
    }

    fn range(&self, range: KeyRange) -> StoreFuture<'_, RangePage> {
        let revision = range.at_revision.unwrap_or(self.newest_revision());
        Box::pin(std::future::ready(Ok(RangePage { entries: Vec::new(), count: 0, revision })))
    }

    fn commit(&self, _: Transaction) -> StoreFuture<'_, TransactionOutcome> {
        unreachable!("the test never writes")
    }

    fn watch(&self, _: Key, from: Revision) -> StoreFuture<'_, Watch> {
        let (batches, delivered) = mpsc::channel(1);
        let (asking, mut asked) = mpsc::channel(1);
        let stop = self.tasks.stop_token();
        self.tasks.spawn_once("lagging watch", async move {
            let mut through = from;
            while let Some(Some(())) = stop.run_until_cancelled(asked.recv()).await {
                through = Revision(through.0 + 3);
                if batches.send(Ok(WatchBatch { events: Vec::new(), complete_through: through })).await.is_err() {
                    return;
                }
            }
        });
        Box::pin(std::future::ready(Ok(Watch::new(delivered, asking))))
    }

    fn revision(&self) -> StoreFuture<'_, Revision> {
        Box::pin(std::future::ready(Ok(self.newest_revision())))
    }

    fn supports_progress_requests(&self) -> bool {
        true
    }

    fn compact(&self, _: Revision) -> StoreFuture<'_, ()> {
        unreachable!("the test never compacts")
    }
}

impl LaggingStore {
    fn newest_revision(&self) -> Revision {
        Revision(self.newest.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn cache_requests_progress_until_lagging_watch_catches_up() {
    let tasks = Tasks::new();
    let store = Arc::new(LaggingStore { newest: AtomicU64::new(20), tasks: tasks.clone() });
    let cache = WatchCache::start(store.clone(), PREFIX.into(), resource_prefixes(), &tasks);
    let filled = tokio::time::timeout(Duration::from_secs(60), cache.wait_for_sync()).await;
    filled.expect("the cache syncs although the first progress is not enough").unwrap();
    assert!(cache.applied_revision() >= Revision(20));

    let newest = Revision(cache.applied_revision().0 + 20);
    store.newest.store(newest.0, Ordering::Relaxed);
    assert!(
        cache.wait_for_revision(newest, Duration::from_secs(60)).await.unwrap(),
        "a read requests progress repeatedly too"
    );
    tasks.stop(Duration::from_secs(30)).await.unwrap();
}
