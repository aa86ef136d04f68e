//! Rates of reads and writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use store::{Key, KeyRange, Op, Store, Transaction};

use super::{StoreBenchSizes, workers};
use crate::timing::{median, median_rate};

/// Size of a small object.
pub(super) const VALUE_BYTES: usize = 1024;
/// Concurrent requests of a server with some hundred clients.
const MANY_WORKERS: usize = 64;
/// Keys per transaction when filling a store; etcd allows 128 operations.
const FILL_OPS: usize = 100;
/// Every writer overwrites its own keys, as leases and statuses are overwritten.
const KEYS_PER_WRITER: u64 = 100;

const PREFIX: &str = "/bench/read/";

/// Operations per second, or duration of one operation.
#[derive(Debug)]
pub(super) struct StoreRates {
    pub(super) one_reader: f64,
    pub(super) many_readers: f64,
    pub(super) revision: Duration,
    pub(super) page: Duration,
    pub(super) one_writer: f64,
    pub(super) many_writers: f64,
}

pub(super) async fn measure(store: &Arc<dyn Store>, sizes: StoreBenchSizes) -> anyhow::Result<StoreRates> {
    put_keys(store, sizes.keys).await?;
    Ok(StoreRates {
        one_reader: measure_reads(store, 1, sizes).await?,
        many_readers: measure_reads(store, MANY_WORKERS, sizes).await?,
        revision: measure_revision(store, sizes).await?,
        page: measure_page(store, sizes).await?,
        one_writer: measure_writes(store, 1, sizes).await?,
        many_writers: measure_writes(store, MANY_WORKERS, sizes).await?,
    })
}

async fn put_keys(store: &Arc<dyn Store>, keys: usize) -> anyhow::Result<()> {
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

async fn measure_reads(store: &Arc<dyn Store>, readers: usize, sizes: StoreBenchSizes) -> anyhow::Result<f64> {
    let read = move |store: Arc<dyn Store>, _, _| async move {
        let (entry, _) = store.get(key(fastrand::usize(..sizes.keys))).await?;
        ensure!(entry.is_some(), "a key that was written is missing");
        Ok(())
    };
    measure_rate(store, readers, sizes, read).await
}

async fn measure_writes(store: &Arc<dyn Store>, writers: usize, sizes: StoreBenchSizes) -> anyhow::Result<f64> {
    let write = move |store: Arc<dyn Store>, writer: usize, turn: u64| async move {
        let key = format!("/bench/write/{writers}/{writer}/{}", turn % KEYS_PER_WRITER);
        let ops = vec![put(key.into(), VALUE_BYTES)];
        store.commit(Transaction { compares: Vec::new(), ops }).await?;
        Ok(())
    };
    measure_rate(store, writers, sizes, write).await
}

/// Median over the samples of operations per second, summed over all workers.
async fn measure_rate<Work, Working>(
    store: &Arc<dyn Store>,
    workers: usize,
    sizes: StoreBenchSizes,
    work: Work,
) -> anyhow::Result<f64>
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

async fn measure_revision(store: &Arc<dyn Store>, sizes: StoreBenchSizes) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    let begun = Instant::now();
    while times.is_empty() || begun.elapsed() < sizes.sample {
        let start = Instant::now();
        store.revision().await?;
        times.push(start.elapsed());
    }
    Ok(median(&mut times))
}

async fn measure_page(store: &Arc<dyn Store>, sizes: StoreBenchSizes) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    let begun = Instant::now();
    while times.is_empty() || begun.elapsed() < sizes.sample {
        let start = Instant::now();
        let page = store.range(KeyRange::prefix(PREFIX).limit(sizes.page)).await?;
        times.push(start.elapsed());
        ensure!(page.entries.len() == sizes.page && page.count == sizes.keys as u64, "the range is incomplete");
    }
    Ok(median(&mut times))
}
