//! Tests of times to live, on a clock that the test advances.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use store::sqlite::{Clock, Config, SqliteStore};
use store::{Key, KeyRange, Op, Revision, Store, StoreEvent, Transaction, TransactionOutcome, Watch};
use tasks::Tasks;
use tempfile::TempDir;

use crate::sqlite_process::next_batch;

/// A machine with a clock and a file. Each open store stands for a process.
struct Machine {
    dir: TempDir,
    clock: Arc<TestClock>,
    tasks: Tasks,
}

#[derive(Debug)]
struct TestClock {
    boot: Mutex<String>,
    milliseconds: AtomicU64,
}

impl Clock for TestClock {
    fn boot_id(&self) -> io::Result<String> {
        Ok(self.boot.lock().clone())
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Ordering::SeqCst))
    }
}

impl Machine {
    fn new() -> Self {
        let clock = TestClock { boot: Mutex::new("first".to_owned()), milliseconds: AtomicU64::new(1_000_000) };
        Self { dir: TempDir::new().expect("a temporary folder"), clock: Arc::new(clock), tasks: Tasks::new() }
    }

    /// Opens a store whose expiry runs only when the test calls it.
    async fn open_store(&self) -> SqliteStore {
        let mut config = Config::new(self.dir.path().join("state.db"));
        config.clock = self.clock.clone();
        config.expiry_interval = Duration::from_secs(3600);
        SqliteStore::open(config, &self.tasks).await.expect("open succeeds")
    }

    fn advance_clock(&self, seconds: u64) {
        self.clock.milliseconds.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    fn reboot(&self) {
        *self.clock.boot.lock() = "second".to_owned();
        self.clock.milliseconds.store(5_000, Ordering::SeqCst);
    }
}

async fn put(store: &SqliteStore, key: &'static str, ttl: Option<Duration>) -> Revision {
    let op = Op::Put { key: key.into(), value: "value".into(), ttl };
    match store.commit(Transaction { compares: Vec::new(), ops: vec![op] }).await.expect("commit succeeds") {
        TransactionOutcome::Committed(revision) => revision,
        TransactionOutcome::Conflict { .. } => panic!("a conflict without comparisons"),
    }
}

async fn put_with_ttl(store: &SqliteStore, key: &'static str, seconds: u64) -> Revision {
    put(store, key, Some(Duration::from_secs(seconds))).await
}

async fn list_keys(store: &SqliteStore) -> Vec<Key> {
    let page = store.range(KeyRange::prefix("/")).await.expect("read succeeds");
    page.entries.into_iter().map(|entry| entry.key).collect()
}

async fn next_events(watch: &mut Watch) -> Vec<StoreEvent> {
    next_batch(watch).await.events
}

#[tokio::test]
async fn key_expires_after_its_ttl_with_a_delete_event() {
    let machine = Machine::new();
    let store = machine.open_store().await;
    put_with_ttl(&store, "/short", 10).await;
    put_with_ttl(&store, "/long", 20).await;
    let last = put(&store, "/for-ever", None).await;
    let mut watch = store.watch("/".into(), last.next()).await.expect("watch starts");

    machine.advance_clock(9);
    store.expire_due_keys().await.expect("expiry succeeds");
    assert_eq!(list_keys(&store).await, ["/for-ever", "/long", "/short"]);
    assert_eq!(store.revision().await, Ok(last), "nothing was due, so nothing was written");

    machine.advance_clock(1);
    store.expire_due_keys().await.expect("expiry succeeds");
    assert_eq!(list_keys(&store).await, ["/for-ever", "/long"]);
    assert_eq!(next_events(&mut watch).await, [StoreEvent::Delete { key: "/short".into(), revision: last.next() }]);
}

#[tokio::test]
async fn ttl_rounds_up_to_whole_seconds() {
    let machine = Machine::new();
    let store = machine.open_store().await;
    put(&store, "/a", Some(Duration::from_millis(1))).await;
    machine.clock.milliseconds.fetch_add(999, Ordering::SeqCst);
    store.expire_due_keys().await.expect("expiry succeeds");
    assert_eq!(list_keys(&store).await, ["/a"]);
    machine.clock.milliseconds.fetch_add(1, Ordering::SeqCst);
    store.expire_due_keys().await.expect("expiry succeeds");
    assert_eq!(list_keys(&store).await, Vec::<Key>::new());
}

#[tokio::test]
async fn renewal_of_overdue_key_wins_over_expiry() {
    let machine = Machine::new();
    let (store, other) = (machine.open_store().await, machine.open_store().await);
    put_with_ttl(&store, "/lease", 10).await;
    machine.advance_clock(60);
    let renewed = put_with_ttl(&other, "/lease", 10).await;
    store.expire_due_keys().await.expect("expiry succeeds");
    assert_eq!(store.get("/lease".into()).await.expect("read succeeds").0.map(|entry| entry.revision), Some(renewed));
}

#[tokio::test]
async fn put_without_ttl_cancels_expiry() {
    let machine = Machine::new();
    let store = machine.open_store().await;
    put_with_ttl(&store, "/lease", 10).await;
    put(&store, "/lease", None).await;
    machine.advance_clock(60);
    store.expire_due_keys().await.expect("expiry succeeds");
    assert_eq!(list_keys(&store).await, ["/lease"]);
}

#[tokio::test]
async fn deleted_key_does_not_expire_its_successor() {
    let machine = Machine::new();
    let store = machine.open_store().await;
    let seen = put_with_ttl(&store, "/lease", 10).await;
    store.commit(Transaction::delete("/lease", seen)).await.expect("commit succeeds");
    put(&store, "/lease", None).await;
    machine.advance_clock(60);
    store.expire_due_keys().await.expect("expiry succeeds");
    assert_eq!(list_keys(&store).await, ["/lease"]);
}

/// More keys than fit into one transaction, expired by two processes at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_expire_each_key_once() {
    let machine = Machine::new();
    let (store, other) = (machine.open_store().await, machine.open_store().await);
    let keys_max = 500;
    for first in (0..keys_max).step_by(100) {
        let ttl = Some(Duration::from_secs(10));
        let op = |number| Op::Put { key: format!("/{number:03}").into(), value: "".into(), ttl };
        let transaction = Transaction { compares: Vec::new(), ops: (first..first + 100).map(op).collect() };
        store.commit(transaction).await.expect("commit succeeds");
    }
    let last = store.revision().await.expect("revision is readable");
    let mut watch = other.watch("/".into(), last.next()).await.expect("watch starts");
    machine.advance_clock(10);
    let (one, two) = tokio::join!(store.expire_due_keys(), other.expire_due_keys());
    one.and(two).expect("both expire");
    let through = store.revision().await.expect("revision is readable");
    let mut removed = Vec::new();
    while removed.len() < keys_max {
        let batch = next_batch(&mut watch).await;
        removed.extend(batch.events.into_iter().map(|event| {
            assert!(matches!(event, StoreEvent::Delete { .. }), "{event:?}");
            event.key().clone()
        }));
        assert!(batch.complete_through <= through, "no key was removed twice");
    }
    removed.sort_unstable();
    let expected: Vec<Key> = (0..keys_max).map(|number| format!("/{number:03}").into()).collect();
    assert_eq!(removed, expected);
}

/// The clock restarts at boot, so an old deadline would be due at once, or in days.
#[tokio::test]
async fn reboot_restarts_every_ttl() {
    let machine = Machine::new();
    let store = machine.open_store().await;
    put_with_ttl(&store, "/lease", 10).await;
    put(&store, "/for-ever", None).await;
    machine.advance_clock(9);
    store.close().await;
    drop(store);

    machine.reboot();
    let store = machine.open_store().await;
    machine.advance_clock(9);
    store.expire_due_keys().await.expect("expiry succeeds");
    assert_eq!(list_keys(&store).await, ["/for-ever", "/lease"]);
    machine.advance_clock(1);
    store.expire_due_keys().await.expect("expiry succeeds");
    assert_eq!(list_keys(&store).await, ["/for-ever"]);
}

/// Expiry runs in the background, as in servers.
#[tokio::test]
async fn expiry_task_removes_due_keys() {
    let machine = Machine::new();
    let mut config = Config::new(machine.dir.path().join("state.db"));
    config.clock = machine.clock.clone();
    config.expiry_interval = Duration::from_millis(10);
    let store = SqliteStore::open(config, &machine.tasks).await.expect("open succeeds");
    let last = put_with_ttl(&store, "/lease", 10).await;
    let mut watch = store.watch("/".into(), last.next()).await.expect("watch starts");
    machine.advance_clock(10);
    assert_eq!(next_events(&mut watch).await, [StoreEvent::Delete { key: "/lease".into(), revision: last.next() }]);
}
