//! Puts a store together: files, threads, and what connects them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc as sync_mpsc;

use parking_lot::Mutex;
use tasks::Tasks;

use crate::Revision;
use crate::sqlite::commits::Commits;
use crate::sqlite::expiry::Expiry;
use crate::sqlite::files::{self, Files};
use crate::sqlite::hub::Hub;
use crate::sqlite::keeper::{Keeper, Seen};
use crate::sqlite::open;
use crate::sqlite::pool::{Pool, Queue, Reader};
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::schema::{Durability, connect, connect_reader};
use crate::sqlite::snapshot;
use crate::sqlite::tail::Tail;
use crate::sqlite::threads::Threads;
use crate::sqlite::turn::Turns;
use crate::sqlite::wake::Alarm;
use crate::sqlite::writer::{Inbox, Writer};
use crate::sqlite::{Config, OpenError, SqliteStore};

/// Opens the files and starts the threads.
pub(super) fn start(config: &Config, tasks: Tasks) -> Result<SqliteStore, OpenError> {
    let files = open::locate(&config.path)?;
    let doors = open_files(&files, config)?;
    let opened = files::Opened::new(&files).map_err(|source| OpenError::file(&files.database, source))?;
    let alarm = Alarm::new(&files.revision, config.wakeups, config.poll_interval)
        .map_err(|source| OpenError::file(&files.revision, source))?;
    let (writer, inbox) = Writer::new();
    let (pool, queue) = Pool::new(config.readers.max(1));
    let (keeper, stop_keeper) = sync_mpsc::channel();
    let store = SqliteStore {
        opened: Arc::new(opened),
        revisions: doors.revisions.clone(),
        hub: Arc::new(Hub::new(doors.newest)),
        tail: alarm.poke(),
        expiry: Expiry {
            pool: pool.clone(),
            writer: writer.clone(),
            clock: config.clock.clone(),
            interval: config.expiry_interval,
        },
        threads: Threads::new(),
        writer_thread: Threads::new(),
        closing: tasks.stopping().child_token(),
        is_stopping: Arc::new(AtomicBool::new(false)),
        keeper: Mutex::new(Some(keeper)),
        files,
        writer,
        pool,
        tasks,
    };
    let starting = Starting { store: &store, config };
    starting.start_writer(inbox, doors)?;
    starting.start_readers(&queue)?;
    starting.start_tail(alarm)?;
    starting.start_keeper(stop_keeper)?;
    Ok(store)
}

struct Doors {
    connection: rusqlite::Connection,
    turns: Turns,
    revisions: Arc<RevisionFile>,
    newest: Revision,
}

fn open_files(files: &Files, config: &Config) -> Result<Doors, OpenError> {
    let database = &files.database;
    let turns = Turns::open(&files.turn, config.turn_wait).map_err(|source| OpenError::file(&files.turn, source))?;
    let busy = |error: crate::Error| OpenError::Busy { path: database.clone(), what: error.to_string() };
    let turn = turns.take().map_err(busy)?;
    let connection = open::prepare(database, config)?;
    let newest = snapshot::newest(&connection).map_err(|source| OpenError::sqlite(database, source))?;
    let revisions =
        open_revisions(&files.revision, newest).map_err(|source| OpenError::file(&files.revision, source))?;
    drop(turn);
    open::check(database, &connection)?;
    Ok(Doors { connection, turns, revisions: Arc::new(revisions), newest })
}

/// The file follows the database, not the other way round.
fn open_revisions(path: &Path, newest: Revision) -> io::Result<RevisionFile> {
    let revisions = RevisionFile::open(path)?;
    let shown = revisions.read().ok();
    if let Some(shown) = shown.filter(|shown| *shown > newest) {
        tracing::warn!(
            %shown, %newest,
            "the store is older than when it was last used: was a backup restored, or its -wal removed?"
        );
    }
    if shown != Some(newest) {
        revisions.write(newest)?;
    }
    Ok(revisions)
}

struct Starting<'a> {
    store: &'a SqliteStore,
    config: &'a Config,
}

impl Starting<'_> {
    fn start_writer(&self, inbox: Inbox, doors: Doors) -> Result<(), OpenError> {
        let commits = Commits {
            inbox,
            connection: doors.connection,
            path: self.store.files.database.clone(),
            opened: self.store.opened.clone(),
            turns: doors.turns,
            wait: self.config.turn_wait,
            revisions: doors.revisions,
            clock: self.config.clock.clone(),
            steps: self.config.steps.clone(),
            tail: self.store.tail.clone(),
        };
        let system = |source| OpenError::System { path: self.store.files.database.clone(), source };
        self.store.writer_thread.spawn("sqlite writer", move || commits.run()).map_err(system)
    }

    fn start_readers(&self, queue: &Queue) -> Result<(), OpenError> {
        for _ in 0..self.config.readers.max(1) {
            let (queue, reader) = (queue.clone(), self.reader()?);
            self.spawn("sqlite reader", move || queue.run(&reader))?;
        }
        Ok(())
    }

    fn start_tail(&self, alarm: Alarm) -> Result<(), OpenError> {
        let tail = Tail {
            reader: self.reader()?,
            alarm,
            hub: self.store.hub.clone(),
            writer: self.store.writer.clone(),
            is_stopping: self.store.is_stopping.clone(),
            interval: self.config.poll_interval,
        };
        self.spawn("sqlite tail", move || tail.run())
    }

    fn start_keeper(&self, stop: sync_mpsc::Receiver<()>) -> Result<(), OpenError> {
        let files = &self.store.files;
        let connection = connect(&files.database, Durability::Full, self.config.turn_wait)
            .map_err(|source| OpenError::sqlite(&files.database, source))?;
        let keeper = Keeper {
            connection,
            wal: files.wal.clone(),
            revisions: self.store.revisions.clone(),
            writer: self.store.writer.clone(),
            stop,
            seen: Seen::default(),
        };
        self.spawn("sqlite keeper", move || keeper.run())
    }

    fn reader(&self) -> Result<Reader, OpenError> {
        let path = self.store.files.database.clone();
        let connection =
            connect_reader(&path, self.config.turn_wait).map_err(|source| OpenError::sqlite(&path, source))?;
        Ok(Reader { connection, revisions: self.store.revisions.clone(), path, opened: self.store.opened.clone() })
    }

    fn spawn(&self, name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
        let system = |source| OpenError::System { path: self.store.files.database.clone(), source };
        self.store.threads.spawn(name, run).map_err(system)
    }
}
