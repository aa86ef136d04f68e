//! Work that is cancelled with its caller until it commits, and then runs to completion.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

use crate::Tasks;

const OPEN: u8 = 0;
const COMMITTED: u8 = 1;
const CANCELLED: u8 = 2;

/// An atomic decision between cancellation by the caller and commitment by the work.
#[derive(Debug, Default)]
pub struct Commitment(AtomicU8);

impl Commitment {
    /// Commits: the work is not cancelled from here on. Never returns if the work is already cancelled, so that it is
    /// dropped at this await.
    pub async fn commit(&self) {
        if self.decide(COMMITTED) == CANCELLED {
            std::future::pending::<()>().await;
        }
    }

    /// Decides if still open; returns the final decision.
    fn decide(&self, decision: u8) -> u8 {
        match self.0.compare_exchange(OPEN, decision, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => decision,
            Err(earlier) => earlier,
        }
    }
}

/// A handle to await work. Dropping it before the work commits cancels the work.
#[derive(Debug)]
pub struct Cancellable<T> {
    work: JoinHandle<T>,
    commitment: Arc<Commitment>,
}

impl Tasks {
    /// Starts work that [`Tasks::stop`] waits for. Dropping the handle cancels it, unless the work has committed itself. A
    /// panic is reported only to the task that awaits the handle.
    pub fn spawn_cancellable<T: Send + 'static>(
        &self,
        runtime: &Handle,
        commitment: Arc<Commitment>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Cancellable<T> {
        Cancellable { work: self.spawn_on(runtime, work), commitment }
    }
}

impl<T> Future for Cancellable<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.work).poll(context)
    }
}

impl<T> Drop for Cancellable<T> {
    fn drop(&mut self) {
        if self.commitment.decide(CANCELLED) == CANCELLED {
            self.work.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    /// Starts work with a pause before and after its commit, which reports when it has finished.
    fn start_cancellable_work(
        tasks: &Tasks,
        commits: bool,
    ) -> (Cancellable<()>, oneshot::Sender<()>, oneshot::Receiver<()>) {
        let commitment = Arc::new(Commitment::default());
        let (signal, signalled) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let inner = commitment.clone();
        let work = async move {
            if commits {
                inner.commit().await;
            }
            let _ = signalled.await;
            inner.commit().await;
            let _ = done.send(());
        };
        (tasks.spawn_cancellable(&Handle::current(), commitment, work), signal, is_done)
    }

    #[tokio::test]
    async fn work_is_cancelled_before_it_commits_and_finishes_after() {
        for commits in [false, true] {
            let tasks = Tasks::new();
            let (work, signal, is_done) = start_cancellable_work(&tasks, commits);
            tokio::task::yield_now().await;
            drop(work);
            let _ = signal.send(());
            assert_eq!(is_done.await.is_ok(), commits);
            assert_eq!(tasks.stop(Duration::from_secs(60)).await, Ok(()), "no work is left");
        }
    }

    #[tokio::test]
    async fn awaited_work_returns_its_result() {
        let tasks = Tasks::new();
        let work = tasks.spawn_cancellable(&Handle::current(), Arc::default(), async { 7 });
        assert_eq!(work.await.unwrap(), 7);
    }
}
