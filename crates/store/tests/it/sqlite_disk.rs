//! The simulated disk of `disk.c`, and its power loss.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::sqlite_process::{ChildProcess, ChildRole};

/// The unit in which disks write; a sector is never torn.
const SECTOR: usize = 512;

/// A folder on a disk with injected faults.
pub(crate) struct SimulatedDisk {
    /// The database and the files beside it.
    dir: TempDir,
    /// The files as last synced.
    durable_dir: TempDir,
    /// Holds one file per injected fault.
    faults_dir: TempDir,
}

/// The fate of a write that was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnsyncedWrites {
    Lost,
    /// Some of its sectors are written, others are not.
    Torn,
}

impl SimulatedDisk {
    pub(crate) fn new() -> Self {
        let folder = || TempDir::new().expect("a temporary folder");
        Self { dir: folder(), durable_dir: folder(), faults_dir: folder() }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder().join("state.db")
    }

    /// Marks everything written so far as synced.
    pub(crate) fn sync_all(&self) {
        for file in files(&self.folder()) {
            fs::copy(&file, self.durable_dir.path().join(name(&file))).expect("the file can be copied");
        }
    }

    /// Runs a child whose files are on this disk.
    pub(crate) fn start(&self, function: &str, role: &ChildRole) -> ChildProcess {
        let variables = [
            ("DISK_FOLDER", self.folder()),
            ("DISK_DURABLE", self.durable_dir.path().to_owned()),
            ("DISK_FAULTS", self.faults_dir.path().to_owned()),
            ("LD_PRELOAD", disk_library().to_owned()),
        ];
        ChildProcess::start(function, role, &variables)
    }

    pub(crate) fn add_fault(&self, fault: &str) {
        fs::write(self.faults_dir.path().join(fault), "").expect("the fault file can be written");
    }

    pub(crate) fn remove_fault(&self, fault: &str) {
        fs::remove_file(self.faults_dir.path().join(fault)).expect("the fault was added before");
    }

    /// Restores the files as they are after a power loss; all processes must have ended.
    pub(crate) fn lose_power(&self, unsynced: UnsyncedWrites) {
        for file in files(&self.folder()) {
            let is_shared_memory = name(&file).ends_with("-shm");
            let durable = fs::read(self.durable_dir.path().join(name(&file))).ok().filter(|_| !is_shared_memory);
            match durable {
                Some(durable) => {
                    fs::write(&file, after_loss(&fs::read(&file).expect("file exists"), durable, unsynced))
                }
                None => fs::remove_file(&file),
            }
            .expect("the files are writable");
        }
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().canonicalize().expect("file exists")
    }
}

fn after_loss(written: &[u8], mut durable: Vec<u8>, unsynced: UnsyncedWrites) -> Vec<u8> {
    if unsynced == UnsyncedWrites::Lost {
        return durable;
    }
    durable.resize(written.len().max(durable.len()), 0);
    for (old, new) in durable.chunks_mut(SECTOR).zip(written.chunks(SECTOR)) {
        if fastrand::bool() {
            old[..new.len()].copy_from_slice(new);
        }
    }
    durable
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder exists");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

fn name(file: &Path) -> &str {
    file.file_name().and_then(|name| name.to_str()).expect("the name is UTF-8")
}

/// `disk.c`, compiled once with the C compiler that every Rust toolchain links with.
fn disk_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let fresh = folder.join(format!("disk-{}.so", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/disk.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-fPIC", "-shared", "-pthread", "-o"]).arg(&fresh).arg(source).arg("-ldl");
        assert!(compiler.status().expect("cc runs").success(), "disk.c compiles");
        let library = folder.join("disk.so");
        fs::rename(fresh, &library).expect("both are in one folder");
        library
    })
}
