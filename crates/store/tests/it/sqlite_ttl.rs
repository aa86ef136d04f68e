//! Keys that do not live for ever, on a clock that the test moves.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use store::sqlite::{Clock, Config, SqliteStore};
use store::{Event, Key, Op, Outcome, Range, Revision, Store, Transaction, Watch};
use tasks::Tasks;
use tempfile::TempDir;

use crate::sqlite_process::next_batch;

/// A machine: its clock, and its file. Stores of it are processes.
struct Machine {
    folder: TempDir,
    clock: Arc<TestClock>,
    tasks: Tasks,
}

#[derive(Debug)]
struct TestClock {
    boot: Mutex<String>,
    milliseconds: AtomicU64,
}

impl Clock for TestClock {
    fn boot(&self) -> io::Result<String> {
        Ok(self.boot.lock().clone())
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Ordering::SeqCst))
    }
}

impl Machine {
    fn new() -> Self {
        let clock = TestClock { boot: Mutex::new("first".to_owned()), milliseconds: AtomicU64::new(1_000_000) };
        Self { folder: TempDir::new().expect("a temporary folder"), clock: Arc::new(clock), tasks: Tasks::new() }
    }

    /// A process that looks for what is due only when the test asks it to.
    async fn start(&self) -> SqliteStore {
        let mut config = Config::new(self.folder.path().join("state.db"));
        config.clock = self.clock.clone();
        config.expiry_interval = Duration::from_secs(3600);
        SqliteStore::open(config, &self.tasks).await.expect("it opens")
    }

    fn pass(&self, seconds: u64) {
        self.clock.milliseconds.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    fn restart(&self) {
        *self.clock.boot.lock() = "second".to_owned();
        self.clock.milliseconds.store(5_000, Ordering::SeqCst);
    }
}

async fn put(store: &SqliteStore, key: &'static str, ttl: Option<Duration>) -> Revision {
    let op = Op::Put { key: key.into(), value: "value".into(), ttl };
    match store.commit(Transaction { compares: Vec::new(), ops: vec![op] }).await.expect("it commits") {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict { .. } => panic!("a conflict without comparisons"),
    }
}

async fn put_for(store: &SqliteStore, key: &'static str, seconds: u64) -> Revision {
    put(store, key, Some(Duration::from_secs(seconds))).await
}

async fn keys(store: &SqliteStore) -> Vec<Key> {
    let page = store.range(Range::prefix("/")).await.expect("it reads");
    page.entries.into_iter().map(|entry| entry.key).collect()
}

async fn next_events(watch: &mut Watch) -> Vec<Event> {
    next_batch(watch).await.events
}

#[tokio::test]
async fn a_key_lives_as_long_as_it_was_given_and_its_end_is_an_event() {
    let machine = Machine::new();
    let store = machine.start().await;
    put_for(&store, "/short", 10).await;
    put_for(&store, "/long", 20).await;
    let last = put(&store, "/for-ever", None).await;
    let mut watch = store.watch("/".into(), last.next()).await.expect("it watches");

    machine.pass(9);
    store.expire().await.expect("it expires");
    assert_eq!(keys(&store).await, ["/for-ever", "/long", "/short"]);
    assert_eq!(store.revision().await, Ok(last), "nothing was due, so nothing was written");

    machine.pass(1);
    store.expire().await.expect("it expires");
    assert_eq!(keys(&store).await, ["/for-ever", "/long"]);
    assert_eq!(next_events(&mut watch).await, [Event::Delete { key: "/short".into(), revision: last.next() }]);
}

#[tokio::test]
async fn a_part_of_a_second_counts_as_a_whole_one() {
    let machine = Machine::new();
    let store = machine.start().await;
    put(&store, "/a", Some(Duration::from_millis(1))).await;
    machine.clock.milliseconds.fetch_add(999, Ordering::SeqCst);
    store.expire().await.expect("it expires");
    assert_eq!(keys(&store).await, ["/a"]);
    machine.clock.milliseconds.fetch_add(1, Ordering::SeqCst);
    store.expire().await.expect("it expires");
    assert_eq!(keys(&store).await, Vec::<Key>::new());
}

#[tokio::test]
async fn a_renewal_wins_even_when_the_key_was_already_due() {
    let machine = Machine::new();
    let (store, other) = (machine.start().await, machine.start().await);
    put_for(&store, "/lease", 10).await;
    machine.pass(60);
    let renewed = put_for(&other, "/lease", 10).await;
    store.expire().await.expect("it expires");
    assert_eq!(store.get("/lease".into()).await.expect("it reads").0.map(|entry| entry.revision), Some(renewed));
}

#[tokio::test]
async fn a_key_that_is_put_again_without_an_end_stays() {
    let machine = Machine::new();
    let store = machine.start().await;
    put_for(&store, "/lease", 10).await;
    put(&store, "/lease", None).await;
    machine.pass(60);
    store.expire().await.expect("it expires");
    assert_eq!(keys(&store).await, ["/lease"]);
}

#[tokio::test]
async fn a_removed_key_does_not_take_its_successor_with_it() {
    let machine = Machine::new();
    let store = machine.start().await;
    let seen = put_for(&store, "/lease", 10).await;
    store.commit(Transaction::delete("/lease", seen)).await.expect("it commits");
    put(&store, "/lease", None).await;
    machine.pass(60);
    store.expire().await.expect("it expires");
    assert_eq!(keys(&store).await, ["/lease"]);
}

/// More keys than fit one transaction, and two processes at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_remove_every_key_once() {
    let machine = Machine::new();
    let (store, other) = (machine.start().await, machine.start().await);
    let keys_max = 500;
    for first in (0..keys_max).step_by(100) {
        let ttl = Some(Duration::from_secs(10));
        let op = |number| Op::Put { key: format!("/{number:03}").into(), value: "".into(), ttl };
        let transaction = Transaction { compares: Vec::new(), ops: (first..first + 100).map(op).collect() };
        store.commit(transaction).await.expect("it commits");
    }
    let last = store.revision().await.expect("it tells");
    let mut watch = other.watch("/".into(), last.next()).await.expect("it watches");
    machine.pass(10);
    let (one, two) = tokio::join!(store.expire(), other.expire());
    one.and(two).expect("both expire");
    let through = store.revision().await.expect("it tells");
    let mut removed = Vec::new();
    while removed.len() < keys_max {
        let batch = next_batch(&mut watch).await;
        removed.extend(batch.events.into_iter().map(|event| {
            assert!(matches!(event, Event::Delete { .. }), "{event:?}");
            event.key().clone()
        }));
        assert!(batch.through <= through, "nothing was removed twice");
    }
    removed.sort_unstable();
    let expected: Vec<Key> = (0..keys_max).map(|number| format!("/{number:03}").into()).collect();
    assert_eq!(removed, expected);
}

/// The count since boot begins anew, so an old deadline would be due at once, or in days.
#[tokio::test]
async fn after_a_restart_of_the_machine_every_key_has_its_full_time_again() {
    let machine = Machine::new();
    let store = machine.start().await;
    put_for(&store, "/lease", 10).await;
    put(&store, "/for-ever", None).await;
    machine.pass(9);
    store.close().await;
    drop(store);

    machine.restart();
    let store = machine.start().await;
    machine.pass(9);
    store.expire().await.expect("it expires");
    assert_eq!(keys(&store).await, ["/for-ever", "/lease"]);
    machine.pass(1);
    store.expire().await.expect("it expires");
    assert_eq!(keys(&store).await, ["/for-ever"]);
}

/// As servers run it: nobody asks for it.
#[tokio::test]
async fn due_keys_are_removed_without_being_asked() {
    let machine = Machine::new();
    let mut config = Config::new(machine.folder.path().join("state.db"));
    config.clock = machine.clock.clone();
    config.expiry_interval = Duration::from_millis(10);
    let store = SqliteStore::open(config, &machine.tasks).await.expect("it opens");
    let last = put_for(&store, "/lease", 10).await;
    let mut watch = store.watch("/".into(), last.next()).await.expect("it watches");
    machine.pass(10);
    assert_eq!(next_events(&mut watch).await, [Event::Delete { key: "/lease".into(), revision: last.next() }]);
}
