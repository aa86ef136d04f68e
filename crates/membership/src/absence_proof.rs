//! The proof before a 404: the view holds everything that storage holds.
//!
//! Requests share rounds of proof. A request joins the next round that has not begun, so that the round reads storage after the
//! request arrived; a flood of requests costs one read after another, never several at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::ports::FeedProgress;

/// How long a proof may take; kube-apiserver waits as long for its caches.
pub(crate) const PROOF_TIMEOUT: Duration = Duration::from_secs(3);

/// The view could not be shown to be up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("storage cannot be asked whether our views are up to date")]
pub struct AbsenceNotProven;

/// Requests proofs. Clones share the rounds.
#[derive(Clone, Debug)]
pub struct AbsenceProver {
    requests: mpsc::Sender<oneshot::Sender<Result<(), AbsenceNotProven>>>,
}

impl AbsenceProver {
    /// A prover and its task.
    pub(crate) fn new(
        progress: Arc<dyn FeedProgress>,
        membership: mpsc::Sender<oneshot::Sender<()>>,
        queue_max: usize,
    ) -> (Self, AbsenceProverTask) {
        let (sender, requests) = mpsc::channel(queue_max);
        (Self { requests: sender }, AbsenceProverTask { progress, membership, requests })
    }

    /// Waits until the view holds what storage held when this was called. Fails if too many requests wait already.
    pub async fn catch_up(&self) -> Result<(), AbsenceNotProven> {
        let (sender, result) = oneshot::channel();
        self.requests.try_send(sender).map_err(|_| AbsenceNotProven)?;
        result.await.unwrap_or(Err(AbsenceNotProven))
    }
}

/// The task that runs one round after another.
pub(crate) struct AbsenceProverTask {
    progress: Arc<dyn FeedProgress>,
    membership: mpsc::Sender<oneshot::Sender<()>>,
    requests: mpsc::Receiver<oneshot::Sender<Result<(), AbsenceNotProven>>>,
}

impl AbsenceProverTask {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let first = tokio::select! {
                () = stop.cancelled() => return,
                first = self.requests.recv() => first,
            };
            // All provers are dropped: the server stops.
            let Some(first) = first else { return stop.cancelled().await };
            let mut waiters = vec![first];
            while let Ok(next) = self.requests.try_recv() {
                waiters.push(next);
            }
            let proven = tokio::select! {
                () = stop.cancelled() => return,
                proven = tokio::time::timeout(PROOF_TIMEOUT, self.catch_up_once()) => proven.unwrap_or(Err(AbsenceNotProven)),
            };
            for waiter in waiters {
                // The request may have been cancelled.
                let _ = waiter.send(proven);
            }
        }
    }

    async fn catch_up_once(&self) -> Result<(), AbsenceNotProven> {
        self.progress.catch_up().await.map_err(|error| {
            tracing::debug!(%error, "a proof of absence failed");
            AbsenceNotProven
        })?;
        let (sender, caught_up) = oneshot::channel();
        self.membership.send(sender).await.map_err(|_| AbsenceNotProven)?;
        caught_up.await.map_err(|_| AbsenceNotProven)
    }
}

#[cfg(test)]
mod tests {

    use api::PortError;
    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use parking_lot::Mutex;
    use tasks::Tasks;

    use super::*;
    use crate::ports::PortFuture;

    /// Progress that takes a second per read.
    #[derive(Default)]
    struct SlowFeedProgress {
        catch_up_count: Mutex<usize>,
    }

    impl FeedProgress for SlowFeedProgress {
        fn catch_up(&self) -> PortFuture<'_, ()> {
            async move {
                *self.catch_up_count.lock() += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<(), PortError>(())
            }
            .boxed()
        }
    }

    fn start_prover(
        waiting_max: usize,
    ) -> (Arc<SlowFeedProgress>, AbsenceProver, Tasks, mpsc::Receiver<oneshot::Sender<()>>) {
        let (progress, tasks) = (Arc::new(SlowFeedProgress::default()), Tasks::new());
        let (sender, membership) = mpsc::channel(8);
        let (prover, task) = AbsenceProver::new(progress.clone(), sender, waiting_max);
        tasks.spawn("absence-prover", |stop| task.run(stop));
        (progress, prover, tasks, membership)
    }

    /// A membership that is always up to date.
    fn answer_catch_up_requests(tasks: &Tasks, mut questions: mpsc::Receiver<oneshot::Sender<()>>) {
        tasks.spawn_once("membership", async move {
            while let Some(question) = questions.recv().await {
                let _ = question.send(());
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_proofs_share_storage_reads() {
        let (progress, prover, tasks, membership) = start_prover(1024);
        answer_catch_up_requests(&tasks, membership);
        let early = join_all((0..500).map(|_| prover.catch_up()));
        let late = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            join_all((0..500).map(|_| prover.catch_up())).await
        };
        let (early, late) = tokio::join!(early, late);
        assert!(early.into_iter().chain(late).all(|proven| proven == Ok(())));
        // The first request begins a round, alone or with others; those that arrive during it share the next.
        assert!(*progress.catch_up_count.lock() <= 3, "{:?}", progress.catch_up_count);
    }

    #[tokio::test(start_paused = true)]
    async fn proof_never_uses_read_started_before_request() {
        let (progress, prover, tasks, membership) = start_prover(8);
        answer_catch_up_requests(&tasks, membership);
        let started = tokio::time::Instant::now();
        let late = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            prover.catch_up().await
        };
        let (early, late) = tokio::join!(prover.catch_up(), late);
        assert_eq!((early, late), (Ok(()), Ok(())));
        assert_eq!(*progress.catch_up_count.lock(), 2);
        assert_eq!(started.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn proof_fails_when_queue_is_full_or_membership_is_silent() {
        let (_, prover, _tasks, _membership) = start_prover(1);
        let started = tokio::time::Instant::now();
        let proofs = join_all((0..8).map(|_| prover.catch_up())).await;
        assert_eq!(proofs, [Err(AbsenceNotProven); 8]);
        assert!(started.elapsed() <= PROOF_TIMEOUT * 2, "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn proof_fails_when_server_stops() {
        let (_, prover, tasks, _membership) = start_prover(8);
        let (proof, stopped) = tokio::join!(prover.catch_up(), tasks.stop(Duration::from_secs(1)));
        assert_eq!((proof, stopped), (Err(AbsenceNotProven), Ok(())));
        assert_eq!(prover.catch_up().await, Err(AbsenceNotProven));
    }
}
