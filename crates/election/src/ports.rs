//! The storage port of an election.

use api::PortError;
use api::objects::Lease;
use futures_util::future::BoxFuture;

/// The future of a lease operation.
pub type LeaseFuture<'a, T> = BoxFuture<'a, Result<T, PortError>>;

/// Reads and writes leases, identified by namespace and name.
pub trait LeaseClient: Send + Sync {
    /// Returns the lease; `None` if it does not exist.
    fn get(&self, namespace: &str, name: &str) -> LeaseFuture<'_, Option<Lease>>;

    /// Creates a lease and returns it with uid and resourceVersion; [`PortError::Conflict`] if it exists.
    fn create(&self, lease: Lease) -> LeaseFuture<'_, Lease>;

    /// Replaces the lease if its uid and resourceVersion are unchanged, else fails with [`PortError::Conflict`].
    fn update(&self, lease: Lease) -> LeaseFuture<'_, Lease>;
}
