//! What a store is opened with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::sqlite::clock::{Clock, KernelClock};
use crate::sqlite::schema::Durability;

/// Longer than any commit takes on a disk that works, shorter than a client waits for its answer (a minute).
const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A wake-up that got lost costs at most this.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Times to live are whole seconds.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Ranges that are not served from a watch cache are rare; two do not wait for each other.
const READERS: usize = 2;

/// What a store is opened with. [`Config::new`] is what a server uses; tests change single fields.
#[derive(Clone, Debug)]
pub struct Config {
    /// The database file. Its folder must exist; other files are put beside it.
    pub path: PathBuf,
    /// Whether acknowledged writes survive the loss of power.
    pub durability: Durability,
    /// How long a write waits for other processes before it fails.
    pub write_lock_timeout: Duration,
    /// How often to look for other processes' writes although none was announced.
    pub poll_interval: Duration,
    /// How often to look for keys whose time to live ran out.
    pub expiry_interval: Duration,
    /// How many reads go on at once.
    pub readers: usize,
    /// How other processes' writes are noticed.
    pub change_detection: ChangeDetection,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Called between the steps of a commit, on the thread that commits.
    pub commit_hook: CommitHook,
}

impl Config {
    /// A store as a server needs it, in the file at `path`.
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

/// How other processes' writes are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeDetection {
    /// The kernel tells; the poll is only a safety net.
    Notified,
    /// Only by the poll. Where the kernel has no notification to give away, this is what is left.
    Polled,
}

/// The steps of a commit, in their order. A crash between any two must lose no acknowledged write and tear none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitStep {
    /// The turn is ours; SQLite's transaction has not begun.
    LockAcquired,
    /// All rows of all transactions of this commit are written, not yet committed.
    RowsWritten,
    /// COMMIT returned; the revision file still holds the old revision.
    Committed,
    /// The revision file holds the new revision; the turn is given back.
    RevisionPublished,
    /// Every writer of this commit has its answer.
    ResponsesSent,
}

/// Something to do between the steps of a commit: nothing, or what a crash test needs.
#[derive(Clone, Default)]
pub struct CommitHook(Option<Arc<dyn Fn(CommitStep) + Send + Sync>>);

impl CommitHook {
    /// Calls `hook` at every step.
    pub fn new(hook: impl Fn(CommitStep) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// What the committing thread does at every step.
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
