//! The thread that keeps the files small: checkpoints, vacuuming, compactions that somebody did not finish.
//!
//! One process of all that share the store does this, elected by a lock on the revision file. The others only look whether
//! the log grows so much that whoever was elected must be hanging.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::fs::{FlockOperation, flock};

use crate::Error;
use crate::sqlite::fault::Fault;
use crate::sqlite::forget::{self, Reading, Window};
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::write::Write;
use crate::sqlite::writer::{Checkpoint, Writer};

/// How often to look. At five thousand writes a second the log grows by some two megabytes meanwhile.
const INTERVAL: Duration = Duration::from_millis(100);

/// Pages of the log that are copied back to the database at once: four megabytes.
const COPY_PAGES: i64 = 1_000;

/// Looks without a write after which fewer are copied as well: five seconds.
const QUIET_LOOKS: u32 = 50;

/// From here on, writers are held up for a moment so that the log begins anew: sixteen megabytes.
const RESTART_PAGES: i64 = 4_000;

/// From here on, the log is also cut: something kept it from beginning anew for long.
const TRUNCATE_BYTES: u64 = 64 << 20;

/// From here on, a process that was not elected helps.
const HELP_PAGES: i64 = 4 * RESTART_PAGES;

/// Fewer free pages than this are not worth moving any: four megabytes.
const FREE_PAGES_KEPT: i64 = 1_000;

/// Pages moved in one commit, some hundred microseconds, and commits per look. Nothing is urgent about it.
const VACUUM_PAGES: i64 = 16;
const VACUUMS_MAX: usize = 5;

/// Looks after which a compaction that nobody went on with is ours: two seconds.
const ABANDONED_LOOKS: u32 = 20;

#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) connection: Connection,
    pub(super) wal: PathBuf,
    pub(super) revisions: Arc<RevisionFile>,
    pub(super) writer: Writer,
    /// Disconnected when the store is closed.
    pub(super) stop: Receiver<()>,
    pub(super) seen: Seen,
}

/// What the last looks saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pages: i64,
    quiet_looks: u32,
    is_vacuuming: bool,
    sweeps: Option<i64>,
    stuck_looks: u32,
}

/// SQLite's write-ahead log.
struct Log {
    pages: i64,
    /// Those that are in the database as well.
    copied: i64,
}

impl Keeper {
    pub(super) fn run(mut self) {
        let mut is_elected = false;
        let mut told = None;
        while matches!(self.stop.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout)) {
            is_elected = is_elected || self.try_election();
            let failure = self.look(is_elected).err().map(|fault| fault.told(&self.wal));
            if let Some(error) = failure.as_ref().filter(|_| failure != told) {
                tracing::warn!(%error, "the store could not be kept tidy; it is tried again");
            }
            told = failure;
        }
    }

    fn try_election(&self) -> bool {
        flock(self.revisions.file(), FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    fn look(&mut self, is_elected: bool) -> Result<(), Fault> {
        let log = self.checkpoint("PRAGMA wal_checkpoint(NOOP)")?;
        if !is_elected && log.pages < HELP_PAGES {
            return Ok(());
        }
        self.copy_back(&log)?;
        self.vacuum()?;
        self.finish_compaction()
    }

    fn copy_back(&mut self, log: &Log) -> Result<(), Fault> {
        let is_quiet = log.pages == self.seen.pages;
        self.seen.pages = log.pages;
        self.seen.quiet_looks = if is_quiet { self.seen.quiet_looks + 1 } else { 0 };
        let waiting = log.pages - log.copied;
        if waiting >= COPY_PAGES || (waiting > 0 && self.seen.quiet_looks >= QUIET_LOOKS) {
            self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)")?;
        }
        if log.pages >= RESTART_PAGES {
            let is_long = self.wal.metadata().is_ok_and(|wal| wal.len() >= TRUNCATE_BYTES);
            self.writer.checkpoint_blocking(if is_long { Checkpoint::Truncate } else { Checkpoint::Restart });
        }
        Ok(())
    }

    /// Between two compactions a file grows to twice its size and is used again, so half of it may well be free. When
    /// three quarters are, it was once much larger than it will be soon.
    fn vacuum(&mut self) -> Result<(), Fault> {
        for _ in 0..VACUUMS_MAX {
            let (free, pages) = (self.number("PRAGMA freelist_count")?, self.number("PRAGMA page_count")?);
            let is_too_large = if self.seen.is_vacuuming { free > pages / 2 } else { free > pages / 4 * 3 };
            self.seen.is_vacuuming = is_too_large && free > FREE_PAGES_KEPT;
            if !self.seen.is_vacuuming {
                break;
            }
            self.writer.submit_blocking(vacuum)?;
        }
        Ok(())
    }

    fn finish_compaction(&mut self) -> Result<(), Fault> {
        let sweeps = forget::unfinished(&self.connection)?;
        let is_stuck = sweeps.is_some() && sweeps == self.seen.sweeps;
        self.seen.sweeps = sweeps;
        self.seen.stuck_looks = if is_stuck { self.seen.stuck_looks + 1 } else { 0 };
        if self.seen.stuck_looks < ABANDONED_LOOKS {
            return Ok(());
        }
        self.seen.stuck_looks = 0;
        let (mut window, mut reading) = (Window::default(), Reading::More);
        while reading == Reading::More {
            (window, reading) = window.read_piece(&self.connection)?;
        }
        let mut sweep = window.into_sweep();
        while !sweep.is_done {
            let started = Instant::now();
            sweep = self.writer.submit_blocking(move |write| sweep.step(write))?;
            let pause = forget::pause_after(started.elapsed());
            if !matches!(self.stop.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                return Err(Error::Unavailable { reason: "the store is closed".to_owned() }.into());
            }
        }
        Ok(())
    }

    /// Its three numbers: whether it had to give up, the pages in the log, and those copied.
    fn checkpoint(&self, sql: &str) -> rusqlite::Result<Log> {
        self.connection.query_row(sql, [], |row| Ok(Log { pages: row.get(1)?, copied: row.get(2)? }))
    }

    fn number(&self, sql: &str) -> rusqlite::Result<i64> {
        self.connection.query_row(sql, [], |row| row.get(0))
    }
}

/// Moves pages from the end of the file into free ones, and cuts the file.
fn vacuum(write: &mut Write<'_>) -> Result<(), Fault> {
    let mut vacuum = write.connection().prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut pages = vacuum.query([])?;
    while pages.next()?.is_some() {}
    Ok(())
}
