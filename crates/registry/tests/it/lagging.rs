//! A store whose watch is served by a member that is behind the others, as one of several etcds may be.

use std::sync::atomic::{AtomicU64, Ordering};

use store::contract::Pending;
use store::{Batch, Entry, Outcome, Page, Range, Revision, Transaction, Watch};
use tokio::sync::mpsc;

use super::*;

/// Nothing is stored in it, and it is at some revision. Each time its watch is asked, it has come three revisions further.
#[derive(Debug)]
struct Lagging {
    newest: AtomicU64,
    tasks: Tasks,
}

impl Store for Lagging {
    fn get(&self, _: Key) -> Pending<'_, (Option<Entry>, Revision)> {
        Box::pin(std::future::ready(Ok((None, self.now()))))
    }

    fn range(&self, range: Range) -> Pending<'_, Page> {
        let revision = range.at.unwrap_or(self.now());
        Box::pin(std::future::ready(Ok(Page { entries: Vec::new(), count: 0, revision })))
    }

    fn commit(&self, _: Transaction) -> Pending<'_, Outcome> {
        unreachable!("nobody writes")
    }

    fn watch(&self, _: Key, from: Revision) -> Pending<'_, Watch> {
        let (batches, delivered) = mpsc::channel(1);
        let (asking, mut asked) = mpsc::channel(1);
        let stop = self.tasks.stopping();
        self.tasks.spawn_once("lagging watch", async move {
            let mut through = from;
            while let Some(Some(())) = stop.run_until_cancelled(asked.recv()).await {
                through = Revision(through.0 + 3);
                if batches.send(Ok(Batch { events: Vec::new(), through })).await.is_err() {
                    return;
                }
            }
        });
        Box::pin(std::future::ready(Ok(Watch::new(delivered, asking))))
    }

    fn revision(&self) -> Pending<'_, Revision> {
        Box::pin(std::future::ready(Ok(self.now())))
    }

    fn answers_progress(&self) -> bool {
        true
    }

    fn compact(&self, _: Revision) -> Pending<'_, ()> {
        unreachable!("nobody compacts")
    }
}

impl Lagging {
    fn now(&self) -> Revision {
        Revision(self.newest.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn a_watch_that_is_behind_is_asked_until_it_is_not() {
    let tasks = Tasks::new();
    let store = Arc::new(Lagging { newest: AtomicU64::new(20), tasks: tasks.clone() });
    let cache = Cache::start(store.clone(), PREFIX.into(), shelves(), &tasks);
    let filled = tokio::time::timeout(Duration::from_secs(60), cache.filled()).await;
    filled.expect("it is filled although the first answers are not enough").unwrap();
    assert!(cache.through() >= Revision(20));

    let newest = Revision(cache.through().0 + 20);
    store.newest.store(newest.0, Ordering::Relaxed);
    assert!(cache.reached(newest, Duration::from_secs(60)).await.unwrap(), "the same of a read");
    tasks.stop(Duration::from_secs(30)).await.unwrap();
}
