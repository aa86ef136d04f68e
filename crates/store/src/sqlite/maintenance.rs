//! The maintenance thread: checkpoints, vacuuming, and completion of abandoned compactions.
//!
//! One of the processes that share the store does this, elected by a lock on the revision file. The others step in only
//! if the WAL grows so much that the elected process must be hanging.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::fs::{FlockOperation, flock};

use crate::Error;
use crate::sqlite::compaction::{self, SupersededRows, WindowRead};
use crate::sqlite::fault::SqliteFault;
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::write_queue::{CheckpointMode, WriteQueue};
use crate::sqlite::write_transaction::WriteTransaction;

/// The interval of checks. At five thousand writes per second the WAL grows by some 2 MB in between.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(100);

/// WAL pages that trigger a checkpoint: 4 MB.
const CHECKPOINT_PAGES: i64 = 1_000;

/// Checks without a write after which fewer pages are checkpointed too: five seconds.
const IDLE_CHECKS: u32 = 50;

/// WAL pages from which writers are paused briefly, so that the WAL restarts from its beginning: 16 MB.
const WAL_RESTART_PAGES: i64 = 4_000;

/// The WAL size from which the file is also truncated: something kept it from restarting for long.
const WAL_TRUNCATE_BYTES: u64 = 64 << 20;

/// WAL pages from which a process that is not elected helps.
const UNELECTED_HELP_PAGES: i64 = 4 * WAL_RESTART_PAGES;

/// Free pages that are not worth vacuuming: 4 MB.
const FREE_PAGES_KEPT: i64 = 1_000;

/// Pages moved per commit, some hundred microseconds, and commits per check. Vacuuming is not urgent.
const VACUUM_PAGES: i64 = 16;
const VACUUMS_MAX: usize = 5;

/// Checks without progress after which another process's compaction counts as abandoned: two seconds.
const ABANDONED_CHECKS: u32 = 20;

#[derive(Debug)]
pub(super) struct MaintenanceThread {
    pub(super) connection: Connection,
    pub(super) wal: PathBuf,
    pub(super) revision_file: Arc<RevisionFile>,
    pub(super) write_queue: WriteQueue,
    /// Disconnected when the store is closed.
    pub(super) stop: Receiver<()>,
    pub(super) state: MaintenanceState,
}

/// Observations of earlier checks.
#[derive(Debug, Default)]
pub(super) struct MaintenanceState {
    pages: i64,
    idle_checks: u32,
    is_vacuuming: bool,
    sweeps: Option<i64>,
    stuck_checks: u32,
}

struct WalStatus {
    pages: i64,
    /// Pages that are already in the database.
    checkpointed: i64,
}

impl MaintenanceThread {
    pub(super) fn run(mut self) {
        let mut is_elected = false;
        let mut last_logged = None;
        while matches!(self.stop.recv_timeout(MAINTENANCE_INTERVAL), Err(RecvTimeoutError::Timeout)) {
            is_elected = is_elected || self.try_election();
            let failure = self.run_once(is_elected).err().map(|fault| fault.into_error(&self.wal));
            if let Some(error) = failure.as_ref().filter(|_| failure != last_logged) {
                tracing::warn!(%error, "store maintenance failed, will retry");
            }
            last_logged = failure;
        }
    }

    fn try_election(&self) -> bool {
        flock(self.revision_file.file(), FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    fn run_once(&mut self, is_elected: bool) -> Result<(), SqliteFault> {
        let log = self.run_checkpoint("PRAGMA wal_checkpoint(NOOP)")?;
        if !is_elected && log.pages < UNELECTED_HELP_PAGES {
            return Ok(());
        }
        self.checkpoint_wal(&log)?;
        self.vacuum()?;
        self.finish_compaction()
    }

    fn checkpoint_wal(&mut self, log: &WalStatus) -> Result<(), SqliteFault> {
        let is_quiet = log.pages == self.state.pages;
        self.state.pages = log.pages;
        self.state.idle_checks = if is_quiet { self.state.idle_checks + 1 } else { 0 };
        let waiting = log.pages - log.checkpointed;
        if waiting >= CHECKPOINT_PAGES || (waiting > 0 && self.state.idle_checks >= IDLE_CHECKS) {
            self.run_checkpoint("PRAGMA wal_checkpoint(PASSIVE)")?;
        }
        if log.pages >= WAL_RESTART_PAGES {
            let is_long = self.wal.metadata().is_ok_and(|wal| wal.len() >= WAL_TRUNCATE_BYTES);
            self.write_queue.checkpoint_blocking(if is_long {
                CheckpointMode::Truncate
            } else {
                CheckpointMode::Restart
            });
        }
        Ok(())
    }

    /// Vacuums a file that is mostly free. Between two compactions a file grows to twice its size and is reused, so
    /// half of it may be free. At three quarters it was once much larger than it will be soon; vacuuming then stops at
    /// half.
    fn vacuum(&mut self) -> Result<(), SqliteFault> {
        for _ in 0..VACUUMS_MAX {
            let (free, pages) = (self.query_number("PRAGMA freelist_count")?, self.query_number("PRAGMA page_count")?);
            let is_too_large = if self.state.is_vacuuming { free > pages / 2 } else { free > pages / 4 * 3 };
            self.state.is_vacuuming = is_too_large && free > FREE_PAGES_KEPT;
            if !self.state.is_vacuuming {
                break;
            }
            self.write_queue.submit_blocking(vacuum)?;
        }
        Ok(())
    }

    /// Takes over a compaction that made no progress for [`ABANDONED_CHECKS`] checks.
    fn finish_compaction(&mut self) -> Result<(), SqliteFault> {
        let sweeps = compaction::unfinished_sweeps(&self.connection)?;
        let is_stuck = sweeps.is_some() && sweeps == self.state.sweeps;
        self.state.sweeps = sweeps;
        self.state.stuck_checks = if is_stuck { self.state.stuck_checks + 1 } else { 0 };
        if self.state.stuck_checks < ABANDONED_CHECKS {
            return Ok(());
        }
        self.state.stuck_checks = 0;
        let (mut window, mut reading) = (SupersededRows::default(), WindowRead::More);
        while reading == WindowRead::More {
            (window, reading) = window.read_batch(&self.connection)?;
        }
        let mut sweep = window.into_sweep();
        while !sweep.is_done {
            let started = Instant::now();
            sweep = self.write_queue.submit_blocking(move |write| sweep.delete_batch(write))?;
            let pause = compaction::pause_after(started.elapsed());
            if !matches!(self.stop.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                return Err(Error::Unavailable { reason: "the store is closed".to_owned() }.into());
            }
        }
        Ok(())
    }

    /// Runs a checkpoint pragma, which returns a busy flag, the pages in the WAL, and the checkpointed pages.
    fn run_checkpoint(&self, sql: &str) -> rusqlite::Result<WalStatus> {
        self.connection.query_row(sql, [], |row| Ok(WalStatus { pages: row.get(1)?, checkpointed: row.get(2)? }))
    }

    fn query_number(&self, sql: &str) -> rusqlite::Result<i64> {
        self.connection.query_row(sql, [], |row| row.get(0))
    }
}

/// Moves pages from the end of the file into free ones and truncates the file.
fn vacuum(write: &mut WriteTransaction<'_>) -> Result<(), SqliteFault> {
    let mut vacuum = write.connection().prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut pages = vacuum.query([])?;
    while pages.next()?.is_some() {}
    Ok(())
}
