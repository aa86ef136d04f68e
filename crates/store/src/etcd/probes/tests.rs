use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::{join_all, poll_immediate};
use tasks::Tasks;
use tokio::time::{Instant, sleep};

use super::*;

/// How long a probe takes here.
const PROBE_TIME: Duration = Duration::from_micros(500);

/// Probes that are answered by counting: the answer is the number of the probe.
struct Stage {
    probes: Arc<Probes>,
    sent: Arc<AtomicU64>,
    tasks: Tasks,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { probes: Arc::new(Probes::new(Tasks::new())), sent: Arc::default(), tasks: Tasks::new() };
        let (probes, sent, stop) = (stage.probes.clone(), stage.sent.clone(), stage.tasks.stopping());
        stage.tasks.spawn_once("probes", async move {
            let probe = || async {
                let number = sent.fetch_add(1, Ordering::Relaxed) + 1;
                sleep(PROBE_TIME).await;
                Ok(Revision(number))
            };
            stop.run_until_cancelled(probes.answer_all(probe)).await;
            probes.close();
        });
        stage
    }

    /// So many ask at once; the numbers of the probes that they were answered by, and how long it took.
    async fn ask(&self, count: usize) -> (Vec<u64>, Duration) {
        let began = Instant::now();
        let answers = join_all((0..count).map(|_| self.probes.ask())).await;
        (answers.into_iter().map(|answer| answer.unwrap().0).collect(), began.elapsed())
    }
}

#[tokio::test(start_paused = true)]
async fn callers_without_a_crowd_are_answered_at_once() {
    let stage = Stage::new();
    for round in 1..=5 {
        let (answers, took) = stage.ask(1).await;
        assert_eq!(answers, [round]);
        assert!(took < CROWD_PATIENCE * 2, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_while_a_probe_is_under_way_is_answered_by_the_next() {
    let stage = Stage::new();
    let mut early = std::pin::pin!(stage.probes.ask());
    assert!(poll_immediate(early.as_mut()).await.is_none());
    while stage.sent.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let (early, late) = tokio::join!(early, stage.ask(3));
    assert_eq!(early.unwrap(), Revision(1));
    assert_eq!(late.0, [2, 2, 2], "one probe for all of them");
}

#[tokio::test(start_paused = true)]
async fn a_probe_waits_for_a_crowd_that_comes_back_one_by_one() {
    let stage = Stage::new();
    stage.ask(16).await;
    let before = stage.sent.load(Ordering::Relaxed);
    let returning = (0..16).map(async |turn| {
        for _ in 0..turn {
            tokio::task::yield_now().await;
        }
        stage.probes.ask().await.unwrap().0 - before
    });
    let answers = join_all(returning).await;
    assert_eq!(answers, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2], "all but an eighth by the first probe");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_does_not_come_back_is_not_waited_for_long() {
    let stage = Stage::new();
    stage.ask(16).await;
    let (_, took) = stage.ask(1).await;
    assert!(took >= CROWD_PATIENCE && took <= CROWD_PATIENCE * 4, "{took:?}");
    let (_, took) = stage.ask(1).await;
    assert!(took < CROWD_PATIENCE * 2, "it is no crowd any more: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_closed_store() {
    let stage = Stage::new();
    let asking = stage.probes.ask();
    stage.probes.close();
    assert!(matches!(asking.await, Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn those_who_wait_on_any_worker_are_answered_there_by_a_later_probe() {
    let (stage, workers) = (Stage::new(), tasks::Workers::start().unwrap());
    let (sender, mut answers) = tokio::sync::mpsc::unbounded_channel();
    // So that they all come while one is under way.
    let mut first = std::pin::pin!(stage.probes.ask());
    while stage.sent.load(Ordering::Relaxed) == 0 {
        assert_eq!(poll_immediate(&mut first).await, None);
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        let (probes, sender) = (stage.probes.clone(), sender.clone());
        stage.tasks.spawn_once_at(workers.place(), "reader", async move {
            let asked_from = WorkerNumber::here();
            let answer = probes.ask().await;
            sender.send((answer, WorkerNumber::here() == asked_from)).unwrap();
        });
    }
    drop(sender);
    assert_eq!(first.await, Ok(Revision(1)));
    let mut count = 0;
    while let Some((answer, is_at_home)) = answers.recv().await {
        // By which one depends on when each of them came.
        assert!(answer.as_ref().is_ok_and(|probe| probe.0 > 1) && is_at_home, "{answer:?}");
        count += 1;
    }
    assert_eq!(count, 20);
}
