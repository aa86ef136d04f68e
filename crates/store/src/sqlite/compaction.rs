//! Compaction: forgetting what was overwritten or removed before a revision, a little at a time.
//!
//! The revision is written down first, and every read compares itself with it in its own transaction, so it does not
//! matter how far the removal has come, or that its process died: any process goes on where it stopped.
//!
//! What became superfluous is found by reading, without any turn, and removed in the order of the log: neighbours are on
//! one page, and a page that is written once instead of once per row is most of what makes compaction cheap.

use std::time::{Duration, Instant};

use rusqlite::{Connection, Row};

use crate::sqlite::fault::SqliteFault;
use crate::sqlite::schema::LogPosition;
use crate::sqlite::snapshot;
use crate::sqlite::write_transaction::WriteTransaction;
use crate::{Error, Revision};

/// Changes that are read at once: some milliseconds.
const READ_BATCH_ROWS: usize = 5_000;

/// Changes that are looked at before anything is removed: eight megabytes of places and about as much of keys, and the
/// whole of most compactions.
const WINDOW_ROWS: usize = 1 << 20;
const WINDOW_KEYS: usize = 1 << 16;

/// Rows that are removed in one commit, and the time that this may take: so little that whoever commits with them hardly
/// notices. The time is looked at every few rows.
const DELETE_BATCH_ROWS: usize = 256;
const DELETE_BATCH_TIME: Duration = Duration::from_micros(500);
const ROWS_PER_TIME_CHECK: usize = 32;

/// Between two steps, so that most commits are without one; and not so long that compaction cannot keep up.
const DELETE_PAUSE_MIN: Duration = Duration::from_millis(2);
const DELETE_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Decides that everything before `revision` is forgotten. From here on nobody can read it.
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

/// How many steps were ever done, if a compaction is not finished: whoever is at it makes this grow.
pub(super) fn unfinished_sweeps(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let mut select = connection.prepare_cached("SELECT compacted, swept, sweeps FROM state")?;
    select.query_row([], |row| {
        let (compacted, swept) = (row.get(0).map(Revision)?, row.get::<_, LogPosition>(1)?);
        (swept < LogPosition::start_of(compacted)).then(|| row.get(2)).transpose()
    })
}

/// What is superfluous in a part of the log.
///
/// Every change up to the compacted revision makes the one before it of the same key superfluous. A removal before the
/// compacted revision is superfluous itself. One at the compacted revision stays until the next time: the newest row
/// of the log is what remembers the current revision.
#[derive(Debug, Default)]
pub(super) struct SupersededRows {
    /// Rows of the log.
    positions: Vec<LogPosition>,
    /// Keys that are gone, and where they were removed.
    deleted_keys: Vec<(Vec<u8>, LogPosition)>,
    /// Everything before this place has been looked at.
    end: Option<LogPosition>,
    rows: usize,
}

/// Whether to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowRead {
    /// The window is not full, and there is more.
    More,
    /// The window is full. There may be another.
    Full,
    /// There is no more.
    End,
}

impl SupersededRows {
    /// Reads the next piece.
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

    /// What to remove, now that it is all known.
    pub(super) fn into_sweep(mut self) -> CompactionSweep {
        // Backwards, because it is taken from the end.
        self.positions.sort_unstable_by(|one, other| other.cmp(one));
        self.positions.dedup();
        CompactionSweep { deleted_keys: self.deleted_keys, positions: self.positions, end: self.end, is_done: false }
    }

    fn add_row(&mut self, row: &Row<'_>, first_kept: LogPosition) -> rusqlite::Result<()> {
        let place: LogPosition = row.get(0)?;
        let previous: Option<LogPosition> = row.get(1)?;
        self.rows += 1;
        self.end = Some(place.next().min(first_kept));
        self.positions.extend(previous);
        if row.get(2)? && place < first_kept {
            self.positions.push(place);
            self.deleted_keys.push((row.get(3)?, place));
        }
        Ok(())
    }
}

/// How long to wait after a step that took `took`: at most half of the time is compaction's.
pub(super) fn pause_after(took: Duration) -> Duration {
    took.clamp(DELETE_PAUSE_MIN, DELETE_PAUSE_MAX)
}

/// The removal of what a window has found, commit by commit. Doing it twice, or in two processes, does no harm.
#[derive(Debug)]
pub(super) struct CompactionSweep {
    deleted_keys: Vec<(Vec<u8>, LogPosition)>,
    positions: Vec<LogPosition>,
    end: Option<LogPosition>,
    pub(super) is_done: bool,
}

impl CompactionSweep {
    /// Removes as much as one commit may do. Gone if that fails: whoever goes on reads a new window.
    ///
    /// Keys first: once the row of a removal is gone from the log, nobody would find its key. Then the log from its start:
    /// once a row is gone, nobody would find the ones before it of the same key.
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
            if let Some((key, place)) = self.deleted_keys.pop() {
                forget.execute((key, place))?;
            } else if let Some(place) = self.positions.pop() {
                remove.execute([place])?;
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
