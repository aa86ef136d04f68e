//! Writes: compare-and-set over the store, through one persist step that requires a permit.

mod companions;

use std::sync::Arc;
use std::time::Duration;

use api::GroupResource;
use bytes::Bytes;
use object::StoredObject;
use store::{Compare, Key, Op, Revision, StoreEntry, Transaction, TransactionOutcome};

pub use self::companions::{CompanionResource, CompanionWrite, ComputedWrites};
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

/// A decision on a key, with the writes to other keys that belong to it.
#[derive(Clone, Debug)]
pub struct DecidedWrite {
    /// What happens to the key itself.
    pub decision: WriteDecision,
    /// Committed in the same transaction as the decision, and not at all if that is [`WriteDecision::Keep`].
    pub companions: Vec<CompanionWrite>,
    /// Committed likewise.
    pub computed: Option<ComputedWrites>,
}

impl From<WriteDecision> for DecidedWrite {
    fn from(decision: WriteDecision) -> Self {
        Self { decision, companions: Vec::new(), computed: None }
    }
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

/// The result of a write to a key that holds no object.
#[derive(Debug)]
pub enum RawWriteOutcome {
    /// The value is stored.
    Written,
    /// The key is not at the expected revision.
    Conflict {
        /// The entry of the key.
        current: Option<StoreEntry>,
        /// The revision of the store as of which the key was read.
        as_of: Revision,
    },
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
    /// A companion is not at the revision that the write was decided on. Nothing was written; the write is to be decided
    /// again on `current`.
    #[error("an object that is written together with this one was changed concurrently")]
    CompanionChanged {
        /// The key of the companion.
        key: Key,
        /// Its entry.
        current: Option<StoreEntry>,
        /// The revision of the store as of which the key was read.
        as_of: Revision,
    },
    /// The computation of other writes refused to. Nothing was written.
    #[error("a write that belongs to this one could not be computed")]
    ComputationRefused,
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
        let decide = |current: Option<&StoredObject>| decide(current).map(DecidedWrite::from);
        self.write_with_companions(resource, resource_cache, key, conditions, decide).await
    }

    /// Like [`Self::write_if`], where a decision may write other keys in the same transaction.
    /// [`WriteError::CompanionChanged`] names the first that is not at its expected revision.
    pub async fn write_with_companions<E>(
        &self,
        resource: GroupResource<&str>,
        resource_cache: &ResourceCache,
        key: &Key,
        conditions: WriteConditions<'_>,
        decide: impl FnMut(Option<&StoredObject>) -> Result<DecidedWrite, E>,
    ) -> Result<WriteOutcome, WriteError<E>> {
        self.write_in_attempts(resource, resource_cache, key, conditions, decide, || false).await
    }

    /// Like [`Self::write_with_companions`], as one of several attempts of the caller: while `is_attempt` is true, the
    /// caller does what the last decision lacked and writes again, so that a refusal of a new object is returned before the
    /// newest state is read.
    pub async fn write_in_attempts<E>(
        &self,
        resource: GroupResource<&str>,
        resource_cache: &ResourceCache,
        key: &Key,
        conditions: WriteConditions<'_>,
        mut decide: impl FnMut(Option<&StoredObject>) -> Result<DecidedWrite, E>,
        is_attempt: impl Fn() -> bool,
    ) -> Result<WriteOutcome, WriteError<E>> {
        let mut current = resource_cache.get(key);
        let mut is_newest = false;
        for _ in 0..ATTEMPTS_MAX {
            let latest = current.as_deref();
            if let Some(cached) = latest {
                check_decodable(cached)?;
            }
            let decided = match decide(latest.and_then(stored_object)) {
                Ok(decided) if decided.decision != WriteDecision::Keep || is_newest => decided,
                Err(refusal) if is_newest || latest.is_none() && is_attempt() => {
                    return Err(WriteError::Refused(refusal));
                }
                // The decision may differ on the newest state.
                Ok(_) | Err(_) => {
                    current = self.read_newest(key).await?;
                    is_newest = true;
                    continue;
                }
            };
            if decided.decision == WriteDecision::Keep {
                return Ok(WriteOutcome::Unchanged);
            }
            let latest_revision = latest.map(|cached| cached.revision);
            let target = WriteTarget { resource, resource_cache, key, expected_revision: latest_revision, conditions };
            match self.commit_once(target, &decided).await? {
                CommitOutcome::Committed(revision) => return Ok(write_outcome(decided.decision, revision)),
                CommitOutcome::Conflict(found) => {
                    current = found.map(|entry| Arc::new(decode_entry(entry)));
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
        let decided = DecidedWrite::from(decision);
        for _ in 0..ATTEMPTS_MAX {
            let conditions = WriteConditions::default();
            let target = WriteTarget { resource, resource_cache, key, expected_revision, conditions };
            match self.commit_once(target, &decided).await? {
                CommitOutcome::Committed(revision) => {
                    return Ok(WriteOnceOutcome::Written(write_outcome(decided.decision, revision)));
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

    /// Puts a value that is no object of a resource, and so needs no permit, if its key is at `expected_revision`
    /// (`None`: absent).
    pub async fn write_raw(
        &self,
        key: &Key,
        expected_revision: Option<Revision>,
        value: Bytes,
    ) -> Result<RawWriteOutcome, store::Error> {
        let compares = vec![Compare { key: key.clone(), revision: expected_revision }];
        let ops = vec![Op::Put { key: key.clone(), value, ttl: None }];
        Ok(match self.store.commit(Transaction { compares, ops }).await? {
            TransactionOutcome::Committed(_) => RawWriteOutcome::Written,
            TransactionOutcome::Conflict { current, revision } => {
                RawWriteOutcome::Conflict { current: current.into_iter().next().flatten(), as_of: revision }
            }
        })
    }

    /// Waits until the barrier may permit writes of a resource. Callers bound the wait.
    pub async fn wait_until_permitted(&self, resource: GroupResource<&str>) {
        self.barrier.wait_until_permitted(resource).await;
    }

    /// Requests a permit from the barrier for each object and persists with them.
    async fn commit_once<E>(
        &self,
        target: WriteTarget<'_>,
        decided: &DecidedWrite,
    ) -> Result<CommitOutcome, WriteError<E>> {
        let permit_requests = self.permit_requests(target, decided);
        let permits =
            permit_requests.iter().map(|request| self.barrier.permit(request)).collect::<Result<Vec<_>, _>>()?;
        let depended_on: Vec<Option<Option<Revision>>> =
            permits.iter().map(|permit| permit.condition.as_ref().map(|compare| compare.revision)).collect();
        match self.persist(permits, target, decided).await.map_err(WriteError::Store)? {
            TransactionOutcome::Committed(revision) => Ok(CommitOutcome::Committed(revision)),
            TransactionOutcome::Conflict { current, revision } => {
                let mut current = current.into_iter();
                let object = current.next().flatten();
                for condition in target.conditions.compares {
                    if current.next().flatten().map(|entry| entry.revision) != condition.revision {
                        return Err(WriteError::ConditionChanged { key: condition.key.clone(), as_of: revision });
                    }
                }
                let companions: Vec<_> = current.by_ref().take(decided.companions.len()).collect();
                let mut is_permit_stale = false;
                for (request, depended_on) in permit_requests.iter().zip(depended_on) {
                    let Some(depended_on) = depended_on else { continue };
                    if let Some(found) = current.next()
                        && found.as_ref().map(|entry| entry.revision) != depended_on
                    {
                        is_permit_stale = true;
                        self.barrier.handle_stale_permit(request, found.as_ref(), revision);
                    }
                }
                // The object itself first: what is decided on its newest state may have other companions.
                if object.as_ref().map(|entry| entry.revision) != target.expected_revision {
                    return Ok(CommitOutcome::Conflict(object));
                }
                for (companion, found) in decided.companions.iter().zip(companions) {
                    if found.as_ref().map(|entry| entry.revision) != companion.expected_revision {
                        let key = companion.key.clone();
                        return Err(WriteError::CompanionChanged { key, current: found, as_of: revision });
                    }
                }
                match decided.computed {
                    Some(_) if !is_permit_stale => Err(WriteError::ComputationRefused),
                    Some(_) | None => Ok(CommitOutcome::Conflict(object)),
                }
            }
        }
    }

    /// The permits that a write needs: its own and one per object among its companions.
    fn permit_requests<'a>(
        &self,
        target: WriteTarget<'a>,
        DecidedWrite { companions, computed, .. }: &'a DecidedWrite,
    ) -> Vec<PermitRequest<'a>> {
        let WriteTarget { resource, resource_cache, key, expected_revision, .. } = target;
        let author = self.author;
        let path = key.strip_prefix(resource_cache.prefix().as_ref()).unwrap_or_default();
        let own = PermitRequest { resource, path, author, is_create: expected_revision.is_none() };
        let beside = |CompanionResource { name, prefix }: &'a CompanionResource, key: &'a Key, is_create| {
            let resource = GroupResource { group: &*name.group, resource: &*name.resource };
            let path = key.strip_prefix(prefix.as_ref()).unwrap_or_default();
            PermitRequest { resource, path, author, is_create }
        };
        let of_companions = companions.iter().filter_map(|companion| {
            Some(beside(companion.resource.as_ref()?, &companion.key, companion.expected_revision.is_none()))
        });
        let of_computed = computed
            .iter()
            .flat_map(|computed| computed.values.keys().iter().map(|key| beside(&computed.resource, key, false)));
        std::iter::once(own).chain(of_companions).chain(of_computed).collect()
    }

    /// Commits the write with all its conditions. The only way by which this crate stores objects.
    async fn persist(
        &self,
        permits: Vec<Permit>,
        WriteTarget { key, expected_revision, conditions, .. }: WriteTarget<'_>,
        DecidedWrite { decision, companions, computed }: &DecidedWrite,
    ) -> Result<TransactionOutcome, store::Error> {
        let own = Compare { key: key.clone(), revision: expected_revision };
        let beside = companions
            .iter()
            .map(|companion| Compare { key: companion.key.clone(), revision: companion.expected_revision });
        let compares = std::iter::once(own)
            .chain(conditions.compares.iter().cloned())
            .chain(beside)
            .chain(permits.into_iter().filter_map(|permit| permit.condition))
            .collect();
        let ops = op_of(key, decision)
            .into_iter()
            .chain(companions.iter().filter_map(|companion| op_of(&companion.key, &companion.decision)))
            .chain(conditions.ops.iter().cloned())
            .collect();
        let transaction = Transaction { compares, ops };
        match computed {
            None => self.store.commit(transaction).await,
            Some(computed) => self.store.commit_computed(transaction, computed.values.clone()).await,
        }
    }

    async fn read_newest(&self, key: &Key) -> Result<Option<Arc<CachedEntry>>, ReadError> {
        let (entry, _) = self.store.get(key.clone()).await?;
        Ok(entry.map(|entry| Arc::new(decode_entry(entry))))
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

fn op_of(key: &Key, decision: &WriteDecision) -> Option<Op> {
    match decision {
        WriteDecision::Put { value, ttl } => Some(Op::Put { key: key.clone(), value: value.clone(), ttl: *ttl }),
        WriteDecision::Delete => Some(Op::Delete { key: key.clone() }),
        WriteDecision::Keep => None,
    }
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
