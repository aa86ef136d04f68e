//! Tests of processes that are killed at any moment and between any two steps of a commit: acknowledged writes are
//! present, others are present whole or not at all, and revisions never go back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use rustix::process::{Signal, getpid, kill_process};
use store::sqlite::{CommitHook, CommitStep, Config, Durability, SqliteStore};
use store::{Key, KeyRange, Op, Revision, Store, StoreEvent, Transaction, TransactionOutcome};
use tasks::Tasks;
use tempfile::TempDir;

use crate::sqlite_process::{ChildProcess, ChildRole, next_batch, scaled, with_timeout, write_to_parent};

/// Enough to make commits with several transactions.
const WRITERS: usize = 8;

/// The keys of every transaction of a writer, all with the same value.
const PARTS: [&str; 3] = ["a", "b", "c"];

const STEPS: [CommitStep; 5] = [
    CommitStep::LockAcquired,
    CommitStep::RowsWritten,
    CommitStep::Committed,
    CommitStep::RevisionPublished,
    CommitStep::ResponsesSent,
];

/// An acknowledgement that a child reported before it died: a writer's number and its revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) writer: usize,
    pub(crate) number: u64,
    pub(crate) revision: Revision,
}

#[derive(Clone, Copy, Debug)]
enum KillPoint {
    /// At this step of the commit with this number.
    AtStep(CommitStep, usize),
    /// After this many acknowledgements.
    AfterAcknowledgements(usize),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reopened_store_has_all_acknowledged_writes_after_kill() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("state.db");
    let mut seen = Revision(1);
    for death in kill_points() {
        let acknowledged = run_until_killed(&path, death);
        let tasks = Tasks::new();
        let store = SqliteStore::open(Config::new(&path), &tasks).await.expect("the store opens after a crash");
        seen = verify_acknowledged(&store, seen, &acknowledged)
            .await
            .unwrap_or_else(|what| panic!("after {death:?}: {what}"));
        store.close().await;
    }
    assert!(seen > Revision(1), "the children wrote nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn surviving_process_sees_all_writes_acknowledged_before_kill() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("state.db");
    let tasks = Tasks::new();
    let survivor = SqliteStore::open(Config::new(&path), &tasks).await.expect("open succeeds");
    let mut seen = Revision(1);
    for death in kill_points() {
        let acknowledged = run_until_killed(&path, death);
        seen = verify_acknowledged(&survivor, seen, &acknowledged)
            .await
            .unwrap_or_else(|what| panic!("after {death:?}: {what}"));
        let mark = put_all(&survivor, WRITERS, seen.0).await;
        // Revisions continue after everything that the dead process committed, acknowledged or not.
        assert!(mark > seen, "after {death:?}, revision {mark} does not follow {seen}");
        seen = verify_acknowledged(&survivor, seen, &[]).await.unwrap_or_else(|what| panic!("after {death:?}: {what}"));
    }
    survivor.close().await;
}

/// Without a repair the revision file would stay behind, and the next write would be the first to show the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpublished_commit_of_killed_process_becomes_visible() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("state.db");
    let tasks = Tasks::new();
    let survivor = SqliteStore::open(Config::new(&path), &tasks).await.expect("open succeeds");
    let mut watch = survivor.watch("/".into(), Revision(2)).await.expect("watch starts");
    let acknowledged = run_until_killed(&path, KillPoint::AtStep(CommitStep::Committed, 1));
    assert_eq!(acknowledged, [], "the child died before it responded");
    let batch = next_batch(&mut watch).await;
    assert_eq!(parse_transaction(&batch.events[..PARTS.len()], Revision(2)).map(|written| written.number), Ok(1));
    assert!(survivor.revision().await.expect("revision is readable") >= batch.complete_through);
}

/// Every step, and moments between.
fn kill_points() -> Vec<KillPoint> {
    let rounds = scaled(10, 100);
    let at_steps = (0..rounds).map(|round| KillPoint::AtStep(STEPS[round % STEPS.len()], 3 + round));
    let between = (0..rounds).map(|_| KillPoint::AfterAcknowledgements(1 + fastrand::usize(..200)));
    at_steps.chain(between).collect()
}

fn run_until_killed(path: &Path, kill_point: KillPoint) -> Vec<Acknowledged> {
    let role = ChildRole::default().with("path", &path.display()).with("durability", &"full").with("bytes", &64);
    match kill_point {
        KillPoint::AtStep(step, commit) => {
            let role = role.with("step", &format!("{step:?}")).with("commit", &commit);
            acknowledged_until_end(ChildProcess::start("sqlite_crash::child_that_writes", &role, &[]))
        }
        KillPoint::AfterAcknowledgements(acknowledgements) => {
            let role = role.with("step", &"none").with("commit", &0);
            acknowledged_until_killed(
                ChildProcess::start("sqlite_crash::child_that_writes", &role, &[]),
                acknowledgements,
            )
        }
    }
}

pub(crate) fn acknowledged_until_killed(mut child: ChildProcess, count: usize) -> Vec<Acknowledged> {
    let mut acknowledged: Vec<Acknowledged> = (0..count).map(|_| parse(&child.expect_line())).collect();
    child.kill();
    acknowledged.extend(acknowledged_until_end(child));
    acknowledged
}

fn acknowledged_until_end(mut child: ChildProcess) -> Vec<Acknowledged> {
    std::iter::from_fn(|| child.read_line()).map(|line| parse(&line)).collect()
}

fn parse(line: &str) -> Acknowledged {
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("three numbers")).collect();
    Acknowledged { writer: numbers[0] as usize, number: numbers[1], revision: Revision(numbers[2]) }
}

/// Runs as a child: writes until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes() {
    let Some(role) = ChildRole::from_env() else { return };
    let mut config = Config::new(role.get::<String>("path"));
    if role.get::<String>("durability") == "lost" {
        config.durability = Durability::Unsynced;
    }
    config.commit_hook = kill_self_at(&role.get::<String>("step"), role.get("commit"));
    let store = Arc::new(SqliteStore::open(config, &Tasks::new()).await.expect("open succeeds"));
    let bytes = role.get("bytes");
    join_all((0..WRITERS).map(|writer| write_forever(store.clone(), writer, bytes))).await;
}

/// Kills this process when it reaches the step for the given time.
fn kill_self_at(step: &str, commit: usize) -> CommitHook {
    let Some(step) = STEPS.into_iter().find(|known| format!("{known:?}") == step) else { return CommitHook::default() };
    let left = AtomicUsize::new(commit);
    CommitHook::new(move |reached| {
        if reached == step && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
        }
    })
}

async fn write_forever(store: Arc<SqliteStore>, writer: usize, bytes: usize) {
    let (last, _) = store.get(key(writer, PARTS[0])).await.expect("read succeeds");
    let mut number = last.map_or(0, |entry| number_of(&entry.value));
    loop {
        number += 1;
        let outcome = store.commit(transaction(writer, number, bytes)).await.expect("commit succeeds");
        let TransactionOutcome::Committed(revision) = outcome else { panic!("a conflict without comparisons") };
        write_to_parent(format_args!("{writer} {number} {}", revision.0));
    }
}

async fn put_all(store: &SqliteStore, writer: usize, number: u64) -> Revision {
    match store.commit(transaction(writer, number, 0)).await.expect("commit succeeds") {
        TransactionOutcome::Committed(revision) => revision,
        TransactionOutcome::Conflict { .. } => panic!("a conflict without comparisons"),
    }
}

fn transaction(writer: usize, number: u64, bytes: usize) -> Transaction {
    let mut value = number.to_string();
    value.push_str(&" ".repeat(bytes));
    let value = Bytes::from(value);
    let put = |part| Op::Put { key: key(writer, part), value: value.clone(), ttl: None };
    Transaction { compares: Vec::new(), ops: PARTS.into_iter().map(put).collect() }
}

fn key(writer: usize, part: &str) -> Key {
    format!("/{writer:02}/{part}").into()
}

fn number_of(value: &[u8]) -> u64 {
    std::str::from_utf8(value).expect("text").trim_end().parse().expect("a number")
}

/// Checks everything after `verified_through` against the acknowledgements; returns the current revision.
pub(crate) async fn verify_acknowledged(
    store: &SqliteStore,
    verified_through: Revision,
    acknowledged: &[Acknowledged],
) -> Result<Revision, String> {
    let page = store.range(KeyRange::prefix("/")).await.map_err(|error| error.to_string())?;
    // The revision file may lag behind this read while it is being repaired.
    let current = store.revision().await.map_err(|error| error.to_string())?.max(page.revision);
    let promised =
        acknowledged.iter().map(|told| told.revision).max().unwrap_or(verified_through).max(verified_through);
    if current < promised {
        return Err(format!("revision {promised} was acknowledged, but the store is at {current}"));
    }
    let history = read_history(store, verified_through.next(), current).await?;
    for told in acknowledged {
        let found = history.iter().find(|written| written.revision == told.revision);
        if found != Some(told) {
            return Err(format!("{told:?} was acknowledged, but the store has {found:?}"));
        }
    }
    for written in &history {
        let newest = history.iter().rfind(|other| other.writer == written.writer).expect("at least itself");
        let (entry, _) = store.get(key(written.writer, PARTS[2])).await.map_err(|error| error.to_string())?;
        if entry.as_ref().map(|entry| entry.revision) != Some(newest.revision) {
            return Err(format!("{newest:?} is the newest, but the store has {entry:?}"));
        }
    }
    Ok(current)
}

/// All transactions of the history; fails if one is incomplete.
async fn read_history(store: &SqliteStore, from: Revision, through: Revision) -> Result<Vec<Acknowledged>, String> {
    let mut written = Vec::new();
    if from > through {
        return Ok(written);
    }
    let mut watch = store.watch("/".into(), from).await.map_err(|error| error.to_string())?;
    let mut next = from;
    while next <= through {
        let batch =
            with_timeout(watch.next_batch()).await.ok_or("the watch ended")?.map_err(|error| error.to_string())?;
        for events in batch.events.chunk_by(|one, other| one.revision() == other.revision()) {
            written.push(parse_transaction(events, next)?);
            next = next.next();
        }
    }
    Ok(written)
}

fn parse_transaction(events: &[StoreEvent], revision: Revision) -> Result<Acknowledged, String> {
    let values: Vec<(&Key, u64)> = events.iter().filter_map(parse_put).collect();
    let (first, number) = values.first().copied().ok_or("a revision without a put")?;
    let writer = std::str::from_utf8(&first[1..3]).expect("text").parse().expect("a number");
    let expected: Vec<(Key, u64)> = PARTS.into_iter().map(|part| (key(writer, part), number)).collect();
    let is_whole = values.iter().copied().eq(expected.iter().map(|(key, number)| (key, *number)));
    if !is_whole || events[0].revision() != revision {
        return Err(format!("at {revision} there is part of a transaction: {values:?} of {}", events[0].revision()));
    }
    Ok(Acknowledged { writer, number, revision })
}

fn parse_put(event: &StoreEvent) -> Option<(&Key, u64)> {
    match event {
        StoreEvent::Put(entry) => Some((&entry.key, number_of(&entry.value))),
        StoreEvent::Delete { .. } => None,
    }
}
