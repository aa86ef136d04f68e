//! The tables of the database, and the setup of connections.
//!
//! `log` has one row per change and is append-only until compaction deletes superseded rows. `latest` points from every
//! key to its newest change, including deleted keys until compaction removes them. Each change points to the previous
//! change of the same key, so reading an old state needs no index on `log`: it follows the chain from `latest` back to
//! the first change that is old enough.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags};

use std::path::Path;
use std::time::Duration;

use crate::Revision;

/// Marks a file as a store of unskew: "unsk" in ASCII, in the header field that SQLite reserves for this.
pub(super) const APPLICATION_ID: i32 = 0x756e_736b;

/// The schema that this program writes. A file with a higher number comes from a newer program.
pub(super) const SCHEMA_VERSION: i32 = 1;

/// The revision of an empty store, as in etcd; the first write has the next one.
pub(super) const FIRST_REVISION: Revision = Revision(1);

/// Operations per transaction: etcd's default limit, and what fits into the low bits of a [`LogPosition`].
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
        sweeps    INTEGER NOT NULL,     -- counts the steps of compactions, to detect an abandoned one
        boot      TEXT NOT NULL
    ) STRICT;
";

/// The position of a change in the log: its revision, then its index in the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogPosition(i64);

impl LogPosition {
    const OP_INDEX_BITS: u32 = 7;

    pub(super) fn new(revision: Revision, op_index: usize) -> Self {
        debug_assert!(op_index < OPS_MAX, "a transaction has at most {OPS_MAX} changes");
        Self((revision.0 << Self::OP_INDEX_BITS) as i64 | op_index as i64)
    }

    /// The first possible position of `revision`.
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
        let position = value.as_i64()?;
        if position < 0 { Err(FromSqlError::OutOfRange(position)) } else { Ok(Self(position)) }
    }
}

/// Whether an acknowledged write survives a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It does: every commit waits for the disk. Used by servers.
    Full,
    /// It may not. Only used to prove that the power-loss test detects lost writes.
    Unsynced,
}

/// Opens a writing connection. It waits up to `busy_timeout` for SQLite's own locks: unskew's writers hold the write
/// lock first, so only another program (a backup, the `sqlite3` tool) makes it wait.
pub(super) fn connect(path: &Path, durability: Durability, busy_timeout: Duration) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(32);
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Unsynced => "OFF",
    };
    // The maintenance thread runs checkpoints: one inside a commit would delay its responses. The cache of 8 MiB holds
    // `latest` for some hundred thousand keys.
    connection.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -8192;
         PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY;"
    ))?;
    Ok(connection)
}

/// Opens a read-only connection. It reads ranges and history, mostly each page once, so that it has a small cache.
pub(super) fn connect_reader(path: &Path, busy_timeout: Duration) -> rusqlite::Result<Connection> {
    let connection = connect(path, Durability::Full, busy_timeout)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -1024")?;
    Ok(connection)
}
