//! The files of a store: the database, SQLite's files beside it, and ours.
//!
//! This module never opens the database, `-wal` or `-shm` except to create an empty file: SQLite's POSIX locks belong
//! to the process, and closing any descriptor of these files would release them.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::Error;

/// Accessible to the owner alone: values may be secrets.
const FILE_MODE: u32 = 0o600;

#[derive(Clone, Debug)]
pub(super) struct StoreFiles {
    /// The path of the database as configured, made canonical.
    pub(super) database: PathBuf,
    /// Holds the newest visible revision; a lock on it elects the maintenance process.
    pub(super) revision: PathBuf,
    /// A lock on this file is the write lock.
    pub(super) write_lock: PathBuf,
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

/// Opens a side file, creating it if it is missing.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)
}

/// Creates an empty file if there is none. Requires the write lock: the descriptor must be closed before SQLite locks
/// the file.
pub(super) fn create_if_missing(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Detects that an opened file was removed or replaced. A process that writes to a deleted file, or locks a lock file
/// that the other processes do not see, must stop.
#[derive(Debug)]
pub(super) struct FileGuard {
    files: Vec<(PathBuf, FileId)>,
    failure: OnceLock<Error>,
}

/// Device and inode numbers.
type FileId = (u64, u64);

impl FileGuard {
    /// Records the identity of the files, which must exist.
    pub(super) fn new(files: &StoreFiles) -> io::Result<Self> {
        let with_id = |path: &PathBuf| Ok((path.clone(), file_id(path)?));
        let files = [&files.database, &files.revision, &files.write_lock].map(with_id);
        Ok(Self { files: files.into_iter().collect::<io::Result<_>>()?, failure: OnceLock::new() })
    }

    /// Compares the files with their recorded identity. Once it has failed it fails forever.
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

    /// The result of the last [`Self::check_unreplaced`].
    pub(super) fn last_check(&self) -> Result<(), Error> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

fn file_id(path: &Path) -> io::Result<FileId> {
    let metadata = path.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}
