//! A server that starts knows what happened before it started.

use registry::{Expired, Watcher};
use store::contract::Pending;
use store::{Entry, Outcome, Page, Range, Revision, Transaction, Watch};
use tokio::sync::Semaphore;

use super::*;

/// What the next `count` changes turned into what: labels before and after.
async fn labels(watcher: &mut Watcher, count: usize) -> Vec<(Option<String>, Option<String>)> {
    let label = |cached: Option<&Arc<Cached>>| match &cached?.item {
        Item::Object(stored) => stored.label("l").map(str::to_owned),
        item @ (Item::Raw(_) | Item::Undecodable(_)) => panic!("an object was expected: {item:?}"),
    };
    let mut seen = Vec::new();
    while seen.len() < count {
        let changes = watcher.next().await.unwrap();
        seen.extend(changes.iter().map(|change| (label(change.previous.as_ref()), label(change.current.as_ref()))));
    }
    seen
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_began_elsewhere_is_resumed_with_every_change_since() {
    let cluster = Cluster::new();
    let first = cluster.server().await;
    let seen = Revision(first.put("web", "1").await.revision);
    first.put("web", "2").await;
    first.put("db", "a").await;
    first.delete("web").await;
    first.stop().await;

    let second = cluster.server().await;
    let mut watcher = second.registry.watch(&second.pods(), seen).unwrap();
    second.put("db", "b").await;
    let changes = labels(&mut watcher, 4).await;
    assert_eq!(
        changes,
        [(some("1"), some("2")), (None, some("a")), (some("2"), None), (some("a"), some("b"))],
        "with what was there before each"
    );
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_from_before_what_the_store_remembers_is_told_so() {
    let cluster = Cluster::new();
    let first = cluster.server().await;
    let forgotten = Revision(first.put("web", "1").await.revision);
    let oldest = Revision(first.put("web", "2").await.revision);
    first.put("web", "3").await;
    first.store.compact(oldest).await.unwrap();
    first.stop().await;

    let second = cluster.server().await;
    let refused = second.registry.watch(&second.pods(), forgotten).unwrap_err();
    assert_eq!(refused, Expired { requested: forgotten });
    let mut watcher = second.registry.watch(&second.pods(), oldest).unwrap();
    assert_eq!(labels(&mut watcher, 1).await, [(some("2"), some("3"))]);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_past_is_shown_to_nobody_while_it_is_replayed() {
    let cluster = Cluster::new();
    let first = cluster.server().await;
    first.put("web", "1").await;
    // History begins here, so that a later start finds the object when it looks back.
    first.store.compact(first.store.revision().await.unwrap()).await.unwrap();
    first.delete("web").await;
    first.stop().await;

    let tasks = Tasks::new();
    let store = cluster.store(&tasks).await;
    let held = Arc::new(Held { store: store.clone(), asked: Semaphore::new(0), allowed: Semaphore::new(0) });
    let cache = Cache::start(held.clone(), PREFIX.into(), shelves(), &tasks);
    let pods = cache.shelf(b"/registry/pods/").unwrap();
    // The past is read by now, and what happened since is not.
    held.asked.acquire().await.unwrap().forget();
    assert!(!cache.is_filled());
    assert!(pods.get(&key("web")).is_none(), "it is gone since");
    held.allowed.add_permits(1);
    cache.filled().await.unwrap();
    assert!(pods.get(&key("web")).is_none());
    assert_eq!(cache.through(), store.revision().await.unwrap());
    store.close().await;
    tasks.stop(Duration::from_secs(30)).await.unwrap();
}

/// A store whose watches begin when they are allowed to.
#[derive(Debug)]
struct Held {
    store: Arc<SqliteStore>,
    asked: Semaphore,
    allowed: Semaphore,
}

impl Store for Held {
    fn get(&self, key: Key) -> Pending<'_, (Option<Entry>, Revision)> {
        self.store.get(key)
    }

    fn range(&self, range: Range) -> Pending<'_, Page> {
        self.store.range(range)
    }

    fn commit(&self, transaction: Transaction) -> Pending<'_, Outcome> {
        self.store.commit(transaction)
    }

    fn watch(&self, prefix: Key, from: Revision) -> Pending<'_, Watch> {
        Box::pin(async move {
            self.asked.add_permits(1);
            self.allowed.acquire().await.unwrap().forget();
            self.store.watch(prefix, from).await
        })
    }

    fn revision(&self) -> Pending<'_, Revision> {
        self.store.revision()
    }

    fn answers_progress(&self) -> bool {
        self.store.answers_progress()
    }

    fn compact(&self, revision: Revision) -> Pending<'_, ()> {
        self.store.compact(revision)
    }
}
