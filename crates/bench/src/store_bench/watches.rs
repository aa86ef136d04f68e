//! Latency and rate of watches in the process that writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use store::{Revision, Store, Transaction, Watch};
use tasks::Tasks;
use tokio::sync::mpsc;

use super::load::{VALUE_BYTES, put};
use super::{STOP_GRACE, StoreBenchSizes, workers};
use crate::timing::median;

const PREFIX: &str = "/bench/watched/";
/// Writers that feed many watches.
const WRITERS: usize = 16;
/// Writes whose delivery to all watches is timed, one after the other.
const TIMED_WRITES_MAX: usize = 200;
/// Bounds a hanging run.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct WatchLatencies {
    /// From the start of a write until its only watch has it.
    pub(super) to_one: Duration,
    /// From the start of a write until the last of many watches has it.
    pub(super) to_all: Duration,
    /// Events per second summed over all watches, with many writers.
    pub(super) rate: f64,
}

pub(super) async fn measure(store: &Arc<dyn Store>, sizes: StoreBenchSizes) -> anyhow::Result<WatchLatencies> {
    let mut one = WatcherGroup::open(store, 1).await?;
    let to_one = one.measure_latency(store, sizes).await?;
    one.close().await?;
    let mut all = WatcherGroup::open(store, sizes.watchers).await?;
    let to_all = all.measure_latency(store, sizes).await?;
    let rate = all.measure_rate(store, sizes).await?;
    all.close().await?;
    Ok(WatchLatencies { to_one, to_all, rate })
}

/// Watches of one prefix; each sends the number of events of every batch.
struct WatcherGroup {
    tasks: Tasks,
    watchers: usize,
    delivered: mpsc::Receiver<anyhow::Result<usize>>,
}

impl WatcherGroup {
    async fn open(store: &Arc<dyn Store>, watchers: usize) -> anyhow::Result<Self> {
        let tasks = Tasks::new();
        let (tell, seen) = mpsc::channel(watchers);
        let from = store.revision().await?.next();
        for _ in 0..watchers {
            let watch = store.watch(PREFIX.into(), from).await?;
            let following = count_events(watch, tell.clone());
            tasks.spawn("bench watcher", |stop| async move {
                tokio::select! {
                    () = following => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        let mut audience = Self { tasks, watchers, delivered: seen };
        // All watches are open once they have seen an event.
        write_key(store, 0).await?;
        audience.wait_for_events(watchers).await?;
        Ok(audience)
    }

    async fn measure_latency(&mut self, store: &Arc<dyn Store>, sizes: StoreBenchSizes) -> anyhow::Result<Duration> {
        let mut times = Vec::new();
        for turn in 0..sizes.watched_writes.min(TIMED_WRITES_MAX) {
            let start = Instant::now();
            write_key(store, turn).await?;
            self.wait_for_events(self.watchers).await?;
            times.push(start.elapsed());
        }
        Ok(median(&mut times))
    }

    async fn measure_rate(&mut self, store: &Arc<dyn Store>, sizes: StoreBenchSizes) -> anyhow::Result<f64> {
        let start = Instant::now();
        let each = sizes.watched_writes.div_ceil(WRITERS);
        let writers = workers::run(WRITERS, |writer| {
            let store = store.clone();
            async move {
                for turn in 0..each {
                    write_key(&store, writer * each + turn).await?;
                }
                Ok(())
            }
        });
        let expected = each * WRITERS * self.watchers;
        tokio::try_join!(writers, self.wait_for_events(expected))?;
        Ok(expected as f64 / start.elapsed().as_secs_f64())
    }

    /// Waits for this many events in total.
    async fn wait_for_events(&mut self, events: usize) -> anyhow::Result<()> {
        let mut left = events;
        while left > 0 {
            let told =
                tokio::time::timeout(WAIT_TIMEOUT, self.delivered.recv()).await.context("watches see no event")?;
            let count = told.context("all watches have ended")??;
            ensure!(count <= left, "a watch saw an event twice");
            left -= count;
        }
        Ok(())
    }

    async fn close(self) -> anyhow::Result<()> {
        drop(self.delivered);
        Ok(self.tasks.stop(STOP_GRACE).await?)
    }
}

async fn count_events(mut watch: Watch, delivered: mpsc::Sender<anyhow::Result<usize>>) {
    loop {
        let count = match watch.next_batch().await {
            Some(Ok(batch)) if batch.events.is_empty() => continue,
            Some(Ok(batch)) => Ok(batch.events.len()),
            Some(Err(error)) => Err(error.into()),
            None => Err(anyhow::anyhow!("the store is closed")),
        };
        let is_over = count.is_err();
        if delivered.send(count).await.is_err() || is_over {
            return;
        }
    }
}

async fn write_key(store: &Arc<dyn Store>, turn: usize) -> anyhow::Result<Revision> {
    let ops = vec![put(format!("{PREFIX}{turn}").into(), VALUE_BYTES)];
    match store.commit(Transaction { compares: Vec::new(), ops }).await? {
        store::TransactionOutcome::Committed(revision) => Ok(revision),
        store::TransactionOutcome::Conflict { .. } => anyhow::bail!("a write without compares got a conflict"),
    }
}
