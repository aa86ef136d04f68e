//! The sink of audit events: an append-only file, or standard output.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The sink of audit events. A line is written before the response is sent, as kube-apiserver does by default.
pub struct AuditLog {
    writer: Mutex<Box<dyn Write + Send>>,
    is_failing: AtomicBool,
}

impl AuditLog {
    /// Opens `--audit-log-path`: a file that only its owner can read, or `-` for standard output.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::new(io::stdout()));
        }
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir)?;
        }
        Ok(Self::new(OpenOptions::new().append(true).create(true).mode(0o600).open(path)?))
    }

    pub(super) fn new(writer: impl Write + Send + 'static) -> Self {
        Self { writer: Mutex::new(Box::new(writer)), is_failing: AtomicBool::new(false) }
    }

    /// Writes one event with its newline in one piece. A failure is logged once and does not fail the request.
    pub(super) fn write(&self, line: &[u8]) {
        let mut to = self.writer.lock();
        let outcome = to.write_all(line).and_then(|()| to.flush());
        let was_failing = self.is_failing.swap(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Err(error) if !was_failing => tracing::error!(%error, "failed to write audit events; they are lost"),
            Ok(()) if was_failing => tracing::info!("audit events are written again"),
            Ok(()) | Err(_) => {}
        }
    }
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").finish_non_exhaustive()
    }
}
