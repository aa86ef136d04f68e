//! The proof before a 404: our views hold everything that storage holds.
//!
//! Rounds of proof are shared. A request joins the next round that has not begun, so that the round looks at storage after the
//! request came; a flood of requests costs one look after the other, never many at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::ports::Progress;

/// How long a proof may take; kube-apiserver waits as long for its caches.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Our views could not be shown to be up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("storage cannot be asked whether our views are up to date")]
pub struct NotProven;

/// Where proofs are asked for. Clones share the rounds.
#[derive(Clone, Debug)]
pub struct Prover {
    requests: mpsc::Sender<oneshot::Sender<Result<(), NotProven>>>,
}

impl Prover {
    /// A prover and its task.
    pub(crate) fn new(
        progress: Arc<dyn Progress>,
        membership: mpsc::Sender<oneshot::Sender<()>>,
        waiting_max: usize,
    ) -> (Self, ProverTask) {
        let (sender, requests) = mpsc::channel(waiting_max);
        (Self { requests: sender }, ProverTask { progress, membership, requests })
    }

    /// Waits until every view holds what storage held when this was called. If too many wait already, there is no proof.
    pub async fn prove(&self) -> Result<(), NotProven> {
        let (sender, answer) = oneshot::channel();
        self.requests.try_send(sender).map_err(|_| NotProven)?;
        answer.await.unwrap_or(Err(NotProven))
    }
}

/// The task that proves, one round after the other.
pub(crate) struct ProverTask {
    progress: Arc<dyn Progress>,
    membership: mpsc::Sender<oneshot::Sender<()>>,
    requests: mpsc::Receiver<oneshot::Sender<Result<(), NotProven>>>,
}

impl ProverTask {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let first = tokio::select! {
                () = stop.cancelled() => return,
                first = self.requests.recv() => first,
            };
            // All provers are gone with the server; the task ends when it is told to.
            let Some(first) = first else { return stop.cancelled().await };
            let mut waiting = vec![first];
            while let Ok(next) = self.requests.try_recv() {
                waiting.push(next);
            }
            let proven = tokio::select! {
                () = stop.cancelled() => return,
                proven = tokio::time::timeout(PATIENCE, self.prove_once()) => proven.unwrap_or(Err(NotProven)),
            };
            for one in waiting {
                // Whoever asked may have given up.
                let _ = one.send(proven);
            }
        }
    }

    async fn prove_once(&self) -> Result<(), NotProven> {
        self.progress.catch_up().await.map_err(|error| {
            tracing::debug!(%error, "a proof of absence failed");
            NotProven
        })?;
        let (sender, answer) = oneshot::channel();
        self.membership.send(sender).await.map_err(|_| NotProven)?;
        answer.await.map_err(|_| NotProven)
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
    use crate::ports::Pending;

    /// Storage whose looks take a second each.
    #[derive(Default)]
    struct Slow {
        looks: Mutex<usize>,
    }

    impl Progress for Slow {
        fn catch_up(&self) -> Pending<'_, ()> {
            async move {
                *self.looks.lock() += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<(), PortError>(())
            }
            .boxed()
        }
    }

    fn rig(waiting_max: usize) -> (Arc<Slow>, Prover, Tasks, mpsc::Receiver<oneshot::Sender<()>>) {
        let (progress, tasks) = (Arc::new(Slow::default()), Tasks::new());
        let (sender, membership) = mpsc::channel(8);
        let (prover, task) = Prover::new(progress.clone(), sender, waiting_max);
        tasks.spawn("absence-prover", |stop| task.run(stop));
        (progress, prover, tasks, membership)
    }

    /// A membership that is always up to date.
    fn follow(tasks: &Tasks, mut questions: mpsc::Receiver<oneshot::Sender<()>>) {
        tasks.spawn_once("membership", async move {
            while let Some(question) = questions.recv().await {
                let _ = question.send(());
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_costs_one_look_after_the_other() {
        let (progress, prover, tasks, membership) = rig(1024);
        follow(&tasks, membership);
        let early = join_all((0..500).map(|_| prover.prove()));
        let late = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            join_all((0..500).map(|_| prover.prove())).await
        };
        let (early, late) = tokio::join!(early, late);
        assert!(early.into_iter().chain(late).all(|proven| proven == Ok(())));
        // The first request begins a round by itself or with the others; those that came during it share the next.
        assert!(*progress.looks.lock() <= 3, "{:?}", progress.looks);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_never_shares_a_look_that_began_before_it() {
        let (progress, prover, tasks, membership) = rig(8);
        follow(&tasks, membership);
        let started = tokio::time::Instant::now();
        let late = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            prover.prove().await
        };
        let (early, late) = tokio::join!(prover.prove(), late);
        assert_eq!((early, late), (Ok(()), Ok(())));
        assert_eq!(*progress.looks.lock(), 2);
        assert_eq!(started.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_who_wait_and_a_membership_that_does_not_answer_are_no_proof() {
        let (_, prover, _tasks, _membership) = rig(1);
        let started = tokio::time::Instant::now();
        let proofs = join_all((0..8).map(|_| prover.prove())).await;
        assert_eq!(proofs, [Err(NotProven); 8]);
        assert!(started.elapsed() <= PATIENCE * 2, "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stops_proves_nothing() {
        let (_, prover, tasks, _membership) = rig(8);
        let (proof, stopped) = tokio::join!(prover.prove(), tasks.stop(Duration::from_secs(1)));
        assert_eq!((proof, stopped), (Err(NotProven), Ok(())));
        assert_eq!(prover.prove().await, Err(NotProven));
    }
}
