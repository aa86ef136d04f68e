//! The [`Store`] trait that both backends implement, and the values in its signatures.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

/// A key: any bytes, compared bytewise, for example `/registry/pods/default/web`.
pub type Key = Bytes;

/// The future that every [`Store`] method returns.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// The position of a write in the history of the whole store. Revisions only grow; a resourceVersion is a revision.
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

/// One key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEntry {
    /// Never empty.
    pub key: Key,
    /// The value exactly as it was put.
    pub value: Bytes,
    /// The revision of the put that wrote the value (etcd's mod_revision).
    pub revision: Revision,
}

/// A read of keys in ascending order. Built from [`KeyRange::prefix`] and narrowed by its methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Only keys that begin with these bytes.
    pub prefix: Key,
    /// Only keys at or after this one: the continue position of a paged list. Empty: from the start of the prefix.
    pub start: Key,
    /// The maximum number of entries to return; `None`: all.
    pub limit: Option<usize>,
    /// Reads the state at this revision; `None`: the current state.
    pub at_revision: Option<Revision>,
}

impl KeyRange {
    /// Reads every current key that begins with `prefix`.
    pub fn prefix(prefix: impl Into<Key>) -> Self {
        Self { prefix: prefix.into(), start: Key::new(), limit: None, at_revision: None }
    }

    /// Begins at `start` instead of the first key of the prefix.
    pub fn start(self, start: impl Into<Key>) -> Self {
        Self { start: start.into(), ..self }
    }

    /// Returns at most `limit` entries. A limit of 0 only counts.
    pub fn limit(self, limit: usize) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Reads a past state: [`Error::Compacted`] if its history is gone, [`Error::FutureRevision`] if it is not written
    /// yet.
    pub fn at_revision(self, revision: Revision) -> Self {
        Self { at_revision: Some(revision), ..self }
    }

    /// The first key that the range can contain.
    pub fn first_key(&self) -> &Key {
        if self.start > self.prefix { &self.start } else { &self.prefix }
    }
}

/// The first key after all keys that begin with `prefix`; `None` if every byte of the prefix is 0xff, so that no such
/// key exists.
pub fn prefix_end(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

/// The result of a [`KeyRange`] read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangePage {
    /// In ascending order of keys.
    pub entries: Vec<StoreEntry>,
    /// The number of keys in the range from its start on, regardless of the limit.
    pub count: u64,
    /// The revision of the state that was read: it contains every write up to this revision and none after.
    pub revision: Revision,
}

impl RangePage {
    /// True if the limit cut off entries.
    pub fn has_more(&self) -> bool {
        self.count > self.entries.len() as u64
    }
}

/// A precondition of a transaction on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The key to compare.
    pub key: Key,
    /// The required revision of the key's last put; `None`: the key must be absent.
    pub revision: Option<Revision>,
}

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Puts a value, overwriting any current one.
    Put {
        /// The key to put.
        key: Key,
        /// The new value.
        value: Bytes,
        /// The key is removed this long after the put, never earlier, unless it is put again before; `None`: it stays.
        /// Rounded up to whole seconds; zero is malformed.
        ttl: Option<Duration>,
    },
    /// Removes a key; removing an absent key changes nothing.
    Delete {
        /// The key to remove.
        key: Key,
    },
}

impl Op {
    /// The key that the operation changes.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// A set of changes that happen at one revision if every comparison holds, and not at all otherwise. Each key may be
/// changed only once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Preconditions, all of which must hold. Empty: unconditional.
    pub compares: Vec<Compare>,
    /// The changes; at least one.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// Puts a key that must be absent.
    pub fn create(key: impl Into<Key>, value: impl Into<Bytes>) -> Self {
        let key = key.into();
        Self {
            compares: vec![Compare { key: key.clone(), revision: None }],
            ops: vec![Op::Put { key, value: value.into(), ttl: None }],
        }
    }

    /// Puts a key that must still be at revision `expected`.
    pub fn update(key: impl Into<Key>, expected: Revision, value: impl Into<Bytes>) -> Self {
        let key = key.into();
        Self {
            compares: vec![Compare { key: key.clone(), revision: Some(expected) }],
            ops: vec![Op::Put { key, value: value.into(), ttl: None }],
        }
    }

    /// Removes a key that must still be at revision `expected`.
    pub fn delete(key: impl Into<Key>, expected: Revision) -> Self {
        let key = key.into();
        Self { compares: vec![Compare { key: key.clone(), revision: Some(expected) }], ops: vec![Op::Delete { key }] }
    }

    /// Checks the rules of this contract; [`Error::Malformed`] names the broken one. Every backend calls this first.
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

    /// Sets the time to live of every put.
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        for op in &mut self.ops {
            if let Op::Put { ttl: slot, .. } = op {
                *slot = Some(ttl);
            }
        }
        self
    }
}

/// New values of existing keys, computed from the state on which a transaction is committed.
pub trait ComputedValues: fmt::Debug + Send + Sync {
    /// The keys that [`ComputedValues::compute`] reads, and the only ones that it changes.
    fn keys(&self) -> &[Key];

    /// The new value of each key, in order, or `None` to commit nothing. A key without a new value stays as it is; an
    /// absent key must not get one. `current` holds the state of each key.
    ///
    /// Called for every state on which the transaction may be committed; the last call before a conflict is about the
    /// state that the conflict found. Other writes may wait meanwhile, so that this must be quick.
    fn compute(&self, current: &[Option<KeyState>]) -> Option<Vec<Option<Bytes>>>;
}

/// The state of a key from which a new value is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// The value.
    pub value: Bytes,
    /// The revision of a put of the key since which all its values were computed through this [`Store`]: other writers
    /// have not changed it since.
    pub since: Revision,
}

/// The puts of computed values.
pub(crate) fn computed_puts(
    keys: &[Key],
    current: &[Option<KeyState>],
    values: Vec<Option<Bytes>>,
) -> Result<Vec<Op>, Error> {
    let malformed = |reason: &str| Err(Error::Malformed { reason: reason.to_owned() });
    if values.len() != keys.len() {
        return malformed("a computation with too few or too many values");
    }
    let mut ops = Vec::new();
    for ((key, state), value) in keys.iter().zip(current).zip(values) {
        let Some(value) = value else { continue };
        if state.is_none() {
            return malformed("a computed value for an absent key");
        }
        ops.push(Op::Put { key: key.clone(), value, ttl: None });
    }
    Ok(ops)
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// The transaction is durable at this revision. If it changed nothing (removed only absent keys), this is the
    /// current revision.
    Committed(Revision),
    /// A comparison failed, so nothing changed.
    Conflict {
        /// The current entry of each compared key, in the order of the comparisons.
        current: Vec<Option<StoreEntry>>,
        /// The revision of the state that was compared with.
        revision: Revision,
    },
}

/// One change as a watch delivers it. It does not hold the previous value: a consumer that needs it, such as the watch
/// cache, keeps the state that it applies events to, which saves the store a second read of every value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// A key was put.
    Put(StoreEntry),
    /// A key was removed by a transaction or by the end of its time to live.
    Delete {
        /// The removed key.
        key: Key,
        /// The revision of the removal.
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

    /// The revision of the change.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put(entry) => entry.revision,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

/// One delivery of a watch: whole transactions only, in order of revision, each exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchBatch {
    /// Ascending by revision. Empty: a pure progress report.
    pub events: Vec<StoreEvent>,
    /// Every event below the prefix up to and including this revision has been delivered.
    pub complete_through: Revision,
}

/// The changes below a prefix from a revision on. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    batches: mpsc::Receiver<Result<WatchBatch, Error>>,
    progress_requests: mpsc::Sender<()>,
}

impl Watch {
    /// Builds a watch from the channels of a backend: batches to deliver, and requests for progress. A backend that
    /// sends an error must send nothing after it.
    pub fn new(batches: mpsc::Receiver<Result<WatchBatch, Error>>, progress: mpsc::Sender<()>) -> Self {
        Self { batches, progress_requests: progress }
    }

    /// Waits for the next batch. The watch is over after an error, or after `None` when the store was closed; a new
    /// watch from the last `complete_through` plus one loses and repeats nothing, unless the error is
    /// [`Error::Compacted`].
    pub async fn next_batch(&mut self) -> Option<Result<WatchBatch, Error>> {
        self.batches.recv().await
    }

    /// A handle that requests a progress batch, which reports the watch's revision even if nothing changed.
    pub fn progress_request(&self) -> ProgressRequest {
        ProgressRequest { requests: self.progress_requests.clone() }
    }
}

/// Requests progress of a [`Watch`]; clones may be used from any task.
#[derive(Clone, Debug)]
pub struct ProgressRequest {
    requests: mpsc::Sender<()>,
}

impl ProgressRequest {
    /// Requests one progress batch. Does nothing if a request is already pending.
    pub fn send(&self) {
        let _ = self.requests.try_send(());
    }
}

/// A failed store operation. A write must not be repeated after [`Error::OutcomeUnknown`], unless a read shows that it
/// did not happen.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The requested history has been compacted. List again and watch from there.
    #[error("revision {requested} is compacted; history begins at revision {oldest}")]
    Compacted {
        /// The revision that was requested.
        requested: Revision,
        /// The oldest revision that can still be read.
        oldest: Revision,
    },
    /// The requested revision is not written yet.
    #[error("revision {requested} is not written yet; the store is at revision {current}")]
    FutureRevision {
        /// The revision that was requested.
        requested: Revision,
        /// The newest revision of the store.
        current: Revision,
    },
    /// The store cannot respond now, and nothing was changed. Retry later.
    #[error("the store is not available: {reason}")]
    Unavailable {
        /// The cause, with the file or endpoint concerned.
        reason: String,
    },
    /// A transaction was sent and its response was lost: it may have been committed. Read before writing again.
    #[error("the outcome of a write is unknown: {reason}")]
    OutcomeUnknown {
        /// Why the response was lost.
        reason: String,
    },
    /// The request exceeds a size limit of the store.
    #[error("the request is too large: {reason}")]
    TooLarge {
        /// The limit, and by how much it is exceeded.
        reason: String,
    },
    /// The request breaks the contract: a key changed twice, no operations, an empty key.
    #[error("the request is malformed: {reason}")]
    Malformed {
        /// The rule that is broken.
        reason: String,
    },
    /// The stored data is damaged or not written by unskew. Nothing is overwritten; an operator must act.
    #[error("the store is damaged: {reason}")]
    Damaged {
        /// What is damaged, where, and what to do.
        reason: String,
    },
}

/// A revisioned key-value store.
///
/// Reads are linearizable: they see every write that any server acknowledged before the read began.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Reads one key, with the revision of the state that was read.
    fn get(&self, key: Key) -> StoreFuture<'_, (Option<StoreEntry>, Revision)>;

    /// Reads keys in order, at the current state or at a revision.
    fn range(&self, range: KeyRange) -> StoreFuture<'_, RangePage>;

    /// Commits a transaction atomically. The store never sends it a second time once it may have been committed.
    fn commit(&self, transaction: Transaction) -> StoreFuture<'_, TransactionOutcome>;

    /// Like [`Self::commit`], with puts that are computed from the state on which the comparisons hold. If the computation
    /// refuses, that is a [`TransactionOutcome::Conflict`]. Only stores of tests cannot do it.
    fn commit_computed(
        &self,
        _transaction: Transaction,
        _computed: Arc<dyn ComputedValues>,
    ) -> StoreFuture<'_, TransactionOutcome> {
        Box::pin(std::future::ready(Err(Error::Malformed { reason: "the store computes no values".to_owned() })))
    }

    /// Watches the changes below `prefix` at and after `from`: none lost, none repeated, no transaction split. The
    /// first error is [`Error::Compacted`] if the state before `from` is compacted: a watch from `r.next()` can begin
    /// exactly as long as a range at `r` can be read. A watch whose `from` lies in the future waits, and reports no
    /// progress below `from`.
    fn watch(&self, prefix: Key, from: Revision) -> StoreFuture<'_, Watch>;

    /// The newest revision that any server may already have acknowledged. Called for every consistent read, so it must
    /// be cheap.
    fn revision(&self) -> StoreFuture<'_, Revision>;

    /// True if the backend answers a [`ProgressRequest`]; otherwise consistent reads must bypass the cache. The value
    /// can change while etcd members are replaced, so callers bound their wait for progress and then bypass the cache.
    fn supports_progress_requests(&self) -> bool;

    /// Removes the history before `revision`, which itself stays readable. Compacting below an earlier compaction does
    /// nothing; compacting beyond the newest revision is [`Error::FutureRevision`].
    fn compact(&self, revision: Revision) -> StoreFuture<'_, ()>;
}

#[cfg(test)]
mod tests;
