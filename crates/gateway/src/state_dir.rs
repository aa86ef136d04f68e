//! The folder that keeps what upstreams serve across restarts of the gateway.
//!
//! A gateway that starts beside a dead upstream still knows what that upstream serves, and answers 503 for it and not 404.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use peering::ServerId;

/// Where documents lie below the folder.
const DOCUMENTS: &str = "documents";
/// Longer files are none of ours.
const BYTES_MAX: u64 = 32 << 20;

/// The folder, or none.
#[derive(Clone, Debug)]
pub struct StateDir(Option<PathBuf>);

impl StateDir {
    /// Nothing is kept.
    pub fn none() -> Self {
        Self(None)
    }

    /// This folder, made if it is not there.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let documents = folder.join(DOCUMENTS);
        std::fs::create_dir_all(&documents)?;
        Ok(Self(Some(documents)))
    }

    /// What was kept of a server. What cannot be read is as good as nothing: the server is asked.
    pub fn read(&self, server: &ServerId) -> Option<Bytes> {
        let file = self.file(server)?;
        let length = std::fs::metadata(&file).ok()?.len();
        (length <= BYTES_MAX).then(|| std::fs::read(&file).ok().map(Bytes::from))?
    }

    /// Keeps something, whole or not at all.
    pub(crate) fn write(&self, server: &ServerId, document: &[u8]) -> io::Result<()> {
        let Some(file) = self.file(server) else { return Ok(()) };
        let new = file.with_extension("new");
        std::fs::write(&new, document)?;
        std::fs::rename(&new, &file)
    }

    /// Keeps nothing of a server any more.
    pub(crate) fn remove(&self, server: &ServerId) -> io::Result<()> {
        let Some(file) = self.file(server) else { return Ok(()) };
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// A name is made of an address, so that it holds no slash.
    fn file(&self, server: &ServerId) -> Option<PathBuf> {
        let folder = self.0.as_ref()?;
        (!server.as_str().contains('/')).then(|| folder.join(format!("{server}.document")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let server = ServerId::from_name("apiserver-[fd00::1]:6443").unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        assert_eq!(state.read(&server), None);
        state.write(&server, b"a").unwrap();
        state.write(&server, b"b").unwrap();
        assert_eq!(StateDir::open(folder.path()).unwrap().read(&server).unwrap(), "b");
        state.remove(&server).unwrap();
        state.remove(&server).unwrap();
        assert_eq!(state.read(&server), None);
    }

    #[test]
    fn without_a_folder_nothing_is_kept() {
        let server = ServerId::from_name("apiserver-a").unwrap();
        StateDir::none().write(&server, b"a").unwrap();
        assert_eq!(StateDir::none().read(&server), None);
    }
}
