//! What the file holds, and how a connection to it is set up.
//!
//! `log` has one row per change and is only ever appended to, until compaction removes what was overwritten. `latest`
//! points from every key to its newest change, also from keys that are gone, until compaction has forgotten that they were
//! there. Each change points to the one before it of the same key, so an old state needs no index on `log`: go from
//! `latest` back to the first change that is old enough.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags};

use std::path::Path;
use std::time::Duration;

use crate::Revision;

/// Marks a file as ours: "unsk" in ASCII, in the header field that SQLite keeps for this.
pub(super) const APPLICATION_ID: i32 = 0x756e_736b;

/// The layout that this program writes. A file with a higher number was written by a newer one.
pub(super) const SCHEMA_VERSION: i32 = 1;

/// The revision of an empty store, as in etcd; the first write is one more.
pub(super) const FIRST_REVISION: Revision = Revision(1);

/// As many as etcd takes by default; also what fits in the low bits of a [`LogPosition`].
pub(super) const OPS_MAX: usize = 128;

pub(super) const CREATE_TABLES: &str = "
    CREATE TABLE log (
        place    INTEGER PRIMARY KEY,   -- revision << 7 | number of the change in its transaction
        previous INTEGER,               -- place of the change before it of the same key
        key      BLOB NOT NULL,
        value    BLOB                   -- NULL: the key was removed
    ) STRICT;
    CREATE TABLE latest (
        key      BLOB NOT NULL PRIMARY KEY,
        place    INTEGER NOT NULL,
        live     INTEGER NOT NULL,      -- 0: the key was removed
        ttl      INTEGER,               -- milliseconds
        deadline INTEGER                -- milliseconds since the boot that state.boot names
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX due ON latest (deadline) WHERE deadline IS NOT NULL;
    CREATE TABLE state (
        one       INTEGER PRIMARY KEY CHECK (one = 1),
        compacted INTEGER NOT NULL,     -- the oldest revision that can be read; 0: all
        swept     INTEGER NOT NULL,     -- compaction has seen to every change before this place
        sweeps    INTEGER NOT NULL,     -- counts the steps of compactions, to show that somebody is at it
        boot      TEXT NOT NULL
    ) STRICT;
";

/// Where a change is in the log: its revision, then its number within the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogPosition(i64);

impl LogPosition {
    const OP_INDEX_BITS: u32 = 7;

    pub(super) fn new(revision: Revision, op_index: usize) -> Self {
        debug_assert!(op_index < OPS_MAX, "a transaction has at most {OPS_MAX} changes");
        Self((revision.0 << Self::OP_INDEX_BITS) as i64 | op_index as i64)
    }

    /// The place that no change of `revision` comes before.
    pub(super) fn start_of(revision: Revision) -> Self {
        Self::new(revision, 0)
    }

    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub(super) fn revision(self) -> Revision {
        Revision((self.0 >> Self::OP_INDEX_BITS) as u64)
    }
}

impl ToSql for LogPosition {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for LogPosition {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let place = value.as_i64()?;
        if place < 0 { Err(FromSqlError::OutOfRange(place)) } else { Ok(Self(place)) }
    }
}

/// Whether an acknowledged write survives the loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It does: every commit waits for the disk. What servers use.
    Full,
    /// It may not. Only for the test that proves that the power-loss test notices.
    Unsynced,
}

/// A connection that writes. It waits for SQLite's own locks as long as `wait`: our writers take turns before they ask for
/// them, so only a foreign program (a backup, the `sqlite3` tool) makes it wait at all.
pub(super) fn connect(path: &Path, durability: Durability, busy_timeout: Duration) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(32);
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Unsynced => "OFF",
    };
    // Checkpoints are the keeper's work: a writer that stumbles into one answers late. The cache, in KiB, holds `latest` of
    // some hundred thousand keys.
    connection.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -8192;
         PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY;"
    ))?;
    Ok(connection)
}

/// A connection that only reads.
pub(super) fn connect_reader(path: &Path, busy_timeout: Duration) -> rusqlite::Result<Connection> {
    let connection = connect(path, Durability::Full, busy_timeout)?;
    connection.execute_batch("PRAGMA query_only = ON")?;
    Ok(connection)
}
