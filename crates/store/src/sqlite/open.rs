//! Opening a database file: checks that it is an intact store, or creates one.
//!
//! All checks come before the first write, and a file that is not a store of unskew is opened read-only.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::sqlite::clock::Clock;
use crate::sqlite::config::Config;
use crate::sqlite::file_system::network_file_system;
use crate::sqlite::files::{self, StoreFiles};
use crate::sqlite::schema::{APPLICATION_ID, CREATE_TABLES, SCHEMA_VERSION, connect};
use crate::sqlite::write_transaction::restart_deadlines;

/// Older versions damage files that several processes write: the WAL-reset bug, fixed in 3.51.3.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// SQLite's code for incremental vacuum, which returns free pages to the file system a few at a time.
const AUTO_VACUUM_INCREMENTAL: i64 = 2;

/// The largest file to check at start, about a second of work. Damage in a larger file is found when it is read.
const CHECKED_BYTES_MAX: u64 = 256 << 20;

/// A store that cannot be opened. The file is left unchanged.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The linked SQLite has a bug that damages shared files.
    #[error(
        "SQLite {version} damages files that several servers share; build with its bundled SQLite, at least 3.51.3"
    )]
    SqliteTooOld {
        /// The linked version.
        version: &'static str,
    },
    /// The folder is missing or unusable.
    #[error("the folder of {path} cannot be used ({source}); create it, writable by this server's user alone")]
    UnusableFolder {
        /// The database file.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The file is on a network file system.
    #[error(
        "{path} is on a network file system ({file_system}), where SQLite loses data when servers share it; put it on a local \
         disk, or use etcd with --etcd-servers"
    )]
    NetworkFileSystem {
        /// The database file.
        path: PathBuf,
        /// The type of the file system.
        file_system: String,
    },
    /// The file is not writable.
    #[error("{path} cannot be written ({reason}); give this server's user the right to write to it and its folder")]
    ReadOnly {
        /// The file that cannot be written.
        path: PathBuf,
        /// The system's or SQLite's error text.
        reason: String,
    },
    /// The disk is full.
    #[error("the disk of {path} is full; free some space")]
    DiskFull {
        /// The database file.
        path: PathBuf,
    },
    /// The file was not created by unskew.
    #[error("{path} is not a store of unskew: {what}; it was not changed; choose another file")]
    NotAStore {
        /// The database file.
        path: PathBuf,
        /// What was found in the file.
        what: String,
    },
    /// The file has the format of a newer unskew.
    #[error(
        "{path} was written by a newer unskew: its format is {found}, and this one knows formats up to {known}; run the newer one"
    )]
    NewerFormat {
        /// The database file.
        path: PathBuf,
        /// The format of the file.
        found: i32,
        /// The newest format that this program knows.
        known: i32,
    },
    /// The file is damaged.
    #[error(
        "{path} is damaged: {what}; it was not changed; keep a copy of it and its -wal, then restore a backup, or save what can \
         be read with `sqlite3 {path} .recover`"
    )]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What SQLite found.
        what: String,
    },
    /// Another process holds the write lock or SQLite's lock.
    #[error("{path} is in use: {what}")]
    Busy {
        /// The database file.
        path: PathBuf,
        /// The holder, and what to do.
        what: String,
    },
    /// Any other system error.
    #[error("{path}: {source}")]
    System {
        /// The file that the error is about.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// Any other SQLite error.
    #[error("{path}: {source}")]
    Sqlite {
        /// The database file.
        path: PathBuf,
        /// The SQLite error.
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// Classifies an I/O error on `path`.
    pub(super) fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        let is_one_of = |kinds: [io::ErrorKind; 2]| kinds.contains(&source.kind());
        if is_one_of([io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem]) {
            Self::ReadOnly { path, reason: source.to_string() }
        } else if is_one_of([io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded]) {
            Self::DiskFull { path }
        } else {
            Self::System { path, source }
        }
    }

    /// Classifies a SQLite error on the database at `path`.
    pub(super) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotAStore { path, what: "it is not an SQLite database".to_owned() },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, what: source.to_string() },
            Some(ErrorCode::DiskFull) => Self::DiskFull { path },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                Self::ReadOnly { path, reason: source.to_string() }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy {
                path,
                what: "another program holds its lock; end backups and `sqlite3` sessions on it".to_owned(),
            },
            _ => Self::Sqlite { path, source },
        }
    }
}

/// Resolves the canonical path, so that all processes use the same files, and rejects network file systems.
pub(super) fn locate_files(path: &Path) -> Result<StoreFiles, OpenError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(OpenError::SqliteTooOld { version: rusqlite::version() });
    }
    let folder_error = |source| OpenError::UnusableFolder { path: path.to_owned(), source };
    let no_name = || folder_error(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
    let name = path.file_name().ok_or_else(no_name)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    let database = match path.canonicalize() {
        Ok(database) => database,
        Err(_) => folder.canonicalize().map_err(folder_error)?.join(name),
    };
    let folder = database.parent().unwrap_or(Path::new("/"));
    if let Some(file_system) = network_file_system(folder).map_err(folder_error)? {
        return Err(OpenError::NetworkFileSystem { path: database, file_system });
    }
    Ok(StoreFiles::for_database(&database))
}

/// Checks that the file is a store of a known format, creating it if it is empty. Requires the write lock.
pub(super) fn prepare_database(path: &Path, config: &Config) -> Result<Connection, OpenError> {
    files::create_if_missing(path).map_err(|source| OpenError::from_io(path, source))?;
    let sqlite = |source| OpenError::from_sqlite(path, source);
    let contents = inspect(path)?;
    let connection = connect(path, config.durability, config.write_lock_timeout).map_err(sqlite)?;
    if connection.is_readonly("main").map_err(sqlite)? {
        let reason = "the file system or the file's permissions do not allow it".to_owned();
        return Err(OpenError::ReadOnly { path: path.to_owned(), reason });
    }
    let system = |source| OpenError::System { path: path.to_owned(), source };
    let boot = config.clock.boot_id().map_err(system)?;
    match contents {
        FileContents::Empty => {
            create_schema(&connection, &boot).map_err(sqlite)?;
            sync_folder(path).map_err(system)?;
        }
        FileContents::Store => reset_deadlines_after_reboot(&connection, &boot, &*config.clock).map_err(sqlite)?,
    }
    Ok(connection)
}

/// Checks the whole file for damage, up to a size of [`CHECKED_BYTES_MAX`].
pub(super) fn check_integrity(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::from_sqlite(path, source);
    let size = path.metadata().map_err(|source| OpenError::from_io(path, source))?.len();
    if size > CHECKED_BYTES_MAX {
        return Ok(());
    }
    let what: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(sqlite)?;
    if what == "ok" { Ok(()) } else { Err(OpenError::Damaged { path: path.to_owned(), what }) }
}

pub(super) enum FileContents {
    Empty,
    Store,
}

/// Classifies the file over a read-only connection.
fn inspect(path: &Path) -> Result<FileContents, OpenError> {
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, read_only).map_err(|source| OpenError::from_sqlite(path, source))?;
    classify_contents(path, &connection)
}

/// An error if the database is not a store of a format that this program knows.
pub(super) fn classify_contents(path: &Path, connection: &Connection) -> Result<FileContents, OpenError> {
    let sqlite = |source| OpenError::from_sqlite(path, source);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0)).map_err(sqlite);
    let application = number("PRAGMA application_id")?;
    let format = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if (application, format, tables) == (0, 0, 0) {
        return Ok(FileContents::Empty);
    }
    if application != APPLICATION_ID {
        let what =
            format!("it is an SQLite database with application_id {application:#x} and {tables} tables and indexes");
        return Err(OpenError::NotAStore { path: path.to_owned(), what });
    }
    if format > SCHEMA_VERSION {
        return Err(OpenError::NewerFormat { path: path.to_owned(), found: format, known: SCHEMA_VERSION });
    }
    Ok(FileContents::Store)
}

fn create_schema(connection: &Connection, boot: &str) -> rusqlite::Result<()> {
    // Must be set before the first table; later SQLite silently ignores it. An existing empty database needs a VACUUM.
    connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL")?;
    if connection.query_row("PRAGMA auto_vacuum", [], |row| row.get::<_, i64>(0))? != AUTO_VACUUM_INCREMENTAL {
        connection.execute_batch("VACUUM")?;
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    connection.execute_batch(CREATE_TABLES)?;
    connection.execute("INSERT INTO state (one, compacted, swept, sweeps, boot) VALUES (1, 0, 0, 0, ?1)", [boot])?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
}

fn reset_deadlines_after_reboot(connection: &Connection, boot: &str, clock: &dyn Clock) -> rusqlite::Result<()> {
    // The mode is stored in the file, so this matters only if another program changed it.
    connection.execute_batch("PRAGMA journal_mode = WAL")?;
    let last: String = connection.query_row("SELECT boot FROM state", [], |row| row.get(0))?;
    if last == boot {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    restart_deadlines(&transaction, boot, clock.since_boot())?;
    transaction.commit()
}

/// The name of a new file is durable only after its folder is synced.
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
