//! Compaction: forgetting what was overwritten or removed before a revision, a little at a time.
//!
//! The revision is written down first, and every read compares itself with it in its own transaction, so it does not
//! matter how far the removal has come, or that its process died: any process goes on where it stopped.
//!
//! What became superfluous is found by reading, without any turn, and removed in the order of the log: neighbours are on
//! one page, and a page that is written once instead of once per row is most of what makes compaction cheap.

use std::time::{Duration, Instant};

use rusqlite::{Connection, Row};

use crate::sqlite::fault::Fault;
use crate::sqlite::schema::Place;
use crate::sqlite::snapshot;
use crate::sqlite::write::Write;
use crate::{Error, Revision};

/// Changes that are read at once: some milliseconds.
const PIECE_ROWS: usize = 5_000;

/// Changes that are looked at before anything is removed: eight megabytes of places and about as much of keys, and the
/// whole of most compactions.
const WINDOW_ROWS: usize = 1 << 20;
const WINDOW_KEYS: usize = 1 << 16;

/// Rows that are removed in one commit, and the time that this may take: so little that whoever commits with them hardly
/// notices. The time is looked at every few rows.
const STEP_ROWS: usize = 256;
const STEP_TIME: Duration = Duration::from_micros(500);
const ROWS_PER_LOOK: usize = 32;

/// Between two steps, so that most commits are without one; and not so long that compaction cannot keep up.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Decides that everything before `revision` is forgotten. From here on nobody can read it.
pub(super) fn decide(write: &Write<'_>, revision: Revision) -> rusqlite::Result<Result<(), Error>> {
    if revision > write.newest {
        return Ok(Err(Error::Future { requested: revision, current: write.newest }));
    }
    let sql = "UPDATE state SET compacted = ?1 WHERE compacted < ?1";
    write.connection().prepare_cached(sql)?.execute([revision.0])?;
    Ok(Ok(()))
}

/// How many steps were ever done, if a compaction is not finished: whoever is at it makes this grow.
pub(super) fn unfinished(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let mut select = connection.prepare_cached("SELECT compacted, swept, sweeps FROM state")?;
    select.query_row([], |row| {
        let (compacted, swept) = (row.get(0).map(Revision)?, row.get::<_, Place>(1)?);
        (swept < Place::first_of(compacted)).then(|| row.get(2)).transpose()
    })
}

/// What is superfluous in a part of the log.
///
/// Every change up to the compacted revision makes the one before it of the same key superfluous. A removal before the
/// compacted revision is superfluous itself. One at the compacted revision stays until the next time: the newest row
/// of the log is what remembers the current revision.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Rows of the log.
    places: Vec<Place>,
    /// Keys that are gone, and where they were removed.
    removed: Vec<(Vec<u8>, Place)>,
    /// Everything before this place has been looked at.
    end: Option<Place>,
    rows: usize,
}

/// Whether to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The window is not full, and there is more.
    More,
    /// The window is full. There may be another.
    Full,
    /// There is no more.
    End,
}

impl Window {
    /// Reads the next piece.
    pub(super) fn read_piece(mut self, connection: &Connection) -> Result<(Self, Reading), Fault> {
        let reading = self.read(connection)?;
        Ok((self, reading))
    }

    fn read(&mut self, connection: &Connection) -> rusqlite::Result<Reading> {
        let compacted = snapshot::compacted(connection)?;
        let kept = Place::first_of(compacted);
        let from = self.end.map_or_else(|| swept(connection), Ok)?;
        let sql = "SELECT place, previous, value IS NULL, iif(value IS NULL, key, x'') FROM log
                   WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT ?3";
        let mut select = connection.prepare_cached(sql)?;
        let mut rows = select.query((from, Place::first_of(compacted.next()), PIECE_ROWS))?;
        let before = self.rows;
        while let Some(row) = rows.next()? {
            self.look_at(row, kept)?;
        }
        if self.rows - before < PIECE_ROWS {
            self.end = Some(kept);
            return Ok(Reading::End);
        }
        let is_full = self.rows >= WINDOW_ROWS || self.removed.len() >= WINDOW_KEYS;
        Ok(if is_full { Reading::Full } else { Reading::More })
    }

    /// What to remove, now that it is all known.
    pub(super) fn into_sweep(mut self) -> Sweep {
        // Backwards, because it is taken from the end.
        self.places.sort_unstable_by(|one, other| other.cmp(one));
        self.places.dedup();
        Sweep { removed: self.removed, places: self.places, end: self.end, is_done: false }
    }

    fn look_at(&mut self, row: &Row<'_>, kept: Place) -> rusqlite::Result<()> {
        let place: Place = row.get(0)?;
        let previous: Option<Place> = row.get(1)?;
        self.rows += 1;
        self.end = Some(place.next().min(kept));
        self.places.extend(previous);
        if row.get(2)? && place < kept {
            self.places.push(place);
            self.removed.push((row.get(3)?, place));
        }
        Ok(())
    }
}

/// How long to wait after a step that took `took`: at most half of the time is compaction's.
pub(super) fn pause_after(took: Duration) -> Duration {
    took.clamp(PAUSE_MIN, PAUSE_MAX)
}

/// The removal of what a window has found, commit by commit. Doing it twice, or in two processes, does no harm.
#[derive(Debug)]
pub(super) struct Sweep {
    removed: Vec<(Vec<u8>, Place)>,
    places: Vec<Place>,
    end: Option<Place>,
    pub(super) is_done: bool,
}

impl Sweep {
    /// Removes as much as one commit may do. Gone if that fails: whoever goes on reads a new window.
    ///
    /// Keys first: once the row of a removal is gone from the log, nobody would find its key. Then the log from its start:
    /// once a row is gone, nobody would find the ones before it of the same key.
    pub(super) fn step(mut self, write: &Write<'_>) -> Result<Self, Fault> {
        let connection = write.connection();
        connection.prepare_cached("UPDATE state SET sweeps = sweeps + 1")?.raw_execute()?;
        let mut forget = connection.prepare_cached("DELETE FROM latest WHERE key = ?1 AND place = ?2")?;
        let mut remove = connection.prepare_cached("DELETE FROM log WHERE place = ?1")?;
        let started = Instant::now();
        for row in 0..STEP_ROWS {
            if row % ROWS_PER_LOOK == 0 && started.elapsed() >= STEP_TIME {
                return Ok(self);
            }
            if let Some((key, place)) = self.removed.pop() {
                forget.execute((key, place))?;
            } else if let Some(place) = self.places.pop() {
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

fn swept(connection: &Connection) -> rusqlite::Result<Place> {
    connection.prepare_cached("SELECT swept FROM state")?.query_row([], |row| row.get(0))
}
