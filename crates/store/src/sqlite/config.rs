//! The configuration of a SQLite store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::sqlite::clock::{Clock, KernelClock};
use crate::sqlite::schema::Durability;

/// Longer than any commit takes on a working disk, shorter than a client's request timeout (a minute).
const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest delay of a watch event after a lost notification.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Times to live are whole seconds.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Reads that bypass the watch cache are rare; two threads keep them from blocking each other.
const READERS: usize = 2;

/// The configuration of a SQLite store. Servers use [`Config::new`]; tests change single fields.
#[derive(Clone, Debug)]
pub struct Config {
    /// The database file. Its folder must exist; the store creates further files beside it.
    pub path: PathBuf,
    /// Whether acknowledged writes survive a power loss.
    pub durability: Durability,
    /// How long a commit waits for other processes before it fails.
    pub write_lock_timeout: Duration,
    /// How often to check for writes of other processes without a notification.
    pub poll_interval: Duration,
    /// How often to remove keys whose time to live has ended.
    pub expiry_interval: Duration,
    /// The number of reader threads; at least one is started.
    pub readers: usize,
    /// How writes of other processes are detected.
    pub change_detection: ChangeDetection,
    /// The clock for times to live.
    pub clock: Arc<dyn Clock>,
    /// Called by the writer thread after each step of a commit.
    pub commit_hook: CommitHook,
}

impl Config {
    /// The defaults for a server, with the database at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            durability: Durability::Full,
            write_lock_timeout: WRITE_LOCK_TIMEOUT,
            poll_interval: POLL_INTERVAL,
            expiry_interval: EXPIRY_INTERVAL,
            readers: READERS,
            change_detection: ChangeDetection::Notified,
            clock: Arc::new(KernelClock),
            commit_hook: CommitHook::default(),
        }
    }
}

/// How writes of other processes are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeDetection {
    /// By inotify, with polling as a fallback for lost notifications.
    Notified,
    /// By polling alone.
    Polled,
}

/// The steps of a commit, in order. A crash between any two must lose no acknowledged write and split no transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitStep {
    /// The write lock is held; the SQLite transaction has not begun.
    LockAcquired,
    /// All rows of all transactions in this commit are written but not committed.
    RowsWritten,
    /// COMMIT has returned; the revision file still holds the old revision.
    Committed,
    /// The revision file holds the new revision; the write lock is released.
    RevisionPublished,
    /// Every writer in this commit has its response.
    ResponsesSent,
}

/// A callback for each step of a commit, used by crash tests; the default does nothing.
#[derive(Clone, Default)]
pub struct CommitHook(Option<Arc<dyn Fn(CommitStep) + Send + Sync>>);

impl CommitHook {
    /// Calls `hook` at every step.
    pub fn new(hook: impl Fn(CommitStep) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Runs the callback, if any, on the writer thread.
    pub fn call(&self, step: CommitStep) {
        if let Some(hook) = &self.0 {
            hook(step);
        }
    }
}

impl fmt::Debug for CommitHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "StepHook(set)" } else { "StepHook(none)" })
    }
}
