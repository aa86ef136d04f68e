//! A long history: its memory, and how compaction affects concurrent writes.
//!
//! Runs in a child process, so that only this work counts for its memory.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use store::{Revision, Store, Transaction};
use tasks::Tasks;

use super::load::put;
use super::store_location::BenchStoreLocation;
use super::{CHILD_FLAG, STOP_GRACE, StoreBenchSizes, workers};
use crate::timing::{median, percentile};

/// Size of a lease; a million of them fit on every disk.
const VALUE_BYTES: usize = 256;
/// Keys that the history is spread over.
const KEYS: u64 = 10_000;
/// Writers that create the history; many, to be quick.
const HISTORY_WRITERS: usize = 256;
/// Writers whose latency is measured.
const WRITERS: usize = 8;
/// Number of compaction steps. They alternate with as many stretches without compaction, and the medians are compared, so
/// that other activity on the machine affects both alike.
const COMPACTION_SLICES: u64 = 10;
/// Minimum number of timed writes per slice: enough for a stable p99.9, and for work that follows a compaction, since etcd
/// responds first and compacts later.
const TIMED_WRITES_MIN: u64 = 10_000;

/// Measurements. Memory is that of the server: this process for SQLite, etcd for etcd.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HistoryMeasurements {
    /// Durations of writing the whole history and of compacting it.
    pub(super) writing: Duration,
    pub(super) compaction: Duration,
    /// p99.9 latency of writes without and during compaction.
    pub(super) p999_without: Duration,
    pub(super) p999_during: Duration,
    /// Resident memory after a tenth and after all of the history.
    pub(super) bytes_early: u64,
    pub(super) bytes_late: u64,
}

pub(super) async fn measure(
    place: &BenchStoreLocation,
    process: u32,
    sizes: StoreBenchSizes,
) -> anyhow::Result<HistoryMeasurements> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args([CHILD_FLAG, "history", &place.to_string(), &process.to_string(), &sizes.history.to_string()]);
    // The child prints one line at its end, so reading it after the exit is enough.
    let output = tokio::task::spawn_blocking(move || child.stderr(Stdio::inherit()).output()).await??;
    ensure!(output.status.success(), "the history child failed: {}", output.status);
    HistoryMeasurements::parse(std::str::from_utf8(&output.stdout)?)
}

pub(super) async fn run_child(place: &BenchStoreLocation, process: u32, revisions: u64) -> anyhow::Result<()> {
    let tasks = Tasks::new();
    let store = place.open(&tasks).await?;
    let process = if process == 0 { std::process::id() } else { process };
    let (start, oldest) = (Instant::now(), store.revision().await?);
    write_revisions(&store, revisions / 10).await?;
    let bytes_early = resident_bytes(process)?;
    write_revisions(&store, revisions - revisions / 10).await?;
    let bytes_late = resident_bytes(process)?;
    let making = start.elapsed();
    let writes = TIMED_WRITES_MIN.min(revisions / COMPACTION_SLICES);
    let (mut compaction, mut without, mut during) = (Duration::ZERO, Vec::new(), Vec::new());
    for slice in 1..=COMPACTION_SLICES {
        without.push(p999(write_until(&store, move |done| done >= writes).await?));
        let (time, latency) =
            compact_under_load(&store, Revision(oldest.0 + revisions * slice / COMPACTION_SLICES), writes).await?;
        compaction += time;
        during.push(latency);
    }
    let (p999_without, p999_during) = (median(&mut without), median(&mut during));
    drop(store);
    tasks.stop(STOP_GRACE).await?;
    let history =
        HistoryMeasurements { writing: making, compaction, p999_without, p999_during, bytes_early, bytes_late };
    Ok(std::io::stdout().lock().write_all(history.to_line().as_bytes())?)
}

async fn write_revisions(store: &Arc<dyn Store>, revisions: u64) -> anyhow::Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let maker = |_| {
        let (store, next) = (store.clone(), next.clone());
        async move {
            while next.fetch_add(1, Ordering::Relaxed) < revisions {
                write_random_key(&store).await?;
            }
            Ok(())
        }
    };
    workers::run(HISTORY_WRITERS, maker).await?;
    Ok(())
}

/// Compacts during writes, which continue until there are enough. Returns the duration of the compaction and the p99.9
/// of the writes.
async fn compact_under_load(
    store: &Arc<dyn Store>,
    revision: Revision,
    writes: u64,
) -> anyhow::Result<(Duration, Duration)> {
    let is_done = Arc::new(AtomicBool::new(false));
    let until = is_done.clone();
    let writing = write_until(store, move |done| until.load(Ordering::Relaxed) && done >= writes);
    let compacting = async {
        let start = Instant::now();
        let compacted = store.compact(revision).await;
        is_done.store(true, Ordering::Relaxed);
        compacted.map(|()| start.elapsed()).map_err(anyhow::Error::from)
    };
    let (compaction, times) = tokio::try_join!(compacting, writing)?;
    Ok((compaction, p999(times)))
}

/// Writes until `is_enough` holds for the number of writes, and returns their latencies.
async fn write_until(
    store: &Arc<dyn Store>,
    is_enough: impl Fn(u64) -> bool + Clone + Send + 'static,
) -> anyhow::Result<Vec<Duration>> {
    let done = Arc::new(AtomicU64::new(0));
    let writer = |_| {
        let (store, done, is_enough) = (store.clone(), done.clone(), is_enough.clone());
        async move {
            let mut times = Vec::new();
            while !is_enough(done.load(Ordering::Relaxed)) {
                let start = Instant::now();
                write_random_key(&store).await?;
                times.push(start.elapsed());
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(times)
        }
    };
    Ok(workers::run(WRITERS, writer).await?.concat())
}

async fn write_random_key(store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let key = format!("/bench/history/{}", fastrand::u64(..KEYS));
    let ops = vec![put(key.into(), VALUE_BYTES)];
    store.commit(Transaction { compares: Vec::new(), ops }).await?;
    Ok(())
}

fn p999(mut times: Vec<Duration>) -> Duration {
    percentile(&mut times, 99.9)
}

fn resident_bytes(process: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc/PID/status")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}

impl HistoryMeasurements {
    /// Format in which the child prints the measurements.
    fn to_line(&self) -> String {
        let times = [self.writing, self.compaction, self.p999_without, self.p999_during];
        let times = times.map(|time| time.as_nanos().to_string());
        format!("{} {} {}\n", times.join(" "), self.bytes_early, self.bytes_late)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [making, compaction, without, during, bytes_early, bytes_late] = numbers[..] else {
            anyhow::bail!("a child printed {text:?}")
        };
        Ok(Self {
            writing: Duration::from_nanos(making),
            compaction: Duration::from_nanos(compaction),
            p999_without: Duration::from_nanos(without),
            p999_during: Duration::from_nanos(during),
            bytes_early,
            bytes_late,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_measurements_round_trip_through_child_output() {
        let history = HistoryMeasurements {
            writing: Duration::from_secs(9),
            compaction: Duration::from_secs(3),
            p999_without: Duration::from_millis(2),
            p999_during: Duration::from_millis(4),
            bytes_early: 5,
            bytes_late: 6,
        };
        assert_eq!(HistoryMeasurements::parse(&history.to_line()).unwrap(), history);
        assert!(HistoryMeasurements::parse("1 2 3").is_err());
    }
}
