//! Tests of the steps of a commit: batching, visibility, and failures.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use rusqlite::Connection;
use store::sqlite::{CommitHook, CommitStep, Config, REQUEST_BYTES_MAX, SqliteStore};
use store::{ComputedValues, Error, Key, KeyRange, KeyState, Op, Revision, Store, Transaction, TransactionOutcome};
use tasks::{TaskFailure, TaskFailureKind, Tasks};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::sqlite_process::next_batch;

/// Holds a commit at one of its steps until it is released.
struct CommitGate {
    hook: CommitHook,
    reached: Arc<Notify>,
    go: mpsc::Sender<()>,
}

impl CommitGate {
    /// Holds the first commit that reaches `step`.
    fn at(step: CommitStep) -> Self {
        let reached = Arc::new(Notify::new());
        let (go, wait) = mpsc::channel::<()>();
        let (told, wait) = (reached.clone(), Mutex::new(Some(wait)));
        let hook = CommitHook::new(move |now| {
            if now != step {
                return;
            }
            let wait = wait.lock().take();
            if let Some(wait) = wait {
                told.notify_one();
                let _ = wait.recv();
            }
        });
        Self { hook, reached, go }
    }
}

struct SqliteFixture {
    dir: TempDir,
    tasks: Tasks,
}

impl SqliteFixture {
    fn new() -> Self {
        Self { dir: TempDir::new().expect("a temporary folder"), tasks: Tasks::new() }
    }

    fn config(&self) -> Config {
        Config::new(self.dir.path().join("state.db"))
    }

    async fn open(&self, config: Config) -> Arc<SqliteStore> {
        Arc::new(SqliteStore::open(config, &self.tasks).await.expect("open succeeds"))
    }
}

/// All writes that wait while a commit runs share the next commit, and a conflict of one does not affect the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_writes_share_one_commit_with_own_outcomes() {
    let scene = SqliteFixture::new();
    let gate = CommitGate::at(CommitStep::LockAcquired);
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = commits.clone();
    let hold = gate.hook.clone();
    let mut config = scene.config();
    config.commit_hook = CommitHook::new(move |step| {
        counted.fetch_add(usize::from(step == CommitStep::Committed), Ordering::SeqCst);
        hold.call(step);
    });
    let store = scene.open(config).await;
    let mut first = store.commit(Transaction::create("/first", ""));
    assert!(futures_util::poll!(&mut first).is_pending());
    gate.reached.notified().await;
    let mut waiting = join_all((0..50).map(|number| store.commit(Transaction::create(format!("/{}", number / 2), ""))));
    // Once polled, they are in the queue.
    assert!(futures_util::poll!(&mut waiting).is_pending());
    gate.go.send(()).expect("the commit waits");
    first.await.expect("commit succeeds");
    let outcomes: Vec<TransactionOutcome> =
        waiting.await.into_iter().map(|outcome| outcome.expect("commit succeeds")).collect();
    for (number, outcome) in outcomes.iter().enumerate() {
        // The first of every pair is new; the second conflicts with it, although it is not committed yet.
        let revision = Revision(3 + number as u64 / 2);
        match outcome {
            TransactionOutcome::Committed(at) => assert_eq!((number % 2, *at), (0, revision)),
            TransactionOutcome::Conflict { current, .. } => {
                let found = current[0].as_ref().map(|entry| entry.revision);
                assert_eq!((number % 2, found), (1, Some(revision)));
            }
        }
    }
    assert_eq!(commits.load(Ordering::SeqCst), 2, "fifty writes share one commit");
}

/// Appends a letter to `/counter`, up to a length, and panics at `x`.
#[derive(Debug)]
struct Append {
    letter: char,
    length_max: usize,
    keys: Vec<Key>,
    /// Since when no other writer had put the key, of each computation.
    since: Arc<Mutex<Vec<Revision>>>,
}

impl ComputedValues for Append {
    fn keys(&self) -> &[Key] {
        &self.keys
    }

    fn compute(&self, current: &[Option<KeyState>]) -> Option<Vec<Option<Bytes>>> {
        assert!(self.letter != 'x', "a computation may be broken");
        let state = current[0].as_ref().expect("the counter exists");
        if state.value.len() == self.length_max {
            return None;
        }
        self.since.lock().push(state.since);
        Some(vec![Some([&*state.value, self.letter.to_string().as_bytes()].concat().into())])
    }
}

/// Each computation sees what the transactions before it in the same commit made of the key. One whose comparison fails
/// computes nothing; one that refuses or panics changes nothing, and does not affect the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn computed_values_see_earlier_transactions_of_their_commit() {
    let scene = SqliteFixture::new();
    let gate = CommitGate::at(CommitStep::LockAcquired);
    let mut config = scene.config();
    config.commit_hook = gate.hook.clone();
    let store = scene.open(config).await;
    let mut first = store.commit(Transaction::create("/counter", ""));
    assert!(futures_util::poll!(&mut first).is_pending());
    gate.reached.notified().await;
    let since = Arc::new(Mutex::new(Vec::new()));
    let mut waiting =
        join_all([("/a", 'a'), ("/a", 'b'), ("/x", 'x'), ("/c", 'c'), ("/d", 'd')].map(|(key, letter)| {
            let keys = vec![Key::from("/counter")];
            let computed = Append { letter, length_max: 2, keys, since: since.clone() };
            store.commit_computed(Transaction::create(key, ""), Arc::new(computed))
        }));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    gate.go.send(()).expect("the commit waits");
    first.await.expect("commit succeeds");
    let outcomes: Vec<String> = waiting
        .await
        .into_iter()
        .map(|outcome| match outcome.expect("commit succeeds") {
            TransactionOutcome::Committed(at) => at.to_string(),
            TransactionOutcome::Conflict { current, .. } => format!("conflict {:?}", current[0].is_some()),
        })
        .collect();
    assert_eq!(outcomes, ["3", "conflict true", "conflict false", "4", "conflict false"]);
    assert_eq!(*since.lock(), [Revision(2), Revision(2)], "the revision of the counter's creation");
    let (counter, _) = store.get("/counter".into()).await.expect("read succeeds");
    assert_eq!(counter.expect("the counter exists").value, "ac");
    assert_eq!(store.range(KeyRange::prefix("/")).await.map(|page| page.count), Ok(3), "the counter, /a and /c");
}

/// Between COMMIT and the revision file a write must be invisible: its process may die there, and another process would
/// then show an older state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_write_is_invisible_until_revision_is_published() {
    let scene = SqliteFixture::new();
    let reader = scene.open(scene.config()).await;
    let before = scene.open(scene.config()).await;
    let mut old = Revision(1);
    for key in ["/kept", "/changed", "/removed"] {
        let Ok(TransactionOutcome::Committed(at)) = before.commit(Transaction::create(key, "old")).await else {
            panic!("{key}")
        };
        old = at;
    }
    let gate = CommitGate::at(CommitStep::Committed);
    let mut config = scene.config();
    config.commit_hook = gate.hook.clone();
    let writer = scene.open(config).await;
    let mut watch = reader.watch("/".into(), old.next()).await.expect("watch starts");
    let change = Transaction {
        compares: Vec::new(),
        ops: vec![put_op("/changed", "new"), Op::Delete { key: "/removed".into() }, put_op("/added", "new")],
    };
    let mut commit = writer.commit(change);
    assert!(futures_util::poll!(&mut commit).is_pending());
    gate.reached.notified().await;

    let page = reader.range(KeyRange::prefix("/").limit(1)).await.expect("read succeeds");
    assert_eq!((page.revision, page.count), (old, 3));
    let page = reader.range(KeyRange::prefix("/")).await.expect("read succeeds");
    let entries: Vec<(&[u8], &[u8])> = page.entries.iter().map(|entry| (&entry.key[..], &entry.value[..])).collect();
    assert_eq!(entries, [(&b"/changed"[..], &b"old"[..]), (b"/kept", b"old"), (b"/removed", b"old")]);
    assert_eq!(reader.get("/added".into()).await, Ok((None, old)));
    assert_eq!(reader.revision().await, Ok(old));
    assert_eq!(
        reader.range(KeyRange::prefix("/").at_revision(old.next())).await,
        Err(Error::FutureRevision { requested: old.next(), current: old })
    );
    // A watch must not report the write before it is visible to all processes.
    watch.progress_request().send();
    assert!(futures_util::poll!(Box::pin(watch.next_batch())).is_pending());

    gate.go.send(()).expect("the commit waits");
    assert_eq!(commit.await, Ok(TransactionOutcome::Committed(old.next())));
    let batch = next_batch(&mut watch).await;
    assert_eq!((batch.events.len(), batch.complete_through), (3, old.next()));
    assert_eq!(reader.range(KeyRange::prefix("/")).await.map(|page| page.count), Ok(3));
}

fn put_op(key: &'static str, value: &'static str) -> Op {
    Op::Put { key: key.into(), value: value.into(), ttl: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panicking_store_thread_is_reported_as_task_failure() {
    let scene = SqliteFixture::new();
    let mut config = scene.config();
    config.commit_hook = CommitHook::new(|step| assert_ne!(step, CommitStep::Committed, "on purpose"));
    let store = scene.open(config).await;
    let outcome = store.commit(Transaction::create("/a", "1")).await;
    assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "the write may have been committed: {outcome:?}");
    let failure = TaskFailure { task: "sqlite threads", kind: TaskFailureKind::ReturnedEarly };
    assert_eq!(scene.tasks.wait_for_failure().await, failure);
    let outcome = store.commit(Transaction::create("/b", "1")).await;
    assert_eq!(outcome, Err(Error::Unavailable { reason: "the store is closed".to_owned() }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_fails_in_time_when_foreign_program_holds_lock() {
    let scene = SqliteFixture::new();
    let mut config = scene.config();
    config.write_lock_timeout = Duration::from_millis(50);
    let store = scene.open(config.clone()).await;
    store.commit(Transaction::create("/a", "1")).await.expect("commit succeeds");
    let foreign = Connection::open(&config.path).expect("open succeeds");
    foreign.execute_batch("BEGIN IMMEDIATE").expect("BEGIN succeeds");
    let Err(Error::Unavailable { reason }) = store.commit(Transaction::create("/b", "1")).await else {
        panic!("the commit succeeded despite the lock")
    };
    assert!(reason.contains("another program holds its lock"), "{reason}");
    foreign.execute_batch("ROLLBACK").expect("ROLLBACK succeeds");
    assert_eq!(store.commit(Transaction::create("/b", "1")).await, Ok(TransactionOutcome::Committed(Revision(3))));
}

/// As after a restored backup or a deleted WAL: acknowledged writes are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_behind_revision_file_is_damaged() {
    let scene = SqliteFixture::new();
    let store = scene.open(scene.config()).await;
    store.commit(Transaction::create("/a", "1")).await.expect("commit succeeds");
    let told = std::fs::OpenOptions::new().write(true).open(scene.dir.path().join("state.db.rev"));
    let record = [99_u64.to_le_bytes(), (!99_u64).to_le_bytes()].concat();
    told.expect("file exists").write_all_at(&record, 0).expect("the revision file is writable");
    let Err(Error::Damaged { reason }) = store.get("/a".into()).await else { panic!("the read succeeded") };
    assert!(reason.contains("the database is at revision 2, but revision 99 was acknowledged"), "{reason}");
}

#[tokio::test]
async fn transaction_limits_are_enforced_exactly() {
    let scene = SqliteFixture::new();
    let store = scene.open(scene.config()).await;
    let of_size = |bytes: usize| Transaction::create("k", vec![0; bytes - 2]);
    let of_ops = |count: usize| {
        let op = |number: usize| Op::Put { key: format!("/{number}").into(), value: "".into(), ttl: None };
        Transaction { compares: Vec::new(), ops: (0..count).map(op).collect() }
    };
    let reason = |what: &str| Err(Error::TooLarge { reason: what.to_owned() });
    for (transaction, expected) in [
        (of_size(REQUEST_BYTES_MAX), Ok(TransactionOutcome::Committed(Revision(2)))),
        (of_size(REQUEST_BYTES_MAX + 1), reason("a transaction of 1572865 bytes exceeds the limit of 1572864")),
        (of_ops(128), Ok(TransactionOutcome::Committed(Revision(3)))),
        (of_ops(129), reason("a transaction of 129 operations exceeds the limit of 128")),
    ] {
        assert_eq!(store.commit(transaction).await, expected);
    }
}
