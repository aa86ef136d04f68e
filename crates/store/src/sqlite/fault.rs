//! Conversion of SQLite and file errors into store errors.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::Error;

/// A failure of an operation on the store's files.
#[derive(Debug)]
pub(super) enum SqliteFault {
    Sqlite(rusqlite::Error),
    /// An error of a side file.
    File(io::Error),
    Store(Error),
}

impl From<rusqlite::Error> for SqliteFault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<io::Error> for SqliteFault {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<Error> for SqliteFault {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl SqliteFault {
    /// The store error for an operation that changed nothing.
    pub(super) fn into_error(self, path: &Path) -> Error {
        match self {
            Self::Sqlite(error) => sqlite_error(path, &error),
            Self::File(error) => Error::Unavailable { reason: format!("beside {}: {error}", path.display()) },
            Self::Store(error) => error,
        }
    }

    /// The store error after COMMIT itself failed. A full disk stops the commit before its last frame is written, so
    /// nothing was committed; after other errors the frame may be on disk, and crash recovery may bring it back.
    pub(super) fn into_commit_error(self, path: &Path) -> Error {
        let is_certain = match &self {
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseCorrupt)
            ),
            Self::File(_) => false,
            Self::Store(_) => true,
        };
        match (is_certain, self.into_error(path)) {
            (false, Error::Unavailable { reason }) => Error::OutcomeUnknown { reason },
            (_, error) => error,
        }
    }
}

fn sqlite_error(path: &Path, error: &rusqlite::Error) -> Error {
    let file = path.display();
    let unavailable = |what: &str| Error::Unavailable { reason: format!("{file}: {what} ({error})") };
    let Some(code) = error.sqlite_error_code() else {
        return damaged_error(path, &error.to_string());
    };
    match code {
        ErrorCode::DiskFull => unavailable("the disk is full; free space on its file system"),
        ErrorCode::SystemIoFailure => unavailable("reading or writing it failed; check the disk and the kernel log"),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => {
            unavailable("it is no longer writable; check its permissions and whether its file system is read-only")
        }
        ErrorCode::CannotOpen => unavailable("it can no longer be opened; check that its folder still exists"),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            unavailable("another program holds its lock; end backups and `sqlite3` sessions on it")
        }
        ErrorCode::OutOfMemory => unavailable("SQLite is out of memory"),
        ErrorCode::OperationInterrupted | ErrorCode::OperationAborted => unavailable("the operation was interrupted"),
        ErrorCode::DatabaseCorrupt
        | ErrorCode::NotADatabase
        | ErrorCode::InternalMalfunction
        | ErrorCode::NotFound
        | ErrorCode::SchemaChanged
        | ErrorCode::TooBig
        | ErrorCode::ConstraintViolation
        | ErrorCode::TypeMismatch
        | ErrorCode::ApiMisuse
        | ErrorCode::NoLargeFileSupport
        | ErrorCode::AuthorizationForStatementDenied
        | ErrorCode::ParameterOutOfRange
        | ErrorCode::Unknown => damaged_error(path, &error.to_string()),
        // The enum is non-exhaustive: an unknown code is not known to be harmless.
        _ => damaged_error(path, &error.to_string()),
    }
}

/// The error for inconsistent stored data.
pub(super) fn damaged_error(path: &Path, what: &str) -> Error {
    let file = path.display();
    let reason = format!(
        "{file}: {what}. Nothing was overwritten. Stop every server that uses it, keep a copy of it and its -wal, and restore a \
         backup, or save what can be read with `sqlite3 {file} .recover`"
    );
    Error::Damaged { reason }
}
