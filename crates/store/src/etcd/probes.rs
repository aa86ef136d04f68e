//! Who waits for the current revision, and when the next probe is sent.
//!
//! One probe answers all who came before it was sent. Who comes while it is under way waits for the next: what was
//! acknowledged meanwhile may be newer than its answer. A probe costs etcd and us as much as some ten reads from memory, so
//! under load it pays to wait for those who will come anyway: readers who were answered together ask again together. For the
//! same reason those who wait on another worker are answered by a task there: to wake each of them from here is a call of the
//! kernel each.

use std::time::Duration;

use parking_lot::Mutex;
use tasks::{Tasks, WorkerNumber};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;

use crate::contract::{Error, Revision};

/// Callers who wait at most; further ones wait to be let in.
const CALLERS_MAX: usize = 1024;

/// So few callers are no crowd, and nobody waits for more of them.
const CROWD_MIN: usize = 4;

/// How long a probe is put off for a crowd that does not come back: what a probe takes, or two.
const CROWD_PATIENCE: Duration = Duration::from_millis(1);

/// The callers of [`Store::revision`](crate::Store::revision).
#[derive(Debug)]
pub(super) struct Probes {
    seats: Semaphore,
    waiting: Mutex<Waiting>,
    enough: Notify,
    tasks: Tasks,
}

type Caller = oneshot::Sender<Result<Revision, Error>>;

#[derive(Debug)]
struct Waiting {
    callers: Vec<(WorkerNumber, Caller)>,
    /// The runtimes of those who have ever asked, by their numbers.
    homes: Vec<Option<Handle>>,
    is_closed: bool,
    /// How many are enough for the next probe; `None`: nobody is about to send one.
    wanted: Option<usize>,
}

impl Probes {
    pub(super) fn new(tasks: Tasks) -> Self {
        let homes = vec![None; WorkerNumber::count()];
        Self {
            seats: Semaphore::new(CALLERS_MAX),
            waiting: Mutex::new(Waiting { callers: Vec::new(), homes, is_closed: false, wanted: None }),
            enough: Notify::new(),
            tasks,
        }
    }

    /// The answer to a probe that was sent after this call. Waits as long as somebody [answers](Self::answer_all).
    pub(super) async fn ask(&self) -> Result<Revision, Error> {
        let closed = || Error::Unavailable { reason: "the store is closed".to_owned() };
        let _seat = self.seats.acquire().await.map_err(|_| closed())?;
        let (caller, answer) = oneshot::channel();
        let is_enough = {
            let mut waiting = self.waiting.lock();
            if waiting.is_closed {
                return Err(closed());
            }
            let home = WorkerNumber::here();
            waiting.homes[home.index()].get_or_insert_with(Handle::current);
            waiting.callers.push((home, caller));
            waiting.wanted == Some(waiting.callers.len())
        };
        if is_enough {
            self.enough.notify_one();
        }
        answer.await.map_err(|_| closed())?
    }

    /// Answers callers with what `probe` returns, for ever.
    pub(super) async fn answer_all<Answer>(&self, probe: impl Fn() -> Answer)
    where
        Answer: Future<Output = Result<Revision, Error>>,
    {
        let mut crowd = 0;
        loop {
            if crowd >= CROWD_MIN {
                // A few always come late. Whoever is there by then is enough.
                let _ = timeout(CROWD_PATIENCE, self.gathered(crowd - crowd / 8)).await;
            }
            self.gathered(1).await;
            let callers = {
                let mut waiting = self.waiting.lock();
                waiting.wanted = None;
                std::mem::take(&mut waiting.callers)
            };
            let answer = probe().await;
            crowd = callers.len() + self.waiting.lock().callers.len();
            self.tell(callers, &answer);
        }
    }

    fn tell(&self, callers: Vec<(WorkerNumber, Caller)>, answer: &Result<Revision, Error>) {
        let mut elsewhere: Vec<Vec<Caller>> = Vec::new();
        let mut here = Vec::with_capacity(callers.len());
        for (home, caller) in callers {
            if home == WorkerNumber::here() {
                here.push(caller);
            } else {
                elsewhere.resize_with(WorkerNumber::count(), Vec::new);
                elsewhere[home.index()].push(caller);
            }
        }
        for (callers, home) in elsewhere.into_iter().zip(self.homes()) {
            let (false, Some(home)) = (callers.is_empty(), home) else { continue };
            let (_inside, answer) = (home.enter(), answer.clone());
            self.tasks.spawn_once("etcd revision elsewhere", async move { tell(callers, &answer) });
        }
        tell(here, answer);
    }

    fn homes(&self) -> Vec<Option<Handle>> {
        self.waiting.lock().homes.clone()
    }

    /// Lets nobody wait any longer: the store is closed.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        waiting.callers.clear();
    }

    /// Returns when so many wait.
    async fn gathered(&self, wanted: usize) {
        loop {
            {
                let mut waiting = self.waiting.lock();
                waiting.wanted = Some(wanted);
                if waiting.callers.len() >= wanted {
                    return;
                }
            }
            // May be a leftover of a wait that was given up, so look again.
            self.enough.notified().await;
        }
    }
}

fn tell(callers: Vec<Caller>, answer: &Result<Revision, Error>) {
    for caller in callers {
        // Who has gone does not need it.
        let _ = caller.send(answer.clone());
    }
}

#[cfg(test)]
mod tests;
