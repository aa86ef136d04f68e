//! What is written in the transaction of a decision besides its key.

use std::sync::Arc;

use api::GroupResource;
use store::{ComputedValues, Key, Revision};

use crate::write::WriteDecision;

/// A write to another key in the transaction of a [`DecidedWrite`](super::DecidedWrite).
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

/// Writes to other keys that are computed in the transaction of a [`DecidedWrite`](super::DecidedWrite), from their state there.
#[derive(Clone, Debug)]
pub struct ComputedWrites {
    /// The values.
    pub values: Arc<dyn ComputedValues>,
    /// The resource of the objects that the keys hold.
    pub resource: CompanionResource,
}

/// The resource of a [`CompanionWrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompanionResource {
    /// The resource in the notation of storage versions.
    pub name: GroupResource,
    /// The prefix of its keys.
    pub prefix: Key,
}
