//! Where events go: a file that lines are added to, or standard output.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// A file of events. A line is written before the answer to its request is sent, as kube-apiserver does by default.
pub struct Log {
    to: Mutex<Box<dyn Write + Send>>,
    is_failing: AtomicBool,
}

impl Log {
    /// Opens `--audit-log-path`: a file that its owner alone may read, or `-` for standard output.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::new(io::stdout()));
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        Ok(Self::new(OpenOptions::new().append(true).create(true).mode(0o600).open(path)?))
    }

    pub(super) fn new(to: impl Write + Send + 'static) -> Self {
        Self { to: Mutex::new(Box::new(to)), is_failing: AtomicBool::new(false) }
    }

    /// Writes one event, its newline included, in one piece. A full disk does not stop the server; it is told once.
    pub(super) fn write(&self, line: &[u8]) {
        let mut to = self.to.lock();
        let outcome = to.write_all(line).and_then(|()| to.flush());
        let was_failing = self.is_failing.swap(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Err(error) if !was_failing => tracing::error!(%error, "audit events cannot be written and are lost"),
            Ok(()) if was_failing => tracing::info!("audit events are written again"),
            Ok(()) | Err(_) => {}
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}
