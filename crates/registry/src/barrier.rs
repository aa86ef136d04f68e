//! The permit that every write must hold.
//!
//! The storage-version barrier is not a filter on requests: internal writers write too, and a delete that leaves a finalizer
//! behind is a write. So it stands before the one persist step, and a write without a [`Permit`] does not compile.

use std::fmt;

use api::GroupResource;

/// Proof that the resource may be persisted now. Only a [`Barrier`] hands it out.
#[derive(Debug)]
pub struct Permit(());

impl Permit {
    /// For barriers: the resource may be persisted.
    pub fn granted() -> Self {
        Self(())
    }
}

/// Why a write must wait. Nothing was executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Held {
    /// What is being waited for, for the client.
    pub reason: String,
}

/// Says which resources may be persisted.
pub trait Barrier: fmt::Debug + Send + Sync + 'static {
    /// A permit for one write, or why not yet.
    fn permit(&self, resource: GroupResource<&str>) -> Result<Permit, Held>;
}

/// The barrier that is always open: storage versions are off.
#[derive(Debug)]
pub struct Open;

impl Barrier for Open {
    fn permit(&self, _resource: GroupResource<&str>) -> Result<Permit, Held> {
        Ok(Permit::granted())
    }
}
