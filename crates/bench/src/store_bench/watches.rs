//! How soon, and how fast, watches of one process see what it writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use store::{Revision, Store, Transaction, Watch};
use tasks::Tasks;
use tokio::sync::mpsc;

use super::load::{VALUE_BYTES, put};
use super::{STOP_GRACE, Sizes, workers};
use crate::timing::median;

const PREFIX: &str = "/bench/watched/";
/// Writers that feed many watches at once.
const WRITERS: usize = 16;
/// Writes whose way to all watches is timed, one after the other.
const TIMED_WRITES_MAX: usize = 200;
/// A guard against hanging.
const WAIT_MAX: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct Deliveries {
    /// From before a write until its one watch has it.
    pub(super) to_one: Duration,
    /// From before a write until the last of many watches has it.
    pub(super) to_all: Duration,
    /// Events a second, counted at every watch, while many write.
    pub(super) rate: f64,
}

pub(super) async fn measure(store: &Arc<dyn Store>, sizes: Sizes) -> anyhow::Result<Deliveries> {
    let mut one = Audience::gather(store, 1).await?;
    let to_one = one.time(store, sizes).await?;
    one.leave().await?;
    let mut all = Audience::gather(store, sizes.watchers).await?;
    let to_all = all.time(store, sizes).await?;
    let rate = all.rate(store, sizes).await?;
    all.leave().await?;
    Ok(Deliveries { to_one, to_all, rate })
}

/// Watches of one prefix; each tells of every batch how many events it held.
struct Audience {
    tasks: Tasks,
    watchers: usize,
    seen: mpsc::Receiver<anyhow::Result<usize>>,
}

impl Audience {
    async fn gather(store: &Arc<dyn Store>, watchers: usize) -> anyhow::Result<Self> {
        let tasks = Tasks::new();
        let (tell, seen) = mpsc::channel(watchers);
        let from = store.revision().await?.next();
        for _ in 0..watchers {
            let watch = store.watch(PREFIX.into(), from).await?;
            let following = follow(watch, tell.clone());
            tasks.spawn("bench watcher", |stop| async move {
                tokio::select! {
                    () = following => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        let mut audience = Self { tasks, watchers, seen };
        // All of them have begun once they have seen something.
        write(store, 0).await?;
        audience.expect(watchers).await?;
        Ok(audience)
    }

    async fn time(&mut self, store: &Arc<dyn Store>, sizes: Sizes) -> anyhow::Result<Duration> {
        let mut times = Vec::new();
        for turn in 0..sizes.watched_writes.min(TIMED_WRITES_MAX) {
            let start = Instant::now();
            write(store, turn).await?;
            self.expect(self.watchers).await?;
            times.push(start.elapsed());
        }
        Ok(median(&mut times))
    }

    async fn rate(&mut self, store: &Arc<dyn Store>, sizes: Sizes) -> anyhow::Result<f64> {
        let start = Instant::now();
        let each = sizes.watched_writes.div_ceil(WRITERS);
        let writers = workers::run(WRITERS, |writer| {
            let store = store.clone();
            async move {
                for turn in 0..each {
                    write(&store, writer * each + turn).await?;
                }
                Ok(())
            }
        });
        let expected = each * WRITERS * self.watchers;
        tokio::try_join!(writers, self.expect(expected))?;
        Ok(expected as f64 / start.elapsed().as_secs_f64())
    }

    /// Waits for so many events in all.
    async fn expect(&mut self, events: usize) -> anyhow::Result<()> {
        let mut left = events;
        while left > 0 {
            let told = tokio::time::timeout(WAIT_MAX, self.seen.recv()).await.context("watches see nothing")?;
            let count = told.context("all watches are over")??;
            ensure!(count <= left, "a watch saw an event twice");
            left -= count;
        }
        Ok(())
    }

    async fn leave(self) -> anyhow::Result<()> {
        drop(self.seen);
        Ok(self.tasks.stop(STOP_GRACE).await?)
    }
}

async fn follow(mut watch: Watch, tell: mpsc::Sender<anyhow::Result<usize>>) {
    loop {
        let told = match watch.next().await {
            Some(Ok(batch)) if batch.events.is_empty() => continue,
            Some(Ok(batch)) => Ok(batch.events.len()),
            Some(Err(error)) => Err(error.into()),
            None => Err(anyhow::anyhow!("the store is closed")),
        };
        let is_over = told.is_err();
        if tell.send(told).await.is_err() || is_over {
            return;
        }
    }
}

async fn write(store: &Arc<dyn Store>, turn: usize) -> anyhow::Result<Revision> {
    let ops = vec![put(format!("{PREFIX}{turn}").into(), VALUE_BYTES)];
    match store.commit(Transaction { compares: Vec::new(), ops }).await? {
        store::Outcome::Committed(revision) => Ok(revision),
        store::Outcome::Conflict { .. } => anyhow::bail!("a write without conditions met a conflict"),
    }
}
