//! Reading a whole prefix without being a server: for tools that look at a store and never change it.
//!
//! A store in use has a `-wal` file: it is read like a reader of a server does, in short transactions at one revision. A
//! store that nothing uses has none, and is opened as immutable, so that not even SQLite's own files appear beside it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::sqlite::OpenError;
use crate::sqlite::files::StoreFiles;
use crate::sqlite::open::{FileContents, classify_contents};
use crate::sqlite::range::{ChunkEnd, RangeReader};
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::snapshot::ReadSnapshot;
use crate::{Error, Key, KeyRange, Revision, StoreEntry};

/// The wait for SQLite's own locks, which are held for moments during recovery and checkpoints.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A read of all entries below a prefix, at one revision, in chunks of a few megabytes. Calls block.
#[derive(Debug)]
pub struct SqliteScan {
    connection: Connection,
    /// `None` for a copy of the database without the files beside it.
    revision_file: Option<RevisionFile>,
    path: PathBuf,
    /// The WAL that must not appear while the database is read as immutable.
    absent_wal: Option<PathBuf>,
    reading: RangeReader,
    revision: Revision,
    total: u64,
    is_complete: bool,
}

impl SqliteScan {
    /// Opens the file read-only; the scan reads the current revision throughout.
    pub fn open(path: &Path, prefix: impl Into<Key>) -> Result<Self, OpenError> {
        let system_error = |source| OpenError::System { path: path.to_owned(), source };
        let database = path.canonicalize().map_err(system_error)?;
        let files = StoreFiles::for_database(&database);
        let is_in_use = files.wal.exists();
        let connection = connect_read_only(&database, is_in_use).map_err(|error| open_error(&database, error))?;
        if let FileContents::Empty = classify_contents(&database, &connection)? {
            return Err(OpenError::NotAStore { path: database, what: "it is an empty SQLite database".to_owned() });
        }
        let revision_file = match RevisionFile::open_read_only(&files.revision) {
            // Without a WAL no server has the store open: it may be a copy with an outdated revision file.
            Ok(revisions) => Some(revisions).filter(|_| is_in_use),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(OpenError::System { path: files.revision, source }),
        };
        let mut scan = Self {
            connection,
            revision_file,
            path: database,
            absent_wal: (!is_in_use).then_some(files.wal),
            reading: RangeReader::new(&KeyRange::prefix(prefix)),
            revision: Revision(0),
            total: 0,
            is_complete: false,
        };
        (scan.revision, scan.total) = scan.revision_and_total().map_err(|error| scan.open_error(&error))?;
        Ok(scan)
    }

    /// The revision of the state that is read.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The number of entries below the prefix.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The next entries in the order of keys; `None` after the last. [`Error::Compacted`] if a server compacted the
    /// revision meanwhile: scan again.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<StoreEntry>>, Error> {
        if self.is_complete {
            return Ok(None);
        }
        let Self { connection, revision_file, path, reading, revision, .. } = self;
        let end = ReadSnapshot::open_unguarded(connection, revision_file.as_ref(), path).and_then(|snapshot| {
            snapshot.check_readable(Some(*revision))?;
            Ok(reading.read_chunk(&snapshot, *revision)?)
        });
        self.is_complete = matches!(end.map_err(|fault| fault.into_error(&self.path))?, ChunkEnd::Last);
        if self.absent_wal.as_ref().is_some_and(|wal| wal.exists()) {
            let reason = format!("a server opened {} while it was read as unused; read it again", self.path.display());
            return Err(Error::Unavailable { reason });
        }
        Ok(Some(std::mem::take(&mut self.reading.entries)))
    }

    fn revision_and_total(&self) -> Result<(Revision, u64), Error> {
        let fault = |fault: crate::sqlite::fault::SqliteFault| fault.into_error(&self.path);
        let snapshot = ReadSnapshot::open_unguarded(&self.connection, self.revision_file.as_ref(), &self.path);
        let snapshot = snapshot.map_err(fault)?;
        let revision = snapshot.check_readable(None)?;
        let total = self.reading.count_remaining(&snapshot, revision).map_err(|error| fault(error.into()))?;
        Ok((revision, total))
    }

    fn open_error(&self, error: &Error) -> OpenError {
        OpenError::System { path: self.path.clone(), source: io::Error::other(error.to_string()) }
    }
}

fn connect_read_only(database: &Path, is_in_use: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match is_in_use {
        true => Connection::open_with_flags(database, flags)?,
        false => {
            let uri = format!("file:{}?immutable=1", percent_encode(database.as_os_str()));
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?
        }
    };
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")?;
    Ok(connection)
}

/// The errors of opening for writing speak of writing, which a scan does not do.
fn open_error(path: &Path, error: rusqlite::Error) -> OpenError {
    let error = OpenError::from_sqlite(path, error);
    if let OpenError::ReadOnly { path, reason } = error {
        return OpenError::System { path, source: io::Error::other(reason) };
    }
    error
}

fn percent_encode(path: &OsStr) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => encoded.push(char::from(*byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}
