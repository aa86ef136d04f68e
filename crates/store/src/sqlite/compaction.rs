//! Compaction: deletes, in small steps, what was overwritten or removed before a revision.
//!
//! The compacted revision is recorded first, and every read checks it in its own transaction. So it does not matter how
//! far the deletion has come, or whether its process died: any process continues where it stopped.
//!
//! Obsolete rows are collected by reading, without the write lock, and deleted in log order: neighbours share a page,
//! and writing a page once instead of once per row is most of what makes compaction cheap.

use std::time::{Duration, Instant};

use rusqlite::{Connection, Row};

use crate::sqlite::fault::SqliteFault;
use crate::sqlite::schema::LogPosition;
use crate::sqlite::snapshot;
use crate::sqlite::write_transaction::WriteTransaction;
use crate::{Error, Revision};

/// Rows per read: some milliseconds.
const READ_BATCH_ROWS: usize = 5_000;

/// Limits of a window, the rows examined before deletion starts: 8 MB of positions and about as much of keys. Most
/// compactions fit into one window.
const WINDOW_ROWS: usize = 1 << 20;
const WINDOW_KEYS: usize = 1 << 16;

/// Rows deleted per commit, and the time this may take: little enough not to delay other jobs in the commit. The time
/// is checked every few rows.
const DELETE_BATCH_ROWS: usize = 256;
const DELETE_BATCH_TIME: Duration = Duration::from_micros(500);
const ROWS_PER_TIME_CHECK: usize = 32;

/// The pause between two steps: long enough that most commits contain no deletion, short enough that compaction keeps
/// up.
const DELETE_PAUSE_MIN: Duration = Duration::from_millis(2);
const DELETE_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Records that everything before `revision` is compacted. From then on no read can see it.
pub(super) fn set_compacted_revision(
    write: &WriteTransaction<'_>,
    revision: Revision,
) -> rusqlite::Result<Result<(), Error>> {
    if revision > write.newest_revision {
        return Ok(Err(Error::FutureRevision { requested: revision, current: write.newest_revision }));
    }
    let sql = "UPDATE state SET compacted = ?1 WHERE compacted < ?1";
    write.connection().prepare_cached(sql)?.execute([revision.0])?;
    Ok(Ok(()))
}

/// The step counter if a compaction is unfinished; a process that works on it increments the counter.
pub(super) fn unfinished_sweeps(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let mut select = connection.prepare_cached("SELECT compacted, swept, sweeps FROM state")?;
    select.query_row([], |row| {
        let (compacted, swept) = (row.get(0).map(Revision)?, row.get::<_, LogPosition>(1)?);
        (swept < LogPosition::start_of(compacted)).then(|| row.get(2)).transpose()
    })
}

/// The obsolete rows in a part of the log.
///
/// Every change up to the compacted revision makes the previous change of the same key obsolete. A deletion before the
/// compacted revision is obsolete itself. A deletion at the compacted revision stays until the next compaction, since
/// the newest log row defines the current revision.
#[derive(Debug, Default)]
pub(super) struct SupersededRows {
    /// Obsolete rows of the log.
    positions: Vec<LogPosition>,
    /// Deleted keys, with the position of their deletion.
    deleted_keys: Vec<(Vec<u8>, LogPosition)>,
    /// Everything before this position has been examined.
    end: Option<LogPosition>,
    rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowRead {
    /// The window is not full, and more rows follow.
    More,
    /// The window is full; more rows may follow.
    Full,
    /// No rows are left.
    End,
}

impl SupersededRows {
    /// Adds the next rows of the log to the window.
    pub(super) fn read_batch(mut self, connection: &Connection) -> Result<(Self, WindowRead), SqliteFault> {
        let reading = self.read(connection)?;
        Ok((self, reading))
    }

    fn read(&mut self, connection: &Connection) -> rusqlite::Result<WindowRead> {
        let compacted = snapshot::compacted_revision(connection)?;
        let kept = LogPosition::start_of(compacted);
        let from = self.end.map_or_else(|| swept_position(connection), Ok)?;
        let sql = "SELECT place, previous, value IS NULL, iif(value IS NULL, key, x'') FROM log
                   WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT ?3";
        let mut select = connection.prepare_cached(sql)?;
        let mut rows = select.query((from, LogPosition::start_of(compacted.next()), READ_BATCH_ROWS))?;
        let before = self.rows;
        while let Some(row) = rows.next()? {
            self.add_row(row, kept)?;
        }
        if self.rows - before < READ_BATCH_ROWS {
            self.end = Some(kept);
            return Ok(WindowRead::End);
        }
        let is_full = self.rows >= WINDOW_ROWS || self.deleted_keys.len() >= WINDOW_KEYS;
        Ok(if is_full { WindowRead::Full } else { WindowRead::More })
    }

    /// Sorts the collected rows for deletion.
    pub(super) fn into_sweep(mut self) -> CompactionSweep {
        // In descending order, because `delete_batch` pops from the end.
        self.positions.sort_unstable_by(|one, other| other.cmp(one));
        self.positions.dedup();
        CompactionSweep { deleted_keys: self.deleted_keys, positions: self.positions, end: self.end, is_done: false }
    }

    fn add_row(&mut self, row: &Row<'_>, first_kept: LogPosition) -> rusqlite::Result<()> {
        let position: LogPosition = row.get(0)?;
        let previous: Option<LogPosition> = row.get(1)?;
        self.rows += 1;
        self.end = Some(position.next().min(first_kept));
        self.positions.extend(previous);
        if row.get(2)? && position < first_kept {
            self.positions.push(position);
            self.deleted_keys.push((row.get(3)?, position));
        }
        Ok(())
    }
}

/// The pause after a step that took `took`: compaction uses at most half of the time.
pub(super) fn pause_after(took: Duration) -> Duration {
    took.clamp(DELETE_PAUSE_MIN, DELETE_PAUSE_MAX)
}

/// The deletion of a window, commit by commit. Running it twice, or in two processes, is harmless.
#[derive(Debug)]
pub(super) struct CompactionSweep {
    deleted_keys: Vec<(Vec<u8>, LogPosition)>,
    positions: Vec<LogPosition>,
    end: Option<LogPosition>,
    pub(super) is_done: bool,
}

impl CompactionSweep {
    /// Deletes as much as one commit may. Consumes the sweep if that fails; the next attempt reads a new window.
    ///
    /// Keys come first: without the log row of its deletion, a key in `latest` could not be found again. Then the log
    /// from its start: without a row, the previous rows of the same key could not be found.
    pub(super) fn delete_batch(mut self, write: &WriteTransaction<'_>) -> Result<Self, SqliteFault> {
        let connection = write.connection();
        connection.prepare_cached("UPDATE state SET sweeps = sweeps + 1")?.raw_execute()?;
        let mut forget = connection.prepare_cached("DELETE FROM latest WHERE key = ?1 AND place = ?2")?;
        let mut remove = connection.prepare_cached("DELETE FROM log WHERE place = ?1")?;
        let started = Instant::now();
        for row in 0..DELETE_BATCH_ROWS {
            if row % ROWS_PER_TIME_CHECK == 0 && started.elapsed() >= DELETE_BATCH_TIME {
                return Ok(self);
            }
            if let Some((key, position)) = self.deleted_keys.pop() {
                forget.execute((key, position))?;
            } else if let Some(position) = self.positions.pop() {
                remove.execute([position])?;
            } else {
                self.is_done = true;
                break;
            }
        }
        if self.is_done {
            connection.prepare_cached("UPDATE state SET swept = ?1 WHERE swept < ?1")?.execute([self.end])?;
        }
        Ok(self)
    }
}

fn swept_position(connection: &Connection) -> rusqlite::Result<LogPosition> {
    connection.prepare_cached("SELECT swept FROM state")?.query_row([], |row| row.get(0))
}
