//! Writes: compare-and-set over the store, through one persist step that needs a permit.

use std::time::Duration;

use api::GroupResource;
use bytes::Bytes;
use object::Stored;
use store::{Compare, Entry, Key, Op, Outcome, Revision, Transaction};

use crate::barrier::{Held, Permit, Subject};
use crate::cache::{Cached, Item, Shelf};
use crate::read::{read_through, refuse_undecodable};
use crate::{ReadError, Registry};

/// Every round means that somebody else's write succeeded in between. So many in a row are a storm that the client should
/// step back from.
const ROUNDS_MAX: usize = 64;

/// What to do with a key, decided from what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
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
pub enum Written {
    /// It was put and now is this.
    Put(Stored),
    /// It was removed at this revision.
    Deleted(Revision),
    /// Nothing was written.
    Kept,
}

/// What became of a write that was tried once.
#[derive(Debug)]
pub enum Attempt {
    /// It happened.
    Written(Written),
    /// The key is not as it was seen; this is what it holds.
    Changed(Option<Stored>),
}

/// Why a write did not happen, or may not have.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError<E> {
    /// The decision was to refuse, on the newest state.
    #[error("refused")]
    Refused(E),
    /// The barrier is closed. Nothing was executed.
    #[error(transparent)]
    Held(#[from] Held),
    /// The state could not be read, so there was nothing to decide on. Nothing was executed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store did not take it; whether it may have happened is in the error.
    #[error(transparent)]
    Store(store::Error),
    /// The key beside which the write was to happen is not as it was seen. Nothing was executed.
    #[error("what the write depends on was changed meanwhile")]
    Moved,
    /// Others wrote this key again and again. Nothing was executed.
    #[error("too many concurrent writes to this object")]
    Busy,
}

impl Registry {
    /// Decides on what a key holds and writes the decision, again on newer state as long as others are quicker.
    ///
    /// The first round decides on the cache, which may be behind: a refusal counts only once the newest state was read.
    pub async fn write<E>(
        &self,
        resource: GroupResource<&str>,
        shelf: &Shelf,
        key: &Key,
        decide: impl FnMut(Option<&Stored>) -> Result<Decision, E>,
    ) -> Result<Written, WriteError<E>> {
        self.write_beside(resource, shelf, key, None, decide).await
    }

    /// The same, but only while another key is as it was seen: nothing can come between what was concluded from that and the
    /// write. [`WriteError::Moved`] if it is not.
    pub async fn write_beside<E>(
        &self,
        resource: GroupResource<&str>,
        shelf: &Shelf,
        key: &Key,
        beside: Option<&Compare>,
        mut decide: impl FnMut(Option<&Stored>) -> Result<Decision, E>,
    ) -> Result<Written, WriteError<E>> {
        let mut current = shelf.get(key);
        let mut is_newest = false;
        for _ in 0..ROUNDS_MAX {
            let seen = current.as_deref();
            if let Some(cached) = seen {
                refuse_undecodable(cached)?;
            }
            let decision = match decide(seen.and_then(stored_of)) {
                Ok(decision) if decision != Decision::Keep || is_newest => decision,
                Err(refusal) if is_newest => return Err(WriteError::Refused(refusal)),
                // It may look different on the newest state.
                Ok(_) | Err(_) => {
                    current = self.newest(key).await?;
                    is_newest = true;
                    continue;
                }
            };
            if decision == Decision::Keep {
                return Ok(Written::Kept);
            }
            let seen_revision = seen.map(|cached| cached.revision);
            let target = Target { resource, shelf, key, seen: seen_revision, beside };
            match self.try_once(target, &decision).await? {
                Tried::Committed(revision) => return Ok(written(decision, revision)),
                Tried::Conflict(found) => {
                    current = found.map(|entry| std::sync::Arc::new(read_through(entry)));
                    is_newest = true;
                }
            }
        }
        Err(WriteError::Busy)
    }

    /// Writes a decision once, if the key is still as it was `seen` (absent, for `None`). For those who wait between tries.
    pub async fn write_once(
        &self,
        resource: GroupResource<&str>,
        shelf: &Shelf,
        key: &Key,
        seen: Option<Revision>,
        decision: Decision,
    ) -> Result<Attempt, WriteError<std::convert::Infallible>> {
        for _ in 0..ROUNDS_MAX {
            let target = Target { resource, shelf, key, seen, beside: None };
            match self.try_once(target, &decision).await? {
                Tried::Committed(revision) => return Ok(Attempt::Written(written(decision, revision))),
                // It was the permit that did not hold.
                Tried::Conflict(found) if found.as_ref().map(|entry| entry.revision) == seen => {}
                Tried::Conflict(found) => {
                    let found = found.map(read_through);
                    if let Some(found) = &found {
                        refuse_undecodable(found)?;
                    }
                    return Ok(Attempt::Changed(found.and_then(|found| stored_of(&found).cloned())));
                }
            }
        }
        Err(WriteError::Busy)
    }

    /// Asks for a permit and persists with it.
    async fn try_once<E>(&self, target: Target<'_>, decision: &Decision) -> Result<Tried, WriteError<E>> {
        let Target { resource, shelf, key, seen, beside } = target;
        let path = key.strip_prefix(shelf.prefix().as_ref()).unwrap_or_default();
        let subject = Subject { resource, path, author: self.author, seen };
        let permit = self.barrier.permit(&subject)?;
        let depended_on = permit.while_unchanged.as_ref().map(|compare| compare.revision);
        match self.persist(permit, target, decision).await.map_err(WriteError::Store)? {
            Outcome::Committed(revision) => Ok(Tried::Committed(revision)),
            Outcome::Conflict { current, revision } => {
                let mut current = current.into_iter();
                let object = current.next().flatten();
                if let Some(beside) = beside
                    && current.next().flatten().map(|entry| entry.revision) != beside.revision
                {
                    return Err(WriteError::Moved);
                }
                if let (Some(depended_on), Some(found)) = (depended_on, current.next())
                    && found.as_ref().map(|entry| entry.revision) != depended_on
                {
                    self.barrier.correct(&subject, found.as_ref(), revision);
                }
                Ok(Tried::Conflict(object))
            }
        }
    }

    /// The one place where anything is persisted.
    async fn persist(
        &self,
        permit: Permit,
        Target { key, seen, beside, .. }: Target<'_>,
        decision: &Decision,
    ) -> Result<Outcome, store::Error> {
        let op = match decision {
            Decision::Put { value, ttl } => Op::Put { key: key.clone(), value: value.clone(), ttl: *ttl },
            Decision::Delete | Decision::Keep => Op::Delete { key: key.clone() },
        };
        let own = Compare { key: key.clone(), revision: seen };
        let compares = std::iter::once(own).chain(beside.cloned()).chain(permit.while_unchanged).collect();
        self.store.commit(Transaction { compares, ops: vec![op] }).await
    }

    async fn newest(&self, key: &Key) -> Result<Option<std::sync::Arc<Cached>>, ReadError> {
        let (entry, _) = self.store.get(key.clone()).await?;
        Ok(entry.map(|entry| std::sync::Arc::new(read_through(entry))))
    }
}

/// What is written, and on which conditions.
#[derive(Clone, Copy)]
struct Target<'a> {
    resource: GroupResource<&'a str>,
    shelf: &'a Shelf,
    key: &'a Key,
    /// The key must still be so; `None`: absent.
    seen: Option<Revision>,
    /// And another one, if any, so.
    beside: Option<&'a Compare>,
}

/// How a transaction ended; a conflict tells what the key holds.
enum Tried {
    Committed(Revision),
    Conflict(Option<Entry>),
}

fn stored_of(cached: &Cached) -> Option<&Stored> {
    match &cached.item {
        Item::Object(stored) => Some(stored),
        Item::Raw(_) | Item::Undecodable(_) => None,
    }
}

fn written(decision: Decision, revision: Revision) -> Written {
    match decision {
        Decision::Put { value, .. } => Written::Put(
            Stored::from_storage(&value, revision.0).expect("whoever decides to put gives an object as JSON"),
        ),
        Decision::Delete => Written::Deleted(revision),
        Decision::Keep => Written::Kept,
    }
}
