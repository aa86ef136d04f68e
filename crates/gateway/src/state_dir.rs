//! Directory that keeps the discovery documents of upstreams across restarts of the gateway.
//!
//! A gateway that starts while an upstream is down thus knows what that upstream serves, and responds 503 instead of
//! 404.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use membership::ServerId;

/// Subdirectory of the documents.
const DOCUMENTS_DIR: &str = "documents";
/// Longer files are ignored: the gateway writes none.
const DOCUMENT_BYTES_MAX: u64 = 32 << 20;

/// The state directory, or none (`--state-dir` not set).
#[derive(Clone, Debug)]
pub struct StateDir(Option<PathBuf>);

impl StateDir {
    /// Keeps nothing.
    pub fn none() -> Self {
        Self(None)
    }

    /// Opens the directory, creating it if needed.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let documents = dir.join(DOCUMENTS_DIR);
        std::fs::create_dir_all(&documents)?;
        Ok(Self(Some(documents)))
    }

    /// Reads the stored document of an upstream. `None` if it is missing or unreadable; discovery then fetches it.
    pub fn read(&self, server: &ServerId) -> Option<Bytes> {
        let file = self.document_path(server)?;
        let length = std::fs::metadata(&file).ok()?.len();
        (length <= DOCUMENT_BYTES_MAX).then(|| std::fs::read(&file).ok().map(Bytes::from))?
    }

    /// Stores a document atomically.
    pub(crate) fn write(&self, server: &ServerId, document: &[u8]) -> io::Result<()> {
        let Some(file) = self.document_path(server) else { return Ok(()) };
        let temporary = file.with_extension("new");
        std::fs::write(&temporary, document)?;
        std::fs::rename(&temporary, &file)
    }

    /// Deletes the document of an upstream.
    pub(crate) fn remove(&self, server: &ServerId) -> io::Result<()> {
        let Some(file) = self.document_path(server) else { return Ok(()) };
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Path of a document; `None` for an identity with a slash, which an address cannot contain.
    fn document_path(&self, server: &ServerId) -> Option<PathBuf> {
        let dir = self.0.as_ref()?;
        (!server.as_str().contains('/')).then(|| dir.join(format!("{server}.document")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_dir_reads_back_until_removed() {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerId::from_name("apiserver-[fd00::1]:6443").unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        assert_eq!(state.read(&server), None);
        state.write(&server, b"a").unwrap();
        state.write(&server, b"b").unwrap();
        assert_eq!(StateDir::open(dir.path()).unwrap().read(&server).unwrap(), "b");
        state.remove(&server).unwrap();
        state.remove(&server).unwrap();
        assert_eq!(state.read(&server), None);
    }

    #[test]
    fn state_dir_none_keeps_nothing() {
        let server = ServerId::from_name("apiserver-a").unwrap();
        StateDir::none().write(&server, b"a").unwrap();
        assert_eq!(StateDir::none().read(&server), None);
    }
}
