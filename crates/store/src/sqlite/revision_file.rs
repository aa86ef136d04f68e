//! The newest visible revision, in a file beside the database.
//!
//! A process writes the file after COMMIT, before any acknowledgement and under the write lock; no read or watch shows
//! anything newer. Its sixteen bytes give every process the current revision in about a microsecond, and writing them
//! triggers inotify in the other processes. After a crash between COMMIT and this write the database is ahead, and the
//! next commit of any process catches up.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Revision;
use crate::sqlite::files;

/// A concurrent write may be read half-done. Two such reads in a row need two commits within one read.
const READ_ATTEMPTS_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct RevisionFile {
    file: File,
}

impl RevisionFile {
    /// Opens or creates the file. Its content is trusted only after [`RevisionFile::write`] under the write lock.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: files::open_or_create(path)? })
    }

    /// Opens an existing file for [`RevisionFile::read`] alone.
    pub(super) fn open_read_only(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)? })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn read(&self) -> io::Result<Revision> {
        let mut record = [0; 16];
        for _ in 0..READ_ATTEMPTS_MAX {
            self.file.read_exact_at(&mut record, 0)?;
            if let Some(revision) = decode(record) {
                return Ok(revision);
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "the revision file was changed by another program"))
    }

    /// Requires the write lock, so that the revision only grows.
    pub(super) fn write(&self, revision: Revision) -> io::Result<()> {
        self.file.write_all_at(&encode(revision), 0)
    }
}

/// The revision and its complement, by which `decode` detects a half-written record.
fn encode(revision: Revision) -> [u8; 16] {
    let mut record = [0; 16];
    record[..8].copy_from_slice(&revision.0.to_le_bytes());
    record[8..].copy_from_slice(&(!revision.0).to_le_bytes());
    record
}

fn decode(record: [u8; 16]) -> Option<Revision> {
    let whole = u128::from_le_bytes(record);
    let (revision, complement) = (whole as u64, (whole >> 64) as u64);
    (revision == !complement).then_some(Revision(revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_record_round_trips_and_detects_torn_writes() {
        let record = encode(Revision(0x1234_5678_9abc));
        assert_eq!(decode(record), Some(Revision(0x1234_5678_9abc)));
        let mut torn = record;
        torn[..8].copy_from_slice(&0x1234_5678_9abd_u64.to_le_bytes());
        assert_eq!(decode(torn), None);
        assert_eq!(decode([0; 16]), None, "a file of zeros is not revision 0");
    }

    #[test]
    fn read_rejects_short_or_foreign_revision_file() {
        let folder = tempfile::tempdir().unwrap();
        let revisions = RevisionFile::open(&folder.path().join("x.rev")).unwrap();
        assert_eq!(revisions.read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        revisions.file.write_all_at(b"something else here", 0).unwrap();
        assert_eq!(revisions.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
        revisions.write(Revision(7)).unwrap();
        assert_eq!(revisions.read().unwrap(), Revision(7));
    }
}
