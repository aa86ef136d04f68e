//! What an election needs of storage.

use api::objects::Lease;
use futures_util::future::BoxFuture;

/// The answer of a port that is still under way.
pub type Pending<'a, T> = BoxFuture<'a, Result<T, PortError>>;

/// Why storage did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// It is not as it was seen, or is there already.
    #[error("it was changed meanwhile")]
    Conflict,
    /// It is not there.
    #[error("it does not exist")]
    NotFound,
    /// Anything else; it may work later, and may have worked.
    #[error("storage does not answer: {reason}")]
    Unavailable {
        /// For the log.
        reason: String,
    },
}

/// Leases, each known by its namespace and name.
pub trait Leases: Send + Sync {
    /// One of them, as it is now.
    fn get(&self, namespace: &str, name: &str) -> Pending<'_, Option<Lease>>;

    /// Creates one; [`PortError::Conflict`] if it exists. Gives it back with its uid and resourceVersion.
    fn create(&self, lease: Lease) -> Pending<'_, Lease>;

    /// Replaces one that still has the uid and resourceVersion that the given one carries.
    fn update(&self, lease: Lease) -> Pending<'_, Lease>;
}
