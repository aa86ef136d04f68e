//! A consistent state of the store, read in one short transaction.
//!
//! The state is never newer than the revision file, so that every process agrees on what is visible. If SQLite is ahead
//! (a commit is between its last two steps, or its process died there), the snapshot reads the older state.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::sqlite::fault::{SqliteFault, damaged_error};
use crate::sqlite::reader_pool::SqliteReader;
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::schema::{FIRST_REVISION, LogPosition};
use crate::{Error, Key, Revision, StoreEntry};

/// Attempts to open a snapshot. A compaction to the newest revision hides, between COMMIT and the revision file, the
/// only visible state. Another process repairs the revision file within a poll interval, so a second is plenty.
const OPEN_ATTEMPTS_MAX: usize = 1_000;
const OPEN_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct ReadSnapshot<'a> {
    connection: &'a Connection,
    /// The revision in the revision file: the newest that may be shown.
    pub(super) visible_revision: Revision,
    /// The newest revision in the database.
    pub(super) committed_revision: Revision,
    pub(super) compacted_revision: Revision,
}

impl<'a> ReadSnapshot<'a> {
    pub(super) fn open(reader: &'a SqliteReader) -> Result<Self, SqliteFault> {
        Self::open_with(|| {
            reader.file_guard.last_check()?;
            Self::begin(&reader.connection, Some(&reader.revision_file), &reader.path)
        })
    }

    /// Like [`Self::open`] for a process that is not a server. Without a revision file, everything committed is visible.
    pub(super) fn open_unguarded(
        connection: &'a Connection,
        revision_file: Option<&RevisionFile>,
        path: &Path,
    ) -> Result<Self, SqliteFault> {
        Self::open_with(|| Self::begin(connection, revision_file, path))
    }

    fn open_with(begin: impl Fn() -> Result<Self, SqliteFault>) -> Result<Self, SqliteFault> {
        for _ in 0..OPEN_ATTEMPTS_MAX {
            let snapshot = begin()?;
            if snapshot.visible_revision >= snapshot.compacted_revision {
                return Ok(snapshot);
            }
            drop(snapshot);
            std::thread::sleep(OPEN_PAUSE);
        }
        let reason = "a server process is stopped in the middle of a compaction; resume or kill it".to_owned();
        Err(Error::Unavailable { reason }.into())
    }

    fn begin(
        connection: &'a Connection,
        revision_file: Option<&RevisionFile>,
        path: &Path,
    ) -> Result<Self, SqliteFault> {
        // The file first: a commit is in the database before it is in the file.
        let shown = revision_file.map(RevisionFile::read).transpose()?;
        connection.prepare_cached("BEGIN")?.raw_execute()?;
        let visible = shown.unwrap_or_default();
        let mut snapshot = Self {
            connection,
            visible_revision: visible,
            committed_revision: visible,
            compacted_revision: Revision(0),
        };
        (snapshot.committed_revision, snapshot.compacted_revision) = revision_bounds(connection)?;
        if snapshot.committed_revision < visible {
            let what = format!(
                "the database is at revision {}, but revision {visible} was acknowledged",
                snapshot.committed_revision
            );
            return Err(damaged_error(path, &what).into());
        }
        if snapshot.committed_revision > visible {
            let newest = revision_file.map(RevisionFile::read).transpose()?.unwrap_or(snapshot.committed_revision);
            snapshot.visible_revision = newest.min(snapshot.committed_revision);
        }
        Ok(snapshot)
    }

    /// Returns the revision to read at, or an error if it is compacted or in the future.
    pub(super) fn check_readable(&self, requested: Option<Revision>) -> Result<Revision, Error> {
        let at = requested.unwrap_or(self.visible_revision);
        if at > self.visible_revision {
            return Err(Error::FutureRevision { requested: at, current: self.visible_revision });
        }
        if at < self.compacted_revision {
            return Err(Error::Compacted { requested: at, oldest: self.compacted_revision });
        }
        Ok(at)
    }

    pub(super) fn get(&self, key: &Key, at: Revision) -> rusqlite::Result<Option<StoreEntry>> {
        // Two statements, because they measure half again as fast as a join.
        let Some((position, is_live)) = latest_position(self.connection, key)? else { return Ok(None) };
        if position.revision() > at {
            return self.entry_before(key, position, at);
        }
        if is_live { read_entry(self.connection, key, position).map(Some) } else { Ok(None) }
    }

    /// The entry of a key at revision `at`, given a row of its newest position, liveness and value.
    pub(super) fn entry_at(&self, row: &Row<'_>, key: Key, at: Revision) -> rusqlite::Result<Option<StoreEntry>> {
        let position: LogPosition = row.get(0)?;
        if position.revision() > at {
            return self.entry_before(&key, position, at);
        }
        if !row.get::<_, bool>(1)? {
            return Ok(None);
        }
        let value = Bytes::copy_from_slice(row.get_ref(2)?.as_blob()?);
        Ok(Some(StoreEntry { key, value, revision: position.revision() }))
    }

    /// The entry of a key at revision `at`, which precedes the change at `position`.
    fn entry_before(&self, key: &Key, position: LogPosition, at: Revision) -> rusqlite::Result<Option<StoreEntry>> {
        let Some(position) = self.position_before(position, at)? else { return Ok(None) };
        let mut select = self.connection.prepare_cached("SELECT value FROM log WHERE place = ?1")?;
        // No row: the change was a deletion that compaction has removed.
        let value =
            select.query_row([position], |row| Ok(row.get_ref(0)?.as_blob_or_null()?.map(Bytes::copy_from_slice)));
        let entry = |value| StoreEntry { key: key.clone(), value, revision: position.revision() };
        Ok(value.optional()?.flatten().map(entry))
    }

    /// True if the key existed at revision `at`, which precedes the change at `position`.
    pub(super) fn was_live_before(&self, position: LogPosition, at: Revision) -> rusqlite::Result<bool> {
        let Some(position) = self.position_before(position, at)? else { return Ok(false) };
        let mut select = self.connection.prepare_cached("SELECT value IS NOT NULL FROM log WHERE place = ?1")?;
        Ok(select.query_row([position], |row| row.get(0)).optional()?.unwrap_or(false))
    }

    /// Follows the chain to the newest change of the same key that is not after `at`.
    fn position_before(&self, mut position: LogPosition, at: Revision) -> rusqlite::Result<Option<LogPosition>> {
        let mut select = self.connection.prepare_cached("SELECT previous FROM log WHERE place = ?1")?;
        while position.revision() > at {
            match select.query_row([position], |row| row.get(0))? {
                Some(previous) => position = previous,
                None => return Ok(None),
            }
        }
        Ok(Some(position))
    }

    pub(super) fn connection(&self) -> &'a Connection {
        self.connection
    }
}

impl Drop for ReadSnapshot<'_> {
    fn drop(&mut self) {
        // Ending a read loses nothing; if it fails, the next BEGIN on this connection reports it.
        let _ = self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.raw_execute());
    }
}

pub(super) fn newest_revision(connection: &Connection) -> rusqlite::Result<Revision> {
    let mut select = connection.prepare_cached("SELECT max(place) FROM log")?;
    let position: Option<LogPosition> = select.query_row([], |row| row.get(0))?;
    Ok(position.map_or(FIRST_REVISION, LogPosition::revision))
}

/// The newest revision and the oldest readable one.
fn revision_bounds(connection: &Connection) -> rusqlite::Result<(Revision, Revision)> {
    let mut select = connection.prepare_cached("SELECT (SELECT max(place) FROM log), compacted FROM state")?;
    select.query_row([], |row| {
        let newest: Option<LogPosition> = row.get(0)?;
        Ok((newest.map_or(FIRST_REVISION, LogPosition::revision), row.get(1).map(Revision)?))
    })
}

pub(super) fn compacted_revision(connection: &Connection) -> rusqlite::Result<Revision> {
    let mut select = connection.prepare_cached("SELECT compacted FROM state")?;
    select.query_row([], |row| row.get(0).map(Revision))
}

/// The position of a key's newest change, and whether the key exists.
pub(super) fn latest_position(connection: &Connection, key: &Key) -> rusqlite::Result<Option<(LogPosition, bool)>> {
    let mut select = connection.prepare_cached("SELECT place, live FROM latest WHERE key = ?1")?;
    select.query_row([&key[..]], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// Reads the value of an existing key. Its log row must exist; a missing row is damage.
pub(super) fn read_entry(connection: &Connection, key: &Key, position: LogPosition) -> rusqlite::Result<StoreEntry> {
    let mut select = connection.prepare_cached("SELECT value FROM log WHERE place = ?1")?;
    let value = select.query_row([position], |row| Ok(Bytes::copy_from_slice(row.get_ref(0)?.as_blob()?)))?;
    Ok(StoreEntry { key: key.clone(), value, revision: position.revision() })
}
