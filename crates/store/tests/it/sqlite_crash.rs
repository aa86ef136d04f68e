//! A process that is killed in the middle of its work, at any moment and between any two steps of a commit: what it
//! acknowledged is there, what it did not acknowledge is there whole or not at all, and revisions never go back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use rustix::process::{Signal, getpid, kill_process};
use store::sqlite::{Config, Durability, SqliteStore, Step, StepHook};
use store::{Event, Key, Op, Outcome, Range, Revision, Store, Transaction};
use tasks::Tasks;
use tempfile::TempDir;

use crate::sqlite_process::{Process, Role, next_batch, sized, soon, tell_parent};

/// Enough to make commits of several transactions.
const WRITERS: usize = 8;

/// What every transaction of a writer puts, all with the same value.
const PARTS: [&str; 3] = ["a", "b", "c"];

const STEPS: [Step; 5] = [Step::TurnTaken, Step::RowsWritten, Step::Committed, Step::Shown, Step::Answered];

/// What a child told before it died: that a writer's number is written, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) writer: usize,
    pub(crate) number: u64,
    pub(crate) revision: Revision,
}

/// How a round ends.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// When it comes to this step of its commit number so-and-so.
    At(Step, usize),
    /// When it has told this many acknowledgements.
    After(usize),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_acknowledged_is_found_when_the_file_is_opened_again() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("state.db");
    let mut seen = Revision(1);
    for death in deaths() {
        let acknowledged = run_until_death(&path, death);
        let tasks = Tasks::new();
        let store = SqliteStore::open(Config::new(&path), &tasks).await.expect("it opens after a crash");
        seen = verify(&store, seen, &acknowledged).await.unwrap_or_else(|what| panic!("after {death:?}: {what}"));
        store.close().await;
    }
    assert!(seen > Revision(1), "something was written at all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_acknowledged_is_seen_by_a_process_that_goes_on() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("state.db");
    let tasks = Tasks::new();
    let survivor = SqliteStore::open(Config::new(&path), &tasks).await.expect("it opens");
    let mut seen = Revision(1);
    for death in deaths() {
        let acknowledged = run_until_death(&path, death);
        seen = verify(&survivor, seen, &acknowledged).await.unwrap_or_else(|what| panic!("after {death:?}: {what}"));
        let mark = put_all(&survivor, WRITERS, seen.0).await;
        // It continues after whatever the dead process committed, told or not.
        assert!(mark > seen, "after {death:?}, {mark} does not follow {seen}");
        seen = verify(&survivor, seen, &[]).await.unwrap_or_else(|what| panic!("after {death:?}: {what}"));
    }
    survivor.close().await;
}

/// The revision file is behind for ever if nobody looks, and what was committed would be shown by the next write only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_process_committed_and_could_not_tell_is_shown_without_another_write() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("state.db");
    let tasks = Tasks::new();
    let survivor = SqliteStore::open(Config::new(&path), &tasks).await.expect("it opens");
    let mut watch = survivor.watch("/".into(), Revision(2)).await.expect("it watches");
    let acknowledged = run_until_death(&path, Death::At(Step::Committed, 1));
    assert_eq!(acknowledged, [], "it died before it could answer");
    let batch = next_batch(&mut watch).await;
    assert_eq!(whole(&batch.events[..PARTS.len()], Revision(2)).map(|written| written.number), Ok(1));
    assert!(survivor.revision().await.expect("it tells") >= batch.through);
}

/// Every step, and moments between.
fn deaths() -> Vec<Death> {
    let rounds = sized(10, 100);
    let at_steps = (0..rounds).map(|round| Death::At(STEPS[round % STEPS.len()], 3 + round));
    let between = (0..rounds).map(|_| Death::After(1 + fastrand::usize(..200)));
    at_steps.chain(between).collect()
}

fn run_until_death(path: &Path, death: Death) -> Vec<Acknowledged> {
    let role = Role::default().with("path", &path.display()).with("durability", &"full").with("bytes", &64);
    match death {
        Death::At(step, commit) => {
            let role = role.with("step", &format!("{step:?}")).with("commit", &commit);
            acknowledged_until_end(Process::start("sqlite_crash::child_that_writes", &role, &[]))
        }
        Death::After(acknowledgements) => {
            let role = role.with("step", &"none").with("commit", &0);
            acknowledged_until_killed(Process::start("sqlite_crash::child_that_writes", &role, &[]), acknowledgements)
        }
    }
}

/// Kills the child after so many acknowledgements.
pub(crate) fn acknowledged_until_killed(mut child: Process, count: usize) -> Vec<Acknowledged> {
    let mut acknowledged: Vec<Acknowledged> = (0..count).map(|_| parse(&child.expect_line())).collect();
    child.kill();
    acknowledged.extend(acknowledged_until_end(child));
    acknowledged
}

fn acknowledged_until_end(mut child: Process) -> Vec<Acknowledged> {
    std::iter::from_fn(|| child.line()).map(|line| parse(&line)).collect()
}

fn parse(line: &str) -> Acknowledged {
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("three numbers")).collect();
    Acknowledged { writer: numbers[0] as usize, number: numbers[1], revision: Revision(numbers[2]) }
}

/// Runs as a child: writes until it dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes() {
    let Some(role) = Role::of_this_process() else { return };
    let mut config = Config::new(role.get::<String>("path"));
    if role.get::<String>("durability") == "lost" {
        config.durability = Durability::Lost;
    }
    config.steps = die_at(&role.get::<String>("step"), role.get("commit"));
    let store = Arc::new(SqliteStore::open(config, &Tasks::new()).await.expect("it opens"));
    let bytes = role.get("bytes");
    join_all((0..WRITERS).map(|writer| write_for_ever(store.clone(), writer, bytes))).await;
}

/// Kills this process when a step comes for the so-many-th time.
fn die_at(step: &str, commit: usize) -> StepHook {
    let Some(step) = STEPS.into_iter().find(|known| format!("{known:?}") == step) else { return StepHook::default() };
    let left = AtomicUsize::new(commit);
    StepHook::new(move |reached| {
        if reached == step && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
        }
    })
}

async fn write_for_ever(store: Arc<SqliteStore>, writer: usize, bytes: usize) {
    let (last, _) = store.get(key(writer, PARTS[0])).await.expect("it reads");
    let mut number = last.map_or(0, |entry| number_of(&entry.value));
    loop {
        number += 1;
        let outcome = store.commit(transaction(writer, number, bytes)).await.expect("it commits");
        let Outcome::Committed(revision) = outcome else { panic!("a conflict without comparisons") };
        tell_parent(format_args!("{writer} {number} {}", revision.0));
    }
}

async fn put_all(store: &SqliteStore, writer: usize, number: u64) -> Revision {
    match store.commit(transaction(writer, number, 0)).await.expect("it commits") {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict { .. } => panic!("a conflict without comparisons"),
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

/// Checks everything after `seen` against what was acknowledged, and returns how far the store is.
pub(crate) async fn verify(
    store: &SqliteStore,
    seen: Revision,
    acknowledged: &[Acknowledged],
) -> Result<Revision, String> {
    let page = store.range(Range::prefix("/")).await.map_err(|error| error.to_string())?;
    // Whatever this read has seen, no answer may deny; and the file may just now be repaired.
    let current = store.revision().await.map_err(|error| error.to_string())?.max(page.revision);
    let promised = acknowledged.iter().map(|told| told.revision).max().unwrap_or(seen).max(seen);
    if current < promised {
        return Err(format!("revision {promised} was told, and the store is at {current}"));
    }
    let history = history(store, seen.next(), current).await?;
    for told in acknowledged {
        let found = history.iter().find(|written| written.revision == told.revision);
        if found != Some(told) {
            return Err(format!("{told:?} was acknowledged, and there is {found:?}"));
        }
    }
    for written in &history {
        let newest = history.iter().rfind(|other| other.writer == written.writer).expect("at least itself");
        let (entry, _) = store.get(key(written.writer, PARTS[2])).await.map_err(|error| error.to_string())?;
        if entry.as_ref().map(|entry| entry.revision) != Some(newest.revision) {
            return Err(format!("{newest:?} is the last, and there is {entry:?}"));
        }
    }
    Ok(current)
}

/// Every transaction of the history, each whole, none missing.
async fn history(store: &SqliteStore, from: Revision, through: Revision) -> Result<Vec<Acknowledged>, String> {
    let mut written = Vec::new();
    if from > through {
        return Ok(written);
    }
    let mut watch = store.watch("/".into(), from).await.map_err(|error| error.to_string())?;
    let mut next = from;
    while next <= through {
        let batch = soon(watch.next()).await.ok_or("the watch ended")?.map_err(|error| error.to_string())?;
        for events in batch.events.chunk_by(|one, other| one.revision() == other.revision()) {
            written.push(whole(events, next)?);
            next = next.next();
        }
    }
    Ok(written)
}

/// The one transaction that these events are.
fn whole(events: &[Event], revision: Revision) -> Result<Acknowledged, String> {
    let values: Vec<(&Key, u64)> = events.iter().filter_map(put).collect();
    let (first, number) = values.first().copied().ok_or("a revision without a put")?;
    let writer = std::str::from_utf8(&first[1..3]).expect("text").parse().expect("a number");
    let expected: Vec<(Key, u64)> = PARTS.into_iter().map(|part| (key(writer, part), number)).collect();
    let is_whole = values.iter().copied().eq(expected.iter().map(|(key, number)| (key, *number)));
    if !is_whole || events[0].revision() != revision {
        return Err(format!("at {revision} there is a piece of a transaction: {values:?} of {}", events[0].revision()));
    }
    Ok(Acknowledged { writer, number, revision })
}

fn put(event: &Event) -> Option<(&Key, u64)> {
    match event {
        Event::Put(entry) => Some((&entry.key, number_of(&entry.value))),
        Event::Delete { .. } => None,
    }
}
