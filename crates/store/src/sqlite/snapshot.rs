//! One moment of the store, in one short read transaction.
//!
//! The moment is never newer than the revision file says, so that whatever is read here, every process will agree that it
//! has happened. Where SQLite is already ahead (a commit is between its last two steps, or its process died there), the
//! state is read as it was.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::sqlite::fault::{SqliteFault, damaged_error};
use crate::sqlite::reader_pool::SqliteReader;
use crate::sqlite::schema::{FIRST_REVISION, LogPosition};
use crate::{Error, Key, Revision, StoreEntry};

/// A commit that compacts up to itself hides, for the time between its last two steps, the only state that may be shown.
/// Another process repairs the revision file within a poll, so a second is plenty.
const OPEN_ATTEMPTS_MAX: usize = 1_000;
const OPEN_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct ReadSnapshot<'a> {
    connection: &'a Connection,
    /// The newest revision that may be shown.
    pub(super) visible_revision: Revision,
    /// The newest revision that SQLite shows.
    pub(super) committed_revision: Revision,
    /// The oldest revision that can be read.
    pub(super) compacted_revision: Revision,
}

impl<'a> ReadSnapshot<'a> {
    pub(super) fn open(reader: &'a SqliteReader) -> Result<Self, SqliteFault> {
        for _ in 0..OPEN_ATTEMPTS_MAX {
            let snapshot = Self::open_once(reader)?;
            if snapshot.visible_revision >= snapshot.compacted_revision {
                return Ok(snapshot);
            }
            drop(snapshot);
            std::thread::sleep(OPEN_PAUSE);
        }
        let reason = "a process stopped in the middle of a compaction; continue or end it".to_owned();
        Err(Error::Unavailable { reason }.into())
    }

    fn open_once(reader: &'a SqliteReader) -> Result<Self, SqliteFault> {
        let SqliteReader { connection, revision_file: revisions, path, file_guard: opened } = reader;
        opened.last_check()?;
        // The file first: a commit is in the database before it is in the file.
        let shown = revisions.read()?;
        connection.prepare_cached("BEGIN")?.raw_execute()?;
        let mut snapshot =
            Self { connection, visible_revision: shown, committed_revision: shown, compacted_revision: Revision(0) };
        (snapshot.committed_revision, snapshot.compacted_revision) = revision_bounds(connection)?;
        if snapshot.committed_revision < shown {
            let what =
                format!("it is at revision {}, but revision {shown} was acknowledged", snapshot.committed_revision);
            return Err(damaged_error(path, &what).into());
        }
        if snapshot.committed_revision > shown {
            snapshot.visible_revision = revisions.read()?.min(snapshot.committed_revision);
        }
        Ok(snapshot)
    }

    /// The revision to read at, if it can be read.
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
        // Two statements, not a join: they measure half again as fast.
        let Some((place, is_live)) = latest_position(self.connection, key)? else { return Ok(None) };
        if place.revision() > at {
            return self.entry_before(key, place, at);
        }
        if is_live { read_entry(self.connection, key, place).map(Some) } else { Ok(None) }
    }

    /// What a key held at `at`, from a row of its newest place, whether it is live, and its newest value.
    pub(super) fn entry_at(&self, row: &Row<'_>, key: Key, at: Revision) -> rusqlite::Result<Option<StoreEntry>> {
        let place: LogPosition = row.get(0)?;
        if place.revision() > at {
            return self.entry_before(&key, place, at);
        }
        if !row.get::<_, bool>(1)? {
            return Ok(None);
        }
        let value = Bytes::copy_from_slice(row.get_ref(2)?.as_blob()?);
        Ok(Some(StoreEntry { key, value, revision: place.revision() }))
    }

    /// The entry that a key had at `at`, before its change at `place`.
    fn entry_before(&self, key: &Key, position: LogPosition, at: Revision) -> rusqlite::Result<Option<StoreEntry>> {
        let Some(place) = self.position_before(position, at)? else { return Ok(None) };
        let mut select = self.connection.prepare_cached("SELECT value FROM log WHERE place = ?1")?;
        // No row: it was a removal, and compaction has forgotten it.
        let value = select.query_row([place], |row| Ok(row.get_ref(0)?.as_blob_or_null()?.map(Bytes::copy_from_slice)));
        let entry = |value| StoreEntry { key: key.clone(), value, revision: place.revision() };
        Ok(value.optional()?.flatten().map(entry))
    }

    /// Whether a key was there at `at`, before its change at `place`.
    pub(super) fn was_live_before(&self, position: LogPosition, at: Revision) -> rusqlite::Result<bool> {
        let Some(place) = self.position_before(position, at)? else { return Ok(false) };
        let mut select = self.connection.prepare_cached("SELECT value IS NOT NULL FROM log WHERE place = ?1")?;
        Ok(select.query_row([place], |row| row.get(0)).optional()?.unwrap_or(false))
    }

    /// Goes back to the newest change of the same key that is not after `at`.
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
        // Ending a read cannot lose anything; if it fails, the connection's next BEGIN says so.
        let _ = self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.raw_execute());
    }
}

/// The revision of the newest change.
pub(super) fn newest_revision(connection: &Connection) -> rusqlite::Result<Revision> {
    let mut select = connection.prepare_cached("SELECT max(place) FROM log")?;
    let place: Option<LogPosition> = select.query_row([], |row| row.get(0))?;
    Ok(place.map_or(FIRST_REVISION, LogPosition::revision))
}

/// The revision of the newest change, and the oldest one that can still be read.
fn revision_bounds(connection: &Connection) -> rusqlite::Result<(Revision, Revision)> {
    let mut select = connection.prepare_cached("SELECT (SELECT max(place) FROM log), compacted FROM state")?;
    select.query_row([], |row| {
        let newest: Option<LogPosition> = row.get(0)?;
        Ok((newest.map_or(FIRST_REVISION, LogPosition::revision), row.get(1).map(Revision)?))
    })
}

/// The oldest revision that can still be read.
pub(super) fn compacted_revision(connection: &Connection) -> rusqlite::Result<Revision> {
    let mut select = connection.prepare_cached("SELECT compacted FROM state")?;
    select.query_row([], |row| row.get(0).map(Revision))
}

/// Where the newest change of a key is, and whether it is there since.
pub(super) fn latest_position(connection: &Connection, key: &Key) -> rusqlite::Result<Option<(LogPosition, bool)>> {
    let mut select = connection.prepare_cached("SELECT place, live FROM latest WHERE key = ?1")?;
    select.query_row([&key[..]], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// What a key that is there holds. Its row is always in the log; that there is none would be damage.
pub(super) fn read_entry(connection: &Connection, key: &Key, position: LogPosition) -> rusqlite::Result<StoreEntry> {
    let mut select = connection.prepare_cached("SELECT value FROM log WHERE place = ?1")?;
    let value = select.query_row([position], |row| Ok(Bytes::copy_from_slice(row.get_ref(0)?.as_blob()?)))?;
    Ok(StoreEntry { key: key.clone(), value, revision: position.revision() })
}
