//! Assembles a store: opens the files, and starts and connects the threads.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc as sync_mpsc;

use parking_lot::Mutex;
use tasks::Tasks;

use crate::Revision;
use crate::sqlite::change_waiter::ChangeWaiter;
use crate::sqlite::committer::Committer;
use crate::sqlite::expiry::KeyExpiry;
use crate::sqlite::files::{self, StoreFiles};
use crate::sqlite::log_tailer::LogTailer;
use crate::sqlite::maintenance::{MaintenanceState, MaintenanceThread};
use crate::sqlite::open;
use crate::sqlite::reader_pool::{ReadQueue, ReaderPool, SqliteReader};
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::schema::{Durability, connect, connect_reader};
use crate::sqlite::snapshot;
use crate::sqlite::threads::StoreThreads;
use crate::sqlite::watch_hub::WatchHub;
use crate::sqlite::write_lock::WriteLock;
use crate::sqlite::write_queue::{WriteQueue, WriteQueueReceiver};
use crate::sqlite::{Config, OpenError, SqliteStore};

pub(super) fn start_store(config: &Config, tasks: Tasks) -> Result<SqliteStore, OpenError> {
    let files = open::locate_files(&config.path)?;
    let opened_files = open_files(&files, config)?;
    let opened = files::FileGuard::new(&files).map_err(|source| OpenError::from_io(&files.database, source))?;
    let alarm = ChangeWaiter::new(&files.revision, config.change_detection, config.poll_interval)
        .map_err(|source| OpenError::from_io(&files.revision, source))?;
    let (writer, inbox) = WriteQueue::new();
    let (pool, queue) = ReaderPool::new(config.readers.max(1));
    let (keeper, stop_keeper) = sync_mpsc::channel();
    let store = SqliteStore {
        file_guard: Arc::new(opened),
        revision_file: opened_files.revision_file.clone(),
        watch_hub: Arc::new(WatchHub::new(opened_files.newest)),
        tail_waker: alarm.waker(),
        expiry: KeyExpiry {
            reader_pool: pool.clone(),
            write_queue: writer.clone(),
            clock: config.clock.clone(),
            interval: config.expiry_interval,
        },
        threads: StoreThreads::new(),
        writer_thread: StoreThreads::new(),
        close_token: tasks.stop_token().child_token(),
        is_stopping: Arc::new(AtomicBool::new(false)),
        maintenance_stop: Mutex::new(Some(keeper)),
        files,
        write_queue: writer,
        computed_history: Arc::default(),
        reader_pool: pool,
        tasks,
    };
    let starting = StoreStarter { store: &store, config };
    starting.start_writer(inbox, opened_files)?;
    starting.start_readers(&queue)?;
    starting.start_tail(alarm)?;
    starting.start_maintenance(stop_keeper)?;
    Ok(store)
}

struct OpenedFiles {
    connection: rusqlite::Connection,
    write_lock: WriteLock,
    revision_file: Arc<RevisionFile>,
    newest: Revision,
}

fn open_files(files: &StoreFiles, config: &Config) -> Result<OpenedFiles, OpenError> {
    let database = &files.database;
    let write_lock = WriteLock::open(&files.write_lock, config.write_lock_timeout)
        .map_err(|source| OpenError::from_io(&files.write_lock, source))?;
    let busy = |error: crate::Error| OpenError::Busy { path: database.clone(), what: error.to_string() };
    let lock = write_lock.acquire().map_err(busy)?;
    let connection = open::prepare_database(database, config)?;
    let newest = snapshot::newest_revision(&connection).map_err(|source| OpenError::from_sqlite(database, source))?;
    let revisions =
        open_revision_file(&files.revision, newest).map_err(|source| OpenError::from_io(&files.revision, source))?;
    drop(lock);
    open::check_integrity(database, &connection)?;
    Ok(OpenedFiles { connection, write_lock, revision_file: Arc::new(revisions), newest })
}

/// Aligns the revision file with the database, which is authoritative.
fn open_revision_file(path: &Path, newest: Revision) -> io::Result<RevisionFile> {
    let revisions = RevisionFile::open(path)?;
    let shown = revisions.read().ok();
    if let Some(shown) = shown.filter(|shown| *shown > newest) {
        tracing::warn!(
            %shown, %newest,
            "database is older than its revision file; was a backup restored or the -wal file removed?"
        );
    }
    if shown != Some(newest) {
        revisions.write(newest)?;
    }
    Ok(revisions)
}

struct StoreStarter<'a> {
    store: &'a SqliteStore,
    config: &'a Config,
}

impl StoreStarter<'_> {
    fn start_writer(&self, inbox: WriteQueueReceiver, opened_files: OpenedFiles) -> Result<(), OpenError> {
        let commits = Committer {
            queue: inbox,
            connection: opened_files.connection,
            path: self.store.files.database.clone(),
            file_guard: self.store.file_guard.clone(),
            write_lock: opened_files.write_lock,
            busy_timeout: self.config.write_lock_timeout,
            revision_file: opened_files.revision_file,
            clock: self.config.clock.clone(),
            commit_hook: self.config.commit_hook.clone(),
            tail_waker: self.store.tail_waker.clone(),
        };
        let system = |source| OpenError::System { path: self.store.files.database.clone(), source };
        self.store.writer_thread.spawn("sqlite writer", move || commits.run()).map_err(system)
    }

    fn start_readers(&self, queue: &ReadQueue) -> Result<(), OpenError> {
        for _ in 0..self.config.readers.max(1) {
            let (queue, reader) = (queue.clone(), self.reader()?);
            self.spawn("sqlite reader", move || queue.run(&reader))?;
        }
        Ok(())
    }

    fn start_tail(&self, alarm: ChangeWaiter) -> Result<(), OpenError> {
        let tail = LogTailer {
            reader: self.reader()?,
            change_waiter: alarm,
            watch_hub: self.store.watch_hub.clone(),
            write_queue: self.store.write_queue.clone(),
            is_stopping: self.store.is_stopping.clone(),
            interval: self.config.poll_interval,
        };
        self.spawn("sqlite log tailer", move || tail.run())
    }

    fn start_maintenance(&self, stop: sync_mpsc::Receiver<()>) -> Result<(), OpenError> {
        let files = &self.store.files;
        let connection = connect(&files.database, Durability::Full, self.config.write_lock_timeout)
            .map_err(|source| OpenError::from_sqlite(&files.database, source))?;
        let keeper = MaintenanceThread {
            connection,
            wal: files.wal.clone(),
            revision_file: self.store.revision_file.clone(),
            write_queue: self.store.write_queue.clone(),
            stop,
            state: MaintenanceState::default(),
        };
        self.spawn("sqlite maintenance", move || keeper.run())
    }

    fn reader(&self) -> Result<SqliteReader, OpenError> {
        let path = self.store.files.database.clone();
        let connection = connect_reader(&path, self.config.write_lock_timeout)
            .map_err(|source| OpenError::from_sqlite(&path, source))?;
        Ok(SqliteReader {
            connection,
            revision_file: self.store.revision_file.clone(),
            path,
            file_guard: self.store.file_guard.clone(),
        })
    }

    fn spawn(&self, name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
        let system = |source| OpenError::System { path: self.store.files.database.clone(), source };
        self.store.threads.spawn(name, run).map_err(system)
    }
}
