//! Random concurrent work of several clients, recorded for `check_history`.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use futures_util::FutureExt;
use parking_lot::Mutex;
use store::{Compare, Error, Key, KeyRange, Op, Revision, Store, Transaction, TransactionOutcome};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Harness;
use super::check_fixture::{IntoTransaction, put_op};
use super::history::{FaultMode, RecordedCall, RecordedHistory, RecordedOperation, RecordedWatch, check_history};

/// The watched suffixes below the prefix of a run. The first watches the whole prefix.
const WATCHED_PREFIXES: [&str; 5] = ["", "a", "a_", "b/", ""];

/// The written keys: few, so that clients conflict, with bytes that are special in other stores.
const KEYS: [&[u8]; 7] = [b"a/1", b"a/2", b"a_/1", b"aX/1", b"a%\x00", b"b/\xff", b"b/2"];

/// The last write of a run, which every watcher waits for, touches each of [`WATCHED_PREFIXES`].
const LAST_KEYS: [&[u8]; 3] = [b"a/1", b"a_/1", b"b/2"];

/// The size and shape of one run.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadPlan {
    pub(crate) seed: u64,
    pub(crate) prefix: String,
    pub(crate) clients: usize,
    pub(crate) calls_per_client: usize,
    pub(crate) fault_mode: FaultMode,
    /// Whether clients also compact, which affects the whole store.
    pub(crate) compacts: bool,
}

/// Runs several random workloads and panics with the seed of the first one that no history explains.
///
/// `UNSKEW_SEED` repeats a run; `UNSKEW_SOAK` makes more and longer runs.
pub(crate) async fn check_random_workloads(harness: &dyn Harness) {
    let soak = is_soak();
    let fixed = env_variable("UNSKEW_SEED").map(|seed| seed.parse().expect("UNSKEW_SEED is a number"));
    let runs = if fixed.is_some() {
        1
    } else if soak {
        40
    } else {
        2
    };
    for run in 0..runs {
        let seed = fixed.unwrap_or_else(|| fastrand::u64(..));
        let plan = WorkloadPlan {
            seed,
            prefix: format!("/model-{run}/"),
            clients: 4,
            calls_per_client: if soak { 600 } else { 120 },
            fault_mode: FaultMode::NoFaults,
            compacts: run % 2 == 1 || fixed.is_some(),
        };
        let verdict = check_plan(harness, &plan).await;
        verdict.unwrap_or_else(|violation| panic!("UNSKEW_SEED={seed} breaks the contract: {violation:#}"));
    }
}

/// True if `UNSKEW_SOAK` allows long tests.
pub(crate) fn is_soak() -> bool {
    env_variable("UNSKEW_SOAK").is_some()
}

#[expect(clippy::disallowed_methods, reason = "the only place where tests take parameters")]
fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

pub(crate) async fn check_plan(harness: &dyn Harness, plan: &WorkloadPlan) -> anyhow::Result<()> {
    check_history(&record(harness, plan).await?)
}

/// Runs a plan: clients work, and watchers read up to the last write.
pub(crate) async fn record(harness: &dyn Harness, plan: &WorkloadPlan) -> anyhow::Result<RecordedHistory> {
    record_until(harness, plan, std::future::pending()).await
}

/// Runs a plan whose clients also stop when `end` resolves.
pub(crate) async fn record_until(
    harness: &dyn Harness,
    plan: &WorkloadPlan,
    end: impl Future<Output = ()>,
) -> anyhow::Result<RecordedHistory> {
    // Longer than a run takes on a store with outages of seconds.
    let deadline_after = Duration::from_secs(if is_soak() { 3_000 } else { 300 });
    tokio::time::timeout(deadline_after, record_unbounded(harness, plan, end)).await.context("the run did not end")?
}

async fn record_unbounded(
    harness: &dyn Harness,
    plan: &WorkloadPlan,
    end: impl Future<Output = ()>,
) -> anyhow::Result<RecordedHistory> {
    let store = harness.open().await;
    let before = store.revision().await?;
    let log = Arc::new(CallLog::default());
    let (last, _) = watch::channel(None);
    let mut watchers = JoinSet::new();
    for (index, watched) in WATCHED_PREFIXES.into_iter().enumerate() {
        let watcher = RecordingWatcher {
            store: harness.open().await,
            rng: Rng::with_seed(plan.seed ^ (0xaaaa + index as u64)),
            prefix: plan_key(plan, watched.as_bytes()),
            pattern: if index == 0 { WatchPattern::SingleWatch } else { WatchPattern::Resuming },
            last: last.subscribe(),
        };
        watchers.spawn(async move { (index, watcher.run(before.next()).await) });
    }
    let mut clients = JoinSet::new();
    // Two stores, so that some clients share a store's batching and some do not.
    let stores = [harness.open().await, harness.open().await];
    for index in 0..plan.clients {
        let client = RandomClient {
            store: stores[index % 2].clone(),
            rng: Rng::with_seed(plan.seed ^ index as u64),
            plan: plan.clone(),
            name: index,
            log: log.clone(),
            seen: BTreeMap::new(),
            before,
            newest: before,
        };
        clients.spawn(client.run());
    }
    let mut end = pin!(end.fuse());
    while !clients.is_empty() {
        tokio::select! {
            () = &mut end => log.stop_clients(),
            _ = clients.join_next() => {}
        }
    }
    let touch = LAST_KEYS.map(|name| put_op(plan_key(plan, name), "last")).to_vec().into_transaction();
    last.send_replace(Some(write_last(&store, &log, touch).await?));
    let mut streams: Vec<_> = watchers.join_all().await;
    streams.sort_by_key(|(index, _)| *index);
    let streams = streams.into_iter().map(|(_, stream)| stream).collect::<anyhow::Result<_>>()?;
    Ok(RecordedHistory { fault_mode: plan.fault_mode, calls: log.take(), streams })
}

fn plan_key(plan: &WorkloadPlan, name: &[u8]) -> Key {
    [plan.prefix.as_bytes(), name].concat().into()
}

/// Repeats the last write until it is acknowledged, since faults may still be injected.
async fn write_last(store: &Arc<dyn Store>, log: &CallLog, transaction: Transaction) -> anyhow::Result<Revision> {
    loop {
        let began = log.next_ticket();
        let result = store.commit(transaction.clone()).await;
        log.add(began, RecordedOperation::Commit(transaction.clone(), result.clone()));
        match result {
            Ok(TransactionOutcome::Committed(revision)) => return Ok(revision),
            Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) => {}
            other => anyhow::bail!("the last write returned {other:?}"),
        }
    }
}

/// The calls of all clients, with tickets of one logical clock.
#[derive(Debug, Default)]
struct CallLog {
    clock: AtomicU64,
    calls: Mutex<Vec<RecordedCall>>,
    has_ended: AtomicBool,
}

impl CallLog {
    fn next_ticket(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn add(&self, began: u64, what: RecordedOperation) {
        let call = RecordedCall { began, ended: self.next_ticket(), operation: what };
        self.calls.lock().push(call);
    }

    /// Makes every client stop after its current call.
    fn stop_clients(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut self.calls.lock())
    }
}

/// A client that remembers what it saw and compares with it, sometimes with a stale value.
struct RandomClient {
    store: Arc<dyn Store>,
    rng: Rng,
    plan: WorkloadPlan,
    name: usize,
    log: Arc<CallLog>,
    seen: BTreeMap<Key, Option<Revision>>,
    before: Revision,
    newest: Revision,
}

impl RandomClient {
    async fn run(mut self) {
        for number in 0..self.plan.calls_per_client {
            if self.log.has_ended.load(Ordering::Relaxed) {
                return;
            }
            let began = self.log.next_ticket();
            let what = match self.rng.u8(0..100) {
                0..60 => self.commit(number).await,
                60..70 => self.get().await,
                70..80 => self.range().await,
                80..85 => self.range_at_past_revision().await,
                85..99 => RecordedOperation::Revision(self.store.revision().await),
                _ => self.compact().await,
            };
            self.log.add(began, what);
        }
    }

    async fn commit(&mut self, number: usize) -> RecordedOperation {
        let transaction = self.transaction(number);
        let result = self.store.commit(transaction.clone()).await;
        match &result {
            Ok(TransactionOutcome::Committed(revision)) => {
                self.newest = self.newest.max(*revision);
                for op in &transaction.ops {
                    let left = matches!(op, Op::Put { .. }).then_some(*revision);
                    self.seen.insert(op.key().clone(), left);
                }
            }
            Ok(TransactionOutcome::Conflict { current, revision }) => {
                self.newest = self.newest.max(*revision);
                for (compare, entry) in transaction.compares.iter().zip(current) {
                    self.seen.insert(compare.key.clone(), entry.as_ref().map(|entry| entry.revision));
                }
            }
            Err(_) => {}
        }
        RecordedOperation::Commit(transaction, result)
    }

    /// A transaction of one to four keys, three in four with a comparison, each with a unique value.
    fn transaction(&mut self, number: usize) -> Transaction {
        let mut names = KEYS;
        self.rng.shuffle(&mut names);
        let count = if self.rng.u8(0..3) == 0 { self.rng.usize(2..5) } else { 1 };
        let mut transaction = Transaction::default();
        for name in &names[..count] {
            let key = plan_key(&self.plan, name);
            if self.rng.u8(0..4) > 0 {
                let revision = self.seen.get(&key).copied().flatten();
                transaction.compares.push(Compare { key: key.clone(), revision });
            }
            transaction.ops.push(match self.rng.u8(0..4) {
                0 => Op::Delete { key },
                _ => put_op(key, format!("client {}, call {number}, {}", self.name, name.escape_ascii())),
            });
        }
        transaction
    }

    async fn get(&mut self) -> RecordedOperation {
        let key = self.random_key();
        let result = self.store.get(key.clone()).await;
        if let Ok((entry, revision)) = &result {
            self.newest = self.newest.max(*revision);
            self.seen.insert(key.clone(), entry.as_ref().map(|entry| entry.revision));
        }
        RecordedOperation::Get(key, result)
    }

    async fn range(&mut self) -> RecordedOperation {
        let range = self.random_range();
        let result = self.store.range(range.clone()).await;
        RecordedOperation::Range(range, result)
    }

    async fn range_at_past_revision(&mut self) -> RecordedOperation {
        let at = Revision(self.rng.u64(self.before.0..=self.newest.0));
        let range = self.random_range().at_revision(at);
        let result = self.store.range(range.clone()).await;
        RecordedOperation::Range(range, result)
    }

    async fn compact(&mut self) -> RecordedOperation {
        if !self.plan.compacts {
            return RecordedOperation::Revision(self.store.revision().await);
        }
        // Somewhat behind the newest revision, as real compaction is, and sometimes beyond what watchers have read.
        let revision = Revision(self.newest.0 - self.rng.u64(0..20).min(self.newest.0 - 1));
        RecordedOperation::Compact(revision, self.store.compact(revision).await)
    }

    fn random_key(&mut self) -> Key {
        let name = KEYS[self.rng.usize(..KEYS.len())];
        plan_key(&self.plan, name)
    }

    fn random_range(&mut self) -> KeyRange {
        let watched = WATCHED_PREFIXES[self.rng.usize(..WATCHED_PREFIXES.len())];
        let mut range = KeyRange::prefix(plan_key(&self.plan, watched.as_bytes()));
        if self.rng.bool() {
            range = range.limit(self.rng.usize(..4));
        }
        if self.rng.bool() {
            range = range.start(self.random_key());
        }
        range
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchPattern {
    SingleWatch,
    /// A new watch every few batches, with progress requests.
    Resuming,
}

/// Watches one prefix until the last write.
struct RecordingWatcher {
    store: Arc<dyn Store>,
    rng: Rng,
    prefix: Key,
    pattern: WatchPattern,
    last: watch::Receiver<Option<Revision>>,
}

impl RecordingWatcher {
    async fn run(mut self, from: Revision) -> anyhow::Result<RecordedWatch> {
        let mut stream = RecordedWatch { prefix: self.prefix.clone(), from, batches: Vec::new(), end: None };
        while !self.is_done(&stream) && stream.end.is_none() {
            let mut watch = self.store.watch(self.prefix.clone(), stream.complete_through().next()).await?;
            let mut left = if self.pattern == WatchPattern::SingleWatch { usize::MAX } else { self.rng.usize(1..6) };
            while left > 0 && !self.is_done(&stream) {
                if self.pattern == WatchPattern::Resuming && self.store.supports_progress_requests() && self.rng.bool()
                {
                    watch.progress_request().send();
                }
                let batch = tokio::select! {
                    batch = watch.next_batch() => batch,
                    // The revision of the last write may be published after its batch was read.
                    changed = self.last.changed() => { changed?; continue; }
                };
                match batch.context("the watch ended without an error")? {
                    Ok(batch) => stream.batches.push(batch),
                    Err(error) => stream.end = Some(error),
                }
                left = if stream.end.is_some() { 0 } else { left - 1 };
            }
        }
        Ok(stream)
    }

    fn is_done(&self, stream: &RecordedWatch) -> bool {
        self.last.borrow().is_some_and(|last| stream.complete_through() >= last)
    }
}
