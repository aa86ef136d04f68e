//! The file of the access log. It is created again after it was moved away, so that logrotate needs no signal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use prometheus::IntCounter;

/// The sink of log lines.
#[derive(Debug)]
pub(super) struct LogOutput {
    destination: LogDestination,
    /// Counts lines that could not be written.
    lost_lines: IntCounter,
    is_failing: bool,
}

#[derive(Debug)]
enum LogDestination {
    Stdout,
    /// `None` after a failed write: the next write opens the file again.
    File(PathBuf, Option<File>),
}

impl LogOutput {
    pub(super) fn open(path: &Path, lost: IntCounter) -> io::Result<Self> {
        let destination = match path.to_str() {
            Some("-") => LogDestination::Stdout,
            Some(_) | None => LogDestination::File(path.to_owned(), Some(open_for_append(path)?)),
        };
        Ok(Self { destination, lost_lines: lost, is_failing: false })
    }

    /// Writes lines, each with its newline. A failure is logged once, and its lines are counted as lost.
    pub(super) fn write(&mut self, lines: &[Vec<u8>]) {
        let outcome = self.destination.write(&lines.concat());
        let was_failing = std::mem::replace(&mut self.is_failing, outcome.is_err());
        match outcome {
            Ok(()) if was_failing => tracing::info!("the access log is written again"),
            Ok(()) => {}
            Err(error) => {
                self.lost_lines.inc_by(lines.len() as u64);
                if !was_failing {
                    tracing::error!(%error, "failed to write the access log; lines are lost (--access-log-path)");
                }
            }
        }
    }
}

impl LogDestination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            Self::File(path, file) => {
                let mut current = match file.take() {
                    Some(current) if is_same_file(&current, path) => current,
                    Some(_) | None => open_for_append(path)?,
                };
                current.write_all(bytes)?;
                *file = Some(current);
                Ok(())
            }
        }
    }
}

/// True if the path still names the open file.
fn is_same_file(file: &File, path: &Path) -> bool {
    let same = |open: fs::Metadata, named: fs::Metadata| (open.dev(), open.ino()) == (named.dev(), named.ino());
    file.metadata().is_ok_and(|open| fs::metadata(path).is_ok_and(|named| same(open, named)))
}

/// Opens a file that only its owner can read, because it names users.
fn open_for_append(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::create_dir_all(dir)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
