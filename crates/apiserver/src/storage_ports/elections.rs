//! Leader election over Leases in the namespace of the identity leases.

use api::PortError;
use api::objects::Lease;
use election::{LeaseClient, LeaseFuture};
use futures_util::FutureExt as _;
use membership::identity::IDENTITY_LEASE_NAMESPACE;

use super::identity_leases::IdentityLeases;

impl LeaseClient for IdentityLeases {
    fn get(&self, namespace: &str, name: &str) -> LeaseFuture<'_, Option<Lease>> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        async move {
            check_election_namespace(&namespace)?;
            self.read_lease(&name).await
        }
        .boxed()
    }

    fn create(&self, lease: Lease) -> LeaseFuture<'_, Lease> {
        async move {
            check_election_namespace(&lease.metadata.namespace)?;
            membership::ports::LeaseStorage::create(self, lease).await
        }
        .boxed()
    }

    fn update(&self, lease: Lease) -> LeaseFuture<'_, Lease> {
        async move {
            check_election_namespace(&lease.metadata.namespace)?;
            membership::ports::LeaseStorage::update(self, lease).await
        }
        .boxed()
    }
}

/// Requires the identity lease namespace: the storage-version barrier exempts only Leases in it, and elections precede
/// the publication of storage versions.
fn check_election_namespace(namespace: &str) -> Result<(), PortError> {
    if namespace == IDENTITY_LEASE_NAMESPACE {
        return Ok(());
    }
    Err(PortError::Unavailable {
        reason: format!("election leases must be in namespace {IDENTITY_LEASE_NAMESPACE}, not {namespace}"),
    })
}
