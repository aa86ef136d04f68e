//! Tests of a store in long use: files stay small, and slow readers or watchers delay nothing else.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use rusqlite::Connection;
use store::sqlite::{Config, SqliteStore};
use store::{Error, Key, KeyRange, Op, Revision, Store, StoreEvent, Transaction, TransactionOutcome, Watch};
use tasks::Tasks;
use tempfile::TempDir;

use crate::sqlite_process::{next_batch, scaled, with_timeout};

const MIB: u64 = 1 << 20;

struct SqliteFixture {
    dir: TempDir,
    store: Arc<SqliteStore>,
}

impl SqliteFixture {
    async fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let config = Config::new(folder.path().join("state.db"));
        let store = SqliteStore::open(config, &Tasks::new()).await.expect("open succeeds");
        Self { dir: folder, store: Arc::new(store) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.len())
}

/// Puts keys `first..first + count` in one transaction.
async fn put(store: &SqliteStore, first: usize, count: usize, value: &Bytes) -> Revision {
    let ttl = Some(Duration::from_secs(3600));
    let op = |number| Op::Put { key: key(number), value: value.clone(), ttl };
    let transaction = Transaction { compares: Vec::new(), ops: (first..first + count).map(op).collect() };
    match store.commit(transaction).await.expect("commit succeeds") {
        TransactionOutcome::Committed(revision) => revision,
        TransactionOutcome::Conflict { .. } => panic!("a conflict without comparisons"),
    }
}

fn key(number: usize) -> Key {
    format!("/leases/{number:05}").into()
}

/// Waits for an effect of a background thread.
async fn wait_until(condition: impl Fn() -> bool) {
    let looks = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    with_timeout(looks).await;
}

/// A thousand leases, overwritten a hundred times: 60 MB in all, less than 1 MB at any time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_stay_small_under_constant_lease_renewal() {
    const LEASES: usize = 1_000;
    let scene = SqliteFixture::new().await;
    let value = Bytes::from(vec![b'v'; 600]);
    let mut last = Revision(1);
    for round in 0..scaled(100, 1_000) {
        let before = last;
        for first in (0..LEASES).step_by(100) {
            last = put(&scene.store, first, 100, &value).await;
        }
        if round % 5 == 4 {
            scene.store.compact(before).await.expect("compaction succeeds");
        }
        let database = size(&scene.file("state.db")) / MIB;
        assert!(database < 16, "the database has {database} MiB in round {round}");
        wait_until(|| size(&scene.file("state.db-wal")) < 64 * MIB).await;
    }
    scene.store.compact(last).await.expect("compaction succeeds");
    let page = scene.store.range(KeyRange::prefix("/leases/").limit(0)).await.expect("read succeeds");
    assert_eq!(page.count, LEASES as u64);
    // Free pages are returned to the file system, except for those that the next writes will use.
    wait_until(|| size(&scene.file("state.db")) < 8 * MIB).await;
}

/// As by a process that dies meanwhile: its compaction takes effect at once, and another process finishes the deletion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maintenance_finishes_abandoned_compaction() {
    let scene = SqliteFixture::new().await;
    let mut last = Revision(1);
    for first in (0..1_000).step_by(100).cycle().take(100) {
        last = put(&scene.store, first, 100, &Bytes::new()).await;
    }
    let decided = async {
        // The first failing read shows that the compaction is recorded, and far from finished.
        while scene.store.range(KeyRange::prefix("/").limit(1).at_revision(Revision(2))).await.is_ok() {}
    };
    tokio::select! {
        done = scene.store.compact(last) => panic!("compaction finished too early: {done:?}"),
        () = decided => {}
    }
    let reader = Connection::open(scene.file("state.db")).expect("open succeeds");
    let rows = || reader.query_row("SELECT count(*) FROM log", [], |row| row.get::<_, u64>(0)).expect("read succeeds");
    assert!(rows() > 1_000, "the compaction is already finished");
    wait_until(|| rows() == 1_000).await;
}

/// The newest log row defines the current revision, even if it is a deletion that is otherwise obsolete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_to_a_delete_keeps_the_current_revision() {
    let scene = SqliteFixture::new().await;
    let seen = put(&scene.store, 0, 1, &Bytes::new()).await;
    scene.store.commit(Transaction::delete(key(0), seen)).await.expect("commit succeeds");
    let removed = seen.next();
    scene.store.compact(removed).await.expect("compaction succeeds");
    scene.store.close().await;
    let again = SqliteStore::open(Config::new(scene.file("state.db")), &Tasks::new()).await.expect("open succeeds");
    assert_eq!(again.revision().await, Ok(removed));
    assert_eq!(put(&again, 0, 1, &Bytes::new()).await, removed.next());
}

/// A read transaction of another program, such as a backup, that does not end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_reader_blocks_no_writer_and_wal_is_truncated_later() {
    let scene = SqliteFixture::new().await;
    let value = Bytes::from(vec![b'v'; 10_000]);
    put(&scene.store, 0, 1, &value).await;
    let reader = Connection::open(scene.file("state.db")).expect("open succeeds");
    reader.execute_batch("BEGIN").expect("BEGIN succeeds");
    let seen: i64 = reader.query_row("SELECT max(place) FROM log", [], |row| row.get(0)).expect("read succeeds");
    let mut watch = scene.store.watch("/".into(), Revision(2)).await.expect("watch starts");
    // Far more than the WAL may grow, so that the maintenance thread has every reason to wait for the reader.
    for first in (0..8_000).step_by(100) {
        put(&scene.store, first, 100, &value).await;
    }
    let last = scene.store.revision().await.expect("revision is readable");
    while next_batch(&mut watch).await.complete_through < last {}
    let still: i64 = reader.query_row("SELECT max(place) FROM log", [], |row| row.get(0)).expect("read succeeds");
    assert_eq!(still, seen, "the reader keeps its snapshot");
    assert!(size(&scene.file("state.db-wal")) > 64 * MIB, "the WAL must grow meanwhile");
    drop(reader);
    wait_until(|| size(&scene.file("state.db-wal")) < 64 * MIB).await;
}

/// The range is read in chunks while its keys are overwritten, deleted and added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn range_read_in_chunks_shows_one_state() {
    const KEYS: usize = 6_000;
    let scene = SqliteFixture::new().await;
    let value = Bytes::from_static(b"first");
    for first in (0..KEYS).step_by(100) {
        put(&scene.store, first, 100, &value).await;
    }
    let store = scene.store.clone();
    let changes = async {
        for first in (0..KEYS).step_by(100).cycle().take(100) {
            put(&store, first, 100, &Bytes::from_static(b"second")).await;
            let op = Op::Delete { key: key(first) };
            store.commit(Transaction { compares: Vec::new(), ops: vec![op] }).await.expect("commit succeeds");
        }
    };
    let reads = async {
        let mut pages = Vec::new();
        for _ in 0..3 {
            pages.push(scene.store.range(KeyRange::prefix("/leases/")).await.expect("read succeeds"));
        }
        pages
    };
    let ((), pages) = tokio::join!(changes, reads);
    for page in pages {
        // Short pages: each is a single SQLite transaction.
        let mut start = Key::new();
        let mut entries = Vec::new();
        loop {
            let part = KeyRange::prefix("/leases/").start(start).at_revision(page.revision).limit(500);
            let part = scene.store.range(part).await.expect("read succeeds");
            assert_eq!(part.count + entries.len() as u64, page.count, "the count at {}", page.revision);
            let is_last = !part.has_more();
            entries.extend(part.entries);
            if is_last {
                break;
            }
            start = [&entries.last().expect("a full page").key[..], b"\0"].concat().into();
        }
        assert_eq!(entries, page.entries, "the state at {}", page.revision);
    }
}

/// Counts the events up to a revision and checks their order.
async fn count_through(watch: &mut Watch, last: Revision) -> usize {
    let (mut events, mut seen) = (0, Revision(0));
    loop {
        let batch = next_batch(watch).await;
        for event in &batch.events {
            assert!(event.revision() >= seen, "{event:?} after {seen}");
            seen = event.revision();
        }
        events += batch.events.len();
        if batch.complete_through >= last {
            return events;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_watcher_delays_nobody_and_misses_nothing() {
    let scene = SqliteFixture::new().await;
    let value = Bytes::from_static(b"value");
    let mut slow = scene.store.watch("/leases/".into(), Revision(2)).await.expect("watch starts");
    let mut quick = scene.store.watch("/leases/".into(), Revision(2)).await.expect("watch starts");
    let mut last = Revision(1);
    for number in 0..500 {
        last = put(&scene.store, number, 1, &value).await;
        // The quick watch sees each event before the next write; the channel of the slow one is long full.
        assert_eq!(count_through(&mut quick, last).await, 1);
    }
    assert_eq!(count_through(&mut slow, last).await, 500);
    // It is up to date now and is fed by the hub again.
    last = put(&scene.store, 0, 1, &value).await;
    assert_eq!(count_through(&mut slow, last).await, 1);
}

/// The watch reads much history outside of its prefix, in many batches, before it can report progress.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lagging_watch_reports_progress_after_catching_up() {
    let scene = SqliteFixture::new().await;
    let mut last = Revision(1);
    for first in (0..5_000).step_by(100) {
        last = put(&scene.store, first, 100, &Bytes::new()).await;
    }
    let mut watch = scene.store.watch("/elsewhere/".into(), Revision(2)).await.expect("watch starts");
    watch.progress_request().send();
    let batch = next_batch(&mut watch).await;
    assert_eq!((batch.events, batch.complete_through), (Vec::new(), last));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_overtaken_by_compaction_ends_without_gap() {
    let scene = SqliteFixture::new().await;
    let mut slow = scene.store.watch("/leases/".into(), Revision(2)).await.expect("watch starts");
    let mut quick = scene.store.watch("/leases/".into(), Revision(2)).await.expect("watch starts");
    let mut last = Revision(1);
    for _ in 0..500 {
        last = put(&scene.store, 7, 1, &Bytes::new()).await;
        count_through(&mut quick, last).await;
    }
    scene.store.compact(last).await.expect("compaction succeeds");
    let mut next = Revision(2);
    let error = loop {
        match with_timeout(slow.next_batch()).await.expect("an error before the end") {
            Ok(batch) => {
                for event in batch.events {
                    assert_eq!(event.revision(), next, "no gap");
                    next = next.next();
                }
            }
            Err(error) => break error,
        }
    };
    assert!(next < last, "the watch must be overtaken");
    assert_eq!(error, Error::Compacted { requested: next, oldest: last });
    assert!(with_timeout(slow.next_batch()).await.is_none(), "the watch is over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watches_see_their_own_prefixes() {
    let scene = SqliteFixture::new().await;
    let begin = |number: usize| scene.store.watch(format!("/leases/{:05}", number / 10).into(), Revision(2));
    let mut watches: Vec<Watch> =
        join_all((0..1_000).map(begin)).await.into_iter().map(|watch| watch.expect("watch starts")).collect();
    let mut last = Revision(1);
    for number in 0..100 {
        last = put(&scene.store, number, 1, &Bytes::new()).await;
    }
    for (number, watch) in watches.iter_mut().enumerate() {
        let batch = next_batch(watch).await;
        let keys: Vec<&Key> = batch.events.iter().map(StoreEvent::key).collect();
        assert_eq!(keys, [&key(number / 10)]);
        assert!(batch.complete_through <= last);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_sqlite_store_ends_watches_and_rejects_requests() {
    let scene = SqliteFixture::new().await;
    let mut live = scene.store.watch("/".into(), Revision(2)).await.expect("watch starts");
    let last = put(&scene.store, 0, 1, &Bytes::new()).await;
    count_through(&mut live, last).await;
    scene.store.close().await;
    assert!(with_timeout(live.next_batch()).await.is_none());
    for result in [
        scene.store.get("/a".into()).await.map(drop),
        scene.store.commit(Transaction::create("/a", "1")).await.map(drop),
    ] {
        assert_eq!(result, Err(Error::Unavailable { reason: "the store is closed".to_owned() }));
    }
    assert!(!scene.file("state.db-wal").exists(), "the WAL is checkpointed into the database");
}
