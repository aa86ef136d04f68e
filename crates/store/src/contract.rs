//! The contract that both backends keep, and the values that cross it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

/// A key: any bytes, matched literally. `/registry/pods/default/web` and the like.
pub type Key = Bytes;

/// The answer of a store operation that is still under way.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// The position of a write in the history of the whole store. Revisions only grow; a resourceVersion is one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision that follows this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One key and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEntry {
    /// The key.
    pub key: Key,
    /// The value, as it was put.
    pub value: Bytes,
    /// The revision of the write that put it (etcd's mod_revision).
    pub revision: Revision,
}

/// A read of keys in order. Built from [`KeyRange::prefix`] and narrowed by its methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Only keys that begin with these bytes.
    pub prefix: Key,
    /// Only keys at or after this one; where a page before ended. Empty: from the start of the prefix.
    pub start: Key,
    /// At most so many entries; `None`: all.
    pub limit: Option<usize>,
    /// As it was at this revision; `None`: as it is now.
    pub at_revision: Option<Revision>,
}

impl KeyRange {
    /// Every key below `prefix`, as it is now.
    pub fn prefix(prefix: impl Into<Key>) -> Self {
        Self { prefix: prefix.into(), start: Key::new(), limit: None, at_revision: None }
    }

    /// Begins at `start` instead of the first key of the prefix.
    pub fn start(self, start: impl Into<Key>) -> Self {
        Self { start: start.into(), ..self }
    }

    /// Returns at most `limit` entries. A limit of 0 counts and returns none.
    pub fn limit(self, limit: usize) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Reads the past: [`Error::Compacted`] if it is forgotten, [`Error::FutureRevision`] if it is not written yet.
    pub fn at_revision(self, revision: Revision) -> Self {
        Self { at_revision: Some(revision), ..self }
    }

    /// The first key that may be part of it.
    pub fn first_key(&self) -> &Key {
        if self.start > self.prefix { &self.start } else { &self.prefix }
    }
}

/// The first key after all keys that begin with `prefix`; `None` where there is none, because no byte of it is below 0xff.
pub fn prefix_end(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

/// What a [`KeyRange`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangePage {
    /// In ascending order of their keys.
    pub entries: Vec<StoreEntry>,
    /// How many keys the range holds from its start on, whatever its limit.
    pub count: u64,
    /// The state that was read: every write up to this revision and none after it.
    pub revision: Revision,
}

impl RangePage {
    /// Whether the limit left something out.
    pub fn has_more(&self) -> bool {
        self.count > self.entries.len() as u64
    }
}

/// A key as it must be for a transaction to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The key to look at.
    pub key: Key,
    /// The revision of the write that last put it; `None`: it must be absent.
    pub revision: Option<Revision>,
}

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Puts a value, also where there is one.
    Put {
        /// The key to put.
        key: Key,
        /// What it holds from then on.
        value: Bytes,
        /// Removed after so long, never earlier, unless it was put again before; `None`: stays. Whole seconds, rounded
        /// up, and not zero.
        ttl: Option<Duration>,
    },
    /// Removes a key; removing an absent one changes nothing.
    Delete {
        /// The key to remove.
        key: Key,
    },
}

impl Op {
    /// The key that this changes.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// If every comparison holds, all changes happen at one revision; otherwise none does. No key may be changed twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// All must hold. None: unconditional.
    pub compares: Vec<Compare>,
    /// What to change.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// Puts a key that must not be there yet.
    pub fn create(key: impl Into<Key>, value: impl Into<Bytes>) -> Self {
        let key = key.into();
        Self {
            compares: vec![Compare { key: key.clone(), revision: None }],
            ops: vec![Op::Put { key, value: value.into(), ttl: None }],
        }
    }

    /// Puts a key that must still be as it was written at `seen`.
    pub fn update(key: impl Into<Key>, expected: Revision, value: impl Into<Bytes>) -> Self {
        let key = key.into();
        Self {
            compares: vec![Compare { key: key.clone(), revision: Some(expected) }],
            ops: vec![Op::Put { key, value: value.into(), ttl: None }],
        }
    }

    /// Removes a key that must still be as it was written at `seen`.
    pub fn delete(key: impl Into<Key>, expected: Revision) -> Self {
        let key = key.into();
        Self { compares: vec![Compare { key: key.clone(), revision: Some(expected) }], ops: vec![Op::Delete { key }] }
    }

    /// Whether it keeps the rules of this contract; [`Error::Malformed`] names the one it breaks. Every backend asks first.
    pub fn validate(&self) -> Result<(), Error> {
        let malformed = |reason: &str| Err(Error::Malformed { reason: reason.to_owned() });
        if self.ops.is_empty() {
            return malformed("a transaction without operations");
        }
        let compared = self.compares.iter().map(|compare| &compare.key);
        if compared.chain(self.ops.iter().map(Op::key)).any(|key| key.is_empty()) {
            return malformed("an empty key");
        }
        let mut changed: Vec<&Key> = self.ops.iter().map(Op::key).collect();
        changed.sort_unstable();
        if changed.windows(2).any(|pair| pair[0] == pair[1]) {
            return malformed("a transaction that changes one key twice");
        }
        let is_zero = |op: &Op| matches!(op, Op::Put { ttl: Some(Duration::ZERO), .. });
        if self.ops.iter().any(is_zero) {
            return malformed("a time to live of zero");
        }
        Ok(())
    }

    /// Gives every value that this puts a time to live.
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        for op in &mut self.ops {
            if let Op::Put { ttl: slot, .. } = op {
                *slot = Some(ttl);
            }
        }
        self
    }
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// It happened and is durable. If it changed nothing (only absent keys removed), this is the current revision.
    Committed(Revision),
    /// A comparison did not hold, so nothing happened.
    Conflict {
        /// What each compared key holds now, in the order of the comparisons.
        current: Vec<Option<StoreEntry>>,
        /// The state that was compared with.
        revision: Revision,
    },
}

/// One change, as a watcher sees it. The previous value is not part of it: whoever needs it keeps the state that the
/// events are applied to, as a watch cache does, and the store need not read every value twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// A key was put.
    Put(StoreEntry),
    /// A key was removed, by a transaction or because its time to live ran out.
    Delete {
        /// The key that is gone.
        key: Key,
        /// The revision of its removal.
        revision: Revision,
    },
}

impl StoreEvent {
    /// The key that changed.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Delete { key, .. } => key,
        }
    }

    /// The revision at which it changed.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put(entry) => entry.revision,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

/// What a watch delivers: whole transactions only, in the order of their revisions, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchBatch {
    /// Ascending by revision. Empty: only the progress below is news.
    pub events: Vec<StoreEvent>,
    /// Everything below the prefix up to and including this revision has now been delivered.
    pub complete_through: Revision,
}

/// The changes below a prefix, from a revision on. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    batches: mpsc::Receiver<Result<WatchBatch, Error>>,
    progress_requests: mpsc::Sender<()>,
}

impl Watch {
    /// A watch that is fed through the other ends: batches to deliver, and requests for progress to answer. Backends
    /// make these; an error that is sent must be the last thing sent.
    pub fn new(batches: mpsc::Receiver<Result<WatchBatch, Error>>, progress: mpsc::Sender<()>) -> Self {
        Self { batches, progress_requests: progress }
    }

    /// The next batch. After an error, or `None` when the store was closed, the watch is over; a new one from
    /// the last `through` plus one loses and repeats nothing, unless the error is [`Error::Compacted`].
    pub async fn next_batch(&mut self) -> Option<Result<WatchBatch, Error>> {
        self.batches.recv().await
    }

    /// A handle to ask for a batch soon that tells how far the watch has come, also when nothing changed.
    pub fn progress_request(&self) -> ProgressRequest {
        ProgressRequest { requests: self.progress_requests.clone() }
    }
}

/// Asks a [`Watch`] for progress, from anywhere.
#[derive(Clone, Debug)]
pub struct ProgressRequest {
    requests: mpsc::Sender<()>,
}

impl ProgressRequest {
    /// Asks once. Requests that are already waiting are enough, so a full queue is no failure.
    pub fn send(&self) {
        let _ = self.requests.try_send(());
    }
}

/// What can go wrong. Retrying is safe on everything that says so, and never on [`Error::OutcomeUnknown`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The history that was asked for is forgotten. List again and go on from there.
    #[error("revision {requested} is compacted; history begins at revision {oldest}")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The oldest revision that can still be read.
        oldest: Revision,
    },
    /// The revision is not written yet.
    #[error("revision {requested} is not written yet; the store is at revision {current}")]
    FutureRevision {
        /// What was asked for.
        requested: Revision,
        /// The newest revision there is.
        current: Revision,
    },
    /// The store cannot answer now, and nothing was changed. Retry later.
    #[error("the store is not available: {reason}")]
    Unavailable {
        /// What is wrong, and with which file or endpoint.
        reason: String,
    },
    /// A transaction was sent and its outcome is unknown: it may have happened. Read before writing again.
    #[error("the outcome of a write is unknown: {reason}")]
    OutcomeUnknown {
        /// What happened to the answer.
        reason: String,
    },
    /// The request is larger than the store takes.
    #[error("the request is too large: {reason}")]
    TooLarge {
        /// Which limit, and by how much.
        reason: String,
    },
    /// The request breaks the contract: a key changed twice, no operations, an empty key.
    #[error("the request is malformed: {reason}")]
    Malformed {
        /// Which rule.
        reason: String,
    },
    /// What is stored is damaged or not ours. Nothing is overwritten; a person must look.
    #[error("the store is damaged: {reason}")]
    Damaged {
        /// What, where, and what to do.
        reason: String,
    },
}

/// A revisioned key-value store.
///
/// Reads are linearizable: they see every write acknowledged before they began, by whichever server.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// One key as it is now, and the revision of the state that was read.
    fn get(&self, key: Key) -> StoreFuture<'_, (Option<StoreEntry>, Revision)>;

    /// Keys in order, now or at a revision.
    fn range(&self, range: KeyRange) -> StoreFuture<'_, RangePage>;

    /// Compares, then changes, in one step. Never repeated by the store once it may have happened.
    fn commit(&self, transaction: Transaction) -> StoreFuture<'_, TransactionOutcome>;

    /// The changes below `prefix` at and after `from`, none lost, none twice, no transaction torn. The first error is
    /// [`Error::Compacted`] if the state before `from` is forgotten: a watch from `r.next()` can begin exactly as long as
    /// a range at `r` can be read. `from` in the future waits for it, and tells of no progress below it.
    fn watch(&self, prefix: Key, from: Revision) -> StoreFuture<'_, Watch>;

    /// The newest revision that any server may already have acknowledged. Cheap: it is asked for at every read.
    fn revision(&self) -> StoreFuture<'_, Revision>;

    /// Whether a [`ProgressRequest`] is answered. Where it is not, a consistent read must read through. It may change
    /// while servers of the store are replaced, so whoever waits for an answer bounds the wait and then reads through.
    fn supports_progress_requests(&self) -> bool;

    /// Forgets what was overwritten or removed before `revision`, which itself can still be read. Forgetting less than
    /// is already forgotten does nothing; forgetting what is not written yet is [`Error::FutureRevision`].
    fn compact(&self, revision: Revision) -> StoreFuture<'_, ()>;
}

#[cfg(test)]
mod tests;
