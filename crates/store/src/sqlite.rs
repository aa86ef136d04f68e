//! The SQLite backend: one file, shared by the server processes of one machine.
//!
//! Every process has one thread that writes (`commits`), some that read (`pool`), one that follows what all processes
//! write and feeds the watches (`tail`), and one that keeps the files small (`keeper`). Processes meet in three files: the
//! database, `.lock` for the turn to write (`turn`), and `.rev` with the newest revision (`revision_file`).
//!
//! Invariants: revisions are given in turn and have no gaps; an answer is sent after COMMIT has reached the disk and the
//! revision file tells of it; nothing newer than the revision file is ever shown.

mod change_waiter;
mod clock;
mod committer;
mod compaction;
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
pub use schema::Durability;

use crate::sqlite::change_waiter::ChangeWaker;
use crate::sqlite::compaction::{SupersededRows, WindowRead};
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
use crate::{
    Error, Key, KeyRange, Op, RangePage, Revision, Store, StoreEntry, StoreFuture, Transaction, TransactionOutcome,
    Watch,
};

/// As much as etcd takes in one request by default: 1.5 MiB.
pub const REQUEST_BYTES_MAX: usize = 1536 * 1024;

/// Batches that wait for a slow receiver before its watch reads for itself.
const WATCH_QUEUE_LEN: usize = 16;

/// A store in an SQLite file. [`SqliteStore::close`] ends it in order; dropping it ends it, too, but waits for nothing.
#[derive(Debug)]
pub struct SqliteStore {
    files: StoreFiles,
    file_guard: Arc<FileGuard>,
    revision_file: Arc<RevisionFile>,
    write_queue: WriteQueue,
    reader_pool: ReaderPool,
    watch_hub: Arc<WatchHub>,
    tail_waker: ChangeWaker,
    expiry: KeyExpiry,
    /// Those that read.
    threads: StoreThreads,
    writer_thread: StoreThreads,
    tasks: Tasks,
    /// Ends what runs among the tasks.
    close_token: CancellationToken,
    /// Ends the tail.
    is_stopping: Arc<AtomicBool>,
    /// Ends the keeper when it is dropped.
    maintenance_stop: Mutex<Option<sync_mpsc::Sender<()>>>,
}

impl SqliteStore {
    /// Opens the file, and creates it where there is nothing. Watches and the expiry of keys run among `tasks`.
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

    /// Takes no more requests, answers those that wait, ends all watches, and waits for its threads. What was
    /// acknowledged is on the disk with or without this.
    pub async fn close(&self) {
        self.signal_stop();
        self.reader_pool.close().await;
        self.threads.join().await;
        // Last and alone, so that SQLite can put the whole log back into the database.
        self.write_queue.stop();
        self.writer_thread.join().await;
    }

    /// Where the store is.
    pub fn path(&self) -> &Path {
        &self.files.database
    }

    /// Removes the keys that are due now, without waiting for the next look.
    pub async fn expire_due_keys(&self) -> Result<(), Error> {
        self.expiry.expire_due_keys().await
    }

    /// Removes what compaction has made superfluous.
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

    fn watch(&self, prefix: Key, from: Revision) -> StoreFuture<'_, Watch> {
        let (batches, delivered) = mpsc::channel(WATCH_QUEUE_LEN);
        // One request that waits is enough: it is answered with what is current when its turn comes.
        let (asked, requests) = mpsc::channel(1);
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
        Box::pin(std::future::ready(Ok(Watch::new(delivered, asked))))
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

/// The limits of etcd, so that what one backend takes the other takes, too. Returns the size.
fn check_size(transaction: &Transaction) -> Result<usize, Error> {
    let operations = transaction.ops.len().max(transaction.compares.len());
    if operations > OPS_MAX {
        let reason = format!("{operations} operations in a transaction, and {OPS_MAX} are the most");
        return Err(Error::TooLarge { reason });
    }
    let compared: usize = transaction.compares.iter().map(|compare| compare.key.len()).sum();
    let changed: usize = transaction.ops.iter().map(op_size).sum();
    let size = compared + changed;
    if size > REQUEST_BYTES_MAX {
        let reason = format!("a transaction of {size} bytes, and {REQUEST_BYTES_MAX} are the most");
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
