//! The permit that every write needs.
//!
//! The storage-version barrier is not a request filter: internal writers write too, and a delete that leaves finalizers
//! behind is a write. Therefore it guards the single persist step, and a write without a [`Permit`] does not compile.
//!
//! A permit may carry a condition on another key, which is compared in the transaction of the write, so that nothing
//! can come between the check and the write.

use std::fmt;
use std::pin::Pin;

use api::GroupResource;
use store::{Compare, Revision, StoreEntry};

/// Proof that a resource may be persisted now. Issued only by a [`WriteBarrier`].
#[derive(Debug)]
pub struct Permit {
    pub(crate) condition: Option<Compare>,
}

impl Permit {
    /// Permits a write unconditionally. For implementations of [`WriteBarrier`].
    pub fn granted() -> Self {
        Self { condition: None }
    }

    /// Permits a write as long as `condition` holds. For implementations of [`WriteBarrier`].
    pub fn granted_if(condition: Compare) -> Self {
        Self { condition: Some(condition) }
    }
}

/// A write that needs a permit.
#[derive(Clone, Copy, Debug)]
pub struct PermitRequest<'a> {
    /// The resource in the notation of storage versions.
    pub resource: GroupResource<&'a str>,
    /// The key without the prefix of its resource cache: namespace and name.
    pub path: &'a [u8],
    /// Who initiated the write.
    pub author: WriteAuthor,
    /// True if the write expects that the key is absent.
    pub is_create: bool,
}

/// Who initiated a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAuthor {
    /// A client request.
    Client,
    /// The server itself.
    Server,
}

/// A write that must wait for the barrier. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BarrierClosed {
    /// What the barrier waits for, as text for the client.
    pub reason: String,
}

/// Decides which resources may be persisted.
pub trait WriteBarrier: fmt::Debug + Send + Sync + 'static {
    /// Issues a permit for one write, or the reason for which it must wait.
    fn permit(&self, request: &PermitRequest<'_>) -> Result<Permit, BarrierClosed>;

    /// Reports that the condition of a permit did not hold. `current` is the entry of the condition's key at revision
    /// `as_of`; the next permit must use it.
    fn handle_stale_permit(&self, request: &PermitRequest<'_>, current: Option<&StoreEntry>, as_of: Revision);

    /// Waits until writes of a resource may be permitted. Never ends for a barrier that does not open by itself; callers
    /// bound the wait.
    fn wait_until_permitted<'a>(
        &'a self,
        _resource: GroupResource<&'a str>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(std::future::pending())
    }
}

/// A barrier that permits every write, for servers without storage versions.
#[derive(Debug)]
pub struct AlwaysOpenBarrier;

impl WriteBarrier for AlwaysOpenBarrier {
    fn permit(&self, _subject: &PermitRequest<'_>) -> Result<Permit, BarrierClosed> {
        Ok(Permit::granted())
    }

    fn handle_stale_permit(&self, _subject: &PermitRequest<'_>, _found: Option<&StoreEntry>, _as_of: Revision) {}
}
