//! Batches callers that need the current revision, and decides when to send the next probe.
//!
//! One probe serves all callers that arrived before it was sent. A caller that arrives while a probe is in flight waits
//! for the next one, because writes acknowledged meanwhile may be newer than its response. A probe costs etcd and
//! unskew about as much as ten reads from memory, so under load it pays to wait for the callers that will come anyway:
//! readers that were served together ask again together.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;

use crate::contract::{Error, Revision};

/// Callers waiting for a probe; further callers wait for a permit.
const WAITERS_MAX: usize = 1024;

/// Below this number of callers no probe is delayed.
const BATCH_MIN: usize = 4;

/// The longest delay of a probe for callers that do not return: the duration of one or two probes.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(1);

/// The callers of [`Store::revision`](crate::Store::revision) on one queue.
#[derive(Debug)]
pub(super) struct ProbeBatcher {
    permits: Semaphore,
    waiting: Mutex<WaitingCallers>,
    batch_ready: Notify,
}

type ProbeWaiter = oneshot::Sender<Result<Revision, Error>>;

#[derive(Debug)]
struct WaitingCallers {
    callers: Vec<ProbeWaiter>,
    is_closed: bool,
    /// The number of callers that triggers the next probe; `None` while a probe is in flight.
    batch_target: Option<usize>,
}

impl ProbeBatcher {
    pub(super) fn new() -> Self {
        Self {
            permits: Semaphore::new(WAITERS_MAX),
            waiting: Mutex::new(WaitingCallers { callers: Vec::new(), is_closed: false, batch_target: None }),
            batch_ready: Notify::new(),
        }
    }

    /// Returns the result of a probe that is sent after this call. Needs [`Self::run`] to be running.
    pub(super) async fn current_revision(&self) -> Result<Revision, Error> {
        let closed = || Error::Unavailable { reason: "the store is closed".to_owned() };
        let _seat = self.permits.acquire().await.map_err(|_| closed())?;
        let (caller, answer) = oneshot::channel();
        let is_enough = {
            let mut waiting = self.waiting.lock();
            if waiting.is_closed {
                return Err(closed());
            }
            waiting.callers.push(caller);
            waiting.batch_target == Some(waiting.callers.len())
        };
        if is_enough {
            self.batch_ready.notify_one();
        }
        answer.await.map_err(|_| closed())?
    }

    /// Serves callers with the results of `probe`; never returns.
    pub(super) async fn run<Answer>(&self, probe: impl Fn() -> Answer)
    where
        Answer: Future<Output = Result<Revision, Error>>,
    {
        let mut expected_callers = 0;
        loop {
            if expected_callers >= BATCH_MIN {
                // A few callers always come late, so seven eighths are enough.
                let _ = timeout(BATCH_WAIT_MAX, self.wait_for_callers(expected_callers - expected_callers / 8)).await;
            }
            self.wait_for_callers(1).await;
            let callers = {
                let mut waiting = self.waiting.lock();
                waiting.batch_target = None;
                std::mem::take(&mut waiting.callers)
            };
            let answer = probe().await;
            expected_callers = callers.len() + self.waiting.lock().callers.len();
            for caller in callers {
                // The receiver is gone if the caller was cancelled.
                let _ = caller.send(answer.clone());
            }
        }
    }

    /// Fails all waiting and all later callers: the store is closed.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        waiting.callers.clear();
    }

    /// Waits until `count` callers are waiting.
    async fn wait_for_callers(&self, count: usize) {
        loop {
            {
                let mut waiting = self.waiting.lock();
                waiting.batch_target = Some(count);
                if waiting.callers.len() >= count {
                    return;
                }
            }
            // The notification may stem from an earlier wait that timed out, so check again.
            self.batch_ready.notified().await;
        }
    }
}

#[cfg(test)]
mod tests;
