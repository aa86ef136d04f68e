//! Reads and writes as fast as they go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use store::{Key, Op, Range, Store, Transaction};

use super::{Sizes, workers};
use crate::timing::{median, median_rate};

/// A small object.
pub(super) const VALUE_BYTES: usize = 1024;
/// What a server of some hundred clients has under way.
const MANY: usize = 64;
/// Keys that are put in one transaction to fill a store; etcd takes 128.
const FILL_OPS: usize = 100;
/// Every writer writes its own keys over and over, as leases and statuses are.
const KEYS_PER_WRITER: u64 = 100;

const PREFIX: &str = "/bench/read/";

/// What was measured: so many a second, or so long for one.
#[derive(Debug)]
pub(super) struct Rates {
    pub(super) reads_of_one: f64,
    pub(super) reads_of_many: f64,
    pub(super) revision: Duration,
    pub(super) page: Duration,
    pub(super) writes_of_one: f64,
    pub(super) writes_of_many: f64,
}

pub(super) async fn measure(store: &Arc<dyn Store>, sizes: Sizes) -> anyhow::Result<Rates> {
    fill(store, sizes.keys).await?;
    Ok(Rates {
        reads_of_one: reads(store, 1, sizes).await?,
        reads_of_many: reads(store, MANY, sizes).await?,
        revision: revision(store, sizes).await?,
        page: page(store, sizes).await?,
        writes_of_one: writes(store, 1, sizes).await?,
        writes_of_many: writes(store, MANY, sizes).await?,
    })
}

async fn fill(store: &Arc<dyn Store>, keys: usize) -> anyhow::Result<()> {
    for start in (0..keys).step_by(FILL_OPS) {
        let ops = (start..keys.min(start + FILL_OPS)).map(|at| put(key(at), VALUE_BYTES)).collect();
        store.commit(Transaction { compares: Vec::new(), ops }).await?;
    }
    Ok(())
}

fn key(at: usize) -> Key {
    format!("{PREFIX}{at:08}").into()
}

pub(super) fn put(key: Key, bytes: usize) -> Op {
    Op::Put { key, value: vec![b'x'; bytes].into(), ttl: None }
}

async fn reads(store: &Arc<dyn Store>, readers: usize, sizes: Sizes) -> anyhow::Result<f64> {
    let read = move |store: Arc<dyn Store>, _, _| async move {
        let (entry, _) = store.get(key(fastrand::usize(..sizes.keys))).await?;
        ensure!(entry.is_some(), "a key that was put is gone");
        Ok(())
    };
    rate(store, readers, sizes, read).await
}

async fn writes(store: &Arc<dyn Store>, writers: usize, sizes: Sizes) -> anyhow::Result<f64> {
    let write = move |store: Arc<dyn Store>, writer: usize, turn: u64| async move {
        let key = format!("/bench/write/{writers}/{writer}/{}", turn % KEYS_PER_WRITER);
        let ops = vec![put(key.into(), VALUE_BYTES)];
        store.commit(Transaction { compares: Vec::new(), ops }).await?;
        Ok(())
    };
    rate(store, writers, sizes, write).await
}

/// The median, over the samples, of operations a second by all workers together.
async fn rate<Work, Working>(store: &Arc<dyn Store>, workers: usize, sizes: Sizes, work: Work) -> anyhow::Result<f64>
where
    Work: Fn(Arc<dyn Store>, usize, u64) -> Working + Copy + Send + 'static,
    Working: Future<Output = anyhow::Result<()>> + Send,
{
    let mut rates = Vec::with_capacity(sizes.samples);
    for _ in 0..sizes.samples {
        let start = Instant::now();
        let one = |worker| {
            let store = store.clone();
            async move {
                let mut turns = 0;
                while start.elapsed() < sizes.sample {
                    work(store.clone(), worker, turns).await?;
                    turns += 1;
                }
                Ok(turns)
            }
        };
        let turns: u64 = workers::run(workers, one).await?.into_iter().sum();
        rates.push(turns as f64 / start.elapsed().as_secs_f64());
    }
    Ok(median_rate(rates))
}

async fn revision(store: &Arc<dyn Store>, sizes: Sizes) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    let begun = Instant::now();
    while times.is_empty() || begun.elapsed() < sizes.sample {
        let start = Instant::now();
        store.revision().await?;
        times.push(start.elapsed());
    }
    Ok(median(&mut times))
}

async fn page(store: &Arc<dyn Store>, sizes: Sizes) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    let begun = Instant::now();
    while times.is_empty() || begun.elapsed() < sizes.sample {
        let start = Instant::now();
        let page = store.range(Range::prefix(PREFIX).limit(sizes.page)).await?;
        times.push(start.elapsed());
        ensure!(page.entries.len() == sizes.page && page.count == sizes.keys as u64, "a range lacks keys");
    }
    Ok(median(&mut times))
}
