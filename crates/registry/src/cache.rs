//! What the store holds, in memory: per resource a snapshot and its recent changes.
//!
//! One task follows the store and is the only writer. A batch is applied to the snapshots first and only then counted in
//! [`Cache::through`], so whoever waits for a revision finds every change up to it.

mod fill;
mod history;
mod pins;
mod shelf;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object::{Stored, Undecodable};
use store::{Entry, Key, Revision, Store};
use tasks::Tasks;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;

pub use history::Change;
pub(crate) use pins::Pin;
pub use shelf::{Form, Shelf, Snapshot};

/// One key as the cache holds it.
#[derive(Debug)]
pub struct Cached {
    /// The key in the store.
    pub key: Key,
    /// The revision that put it.
    pub revision: Revision,
    /// What it holds.
    pub item: Item,
}

/// What a key holds.
#[derive(Debug)]
pub enum Item {
    /// An object, ready to be sent.
    Object(Stored),
    /// Bytes that are not for the REST API.
    Raw(Bytes),
    /// Something that should be an object and is not. Reading it is an error; it is never skipped.
    Undecodable(Undecodable),
}

impl Cached {
    /// Reads what the store gave.
    pub(crate) fn new(entry: Entry, form: Form) -> Self {
        let item = match form {
            Form::Raw => Item::Raw(entry.value),
            Form::Objects => match Stored::from_storage(&entry.value, entry.revision.0) {
                Ok(stored) => Item::Object(stored),
                Err(undecodable) => {
                    tracing::error!(key = %entry.key.escape_ascii(), %undecodable, "a stored object cannot be read");
                    Item::Undecodable(undecodable)
                }
            },
        };
        Self { key: entry.key, revision: entry.revision, item }
    }
}

/// What the store holds below a prefix. Clones share it.
#[derive(Clone, Debug)]
pub struct Cache {
    shelves: Arc<Shelves>,
    progress: watch::Receiver<Progress>,
    failures: watch::Receiver<u64>,
}

/// How far the cache has come.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// Every change up to this revision is in the snapshots.
    through: Revision,
    /// Whether the first fill is over.
    filled: bool,
    /// Asks the store's watch how far it is; absent while there is no watch.
    request: Option<store::contract::ProgressRequest>,
}

/// All shelves, by ascending prefix. No prefix begins with another.
#[derive(Debug)]
struct Shelves {
    shelves: Vec<Arc<Shelf>>,
}

impl Cache {
    /// Starts to follow the store. `shelves` says what to keep: a key prefix each, and what its values are; other keys are
    /// passed over. The cache is empty until [`Cache::filled`].
    pub fn start(store: Arc<dyn Store>, prefix: Key, shelves: Vec<(Key, Form)>, tasks: &Tasks) -> Self {
        let shelves = Arc::new(Shelves::new(shelves));
        let (progress_sender, progress) = watch::channel(Progress::default());
        let (failures_sender, failures) = watch::channel(0);
        let follower = fill::Follower {
            store,
            prefix,
            shelves: shelves.clone(),
            progress: progress_sender,
            failures: failures_sender,
        };
        tasks.spawn("watch-cache", |stop| follower.run(stop));
        Self { shelves, progress, failures }
    }

    /// The shelf of a prefix that was given at the start.
    pub fn shelf(&self, prefix: &[u8]) -> Option<&Arc<Shelf>> {
        self.shelves.of_key(prefix).filter(|shelf| shelf.prefix() == prefix)
    }

    /// Every shelf, by ascending prefix.
    pub fn shelves(&self) -> &[Arc<Shelf>] {
        &self.shelves.shelves
    }

    /// Every change up to this revision is in the snapshots.
    pub fn through(&self) -> Revision {
        self.progress.borrow().through
    }

    /// How often the store could not be listed or followed so far.
    pub fn failures(&self) -> watch::Receiver<u64> {
        self.failures.clone()
    }

    /// Whether the first fill is over.
    pub fn is_filled(&self) -> bool {
        self.progress.borrow().filled
    }

    /// Waits for the first fill.
    pub async fn filled(&self) -> Result<(), Stopped> {
        let mut progress = self.progress.clone();
        progress.wait_for(|progress| progress.filled).await.map_err(|_| Stopped)?;
        Ok(())
    }

    /// Waits until every change up to `revision` is in the snapshots, `patience` at most. `false`: it is not.
    pub async fn reached(&self, revision: Revision, patience: Duration) -> Result<bool, Stopped> {
        let mut progress = self.progress.clone();
        let reached = async {
            loop {
                {
                    let now = progress.borrow_and_update();
                    if now.filled && now.through >= revision {
                        return Ok(());
                    }
                    // Again each time: what answers may itself have something to catch up with.
                    if let Some(request) = &now.request {
                        request.send();
                    }
                }
                progress.changed().await?;
            }
        };
        match tokio::time::timeout(patience, reached).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err::<_, RecvError>(_)) => Err(Stopped),
            Err(_) => Ok(false),
        }
    }
}

/// The cache no longer follows the store: the server is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is shutting down")]
pub struct Stopped;

impl Shelves {
    fn new(prefixes: Vec<(Key, Form)>) -> Self {
        let mut shelves: Vec<_> =
            prefixes.into_iter().map(|(prefix, form)| Arc::new(Shelf::new(prefix, form))).collect();
        shelves.sort_by(|a, b| a.prefix().cmp(b.prefix()));
        debug_assert!(
            shelves.windows(2).all(|pair| !pair[1].prefix().starts_with(pair[0].prefix())),
            "a key must belong to one shelf only"
        );
        Self { shelves }
    }

    fn of_key(&self, key: &[u8]) -> Option<&Arc<Shelf>> {
        let after = self.shelves.partition_point(|shelf| shelf.prefix().as_ref() <= key);
        let shelf = &self.shelves[after.checked_sub(1)?];
        key.starts_with(shelf.prefix()).then_some(shelf)
    }
}
