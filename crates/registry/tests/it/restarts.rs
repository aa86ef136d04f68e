//! A starting server replays the history from before its start.

use registry::{CacheWatcher, WatchExpired};
use store::contract::StoreFuture;
use store::{KeyRange, RangePage, Revision, StoreEntry, Transaction, TransactionOutcome, Watch};
use tokio::sync::Semaphore;

use super::*;

/// The labels before and after each of the next `count` changes.
async fn next_label_changes(watcher: &mut CacheWatcher, count: usize) -> Vec<(Option<String>, Option<String>)> {
    let label = |cached: Option<&Arc<CachedEntry>>| match &cached?.value {
        CachedValue::Object(stored) => stored.label("l").map(str::to_owned),
        item @ (CachedValue::Raw(_) | CachedValue::Undecodable(_)) => panic!("an object was expected: {item:?}"),
    };
    let mut seen = Vec::new();
    while seen.len() < count {
        let changes = watcher.next_changes().await.unwrap();
        seen.extend(changes.iter().map(|change| (label(change.previous.as_ref()), label(change.current.as_ref()))));
    }
    seen
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_from_before_restart_resumes_with_every_change() {
    let cluster = Cluster::new();
    let first = cluster.start_server().await;
    let seen = Revision(first.put("web", "1").await.revision);
    first.put("web", "2").await;
    first.put("db", "a").await;
    first.delete("web").await;
    first.stop().await;

    let second = cluster.start_server().await;
    let mut watcher = second.registry.watch(&second.pod_cache(), seen).unwrap();
    second.put("db", "b").await;
    let changes = next_label_changes(&mut watcher, 4).await;
    assert_eq!(
        changes,
        [(some("1"), some("2")), (None, some("a")), (some("2"), None), (some("a"), some("b"))],
        "the labels before and after each change"
    );
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_from_before_compaction_is_expired() {
    let cluster = Cluster::new();
    let first = cluster.start_server().await;
    let forgotten = Revision(first.put("web", "1").await.revision);
    let oldest = Revision(first.put("web", "2").await.revision);
    first.put("web", "3").await;
    first.store.compact(oldest).await.unwrap();
    first.stop().await;

    let second = cluster.start_server().await;
    let refused = second.registry.watch(&second.pod_cache(), forgotten).unwrap_err();
    assert_eq!(refused, WatchExpired { requested: forgotten });
    let mut watcher = second.registry.watch(&second.pod_cache(), oldest).unwrap();
    assert_eq!(next_label_changes(&mut watcher, 1).await, [(some("2"), some("3"))]);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replayed_history_is_not_published_before_sync() {
    let cluster = Cluster::new();
    let first = cluster.start_server().await;
    first.put("web", "1").await;
    // The history starts here, so that a later start finds the object in the past.
    first.store.compact(first.store.revision().await.unwrap()).await.unwrap();
    first.delete("web").await;
    first.stop().await;

    let tasks = Tasks::new();
    let store = cluster.open_store(&tasks).await;
    let held = Arc::new(GatedWatchStore {
        store: store.clone(),
        watch_requested: Semaphore::new(0),
        watch_allowed: Semaphore::new(0),
    });
    let cache = WatchCache::start(held.clone(), PREFIX.into(), resource_prefixes(), &tasks);
    let pods = cache.resource_cache(b"/registry/pods/").unwrap();
    // The past state is read by now, the changes since are not.
    held.watch_requested.acquire().await.unwrap().forget();
    assert!(!cache.has_synced());
    assert!(pods.get(&pod_key("web")).is_none(), "the object was deleted since");
    held.watch_allowed.add_permits(1);
    cache.wait_for_sync().await.unwrap();
    assert!(pods.get(&pod_key("web")).is_none());
    assert_eq!(cache.applied_revision(), store.revision().await.unwrap());
    store.close().await;
    tasks.stop(Duration::from_secs(30)).await.unwrap();
}

/// A store whose watches start only when the test permits it.
#[derive(Debug)]
struct GatedWatchStore {
    store: Arc<SqliteStore>,
    watch_requested: Semaphore,
    watch_allowed: Semaphore,
}

impl Store for GatedWatchStore {
    fn get(&self, key: Key) -> StoreFuture<'_, (Option<StoreEntry>, Revision)> {
        self.store.get(key)
    }

    fn range(&self, range: KeyRange) -> StoreFuture<'_, RangePage> {
        self.store.range(range)
    }

    fn commit(&self, transaction: Transaction) -> StoreFuture<'_, TransactionOutcome> {
        self.store.commit(transaction)
    }

    fn watch(&self, prefix: Key, from: Revision) -> StoreFuture<'_, Watch> {
        Box::pin(async move {
            self.watch_requested.add_permits(1);
            self.watch_allowed.acquire().await.unwrap().forget();
            self.store.watch(prefix, from).await
        })
    }

    fn revision(&self) -> StoreFuture<'_, Revision> {
        self.store.revision()
    }

    fn supports_progress_requests(&self) -> bool {
        self.store.supports_progress_requests()
    }

    fn compact(&self, revision: Revision) -> StoreFuture<'_, ()> {
        self.store.compact(revision)
    }
}
