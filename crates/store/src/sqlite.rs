//! The SQLite backend: one file, shared by the server processes of one machine.
//!
//! Every process has one thread that writes (`commits`), some that read (`pool`), one that follows what all processes
//! write and feeds the watches (`tail`), and one that keeps the files small (`keeper`). Processes meet in three files: the
//! database, `.lock` for the turn to write (`turn`), and `.rev` with the newest revision (`revision_file`).
//!
//! Invariants: revisions are given in turn and have no gaps; an answer is sent after COMMIT has reached the disk and the
//! revision file tells of it; nothing newer than the revision file is ever shown.

mod clock;
mod commits;
mod config;
mod expiry;
mod fault;
mod feed;
mod file_system;
mod files;
mod forget;
mod history;
mod hub;
mod keeper;
mod open;
mod pool;
mod range;
mod revision_file;
mod schema;
mod snapshot;
mod start;
mod tail;
mod threads;
mod turn;
mod wake;
mod write;
mod writer;

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
pub use config::{Config, Step, StepHook, Wakeups};
pub use open::OpenError;
pub use schema::Durability;

use crate::sqlite::expiry::Expiry;
use crate::sqlite::fault::Fault;
use crate::sqlite::feed::Feed;
use crate::sqlite::files::{Files, Opened};
use crate::sqlite::forget::{Reading, Window};
use crate::sqlite::hub::{Hub, Subscription};
use crate::sqlite::pool::Pool;
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::schema::OPS_MAX;
use crate::sqlite::snapshot::Snapshot;
use crate::sqlite::threads::Threads;
use crate::sqlite::wake::Poke;
use crate::sqlite::writer::Writer;
use crate::{Entry, Error, Key, Op, Outcome, Page, Pending, Range, Revision, Store, Transaction, Watch};

/// As much as etcd takes in one request by default: 1.5 MiB.
pub const REQUEST_BYTES_MAX: usize = 1536 * 1024;

/// Batches that wait for a slow receiver before its watch reads for itself.
const WATCH_QUEUE: usize = 16;

/// A store in an SQLite file. [`SqliteStore::close`] ends it in order; dropping it ends it, too, but waits for nothing.
#[derive(Debug)]
pub struct SqliteStore {
    files: Files,
    opened: Arc<Opened>,
    revisions: Arc<RevisionFile>,
    writer: Writer,
    pool: Pool,
    hub: Arc<Hub>,
    tail: Poke,
    expiry: Expiry,
    /// Those that read.
    threads: Threads,
    writer_thread: Threads,
    tasks: Tasks,
    /// Ends what runs among the tasks.
    closing: CancellationToken,
    /// Ends the tail.
    is_stopping: Arc<AtomicBool>,
    /// Ends the keeper when it is dropped.
    keeper: Mutex<Option<sync_mpsc::Sender<()>>>,
}

impl SqliteStore {
    /// Opens the file, and creates it where there is nothing. Watches and the expiry of keys run among `tasks`.
    pub async fn open(config: Config, tasks: &Tasks) -> Result<Self, OpenError> {
        let path = config.path.clone();
        let of_store = tasks.clone();
        let starting = tokio::task::spawn_blocking(move || start::start(&config, of_store));
        let panicked = |error| OpenError::System { path, source: std::io::Error::other(error) };
        let store = starting.await.map_err(panicked)??;
        store.threads.watch_over(tasks);
        store.writer_thread.watch_over(tasks);
        tasks.spawn_once("sqlite expiry", store.expiry.clone().run(store.closing.clone()));
        Ok(store)
    }

    /// Takes no more requests, answers those that wait, ends all watches, and waits for its threads. What was
    /// acknowledged is on the disk with or without this.
    pub async fn close(&self) {
        self.signal_end();
        self.pool.close().await;
        self.threads.join().await;
        // Last and alone, so that SQLite can put the whole log back into the database.
        self.writer.stop();
        self.writer_thread.join().await;
    }

    /// Where the store is.
    pub fn path(&self) -> &Path {
        &self.files.database
    }

    /// Removes the keys that are due now, without waiting for the next look.
    pub async fn expire(&self) -> Result<(), Error> {
        self.expiry.expire().await
    }

    /// Removes what compaction has made superfluous.
    async fn sweep(&self) -> Result<(), Error> {
        loop {
            let (window, reading) = self.read_window().await?;
            let mut sweep = window.into_sweep();
            while !sweep.is_done {
                let started = Instant::now();
                sweep = self.writer.submit(0, move |write| sweep.step(write)).await?;
                tokio::time::sleep(forget::pause_after(started.elapsed())).await;
            }
            if reading == Reading::End {
                return Ok(());
            }
        }
    }

    async fn read_window(&self) -> Result<(Window, Reading), Error> {
        let mut window = Window::default();
        loop {
            let reading;
            (window, reading) = self.pool.read(move |reader| window.read_piece(&reader.connection)).await?;
            if reading != Reading::More {
                return Ok((window, reading));
            }
        }
    }

    fn signal_end(&self) {
        self.threads.may_end();
        self.writer_thread.may_end();
        self.closing.cancel();
        self.writer.refuse();
        self.is_stopping.store(true, Ordering::Release);
        self.tail.poke();
        self.keeper.lock().take();
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.signal_end();
        self.writer.stop();
    }
}

impl Store for SqliteStore {
    fn get(&self, key: Key) -> Pending<'_, (Option<Entry>, Revision)> {
        Box::pin(self.pool.read(move |reader| {
            if key.is_empty() {
                return Err(Error::Malformed { reason: "an empty key".to_owned() }.into());
            }
            let snapshot = Snapshot::open(reader)?;
            Ok((snapshot.get(&key, snapshot.revision)?, snapshot.revision))
        }))
    }

    fn range(&self, range: Range) -> Pending<'_, Page> {
        Box::pin(self.pool.read(move |reader| range::read(reader, &range)))
    }

    fn commit(&self, transaction: Transaction) -> Pending<'_, Outcome> {
        Box::pin(async move {
            transaction.check()?;
            let size = check_size(&transaction)?;
            self.writer.submit(size, move |write| Ok(write.apply(&transaction)?)).await
        })
    }

    fn watch(&self, prefix: Key, from: Revision) -> Pending<'_, Watch> {
        let (batches, delivered) = mpsc::channel(WATCH_QUEUE);
        // One request that waits is enough: it is answered with what is current when its turn comes.
        let (asked, requests) = mpsc::channel(1);
        let feed = Feed {
            subscription: Subscription { prefix, from, batches },
            requests,
            asked: None,
            hub: self.hub.clone(),
            pool: self.pool.clone(),
            revisions: self.revisions.clone(),
            tail: self.tail.clone(),
        };
        let closing = self.closing.clone();
        self.tasks.spawn_once("sqlite watch", async move {
            tokio::select! {
                () = feed.run() => {}
                () = closing.cancelled() => {}
            }
        });
        Box::pin(std::future::ready(Ok(Watch::new(delivered, asked))))
    }

    fn revision(&self) -> Pending<'_, Revision> {
        let read = || self.revisions.read().map_err(|error| Fault::File(error).told(&self.files.revision));
        Box::pin(std::future::ready(self.opened.remember().and_then(|()| read())))
    }

    fn answers_progress(&self) -> bool {
        true
    }

    fn compact(&self, revision: Revision) -> Pending<'_, ()> {
        Box::pin(async move {
            self.writer.submit(0, move |write| Ok(forget::decide(write, revision)?)).await??;
            self.sweep().await
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
