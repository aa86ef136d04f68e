//! Writes: compare-and-set over the store, through one persist step that requires a permit.

use std::time::Duration;

use api::GroupResource;
use bytes::Bytes;
use object::StoredObject;
use store::{Compare, Key, Op, Revision, StoreEntry, Transaction, TransactionOutcome};

use crate::barrier::{BarrierClosed, Permit, PermitRequest};
use crate::cache::{CachedEntry, CachedValue, ResourceCache};
use crate::read::{check_decodable, decode_entry};
use crate::{ReadError, Registry};

/// Conflicts in a row after which a write fails. Each means that another write to the key succeeded in between, so a
/// client should back off.
const ATTEMPTS_MAX: usize = 64;

/// What to do with a key, decided from its current value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteDecision {
    /// Stores a value: the JSON of an object without a resourceVersion.
    Put {
        /// The bytes to store.
        value: Bytes,
        /// The time to live; `None`: until it is deleted.
        ttl: Option<Duration>,
    },
    /// Removes the key.
    Delete,
    /// Writes nothing, so the resourceVersion stays.
    Keep,
}

/// What a write depends on, and what is written with it, in the same transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteConditions<'a> {
    /// Other keys, which must be at these revisions.
    pub compares: &'a [Compare],
    /// Writes to other keys. They need no permit, so they must not be objects.
    pub ops: &'a [Op],
}

impl<'a> WriteConditions<'a> {
    /// Conditions on other keys alone.
    pub fn unchanged(compares: &'a [Compare]) -> Self {
        Self { compares, ops: &[] }
    }
}

/// The result of a write.
#[derive(Debug)]
pub enum WriteOutcome {
    /// The object as stored, with its new revision.
    Put(StoredObject),
    /// The revision of the deletion.
    Deleted(Revision),
    /// Nothing was written.
    Unchanged,
}

/// The result of a write without retries.
#[derive(Debug)]
pub enum WriteOnceOutcome {
    /// The write succeeded.
    Written(WriteOutcome),
    /// The key is not at the expected revision; this is the current object.
    Conflict(Option<StoredObject>),
}

/// A failed write. Only [`WriteError::Store`] can leave the outcome unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError<E> {
    /// The decision function refused, given the newest state.
    #[error("refused")]
    Refused(E),
    /// The barrier is closed. Nothing was written.
    #[error(transparent)]
    BarrierClosed(#[from] BarrierClosed),
    /// The current state could not be read. Nothing was written.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store failed; its error tells whether the write may have happened.
    #[error(transparent)]
    Store(store::Error),
    /// A condition key is not at the expected revision. Nothing was written.
    #[error("a condition of the write was changed concurrently")]
    ConditionChanged {
        /// The key of the condition.
        key: Key,
        /// The revision of the store as of which the key was read.
        as_of: Revision,
    },
    /// Other writers changed the key in every attempt. Nothing was written.
    #[error("too many concurrent writes to this object")]
    TooManyConflicts,
}

impl Registry {
    /// Decides on the current value of a key and writes the decision, retrying on newer state after a conflict.
    ///
    /// The first attempt decides on the cache, which may lag: a refusal or [`WriteDecision::Keep`] counts only if it is
    /// decided on the newest state.
    pub async fn write<E>(
        &self,
        resource: GroupResource<&str>,
        resource_cache: &ResourceCache,
        key: &Key,
        decide: impl FnMut(Option<&StoredObject>) -> Result<WriteDecision, E>,
    ) -> Result<WriteOutcome, WriteError<E>> {
        self.write_if(resource, resource_cache, key, WriteConditions::default(), decide).await
    }

    /// Like [`Self::write`], but only while other keys are at their expected revisions, compared in the same transaction.
    /// [`WriteError::ConditionChanged`] names the first that is not.
    pub async fn write_if<E>(
        &self,
        resource: GroupResource<&str>,
        resource_cache: &ResourceCache,
        key: &Key,
        conditions: WriteConditions<'_>,
        mut decide: impl FnMut(Option<&StoredObject>) -> Result<WriteDecision, E>,
    ) -> Result<WriteOutcome, WriteError<E>> {
        let mut current = resource_cache.get(key);
        let mut is_newest = false;
        for _ in 0..ATTEMPTS_MAX {
            let latest = current.as_deref();
            if let Some(cached) = latest {
                check_decodable(cached)?;
            }
            let decision = match decide(latest.and_then(stored_object)) {
                Ok(decision) if decision != WriteDecision::Keep || is_newest => decision,
                Err(refusal) if is_newest => return Err(WriteError::Refused(refusal)),
                // The decision may differ on the newest state.
                Ok(_) | Err(_) => {
                    current = self.read_newest(key).await?;
                    is_newest = true;
                    continue;
                }
            };
            if decision == WriteDecision::Keep {
                return Ok(WriteOutcome::Unchanged);
            }
            let latest_revision = latest.map(|cached| cached.revision);
            let target = WriteTarget { resource, resource_cache, key, expected_revision: latest_revision, conditions };
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

    /// Writes a decision if the key is still at `expected_revision` (`None`: absent). For callers that wait between
    /// attempts.
    pub async fn write_once(
        &self,
        resource: GroupResource<&str>,
        resource_cache: &ResourceCache,
        key: &Key,
        expected_revision: Option<Revision>,
        decision: WriteDecision,
    ) -> Result<WriteOnceOutcome, WriteError<std::convert::Infallible>> {
        for _ in 0..ATTEMPTS_MAX {
            let conditions = WriteConditions::default();
            let target = WriteTarget { resource, resource_cache, key, expected_revision, conditions };
            match self.commit_once(target, &decision).await? {
                CommitOutcome::Committed(revision) => {
                    return Ok(WriteOnceOutcome::Written(write_outcome(decision, revision)));
                }
                // The condition of the permit did not hold.
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

    /// Waits until the barrier may permit writes of a resource. Callers bound the wait.
    pub async fn wait_until_permitted(&self, resource: GroupResource<&str>) {
        self.barrier.wait_until_permitted(resource).await;
    }

    /// Requests a permit from the barrier and persists with it.
    async fn commit_once<E>(
        &self,
        target: WriteTarget<'_>,
        decision: &WriteDecision,
    ) -> Result<CommitOutcome, WriteError<E>> {
        let WriteTarget { resource, resource_cache, key, expected_revision, conditions } = target;
        let path = key.strip_prefix(resource_cache.prefix().as_ref()).unwrap_or_default();
        let subject = PermitRequest { resource, path, author: self.author, expected_revision };
        let permit = self.barrier.permit(&subject)?;
        let depended_on = permit.condition.as_ref().map(|compare| compare.revision);
        match self.persist(permit, target, decision).await.map_err(WriteError::Store)? {
            TransactionOutcome::Committed(revision) => Ok(CommitOutcome::Committed(revision)),
            TransactionOutcome::Conflict { current, revision } => {
                let mut current = current.into_iter();
                let object = current.next().flatten();
                for condition in conditions.compares {
                    if current.next().flatten().map(|entry| entry.revision) != condition.revision {
                        return Err(WriteError::ConditionChanged { key: condition.key.clone(), as_of: revision });
                    }
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

    /// Commits the write with all its conditions. The only call of `Store::commit` in this crate.
    async fn persist(
        &self,
        permit: Permit,
        WriteTarget { key, expected_revision, conditions, .. }: WriteTarget<'_>,
        decision: &WriteDecision,
    ) -> Result<TransactionOutcome, store::Error> {
        let op = match decision {
            WriteDecision::Put { value, ttl } => Op::Put { key: key.clone(), value: value.clone(), ttl: *ttl },
            WriteDecision::Delete | WriteDecision::Keep => Op::Delete { key: key.clone() },
        };
        let own = Compare { key: key.clone(), revision: expected_revision };
        let compares =
            std::iter::once(own).chain(conditions.compares.iter().cloned()).chain(permit.condition).collect();
        let ops = std::iter::once(op).chain(conditions.ops.iter().cloned()).collect();
        self.store.commit(Transaction { compares, ops }).await
    }

    async fn read_newest(&self, key: &Key) -> Result<Option<std::sync::Arc<CachedEntry>>, ReadError> {
        let (entry, _) = self.store.get(key.clone()).await?;
        Ok(entry.map(|entry| std::sync::Arc::new(decode_entry(entry))))
    }
}

/// A key to write, with the conditions of the write.
#[derive(Clone, Copy)]
struct WriteTarget<'a> {
    resource: GroupResource<&'a str>,
    resource_cache: &'a ResourceCache,
    key: &'a Key,
    /// The required revision of the key; `None`: absent.
    expected_revision: Option<Revision>,
    conditions: WriteConditions<'a>,
}

/// The result of a transaction; a conflict holds the current entry of the key.
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
            StoredObject::from_storage(&value, revision.0).expect("a put decision holds the JSON of an object"),
        ),
        WriteDecision::Delete => WriteOutcome::Deleted(revision),
        WriteDecision::Keep => WriteOutcome::Unchanged,
    }
}
