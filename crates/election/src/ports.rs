//! What an election needs of storage.

use api::PortError;
use api::objects::Lease;
use futures_util::future::BoxFuture;

/// The answer of a port that is still under way.
pub type LeaseFuture<'a, T> = BoxFuture<'a, Result<T, PortError>>;

/// Leases, each known by its namespace and name.
pub trait LeaseClient: Send + Sync {
    /// One of them, as it is now.
    fn get(&self, namespace: &str, name: &str) -> LeaseFuture<'_, Option<Lease>>;

    /// Creates one; [`PortError::Conflict`] if it exists. Gives it back with its uid and resourceVersion.
    fn create(&self, lease: Lease) -> LeaseFuture<'_, Lease>;

    /// Replaces one that still has the uid and resourceVersion that the given one carries.
    fn update(&self, lease: Lease) -> LeaseFuture<'_, Lease>;
}
