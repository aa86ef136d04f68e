//! What is written in the transaction of a decision besides its key.

use std::sync::Arc;

use api::GroupResource;
use futures_util::future::BoxFuture;
use store::{ComputedOps, Key, Revision};

use crate::write::{DecidedWrite, WriteDecision};

/// A write to another key in the transaction of a [`DecidedWrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompanionWrite {
    /// The key, which no other companion has.
    pub key: Key,
    /// The revision of the key that the decision was made on; `None`: absent.
    pub expected_revision: Option<Revision>,
    /// What happens to the key. [`WriteDecision::Keep`] only requires that it is unchanged.
    pub decision: WriteDecision,
    /// The resource of the object that the key holds, which must have a permit of its own. `None` for a key that holds
    /// no object of a resource.
    pub resource: Option<CompanionResource>,
}

/// Writes to other keys that are computed in the transaction of a [`DecidedWrite`], from their state there.
#[derive(Clone, Debug)]
pub struct ComputedWrites {
    /// Changes only keys that exist.
    pub ops: Arc<dyn ComputedOps>,
    /// The resource of the objects that the keys hold.
    pub resource: CompanionResource,
}

/// The last step of a decision, which may wait for something that must not be held while decisions are made.
pub trait WriteCompletion<E>: Sync {
    /// Adds companions to a decision that is about to be committed, or refuses it. `None` if there is nothing to add.
    fn complete<'a>(&'a self, decided: &'a mut DecidedWrite) -> Option<BoxFuture<'a, Result<(), E>>>;

    /// What is computed in the transaction of the decision that was completed last. Only for stores that
    /// [`crate::Registry::computes_writes`].
    fn computed(&self) -> Option<ComputedWrites> {
        None
    }

    /// True if the caller does what the last decision lacked and writes again, so that a refusal of a new object is returned
    /// before the newest state is read.
    fn is_write_repeated(&self) -> bool {
        false
    }
}

pub(super) struct NoCompletion;

impl<E> WriteCompletion<E> for NoCompletion {
    fn complete<'a>(&'a self, _decided: &'a mut DecidedWrite) -> Option<BoxFuture<'a, Result<(), E>>> {
        None
    }
}

/// The resource of a [`CompanionWrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompanionResource {
    /// The resource in the notation of storage versions.
    pub name: GroupResource,
    /// The prefix of its keys.
    pub prefix: Key,
}
