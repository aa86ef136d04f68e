//! The data directory of a lab: its file layout and its lock.
//!
//! The kernel releases the lock when the process ends, so a killed lab needs no cleanup before the next start.

pub mod state;

use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use state::LabState;

/// File layout of a lab's data directory; the files need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir(PathBuf);

impl DataDir {
    /// Uses `path`, made absolute.
    pub fn new(path: &Path) -> Self {
        Self(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    }

    /// Absolute path of the data directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Directory of the lab's certificates and keys.
    pub fn pki_dir(&self) -> PathBuf {
        self.0.join("pki")
    }

    /// Database of a lab that stores objects in SQLite.
    pub fn sqlite_file(&self) -> PathBuf {
        self.0.join("store.db")
    }

    /// Data of the etcd that the lab runs.
    pub fn etcd_data_dir(&self) -> PathBuf {
        self.0.join("etcd")
    }

    /// Log of a server by its name, or of `etcd`.
    pub fn log_file(&self, process: &str) -> PathBuf {
        self.0.join("logs").join(format!("{process}.log"))
    }

    /// Administrator's kubeconfig for the load balancer.
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    /// Administrator's kubeconfig for one server, past the load balancer.
    pub fn server_kubeconfig(&self, server: &str) -> PathBuf {
        self.0.join(format!("kubeconfig-{server}"))
    }

    /// Unix socket of the control API.
    pub fn control_socket(&self) -> PathBuf {
        self.0.join("lab.sock")
    }

    fn state_file(&self) -> PathBuf {
        self.0.join("lab.json")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Reads the state of the last run; `None` if no lab was started here yet.
    pub fn read_state(&self) -> Result<Option<LabState>, DataDirError> {
        let file = self.state_file();
        match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| DataDirError::Unreadable { file, reason: error.to_string() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DataDirError::Io { file, source }),
        }
    }

    /// Pid of the process that holds the lock; `None` if the directory is free.
    pub fn lock_holder_pid(&self) -> Option<u32> {
        let mut file = std::fs::File::open(self.lock_file()).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => None,
            Err(_) => {
                let mut text = String::new();
                file.read_to_string(&mut text).ok()?;
                Some(text.trim().parse().unwrap_or_default())
            }
        }
    }
}

/// A data directory whose lock this process holds until drop.
#[derive(Debug)]
pub struct LockedDataDir {
    data_dir: DataDir,
    _lock: std::fs::File,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another lab runs in it.
    #[error(
        "{folder} is in use by the lab of process {pid}: `unskew status` shows it, `unskew down` stops it, \
         --data-dir chooses another folder"
    )]
    Locked {
        /// The data directory.
        folder: PathBuf,
        /// Process that holds the lock; 0 if unknown.
        pid: u32,
    },
    /// The state file is not valid.
    #[error("{file}: {reason}; choose another folder with --data-dir")]
    Unreadable {
        /// The state file.
        file: PathBuf,
        /// The parse error.
        reason: String,
    },
    /// The directory holds files that no lab wrote.
    #[error("{folder} holds files and is not a lab: choose another folder with --data-dir")]
    NotALab {
        /// The data directory.
        folder: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{file}: {source}; --data-dir chooses another folder")]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl LockedDataDir {
    /// Creates the directory with mode 0700 if needed, takes the lock and records this pid in it.
    pub fn lock(data_dir: DataDir) -> Result<Self, DataDirError> {
        let folder = data_dir.path().to_owned();
        let io_error = |file: &Path| {
            let file = file.to_owned();
            move |source| DataDirError::Io { file, source }
        };
        if has_foreign_files(&data_dir) {
            return Err(DataDirError::NotALab { folder });
        }
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder.join("logs")).map_err(io_error(&folder))?;
        let file = data_dir.lock_file();
        let mut open = std::fs::OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = open.open(&file).map_err(io_error(&file))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(DataDirError::Locked { folder, pid: data_dir.lock_holder_pid().unwrap_or_default() });
        }
        let written = lock.set_len(0).and_then(|()| lock.rewind());
        written.and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(io_error(&file))?;
        Ok(Self { data_dir, _lock: lock })
    }

    /// Layout of the locked directory.
    pub fn data_dir(&self) -> &DataDir {
        &self.data_dir
    }

    /// Replaces the state file atomically.
    pub fn write_state(&self, state: &LabState) -> Result<(), DataDirError> {
        let file = self.data_dir.state_file();
        let new = file.with_extension("new");
        let text = serde_json::to_string_pretty(state).expect("state serializes to JSON");
        let written = std::fs::write(&new, text + "\n").and_then(|()| std::fs::rename(&new, &file));
        written.map_err(|source| DataDirError::Io { file, source })
    }

    /// Deletes the directory and everything in it.
    pub fn purge(self) -> Result<(), DataDirError> {
        let file = self.data_dir.path().to_owned();
        std::fs::remove_dir_all(&file).map_err(|source| DataDirError::Io { file, source })
    }
}

/// True if the directory holds files but no lock file, hence was not created by a lab; `purge` would delete them.
fn has_foreign_files(data_dir: &DataDir) -> bool {
    let has_entries = std::fs::read_dir(data_dir.path()).is_ok_and(|mut entries| entries.next().is_some());
    has_entries && !data_dir.lock_file().exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_data_dir_names_the_process_that_holds_it() {
        let base = tempfile::tempdir().unwrap();
        let layout = DataDir::new(&base.path().join("lab"));
        assert_eq!(layout.lock_holder_pid(), None);
        let first = LockedDataDir::lock(layout.clone()).unwrap();
        assert_eq!(layout.lock_holder_pid(), Some(std::process::id()));
        let refused = LockedDataDir::lock(layout.clone()).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(first);
        assert_eq!(layout.lock_holder_pid(), None);
        LockedDataDir::lock(layout).unwrap();
    }

    #[test]
    fn lock_refuses_a_folder_with_foreign_files() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("thesis.txt"), "draft").unwrap();
        let refused = LockedDataDir::lock(DataDir::new(base.path())).unwrap_err().to_string();
        assert!(refused.contains("is not a lab"), "{refused}");
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 1);
    }

    #[test]
    fn lab_state_is_written_read_and_purged() {
        let base = tempfile::tempdir().unwrap();
        let layout = DataDir::new(&base.path().join("lab"));
        assert!(layout.read_state().unwrap().is_none());
        let folder = LockedDataDir::lock(layout.clone()).unwrap();
        let state = state::tests::test_lab_state("a=1.33:7001");
        folder.write_state(&state).unwrap();
        assert_eq!(layout.read_state().unwrap(), Some(state));
        std::fs::write(layout.state_file(), "{").unwrap();
        assert!(layout.read_state().unwrap_err().to_string().contains("lab.json"));
        folder.purge().unwrap();
        assert!(!layout.path().exists());
    }
}
