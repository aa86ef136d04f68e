//! Tests of processes that share one file: all writes succeed, every process sees them once and in order, and a hanging
//! process is named in an error.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use store::sqlite::{ChangeDetection, CommitHook, CommitStep, Config, OpenError, SqliteStore};
use store::{Error, Key, Op, Revision, Store, StoreEvent, Transaction, TransactionOutcome, Watch};
use tasks::Tasks;
use tempfile::TempDir;

use crate::sqlite_process::{ChildProcess, ChildRole, next_batch, read_from_parent, write_to_parent};

const PROCESSES: usize = 4;
const WRITERS: usize = 50;
const WRITES: usize = 100;

#[derive(Debug, PartialEq, Eq)]
struct WatchDigest {
    events: usize,
    /// A hash of all events in order.
    digest: u64,
}

#[test]
fn concurrent_processes_see_every_write_once_and_in_order() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("state.db");
    let role = |number| ChildRole::default().with("path", &path.display()).with("process", &number);
    let start = |number| ChildProcess::start("sqlite_sharing::child_with_fifty_writers", &role(number), &[]);
    let mut children: Vec<ChildProcess> = (0..PROCESSES).map(start).collect();
    for child in &mut children {
        assert_eq!(child.expect_line(), "ready");
    }
    for child in &mut children {
        child.write_line("go");
    }
    let told: Vec<WatchDigest> = children.iter_mut().map(|child| parse(&child.expect_line())).collect();
    for child in children {
        child.finish();
    }
    assert_eq!(told[0].events, PROCESSES * WRITERS * WRITES);
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "the processes saw different events: {told:?}");
}

fn parse(line: &str) -> WatchDigest {
    let (events, digest) = line.split_once(' ').expect("two numbers");
    WatchDigest { events: events.parse().expect("a number"), digest: digest.parse().expect("a number") }
}

/// Runs as a child: writes with fifty writers, and watches the writes of all children.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_with_fifty_writers() {
    let Some(role) = ChildRole::from_env() else { return };
    let tasks = Tasks::new();
    let store = SqliteStore::open(Config::new(role.get::<String>("path")), &tasks).await.expect("open succeeds");
    let store = Arc::new(store);
    let watch = store.watch("/".into(), Revision(2)).await.expect("watch starts");
    write_to_parent("ready");
    assert_eq!(read_from_parent(), "go");
    let process: usize = role.get("process");
    let writers = join_all((0..WRITERS).map(|writer| write(store.clone(), process, writer)));
    let (told, _) = tokio::join!(digest_all_events(watch), writers);
    write_to_parent(format_args!("{} {}", told.events, told.digest));
    store.close().await;
}

/// Compares with its previous write, so that a write executed twice, or not at all, is a conflict.
async fn write(store: Arc<SqliteStore>, process: usize, writer: usize) {
    let key = Key::from(format!("/{process}/{writer}"));
    let mut transaction = Transaction::create(key.clone(), "0");
    for number in 1..=WRITES {
        let outcome = store.commit(transaction).await.expect("no write fails because it is concurrent");
        let TransactionOutcome::Committed(revision) = outcome else { panic!("{outcome:?}: the writers share no key") };
        transaction = Transaction::update(key.clone(), revision, number.to_string());
    }
}

/// Checks that every event is the next of its key, and every revision the next of the store.
async fn digest_all_events(mut watch: Watch) -> WatchDigest {
    let mut digest = DefaultHasher::new();
    let mut last_of_key: HashMap<Key, usize> = HashMap::new();
    let mut last = Revision(1);
    let mut events = 0;
    while events < PROCESSES * WRITERS * WRITES {
        let batch = next_batch(&mut watch).await;
        for event in batch.events {
            let StoreEvent::Put(entry) = event else { panic!("nothing is removed") };
            assert_eq!(entry.revision, last.next(), "revisions without gaps");
            let number: usize = std::str::from_utf8(&entry.value).expect("text").parse().expect("a number");
            let expected = last_of_key.get(&entry.key).map_or(0, |number| number + 1);
            assert_eq!(number, expected, "the next of {:?}", entry.key);
            (entry.revision, &entry.key, number).hash(&mut digest);
            last = entry.revision;
            events += 1;
            last_of_key.insert(entry.key, number);
        }
    }
    WatchDigest { events, digest: digest.finish() }
}

/// Without inotify, polling finds the writes of other processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polling_finds_writes_without_notification() {
    let folder = TempDir::new().expect("a temporary folder");
    let tasks = Tasks::new();
    let mut config = Config::new(folder.path().join("state.db"));
    let writer = SqliteStore::open(config.clone(), &tasks).await.expect("open succeeds");
    config.change_detection = ChangeDetection::Polled;
    let deaf = SqliteStore::open(config, &tasks).await.expect("open succeeds");
    let mut watch = deaf.watch("/".into(), Revision(2)).await.expect("watch starts");
    for number in 2..5 {
        put(&writer, "/a").await.expect("commit succeeds");
        let batch = next_batch(&mut watch).await;
        assert_eq!(batch.complete_through, Revision(number));
    }
}

/// A process that is stopped in the middle of a commit keeps the write lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_lock_holder_is_named_after_timeout() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("state.db");
    let tasks = Tasks::new();
    let mut config = Config::new(&path);
    config.write_lock_timeout = Duration::from_millis(100);
    let store = SqliteStore::open(config, &tasks).await.expect("open succeeds");
    put(&store, "/before").await.expect("commit succeeds");

    let role = ChildRole::default().with("path", &path.display());
    let mut child = ChildProcess::start("sqlite_sharing::child_that_stops_in_its_turn", &role, &[]);
    assert_eq!(child.expect_line(), "stopping");
    let child_id = Pid::from_raw(child.id() as i32).expect("a process id is positive");
    let Err(Error::Unavailable { reason }) = put(&store, "/during").await else {
        panic!("the commit got the write lock")
    };
    assert!(reason.contains(&format!("process {}", child.id())), "{reason}");
    let mut impatient = Config::new(&path);
    impatient.write_lock_timeout = Duration::from_millis(100);
    let opened = SqliteStore::open(impatient, &tasks).await;
    assert!(matches!(opened, Err(OpenError::Busy { .. })), "{opened:?}");
    // Reads do not wait for writers.
    assert!(store.get("/before".into()).await.expect("read succeeds").0.is_some());

    while !is_stopped(&child) {
        std::thread::yield_now();
    }
    kill_process(child_id, Signal::CONT).expect("the child exists");
    child.finish();
    put(&store, "/after").await.expect("commit succeeds");
    assert_eq!(store.get("/during".into()).await.expect("read succeeds").0, None, "the failed write was not committed");
    assert!(store.get("/stopped".into()).await.expect("read succeeds").0.is_some(), "the stopped write was committed");
}

/// True once the child is stopped; resuming it earlier would have no effect. The third field of `proc_pid_stat(5)` is
/// the state.
fn is_stopped(child: &ChildProcess) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("file exists");
    status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Runs as a child: stops itself in the middle of a commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_stops_in_its_turn() {
    let Some(role) = ChildRole::from_env() else { return };
    let mut config = Config::new(role.get::<String>("path"));
    config.commit_hook = CommitHook::new(|step| {
        if step == CommitStep::RowsWritten {
            write_to_parent("stopping");
            kill_process(rustix::process::getpid(), Signal::STOP).expect("a process may stop itself");
        }
    });
    let store = SqliteStore::open(config, &Tasks::new()).await.expect("open succeeds");
    put(&store, "/stopped").await.expect("commit succeeds");
    store.close().await;
}

async fn put(store: &SqliteStore, key: &'static str) -> Result<TransactionOutcome, Error> {
    let op = Op::Put { key: key.into(), value: "value".into(), ttl: None };
    store.commit(Transaction { compares: Vec::new(), ops: vec![op] }).await
}
