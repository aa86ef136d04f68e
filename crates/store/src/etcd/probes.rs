//! Who waits for the current revision, and when the next probe is sent.
//!
//! One probe answers all who came before it was sent. Who comes while it is under way waits for the next: what was
//! acknowledged meanwhile may be newer than its answer. A probe costs etcd and us as much as some ten reads from memory, so
//! under load it pays to wait for those who will come anyway: readers who were answered together ask again together.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
}

#[derive(Debug)]
struct Waiting {
    callers: Vec<oneshot::Sender<Result<Revision, Error>>>,
    is_closed: bool,
    /// How many are enough for the next probe; `None`: nobody is about to send one.
    wanted: Option<usize>,
}

impl Probes {
    pub(super) fn new() -> Self {
        Self {
            seats: Semaphore::new(CALLERS_MAX),
            waiting: Mutex::new(Waiting { callers: Vec::new(), is_closed: false, wanted: None }),
            enough: Notify::new(),
        }
    }

    /// The answer to a probe that was sent after this call. Waits as long as somebody [answers](Self::answer_all).
    pub(super) async fn ask(&self) -> Result<Revision, Error> {
        let closed = || Error::Unavailable { reason: "the store is closed".to_owned() };
        let _seat = self.seats.acquire().await.map_err(|_| closed())?;
        let (caller, answer) = oneshot::channel();
        let is_enough = {
            let mut waiting = self.waiting();
            if waiting.is_closed {
                return Err(closed());
            }
            waiting.callers.push(caller);
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
                let mut waiting = self.waiting();
                waiting.wanted = None;
                std::mem::take(&mut waiting.callers)
            };
            let answer = probe().await;
            crowd = callers.len() + self.waiting().callers.len();
            for caller in callers {
                // Who has gone does not need it.
                let _ = caller.send(answer.clone());
            }
        }
    }

    /// Lets nobody wait any longer: the store is closed.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        waiting.callers.clear();
    }

    /// Returns when so many wait.
    async fn gathered(&self, wanted: usize) {
        loop {
            {
                let mut waiting = self.waiting();
                waiting.wanted = Some(wanted);
                if waiting.callers.len() >= wanted {
                    return;
                }
            }
            // May be a leftover of a wait that was given up, so look again.
            self.enough.notified().await;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic while it was held cannot have left it half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
