use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::{join_all, poll_immediate};
use tasks::Tasks;
use tokio::time::{Instant, sleep};

use super::*;

const PROBE_TIME: Duration = Duration::from_micros(500);

/// A batcher whose probes return their own sequence number.
struct ProbeFixture {
    batcher: Arc<ProbeBatcher>,
    sent_count: Arc<AtomicU64>,
    tasks: Tasks,
}

impl ProbeFixture {
    fn new() -> Self {
        let stage = Self { batcher: Arc::new(ProbeBatcher::new()), sent_count: Arc::default(), tasks: Tasks::new() };
        let (probes, sent, stop) = (stage.batcher.clone(), stage.sent_count.clone(), stage.tasks.stop_token());
        stage.tasks.spawn_once("probes", async move {
            let probe = || async {
                let number = sent.fetch_add(1, Ordering::Relaxed) + 1;
                sleep(PROBE_TIME).await;
                Ok(Revision(number))
            };
            stop.run_until_cancelled(probes.run(probe)).await;
            probes.close();
        });
        stage
    }

    /// Runs `count` callers at once; returns the probe that served each, and the time taken.
    async fn probe_concurrently(&self, count: usize) -> (Vec<u64>, Duration) {
        let began = Instant::now();
        let answers = join_all((0..count).map(|_| self.batcher.current_revision())).await;
        (answers.into_iter().map(|answer| answer.unwrap().0).collect(), began.elapsed())
    }
}

#[tokio::test(start_paused = true)]
async fn single_caller_is_answered_without_batching_delay() {
    let stage = ProbeFixture::new();
    for round in 1..=5 {
        let (answers, took) = stage.probe_concurrently(1).await;
        assert_eq!(answers, [round]);
        assert!(took < BATCH_WAIT_MAX * 2, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn caller_during_a_probe_waits_for_the_next_one() {
    let stage = ProbeFixture::new();
    let mut early = std::pin::pin!(stage.batcher.current_revision());
    assert!(poll_immediate(early.as_mut()).await.is_none());
    while stage.sent_count.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let (early, late) = tokio::join!(early, stage.probe_concurrently(3));
    assert_eq!(early.unwrap(), Revision(1));
    assert_eq!(late.0, [2, 2, 2], "one probe serves all of them");
}

#[tokio::test(start_paused = true)]
async fn probe_waits_for_returning_callers() {
    let stage = ProbeFixture::new();
    stage.probe_concurrently(16).await;
    let before = stage.sent_count.load(Ordering::Relaxed);
    let returning = (0..16).map(async |turn| {
        for _ in 0..turn {
            tokio::task::yield_now().await;
        }
        stage.batcher.current_revision().await.unwrap().0 - before
    });
    let answers = join_all(returning).await;
    assert_eq!(answers, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2], "the first probe serves all but an eighth");
}

#[tokio::test(start_paused = true)]
async fn probe_wait_for_callers_is_bounded() {
    let stage = ProbeFixture::new();
    stage.probe_concurrently(16).await;
    let (_, took) = stage.probe_concurrently(1).await;
    assert!(took >= BATCH_WAIT_MAX && took <= BATCH_WAIT_MAX * 4, "{took:?}");
    let (_, took) = stage.probe_concurrently(1).await;
    assert!(took < BATCH_WAIT_MAX * 2, "too few callers to wait for: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn closed_batcher_fails_waiting_callers() {
    let stage = ProbeFixture::new();
    let asking = stage.batcher.current_revision();
    stage.batcher.close();
    assert!(matches!(asking.await, Err(Error::Unavailable { .. })));
}
