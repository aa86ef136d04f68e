//! The folder that keeps what upstreams serve across restarts of the gateway.
//!
//! A gateway that starts beside a dead upstream still knows what that upstream serves, and answers 503 for it and not 404.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use peering::ServerId;

/// Where documents lie below the folder.
const DOCUMENTS_DIR: &str = "documents";
/// Longer files are none of ours.
const DOCUMENT_BYTES_MAX: u64 = 32 << 20;

/// The folder, or none.
#[derive(Clone, Debug)]
pub struct StateDir(Option<PathBuf>);

impl StateDir {
    /// Nothing is kept.
    pub fn none() -> Self {
        Self(None)
    }

    /// This folder, made if it is not there.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let documents = dir.join(DOCUMENTS_DIR);
        std::fs::create_dir_all(&documents)?;
        Ok(Self(Some(documents)))
    }

    /// What was kept of a server. What cannot be read is as good as nothing: the server is asked.
    pub fn read(&self, server: &ServerId) -> Option<Bytes> {
        let file = self.document_path(server)?;
        let length = std::fs::metadata(&file).ok()?.len();
        (length <= DOCUMENT_BYTES_MAX).then(|| std::fs::read(&file).ok().map(Bytes::from))?
    }

    /// Keeps something, whole or not at all.
    pub(crate) fn write(&self, server: &ServerId, document: &[u8]) -> io::Result<()> {
        let Some(file) = self.document_path(server) else { return Ok(()) };
        let temporary = file.with_extension("new");
        std::fs::write(&temporary, document)?;
        std::fs::rename(&temporary, &file)
    }

    /// Keeps nothing of a server any more.
    pub(crate) fn remove(&self, server: &ServerId) -> io::Result<()> {
        let Some(file) = self.document_path(server) else { return Ok(()) };
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// A name is made of an address, so that it holds no slash.
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
