//! The file behind the log, made anew when it was moved away: what logrotate does needs no signal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use prometheus::IntCounter;

/// What lines are written to.
#[derive(Debug)]
pub(super) struct Output {
    place: Place,
    /// Lines that could not be written.
    lost: IntCounter,
    is_failing: bool,
}

#[derive(Debug)]
enum Place {
    Stdout,
    /// `None` after a failure, so that it is opened again.
    File(PathBuf, Option<File>),
}

impl Output {
    pub(super) fn open(path: &Path, lost: IntCounter) -> io::Result<Self> {
        let place = match path.to_str() {
            Some("-") => Place::Stdout,
            Some(_) | None => Place::File(path.to_owned(), Some(append_to(path)?)),
        };
        Ok(Self { place, lost, is_failing: false })
    }

    /// Writes lines, each with its newline. A full disk stops nothing; it is told once, and the lines are counted.
    pub(super) fn write(&mut self, lines: &[Vec<u8>]) {
        let outcome = self.place.write(&lines.concat());
        let was_failing = std::mem::replace(&mut self.is_failing, outcome.is_err());
        match outcome {
            Ok(()) if was_failing => tracing::info!("the access log is written again"),
            Ok(()) => {}
            Err(error) => {
                self.lost.inc_by(lines.len() as u64);
                if !was_failing {
                    tracing::error!(%error, "the access log cannot be written, and lines are lost (--access-log-path)");
                }
            }
        }
    }
}

impl Place {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            Self::File(path, file) => {
                let mut current = match file.take() {
                    Some(current) if is_at(&current, path) => current,
                    Some(_) | None => append_to(path)?,
                };
                current.write_all(bytes)?;
                *file = Some(current);
                Ok(())
            }
        }
    }
}

/// Whether a file is still what its path names.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |open: fs::Metadata, named: fs::Metadata| (open.dev(), open.ino()) == (named.dev(), named.ino());
    file.metadata().is_ok_and(|open| fs::metadata(path).is_ok_and(|named| same(open, named)))
}

/// Opens a file that its owner alone may read, as audit logs are: it names people.
fn append_to(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
