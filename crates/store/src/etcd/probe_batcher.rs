//! Who waits for the current revision, and when the next probe is sent.
//!
//! One probe answers all who came before it was sent. Who comes while it is under way waits for the next: what was
//! acknowledged meanwhile may be newer than its answer. A probe costs etcd and us as much as some ten reads from memory, so
//! under load it pays to wait for those who will come anyway: readers who were answered together ask again together. For the
//! same reason those who wait on another worker are answered by a task there: to wake each of them from here is a call of the
//! kernel each.

use std::time::Duration;

use parking_lot::Mutex;
use tasks::{RuntimeIndex, Tasks};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;

use crate::contract::{Error, Revision};

/// Callers who wait at most; further ones wait to be let in.
const WAITERS_MAX: usize = 1024;

/// So few callers are no crowd, and nobody waits for more of them.
const BATCH_MIN: usize = 4;

/// How long a probe is put off for a crowd that does not come back: what a probe takes, or two.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(1);

/// The callers of [`Store::revision`](crate::Store::revision).
#[derive(Debug)]
pub(super) struct ProbeBatcher {
    permits: Semaphore,
    waiting: Mutex<WaitingCallers>,
    batch_ready: Notify,
    tasks: Tasks,
}

type ProbeWaiter = oneshot::Sender<Result<Revision, Error>>;

#[derive(Debug)]
struct WaitingCallers {
    callers: Vec<(RuntimeIndex, ProbeWaiter)>,
    /// The runtimes of those who have ever asked, by their numbers.
    runtimes: Vec<Option<Handle>>,
    is_closed: bool,
    /// How many are enough for the next probe; `None`: nobody is about to send one.
    batch_target: Option<usize>,
}

impl ProbeBatcher {
    pub(super) fn new(tasks: Tasks) -> Self {
        let homes = vec![None; RuntimeIndex::count()];
        Self {
            permits: Semaphore::new(WAITERS_MAX),
            waiting: Mutex::new(WaitingCallers {
                callers: Vec::new(),
                runtimes: homes,
                is_closed: false,
                batch_target: None,
            }),
            batch_ready: Notify::new(),
            tasks,
        }
    }

    /// The answer to a probe that was sent after this call. Waits as long as somebody [answers](Self::run).
    pub(super) async fn current_revision(&self) -> Result<Revision, Error> {
        let closed = || Error::Unavailable { reason: "the store is closed".to_owned() };
        let _seat = self.permits.acquire().await.map_err(|_| closed())?;
        let (caller, answer) = oneshot::channel();
        let is_enough = {
            let mut waiting = self.waiting.lock();
            if waiting.is_closed {
                return Err(closed());
            }
            let home = RuntimeIndex::current();
            waiting.runtimes[home.index()].get_or_insert_with(Handle::current);
            waiting.callers.push((home, caller));
            waiting.batch_target == Some(waiting.callers.len())
        };
        if is_enough {
            self.batch_ready.notify_one();
        }
        answer.await.map_err(|_| closed())?
    }

    /// Answers callers with what `probe` returns, for ever.
    pub(super) async fn run<Answer>(&self, probe: impl Fn() -> Answer)
    where
        Answer: Future<Output = Result<Revision, Error>>,
    {
        let mut crowd = 0;
        loop {
            if crowd >= BATCH_MIN {
                // A few always come late. Whoever is there by then is enough.
                let _ = timeout(BATCH_WAIT_MAX, self.wait_for_callers(crowd - crowd / 8)).await;
            }
            self.wait_for_callers(1).await;
            let callers = {
                let mut waiting = self.waiting.lock();
                waiting.batch_target = None;
                std::mem::take(&mut waiting.callers)
            };
            let answer = probe().await;
            crowd = callers.len() + self.waiting.lock().callers.len();
            self.respond(callers, &answer);
        }
    }

    fn respond(&self, callers: Vec<(RuntimeIndex, ProbeWaiter)>, result: &Result<Revision, Error>) {
        let mut elsewhere: Vec<Vec<ProbeWaiter>> = Vec::new();
        let mut here = Vec::with_capacity(callers.len());
        for (home, caller) in callers {
            if home == RuntimeIndex::current() {
                here.push(caller);
            } else {
                elsewhere.resize_with(RuntimeIndex::count(), Vec::new);
                elsewhere[home.index()].push(caller);
            }
        }
        for (callers, home) in elsewhere.into_iter().zip(self.runtimes()) {
            let (false, Some(home)) = (callers.is_empty(), home) else { continue };
            let (_inside, answer) = (home.enter(), result.clone());
            self.tasks.spawn_once("etcd revision elsewhere", async move { send_to_all(callers, &answer) });
        }
        send_to_all(here, result);
    }

    fn runtimes(&self) -> Vec<Option<Handle>> {
        self.waiting.lock().runtimes.clone()
    }

    /// Lets nobody wait any longer: the store is closed.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        waiting.callers.clear();
    }

    /// Returns when so many wait.
    async fn wait_for_callers(&self, count: usize) {
        loop {
            {
                let mut waiting = self.waiting.lock();
                waiting.batch_target = Some(count);
                if waiting.callers.len() >= count {
                    return;
                }
            }
            // May be a leftover of a wait that was given up, so look again.
            self.batch_ready.notified().await;
        }
    }
}

fn send_to_all(callers: Vec<ProbeWaiter>, result: &Result<Revision, Error>) {
    for caller in callers {
        // Who has gone does not need it.
        let _ = caller.send(result.clone());
    }
}

#[cfg(test)]
mod tests;
