//! Opening a file: ours, and whole, or not at all.
//!
//! Everything is looked at before anything is written, and a file that is not known to be ours is only ever read.

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

/// Older ones damage files that several processes write: the WAL-reset bug, fixed in 3.51.3.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// As SQLite numbers it: free pages can be given back to the file system, a few at a time.
const AUTO_VACUUM_INCREMENTAL: i64 = 2;

/// About a second of checking. In a larger file damage is found when it is read.
const CHECKED_BYTES_MAX: u64 = 256 << 20;

/// Why a store cannot be opened. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The SQLite that was linked has a bug that damages shared files.
    #[error(
        "SQLite {version} damages files that several servers share; build with its bundled SQLite, at least 3.51.3"
    )]
    SqliteTooOld {
        /// What was linked.
        version: &'static str,
    },
    /// The folder is missing.
    #[error("the folder of {path} cannot be used ({source}); create it, writable by this server's user alone")]
    UnusableFolder {
        /// The database.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is on a network file system.
    #[error(
        "{path} is on a network file system ({file_system}), where SQLite loses data when servers share it; put it on a local \
         disk, or use etcd with --etcd-servers"
    )]
    NetworkFileSystem {
        /// The database.
        path: PathBuf,
        /// What kind.
        file_system: String,
    },
    /// It cannot be written.
    #[error("{path} cannot be written ({reason}); give this server's user the right to write to it and its folder")]
    ReadOnly {
        /// The file that cannot be written.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// There is no room.
    #[error("the disk of {path} is full; free some space")]
    DiskFull {
        /// The database.
        path: PathBuf,
    },
    /// Somebody else's file.
    #[error("{path} is not a store of unskew: {what}; it was left as it is; choose another file")]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// How we know.
        what: String,
    },
    /// A store, but from the future.
    #[error(
        "{path} was written by a newer unskew: its format is {found}, and this one knows formats up to {known}; run the newer one"
    )]
    NewerFormat {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: i32,
        /// The newest format that this program knows.
        known: i32,
    },
    /// A store, but damaged.
    #[error(
        "{path} is damaged: {what}; it was left as it is; keep a copy of it and its -wal, then restore a backup, or save what can \
         be read with `sqlite3 {path} .recover`"
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What SQLite found.
        what: String,
    },
    /// Another process does not let go of it.
    #[error("{path} is in use: {what}")]
    Busy {
        /// The database.
        path: PathBuf,
        /// By whom.
        what: String,
    },
    /// Something else that the system does not let us do.
    #[error("{path}: {source}")]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else that SQLite does not let us do.
    #[error("{path}: {source}")]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// What a file operation on `path` meant by its error.
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

    /// What SQLite meant by its error about the database at `path`.
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

/// Where the database really is, so that all processes put the same files beside it, and whether it may be there.
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

/// Makes sure that the file is a whole store of ours, creating it where there is nothing. Only in a turn.
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

/// Reads the whole file once for damage, if it is small enough.
pub(super) fn check_integrity(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::from_sqlite(path, source);
    let size = path.metadata().map_err(|source| OpenError::from_io(path, source))?.len();
    if size > CHECKED_BYTES_MAX {
        return Ok(());
    }
    let what: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(sqlite)?;
    if what == "ok" { Ok(()) } else { Err(OpenError::Damaged { path: path.to_owned(), what }) }
}

enum FileContents {
    Empty,
    Store,
}

/// Finds out what the file is, without the right to change it.
fn inspect(path: &Path) -> Result<FileContents, OpenError> {
    let sqlite = |source| OpenError::from_sqlite(path, source);
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, read_only).map_err(sqlite)?;
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
    // Before the first table: afterwards SQLite would ignore it without a word. Somebody's empty database needs more.
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
    // It is kept in the file, so this only matters where another program changed it.
    connection.execute_batch("PRAGMA journal_mode = WAL")?;
    let last: String = connection.query_row("SELECT boot FROM state", [], |row| row.get(0))?;
    if last == boot {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    restart_deadlines(&transaction, boot, clock.since_boot())?;
    transaction.commit()
}

/// The name of a new file is only durable with its folder.
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
