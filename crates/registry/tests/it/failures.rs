//! A store that does not answer at first.

use std::sync::atomic::{AtomicU64, Ordering};

use store::contract::Pending;
use store::{Entry, Error, Outcome, Page, Range, Revision, Transaction, Watch};
use tokio::sync::mpsc;

use super::*;

/// Nothing is stored in it, and so many questions are answered with a failure before the first answer.
#[derive(Debug)]
struct Late(AtomicU64);

impl Store for Late {
    fn get(&self, _: Key) -> Pending<'_, (Option<Entry>, Revision)> {
        unreachable!("nobody gets")
    }

    fn range(&self, range: Range) -> Pending<'_, Page> {
        let revision = range.at.unwrap_or(Revision(1));
        Box::pin(std::future::ready(Ok(Page { entries: Vec::new(), count: 0, revision })))
    }

    fn commit(&self, _: Transaction) -> Pending<'_, Outcome> {
        unreachable!("nobody writes")
    }

    fn watch(&self, _: Key, _: Revision) -> Pending<'_, Watch> {
        // Closed at once: the watch ends before anything came.
        let ((_, delivered), (asking, _)) = (mpsc::channel(1), mpsc::channel(1));
        Box::pin(std::future::ready(Ok(Watch::new(delivered, asking))))
    }

    fn revision(&self) -> Pending<'_, Revision> {
        let is_late = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let late = || Err(Error::Unavailable { reason: "on purpose".to_owned() });
        Box::pin(std::future::ready(if is_late { late() } else { Ok(Revision(1)) }))
    }

    fn answers_progress(&self) -> bool {
        false
    }

    fn compact(&self, _: Revision) -> Pending<'_, ()> {
        unreachable!("nobody compacts")
    }
}

#[tokio::test(start_paused = true)]
async fn every_list_and_every_watch_that_fails_is_counted() {
    let tasks = Tasks::new();
    let cache = Cache::start(Arc::new(Late(AtomicU64::new(3))), PREFIX.into(), Vec::new(), &tasks);
    let mut failures = cache.failures();
    assert_eq!(*failures.borrow(), 0);
    cache.filled().await.unwrap();
    assert!(*failures.borrow() >= 3, "{}", *failures.borrow());
    // And each time that the watch ends.
    failures.wait_for(|failures| *failures >= 5).await.unwrap();
    tasks.stop(Duration::from_secs(30)).await.unwrap();
}
