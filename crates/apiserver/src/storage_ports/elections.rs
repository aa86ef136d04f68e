//! Elections among servers: over the same Leases, in the same namespace.

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

/// Servers hold their elections where their leases are: nothing else may be written before storage versions are published.
fn check_election_namespace(namespace: &str) -> Result<(), PortError> {
    if namespace == IDENTITY_LEASE_NAMESPACE {
        return Ok(());
    }
    Err(PortError::Unavailable {
        reason: format!("elections among servers are held in {IDENTITY_LEASE_NAMESPACE}, not in {namespace}"),
    })
}
