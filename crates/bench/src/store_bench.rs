//! The store: SQLite compared with etcd on the same disk with the same work.
//!
//! `UNSKEW_ETCD_NEW` names the etcd binary, as `cargo xtask bench` sets it; without it, the table says so. Work about
//! several processes or about memory runs in a child process: this program with [`CHILD_FLAG`].

mod cross_process_watch;
mod disk;
mod etcd;
mod history;
mod load;
mod rows;
mod store_location;
mod watches;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use store::Store;
use tasks::Tasks;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::cross_process_watch::CrossProcessLatencies;
use self::etcd::BenchEtcd;
use self::history::HistoryMeasurements;
use self::load::StoreRates;
use self::store_location::BenchStoreLocation;
use self::watches::WatchLatencies;
use crate::Effort;
use crate::table::BenchTable;
use crate::timing::median_rate;

/// First command line argument of a child process.
pub(crate) const CHILD_FLAG: &str = "--child";

/// Sizes of the benchmarks.
#[derive(Clone, Copy, Debug)]
struct StoreBenchSizes {
    /// Keys that are read and ranged over.
    keys: usize,
    /// Entries of a page.
    page: usize,
    /// Duration and number of the samples of a rate.
    sample: Duration,
    samples: usize,
    /// Watches of one prefix, and writes that each of them sees.
    watchers: usize,
    watched_writes: usize,
    /// Writes that another process waits for.
    wakeups: usize,
    /// Revisions that are compacted.
    history: u64,
}

impl StoreBenchSizes {
    fn for_effort(effort: Effort) -> Self {
        match effort {
            Effort::Quick => Self {
                keys: 300,
                page: 30,
                sample: Duration::from_millis(30),
                samples: 1,
                watchers: 10,
                watched_writes: 20,
                wakeups: 10,
                history: 2_000,
            },
            Effort::Full => Self {
                keys: 100_000,
                page: 1_000,
                sample: Duration::from_secs(1),
                samples: 5,
                watchers: 1_000,
                watched_writes: 1_000,
                wakeups: 1_000,
                history: 1_000_000,
            },
        }
    }
}

/// All measurements of one backend.
struct BackendMeasurements {
    rates: StoreRates,
    deliveries: WatchLatencies,
    wakeups: CrossProcessLatencies,
    history: HistoryMeasurements,
}

pub(crate) fn run(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    let sizes = StoreBenchSizes::for_effort(effort);
    let runtime = Runtime::new()?;
    // The usual temporary folder may be in memory, so use a folder beside the program.
    let program = std::env::current_exe()?;
    let folder = tempfile::tempdir_in(program.parent().context("the program has no parent folder")?)?;
    // Measured before and after, because other programs may use the disk.
    let mut disk = disk::measure_synced_writes(folder.path(), sizes)?;
    let file = |name: &str| BenchStoreLocation::Sqlite(folder.path().join(format!("{name}.db")));
    let sqlite = runtime.block_on(measure(|name| Ok((file(name), None)), effort))?;
    let etcd = match etcd_binary() {
        None => None,
        Some(binary) => Some(runtime.block_on(measure(|name| start_etcd(&binary, &folder, name), effort))?),
    };
    disk.extend(disk::measure_synced_writes(folder.path(), sizes)?);
    rows::push_rows(table, sizes, median_rate(disk), &sqlite, etcd.as_ref());
    if etcd.is_none() {
        table.note("etcd skipped: UNSKEW_ETCD_NEW is not set; `cargo xtask bench` sets it");
    }
    Ok(())
}

/// Runs the part of [`cross_process_watch`] or [`history`] that belongs in a child process.
pub(crate) fn run_child(words: &[String]) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["follow", place, from] => {
            runtime.block_on(cross_process_watch::run_child(&BenchStoreLocation::parse(place), from.parse()?))
        }
        ["history", place, process, revisions] => runtime.block_on(history::run_child(
            &BenchStoreLocation::parse(place),
            process.parse()?,
            revisions.parse()?,
        )),
        _ => anyhow::bail!("unknown child command {words:?}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "`cargo xtask bench` passes the path of etcd")]
fn etcd_binary() -> Option<PathBuf> {
    std::env::var("UNSKEW_ETCD_NEW").ok().filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn start_etcd(binary: &Path, folder: &TempDir, name: &str) -> anyhow::Result<(BenchStoreLocation, Option<BenchEtcd>)> {
    let etcd = BenchEtcd::start(binary, &folder.path().join(name))?;
    Ok((BenchStoreLocation::Etcd(etcd.url()), Some(etcd)))
}

/// Measures one backend. History uses a fresh backend without the data of the other work.
async fn measure(
    make: impl Fn(&str) -> anyhow::Result<(BenchStoreLocation, Option<BenchEtcd>)>,
    effort: Effort,
) -> anyhow::Result<BackendMeasurements> {
    let sizes = StoreBenchSizes::for_effort(effort);
    let (place, etcd) = make("load")?;
    let tasks = Tasks::new();
    let store: Arc<dyn Store> = place.open(&tasks).await?;
    let rates = load::measure(&store, sizes).await?;
    let deliveries = watches::measure(&store, sizes).await?;
    let wakeups = cross_process_watch::measure(&store, &place, sizes).await?;
    drop(store);
    tasks.stop(STOP_GRACE).await?;
    drop(etcd);
    let (place, etcd) = make("history")?;
    let process = etcd.as_ref().map_or(0, BenchEtcd::process);
    let history = history::measure(&place, process, sizes).await?;
    Ok(BackendMeasurements { rates, deliveries, wakeups, history })
}

/// Far longer than watches and connections need to end.
const STOP_GRACE: Duration = Duration::from_secs(30);
