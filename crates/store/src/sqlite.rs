//! The SQLite backend: one file, shared by the server processes of one machine.
//!
//! Every process has one writer thread (`committer`), several reader threads (`reader_pool`), one thread that reads the
//! changes of all processes and feeds the watches (`log_tailer`), and one that keeps the files small (`maintenance`).
//! Processes coordinate through three files: the database, `.lock` for the write lock (`write_lock`), and `.rev` with
//! the newest visible revision (`revision_file`).
//!
//! Invariants: revisions are assigned under the write lock and have no gaps; a response is sent after COMMIT has
//! reached the disk and the revision file holds the new revision; no read or watch shows anything newer than the
//! revision file.

mod change_waiter;
mod clock;
mod committer;
mod compaction;
mod computed_history;
mod config;
mod expiry;
mod fault;
mod file_system;
mod files;
mod history;
mod log_tailer;
mod maintenance;
mod open;
mod range;
mod reader_pool;
mod revision_file;
mod scan;
mod schema;
mod snapshot;
mod start;
mod threads;
mod watch_feed;
mod watch_hub;
mod write_lock;
mod write_queue;
mod write_transaction;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as sync_mpsc;
use std::time::Instant;

use parking_lot::Mutex;
use tasks::Tasks;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use clock::{Clock, KernelClock};
pub use config::{ChangeDetection, CommitHook, CommitStep, Config};
pub use open::OpenError;
pub use scan::SqliteScan;
pub use schema::Durability;

use crate::sqlite::change_waiter::ChangeWaker;
use crate::sqlite::compaction::{SupersededRows, WindowRead};
use crate::sqlite::computed_history::ComputedHistory;
use crate::sqlite::expiry::KeyExpiry;
use crate::sqlite::fault::SqliteFault;
use crate::sqlite::files::{FileGuard, StoreFiles};
use crate::sqlite::reader_pool::ReaderPool;
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::schema::OPS_MAX;
use crate::sqlite::snapshot::ReadSnapshot;
use crate::sqlite::threads::StoreThreads;
use crate::sqlite::watch_feed::WatchFeed;
use crate::sqlite::watch_hub::{Subscription, WatchHub};
use crate::sqlite::write_queue::WriteQueue;
use crate::sqlite::write_transaction::WriteTransaction;
use crate::{
    ComputedValues, Error, Key, KeyRange, Op, RangePage, Revision, Store, StoreEntry, StoreFuture, Transaction,
    TransactionOutcome, Watch,
};

/// The largest transaction in bytes: etcd's default request limit of 1.5 MiB.
pub const REQUEST_BYTES_MAX: usize = 1536 * 1024;

/// Batches queued for a slow consumer; when full, the watch leaves the hub and reads the log itself.
const WATCH_QUEUE_LEN: usize = 16;

/// A store in an SQLite file. [`SqliteStore::close`] shuts it down gracefully; dropping it signals the same without
/// waiting.
#[derive(Debug)]
pub struct SqliteStore {
    files: StoreFiles,
    file_guard: Arc<FileGuard>,
    revision_file: Arc<RevisionFile>,
    write_queue: WriteQueue,
    computed_history: Arc<ComputedHistory>,
    reader_pool: ReaderPool,
    watch_hub: Arc<WatchHub>,
    tail_waker: ChangeWaker,
    expiry: KeyExpiry,
    /// All threads except the writer.
    threads: StoreThreads,
    writer_thread: StoreThreads,
    tasks: Tasks,
    /// Cancels the tasks of the store.
    close_token: CancellationToken,
    /// Stops the log tailer.
    is_stopping: Arc<AtomicBool>,
    /// Dropping the sender stops the maintenance thread.
    maintenance_stop: Mutex<Option<sync_mpsc::Sender<()>>>,
}

impl SqliteStore {
    /// Opens the file, creating it if it is missing. Watches and key expiry run as `tasks`.
    pub async fn open(config: Config, tasks: &Tasks) -> Result<Self, OpenError> {
        let path = config.path.clone();
        let of_store = tasks.clone();
        let starting = tokio::task::spawn_blocking(move || start::start_store(&config, of_store));
        let panicked = |error| OpenError::System { path, source: std::io::Error::other(error) };
        let store = starting.await.map_err(panicked)??;
        store.threads.supervise(tasks);
        store.writer_thread.supervise(tasks);
        tasks.spawn_once("sqlite expiry", store.expiry.clone().run(store.close_token.clone()));
        Ok(store)
    }

    /// Rejects new requests, finishes queued ones, ends all watches, and joins the threads. Acknowledged writes are
    /// durable without this.
    pub async fn close(&self) {
        self.signal_stop();
        self.reader_pool.close().await;
        self.threads.join().await;
        // The writer ends last, so that SQLite can checkpoint the whole WAL into the database.
        self.write_queue.stop();
        self.writer_thread.join().await;
    }

    /// The canonical path of the database file.
    pub fn path(&self) -> &Path {
        &self.files.database
    }

    /// Removes all keys whose time to live has ended, without waiting for the next interval.
    pub async fn expire_due_keys(&self) -> Result<(), Error> {
        self.expiry.expire_due_keys().await
    }

    /// Deletes the log rows that compaction has made obsolete.
    async fn delete_compacted(&self) -> Result<(), Error> {
        loop {
            let (window, reading) = self.read_superseded().await?;
            let mut sweep = window.into_sweep();
            while !sweep.is_done {
                let started = Instant::now();
                sweep = self.write_queue.submit(0, move |write| sweep.delete_batch(write)).await?;
                tokio::time::sleep(compaction::pause_after(started.elapsed())).await;
            }
            if reading == WindowRead::End {
                return Ok(());
            }
        }
    }

    /// Reads the next window of obsolete rows; each batch of it with a reader of the pool.
    async fn read_superseded(&self) -> Result<(SupersededRows, WindowRead), Error> {
        let mut window = SupersededRows::default();
        loop {
            let reading;
            (window, reading) = self.reader_pool.read(move |reader| window.read_batch(&reader.connection)).await?;
            if reading != WindowRead::More {
                return Ok((window, reading));
            }
        }
    }

    fn signal_stop(&self) {
        self.threads.expect_stop();
        self.writer_thread.expect_stop();
        self.close_token.cancel();
        self.write_queue.close();
        self.is_stopping.store(true, Ordering::Release);
        self.tail_waker.wake();
        self.maintenance_stop.lock().take();
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.signal_stop();
        self.write_queue.stop();
    }
}

impl Store for SqliteStore {
    fn get(&self, key: Key) -> StoreFuture<'_, (Option<StoreEntry>, Revision)> {
        Box::pin(self.reader_pool.read(move |reader| {
            if key.is_empty() {
                return Err(Error::Malformed { reason: "an empty key".to_owned() }.into());
            }
            let snapshot = ReadSnapshot::open(reader)?;
            Ok((snapshot.get(&key, snapshot.visible_revision)?, snapshot.visible_revision))
        }))
    }

    fn range(&self, range: KeyRange) -> StoreFuture<'_, RangePage> {
        Box::pin(self.reader_pool.read(move |reader| range::read_page(reader, &range)))
    }

    fn commit(&self, transaction: Transaction) -> StoreFuture<'_, TransactionOutcome> {
        Box::pin(async move {
            transaction.validate()?;
            let size = check_size(&transaction)?;
            self.write_queue.submit(size, move |write| Ok(write.apply(&transaction)?)).await
        })
    }

    fn commit_computed(
        &self,
        transaction: Transaction,
        computed: Arc<dyn ComputedValues>,
    ) -> StoreFuture<'_, TransactionOutcome> {
        Box::pin(async move {
            transaction.validate()?;
            let size = check_size(&transaction)?;
            let history = self.computed_history.clone();
            let apply =
                move |write: &mut WriteTransaction<'_>| write.apply_computed(&transaction, &*computed, &history);
            self.write_queue.submit(size, apply).await
        })
    }

    fn watch(&self, prefix: Key, from: Revision) -> StoreFuture<'_, Watch> {
        let (batches, delivered) = mpsc::channel(WATCH_QUEUE_LEN);
        // One pending request is enough: it is answered with the revision at that time.
        let (progress_tx, requests) = mpsc::channel(1);
        let feed = WatchFeed {
            subscription: Subscription { prefix, from, batches },
            progress_requests: requests,
            requested_progress: None,
            watch_hub: self.watch_hub.clone(),
            reader_pool: self.reader_pool.clone(),
            revision_file: self.revision_file.clone(),
            tail_waker: self.tail_waker.clone(),
        };
        let closing = self.close_token.clone();
        self.tasks.spawn_once("sqlite watch", async move {
            tokio::select! {
                () = feed.run() => {}
                () = closing.cancelled() => {}
            }
        });
        Box::pin(std::future::ready(Ok(Watch::new(delivered, progress_tx))))
    }

    fn revision(&self) -> StoreFuture<'_, Revision> {
        let read =
            || self.revision_file.read().map_err(|error| SqliteFault::File(error).into_error(&self.files.revision));
        Box::pin(std::future::ready(self.file_guard.last_check().and_then(|()| read())))
    }

    fn supports_progress_requests(&self) -> bool {
        true
    }

    fn compact(&self, revision: Revision) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.write_queue.submit(0, move |write| Ok(compaction::set_compacted_revision(write, revision)?)).await??;
            self.delete_compacted().await
        })
    }
}

/// Enforces etcd's limits, so that both backends accept the same transactions. Returns the size in bytes.
fn check_size(transaction: &Transaction) -> Result<usize, Error> {
    let operations = transaction.ops.len().max(transaction.compares.len());
    if operations > OPS_MAX {
        let reason = format!("a transaction of {operations} operations exceeds the limit of {OPS_MAX}");
        return Err(Error::TooLarge { reason });
    }
    let compared: usize = transaction.compares.iter().map(|compare| compare.key.len()).sum();
    let changed: usize = transaction.ops.iter().map(op_size).sum();
    let size = compared + changed;
    if size > REQUEST_BYTES_MAX {
        let reason = format!("a transaction of {size} bytes exceeds the limit of {REQUEST_BYTES_MAX}");
        return Err(Error::TooLarge { reason });
    }
    Ok(size)
}

fn op_size(op: &Op) -> usize {
    match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete { key } => key.len(),
    }
}
