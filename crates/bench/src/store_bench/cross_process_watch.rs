//! Latency until another process sees a write.
//!
//! The other process watches a prefix and prints the time of every event, on the system-wide monotonic clock. Each
//! write waits until the previous one was seen.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use store::{Revision, Store, Transaction};
use tasks::Tasks;
use tokio::sync::mpsc;

use super::load::{VALUE_BYTES, put};
use super::store_location::BenchStoreLocation;
use super::{CHILD_FLAG, StoreBenchSizes};
use crate::timing::monotonic_time;

const PREFIX: &str = "/bench/followed/";
/// Bounds a hanging run.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Sorted latencies.
#[derive(Debug)]
pub(super) struct CrossProcessLatencies {
    /// From the acknowledgement of a write until the other process's watch delivers it; zero if delivered earlier.
    pub(super) after_write: Vec<Duration>,
    /// Duration of the write itself.
    pub(super) write: Vec<Duration>,
}

pub(super) async fn measure(
    store: &Arc<dyn Store>,
    place: &BenchStoreLocation,
    sizes: StoreBenchSizes,
) -> anyhow::Result<CrossProcessLatencies> {
    let from = store.revision().await?.next();
    let mut follower = WatchingProcess::start(place, from)?;
    follower.next_event_time().await?;
    let mut wakeups = CrossProcessLatencies { after_write: Vec::new(), write: Vec::new() };
    for turn in 0..sizes.wakeups {
        let ops = vec![put(format!("{PREFIX}{turn}").into(), VALUE_BYTES)];
        let begun = monotonic_time();
        store.commit(Transaction { compares: Vec::new(), ops }).await?;
        let acknowledged = monotonic_time();
        wakeups.write.push(acknowledged - begun);
        wakeups.after_write.push(follower.next_event_time().await?.saturating_sub(acknowledged));
    }
    wakeups.write.sort_unstable();
    wakeups.after_write.sort_unstable();
    Ok(wakeups)
}

/// The watching child process.
struct WatchingProcess {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl WatchingProcess {
    fn start(place: &BenchStoreLocation, from: Revision) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([CHILD_FLAG, "follow", &place.to_string(), &from.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().context("a child has no output")?);
        let (told, lines) = mpsc::channel(1);
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| told.blocking_send(line)));
        Ok(Self { child, lines })
    }

    /// Returns the time that the child prints next.
    async fn next_event_time(&mut self) -> anyhow::Result<Duration> {
        let line =
            tokio::time::timeout(WAIT_TIMEOUT, self.lines.recv()).await.context("the other process sees no event")?;
        Ok(Duration::from_nanos(line.context("the other process exited")?.parse()?))
    }
}

impl Drop for WatchingProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Watches until stdin ends, which happens when the parent exits.
pub(super) async fn run_child(place: &BenchStoreLocation, from: u64) -> anyhow::Result<()> {
    let tasks = Tasks::new();
    let store = place.open(&tasks).await?;
    let mut watch = store.watch(PREFIX.into(), Revision(from)).await?;
    let (parent, mut parent_is_gone) = mpsc::channel::<()>(1);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        drop(parent);
    });
    print_time()?;
    loop {
        let batch = tokio::select! {
            batch = watch.next_batch() => batch.context("the store is closed")??,
            _ = parent_is_gone.recv() => return Ok(()),
        };
        batch.events.iter().try_for_each(|_| print_time())?;
    }
}

fn print_time() -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", monotonic_time().as_nanos())?;
    Ok(output.flush()?)
}
