//! Writes: compare-and-set over the store, through one persist step that needs a permit.

use std::time::Duration;

use api::GroupResource;
use bytes::Bytes;
use object::StoredObject;
use store::{Compare, Key, Op, Revision, StoreEntry, Transaction, TransactionOutcome};

use crate::barrier::{BarrierClosed, Permit, PermitRequest};
use crate::cache::{CachedEntry, CachedValue, ResourceCache};
use crate::read::{check_decodable, decode_entry};
use crate::{ReadError, Registry};

/// Every round means that somebody else's write succeeded in between. So many in a row are a storm that the client should
/// step back from.
const ATTEMPTS_MAX: usize = 64;

/// What to do with a key, decided from what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteDecision {
    /// Put these bytes: JSON without a resourceVersion.
    Put {
        /// What to store.
        value: Bytes,
        /// How long to keep it; `None`: until it is deleted.
        ttl: Option<Duration>,
    },
    /// Remove the key.
    Delete,
    /// Leave it as it is: nothing is written and the revision stays.
    Keep,
}

/// What became of a key.
#[derive(Debug)]
pub enum WriteOutcome {
    /// It was put and now is this.
    Put(StoredObject),
    /// It was removed at this revision.
    Deleted(Revision),
    /// Nothing was written.
    Unchanged,
}

/// What became of a write that was tried once.
#[derive(Debug)]
pub enum WriteOnceOutcome {
    /// It happened.
    Written(WriteOutcome),
    /// The key is not as it was seen; this is what it holds.
    Conflict(Option<StoredObject>),
}

/// Why a write did not happen, or may not have.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError<E> {
    /// The decision was to refuse, on the newest state.
    #[error("refused")]
    Refused(E),
    /// The barrier is closed. Nothing was executed.
    #[error(transparent)]
    BarrierClosed(#[from] BarrierClosed),
    /// The state could not be read, so there was nothing to decide on. Nothing was executed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store did not take it; whether it may have happened is in the error.
    #[error(transparent)]
    Store(store::Error),
    /// The key beside which the write was to happen is not as it was seen. Nothing was executed.
    #[error("what the write depends on was changed meanwhile")]
    ConditionChanged,
    /// Others wrote this key again and again. Nothing was executed.
    #[error("too many concurrent writes to this object")]
    TooManyConflicts,
}

impl Registry {
    /// Decides on what a key holds and writes the decision, again on newer state as long as others are quicker.
    ///
    /// The first round decides on the cache, which may be behind: a refusal counts only once the newest state was read.
    pub async fn write<E>(
        &self,
        resource: GroupResource<&str>,
        resource_cache: &ResourceCache,
        key: &Key,
        decide: impl FnMut(Option<&StoredObject>) -> Result<WriteDecision, E>,
    ) -> Result<WriteOutcome, WriteError<E>> {
        self.write_if(resource, resource_cache, key, None, decide).await
    }

    /// The same, but only while another key is as it was seen: nothing can come between what was concluded from that and the
    /// write. [`WriteError::ConditionChanged`] if it is not.
    pub async fn write_if<E>(
        &self,
        resource: GroupResource<&str>,
        resource_cache: &ResourceCache,
        key: &Key,
        condition: Option<&Compare>,
        mut decide: impl FnMut(Option<&StoredObject>) -> Result<WriteDecision, E>,
    ) -> Result<WriteOutcome, WriteError<E>> {
        let mut current = resource_cache.get(key);
        let mut is_newest = false;
        for _ in 0..ATTEMPTS_MAX {
            let seen = current.as_deref();
            if let Some(cached) = seen {
                check_decodable(cached)?;
            }
            let decision = match decide(seen.and_then(stored_object)) {
                Ok(decision) if decision != WriteDecision::Keep || is_newest => decision,
                Err(refusal) if is_newest => return Err(WriteError::Refused(refusal)),
                // It may look different on the newest state.
                Ok(_) | Err(_) => {
                    current = self.read_newest(key).await?;
                    is_newest = true;
                    continue;
                }
            };
            if decision == WriteDecision::Keep {
                return Ok(WriteOutcome::Unchanged);
            }
            let seen_revision = seen.map(|cached| cached.revision);
            let target = WriteTarget { resource, resource_cache, key, expected_revision: seen_revision, condition };
            match self.commit_once(target, &decision).await? {
                CommitOutcome::Committed(revision) => return Ok(write_outcome(decision, revision)),
                CommitOutcome::Conflict(found) => {
                    current = found.map(|entry| std::sync::Arc::new(decode_entry(entry)));
                    is_newest = true;
                }
            }
        }
        Err(WriteError::TooManyConflicts)
    }

    /// Writes a decision once, if the key is still as it was `seen` (absent, for `None`). For those who wait between tries.
    pub async fn write_once(
        &self,
        resource: GroupResource<&str>,
        resource_cache: &ResourceCache,
        key: &Key,
        expected_revision: Option<Revision>,
        decision: WriteDecision,
    ) -> Result<WriteOnceOutcome, WriteError<std::convert::Infallible>> {
        for _ in 0..ATTEMPTS_MAX {
            let target = WriteTarget { resource, resource_cache, key, expected_revision, condition: None };
            match self.commit_once(target, &decision).await? {
                CommitOutcome::Committed(revision) => {
                    return Ok(WriteOnceOutcome::Written(write_outcome(decision, revision)));
                }
                // It was the permit that did not hold.
                CommitOutcome::Conflict(found) if found.as_ref().map(|entry| entry.revision) == expected_revision => {}
                CommitOutcome::Conflict(found) => {
                    let found = found.map(decode_entry);
                    if let Some(found) = &found {
                        check_decodable(found)?;
                    }
                    return Ok(WriteOnceOutcome::Conflict(found.and_then(|found| stored_object(&found).cloned())));
                }
            }
        }
        Err(WriteError::TooManyConflicts)
    }

    /// Asks for a permit and persists with it.
    async fn commit_once<E>(
        &self,
        target: WriteTarget<'_>,
        decision: &WriteDecision,
    ) -> Result<CommitOutcome, WriteError<E>> {
        let WriteTarget { resource, resource_cache: shelf, key, expected_revision: seen, condition: beside } = target;
        let path = key.strip_prefix(shelf.prefix().as_ref()).unwrap_or_default();
        let subject = PermitRequest { resource, path, author: self.author, expected_revision: seen };
        let permit = self.barrier.permit(&subject)?;
        let depended_on = permit.condition.as_ref().map(|compare| compare.revision);
        match self.persist(permit, target, decision).await.map_err(WriteError::Store)? {
            TransactionOutcome::Committed(revision) => Ok(CommitOutcome::Committed(revision)),
            TransactionOutcome::Conflict { current, revision } => {
                let mut current = current.into_iter();
                let object = current.next().flatten();
                if let Some(beside) = beside
                    && current.next().flatten().map(|entry| entry.revision) != beside.revision
                {
                    return Err(WriteError::ConditionChanged);
                }
                if let (Some(depended_on), Some(found)) = (depended_on, current.next())
                    && found.as_ref().map(|entry| entry.revision) != depended_on
                {
                    self.barrier.handle_stale_permit(&subject, found.as_ref(), revision);
                }
                Ok(CommitOutcome::Conflict(object))
            }
        }
    }

    /// The one place where anything is persisted.
    async fn persist(
        &self,
        permit: Permit,
        WriteTarget { key, expected_revision: seen, condition: beside, .. }: WriteTarget<'_>,
        decision: &WriteDecision,
    ) -> Result<TransactionOutcome, store::Error> {
        let op = match decision {
            WriteDecision::Put { value, ttl } => Op::Put { key: key.clone(), value: value.clone(), ttl: *ttl },
            WriteDecision::Delete | WriteDecision::Keep => Op::Delete { key: key.clone() },
        };
        let own = Compare { key: key.clone(), revision: seen };
        let compares = std::iter::once(own).chain(beside.cloned()).chain(permit.condition).collect();
        self.store.commit(Transaction { compares, ops: vec![op] }).await
    }

    async fn read_newest(&self, key: &Key) -> Result<Option<std::sync::Arc<CachedEntry>>, ReadError> {
        let (entry, _) = self.store.get(key.clone()).await?;
        Ok(entry.map(|entry| std::sync::Arc::new(decode_entry(entry))))
    }
}

/// What is written, and on which conditions.
#[derive(Clone, Copy)]
struct WriteTarget<'a> {
    resource: GroupResource<&'a str>,
    resource_cache: &'a ResourceCache,
    key: &'a Key,
    /// The key must still be so; `None`: absent.
    expected_revision: Option<Revision>,
    /// And another one, if any, so.
    condition: Option<&'a Compare>,
}

/// How a transaction ended; a conflict tells what the key holds.
enum CommitOutcome {
    Committed(Revision),
    Conflict(Option<StoreEntry>),
}

fn stored_object(cached: &CachedEntry) -> Option<&StoredObject> {
    match &cached.value {
        CachedValue::Object(stored) => Some(stored),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
    }
}

fn write_outcome(decision: WriteDecision, revision: Revision) -> WriteOutcome {
    match decision {
        WriteDecision::Put { value, .. } => WriteOutcome::Put(
            StoredObject::from_storage(&value, revision.0).expect("whoever decides to put gives an object as JSON"),
        ),
        WriteDecision::Delete => WriteOutcome::Deleted(revision),
        WriteDecision::Keep => WriteOutcome::Unchanged,
    }
}
