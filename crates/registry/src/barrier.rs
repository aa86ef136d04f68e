//! The permit that every write must hold.
//!
//! The storage-version barrier is not a filter on requests: internal writers write too, and a delete that leaves a finalizer
//! behind is a write. So it stands before the one persist step, and a write without a [`Permit`] does not compile.
//!
//! A permit may depend on another key being as it was: then the write happens only together with that, and nothing can come
//! between the check and the write.

use std::fmt;

use api::GroupResource;
use store::{Compare, Revision, StoreEntry};

/// Proof that the resource may be persisted now. Only a [`WriteBarrier`] hands it out.
#[derive(Debug)]
pub struct Permit {
    pub(crate) condition: Option<Compare>,
}

impl Permit {
    /// For barriers: the resource may be persisted.
    pub fn granted() -> Self {
        Self { condition: None }
    }

    /// For barriers: the resource may be persisted as long as a key is so.
    pub fn granted_if(condition: Compare) -> Self {
        Self { condition: Some(condition) }
    }
}

/// A write that asks for a permit.
#[derive(Clone, Copy, Debug)]
pub struct PermitRequest<'a> {
    /// What is written, as storage versions name it.
    pub resource: GroupResource<&'a str>,
    /// The key without the prefix of its shelf: namespace and name.
    pub path: &'a [u8],
    /// On whose behalf.
    pub author: WriteAuthor,
    /// What the write found there; `None`: nothing.
    pub expected_revision: Option<Revision>,
}

/// On whose behalf something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAuthor {
    /// Somebody asked for it.
    Client,
    /// The server itself needs it.
    Server,
}

/// Why a write must wait. Nothing was executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BarrierClosed {
    /// What is being waited for, for the client.
    pub reason: String,
}

/// Says which resources may be persisted.
pub trait WriteBarrier: fmt::Debug + Send + Sync + 'static {
    /// A permit for one write, or why not yet.
    fn permit(&self, request: &PermitRequest<'_>) -> Result<Permit, BarrierClosed>;

    /// The key that a permit depended on is not as it said. This is what the key holds, as of a revision; the next permit must
    /// go by it.
    fn handle_stale_permit(&self, request: &PermitRequest<'_>, current: Option<&StoreEntry>, as_of: Revision);
}

/// The barrier that is always open: storage versions are off.
#[derive(Debug)]
pub struct AlwaysOpenBarrier;

impl WriteBarrier for AlwaysOpenBarrier {
    fn permit(&self, _subject: &PermitRequest<'_>) -> Result<Permit, BarrierClosed> {
        Ok(Permit::granted())
    }

    fn handle_stale_permit(&self, _subject: &PermitRequest<'_>, _found: Option<&StoreEntry>, _as_of: Revision) {}
}
