//! The files of a store: the database, what SQLite puts beside it, and what we put beside it.
//!
//! The database and its `-wal` and `-shm` are never opened here, only named and looked at: SQLite's locks belong to the
//! process, and closing any descriptor of such a file would drop them.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::Error;

/// Readable and writable by the owner alone: the values are secrets, too.
const FILE_MODE: u32 = 0o600;

#[derive(Clone, Debug)]
pub(super) struct StoreFiles {
    /// The database, as configured.
    pub(super) database: PathBuf,
    /// The newest revision that is shown; its lock elects the keeper.
    pub(super) revision: PathBuf,
    /// Whose lock is the turn to write.
    pub(super) write_lock: PathBuf,
    /// SQLite's write-ahead log.
    pub(super) wal: PathBuf,
}

impl StoreFiles {
    pub(super) fn for_database(database: &Path) -> Self {
        let with = |suffix: &str| {
            let mut name = OsString::from(database);
            name.push(suffix);
            PathBuf::from(name)
        };
        Self { database: database.to_owned(), revision: with(".rev"), write_lock: with(".lock"), wal: with("-wal") }
    }
}

/// Opens a side file, and creates it where it is missing.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)
}

/// Creates an empty file if there is none. Only in a turn: the descriptor must be closed before SQLite locks the file.
pub(super) fn create_if_missing(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The files that were opened, to notice that somebody put others in their place. A process that writes into a removed
/// file, or takes turns at a lock that the others do not see, must not go on.
#[derive(Debug)]
pub(super) struct FileGuard {
    files: Vec<(PathBuf, FileId)>,
    failure: OnceLock<Error>,
}

/// What makes a file the same file, whatever its name.
type FileId = (u64, u64);

impl FileGuard {
    /// All of them must exist.
    pub(super) fn new(files: &StoreFiles) -> io::Result<Self> {
        let with_id = |path: &PathBuf| Ok((path.clone(), file_id(path)?));
        let files = [&files.database, &files.revision, &files.write_lock].map(with_id);
        Ok(Self { files: files.into_iter().collect::<io::Result<_>>()?, failure: OnceLock::new() })
    }

    /// Looks whether they are still there. Once they were not, this fails for ever.
    pub(super) fn check_unreplaced(&self) -> Result<(), Error> {
        let is_gone = |(path, id): &&(PathBuf, FileId)| file_id(path).ok() != Some(*id);
        if let Some((path, _)) = self.files.iter().find(is_gone) {
            let reason = format!(
                "{} was removed or replaced while servers use it. Stop every server that uses the store, put the right files in \
                 place, and start again",
                path.display()
            );
            let _ = self.failure.set(Error::Damaged { reason });
        }
        self.last_check()
    }

    /// What the last look found.
    pub(super) fn last_check(&self) -> Result<(), Error> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

fn file_id(path: &Path) -> io::Result<FileId> {
    let metadata = path.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}
