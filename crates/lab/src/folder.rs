//! The folder of a lab: what is where in it, and who has it.
//!
//! A lock that ends with its process says whether the lab runs; so a lab that was killed needs no cleaning up before the next.

pub mod state;

use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use state::State;

/// Where everything is, whether it is there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(PathBuf);

impl Layout {
    /// A lab in this folder.
    pub fn new(folder: &Path) -> Self {
        Self(std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()))
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Keys and certificates.
    pub fn pki(&self) -> PathBuf {
        self.0.join("pki")
    }

    /// The SQLite file.
    pub fn store(&self) -> PathBuf {
        self.0.join("store.db")
    }

    /// The data of an etcd of our own.
    pub fn etcd(&self) -> PathBuf {
        self.0.join("etcd")
    }

    /// What a process says.
    pub fn log(&self, process: &str) -> PathBuf {
        self.0.join("logs").join(format!("{process}.log"))
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    /// The same, for one server and not for the front door.
    pub fn server_kubeconfig(&self, server: &str) -> PathBuf {
        self.0.join(format!("kubeconfig-{server}"))
    }

    /// Where a running lab is asked and told.
    pub fn socket(&self) -> PathBuf {
        self.0.join("lab.sock")
    }

    fn state(&self) -> PathBuf {
        self.0.join("lab.json")
    }

    fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// What the lab remembers; `None` if there is none.
    pub fn read_state(&self) -> Result<Option<State>, FolderError> {
        let file = self.state();
        match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| FolderError::Unreadable { file, reason: error.to_string() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FolderError::Io { file, source }),
        }
    }

    /// The process that has the folder now, if any.
    pub fn holder(&self) -> Option<u32> {
        let mut file = std::fs::File::open(self.lock()).ok()?;
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

/// A folder that is ours until this is dropped.
#[derive(Debug)]
pub struct Folder {
    layout: Layout,
    _lock: std::fs::File,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another lab runs in it.
    #[error(
        "{folder} is in use by the lab of process {pid}: `unskew status` shows it, `unskew down` stops it, \
         --data-dir chooses another folder"
    )]
    Locked {
        /// Which folder.
        folder: PathBuf,
        /// Whose lab.
        pid: u32,
    },
    /// What it remembers is not what we write.
    #[error("{file}: {reason}; if it is no lab of yours choose another folder with --data-dir")]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It holds something that is no lab.
    #[error("{folder} holds files and is no lab: choose another folder with --data-dir")]
    Foreign {
        /// Which folder.
        folder: PathBuf,
    },
    /// It cannot be read or written.
    #[error("{file}: {source}; --data-dir chooses another folder")]
    Io {
        /// Which file.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

impl Folder {
    /// Makes the folder if need be, and takes it.
    pub fn take(layout: Layout) -> Result<Self, FolderError> {
        let folder = layout.folder().to_owned();
        let fault = |file: &Path| {
            let file = file.to_owned();
            move |source| FolderError::Io { file, source }
        };
        if is_foreign(&layout) {
            return Err(FolderError::Foreign { folder });
        }
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder.join("logs")).map_err(fault(&folder))?;
        let file = layout.lock();
        let mut open = std::fs::OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = open.open(&file).map_err(fault(&file))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(FolderError::Locked { folder, pid: layout.holder().unwrap_or_default() });
        }
        let written = lock.set_len(0).and_then(|()| lock.rewind());
        written.and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(fault(&file))?;
        Ok(Self { layout, _lock: lock })
    }

    /// What is where.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Remembers, whole or not at all.
    pub fn write_state(&self, state: &State) -> Result<(), FolderError> {
        let file = self.layout.state();
        let new = file.with_extension("new");
        let text = serde_json::to_string_pretty(state).expect("it is made of strings and numbers");
        let written = std::fs::write(&new, text + "\n").and_then(|()| std::fs::rename(&new, &file));
        written.map_err(|source| FolderError::Io { file, source })
    }

    /// Deletes everything in it, and the folder.
    pub fn purge(self) -> Result<(), FolderError> {
        let file = self.layout.folder().to_owned();
        std::fs::remove_dir_all(&file).map_err(|source| FolderError::Io { file, source })
    }
}

/// Whether there is something in the folder that a lab did not put there. It would be mixed up with ours, and purged.
fn is_foreign(layout: &Layout) -> bool {
    let has_entries = std::fs::read_dir(layout.folder()).is_ok_and(|mut entries| entries.next().is_some());
    has_entries && !layout.lock().exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_lab_at_a_time_and_says_which() {
        let base = tempfile::tempdir().unwrap();
        let layout = Layout::new(&base.path().join("lab"));
        assert_eq!(layout.holder(), None);
        let first = Folder::take(layout.clone()).unwrap();
        assert_eq!(layout.holder(), Some(std::process::id()));
        let refused = Folder::take(layout.clone()).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(first);
        assert_eq!(layout.holder(), None);
        Folder::take(layout).unwrap();
    }

    #[test]
    fn a_folder_of_somebody_else_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("thesis.txt"), "draft").unwrap();
        let refused = Folder::take(Layout::new(base.path())).unwrap_err().to_string();
        assert!(refused.contains("is no lab"), "{refused}");
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_lab_remembers_and_forgets() {
        let base = tempfile::tempdir().unwrap();
        let layout = Layout::new(&base.path().join("lab"));
        assert!(layout.read_state().unwrap().is_none());
        let folder = Folder::take(layout.clone()).unwrap();
        let state = state::tests::state("a=1.33:7001");
        folder.write_state(&state).unwrap();
        assert_eq!(layout.read_state().unwrap(), Some(state));
        std::fs::write(layout.state(), "{").unwrap();
        assert!(layout.read_state().unwrap_err().to_string().contains("lab.json"));
        folder.purge().unwrap();
        assert!(!layout.folder().exists());
    }
}
