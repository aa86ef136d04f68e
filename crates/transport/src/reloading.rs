//! A value loaded from files and reloaded when they change.
//!
//! Files are polled instead of watched: mounted secrets change by a swapped symlink two directories up, and polling
//! costs microseconds. If changed files cannot be loaded, the former value stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tasks::Tasks;

/// How often the files are polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A value that follows its files. Clones share it.
#[derive(Debug)]
pub struct Reloading<T> {
    value: Arc<ArcSwap<T>>,
}

impl<T> Clone for Reloading<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone() }
    }
}

impl<T: Send + Sync + 'static> Reloading<T> {
    /// Loads the value now and whenever one of the files changes.
    pub fn start<E: std::fmt::Display>(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, E> + Send + 'static,
        tasks: &Tasks,
    ) -> Result<Self, E> {
        let mut seen = fingerprint_all(&files);
        let value = Arc::new(ArcSwap::from_pointee(read()?));
        let watched = Self { value: value.clone() };
        tasks.spawn("file-watch", |stop| async move {
            while stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await.is_some() {
                let now = fingerprint_all(&files);
                if now == seen {
                    continue;
                }
                // Remember the state even if loading fails, so that a broken file is logged once.
                seen = now;
                match read() {
                    Ok(new) => {
                        tracing::info!(files = ?files, "reloaded changed files");
                        value.store(Arc::new(new));
                    }
                    Err(error) => {
                        tracing::error!(files = ?files, %error, "cannot use changed files; keeping the former ones");
                    }
                }
            }
        });
        Ok(watched)
    }

    /// Replaces the value, for one that comes from elsewhere than files.
    pub fn replace(&self, value: T) {
        self.value.store(Arc::new(value));
    }

    /// Returns a value that is not reloaded from files.
    pub fn fixed(value: T) -> Self {
        Self { value: Arc::new(ArcSwap::from_pointee(value)) }
    }

    /// Returns the current value.
    pub fn get(&self) -> Arc<T> {
        self.value.load_full()
    }
}

/// Modification time, size and inode: detects a change without reading the file.
type FileFingerprint = Option<(SystemTime, u64, u64)>;

fn fingerprint_all(files: &[PathBuf]) -> Vec<FileFingerprint> {
    files.iter().map(|file| fingerprint(file)).collect()
}

fn fingerprint(file: &Path) -> FileFingerprint {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changed_file_is_reloaded_and_unreadable_change_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        std::fs::write(&file, "1").unwrap();
        let tasks = Tasks::new();
        let path = file.clone();
        let read = move || {
            std::fs::read_to_string(&path).map_err(|e| e.to_string())?.parse::<u32>().map_err(|e| e.to_string())
        };
        let watched = Reloading::start(vec![file.clone()], read, &tasks).unwrap();
        assert_eq!(*watched.get(), 1);

        replace_by_rename(&file, "22");
        tokio::time::sleep(POLL_INTERVAL * 2).await;
        assert_eq!(*watched.get(), 22);

        replace_by_rename(&file, "not a number");
        tokio::time::sleep(POLL_INTERVAL * 2).await;
        assert_eq!(*watched.get(), 22);
    }

    /// Replaces the file by rename, as mounted secrets are.
    fn replace_by_rename(file: &Path, content: &str) {
        let new = file.with_extension("new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, file).unwrap();
    }
}
