//! Elections among servers: over the same Leases, in the same namespace.

use api::PortError;
use api::objects::Lease;
use election::{Leases, Pending};
use futures_util::FutureExt as _;
use peering::identity::NAMESPACE;

use super::leases::IdentityLeases;

impl Leases for IdentityLeases {
    fn get(&self, namespace: &str, name: &str) -> Pending<'_, Option<Lease>> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        async move {
            refuse_elsewhere(&namespace)?;
            self.read(&name).await
        }
        .boxed()
    }

    fn create(&self, lease: Lease) -> Pending<'_, Lease> {
        async move {
            refuse_elsewhere(&lease.metadata.namespace)?;
            peering::ports::Leases::create(self, lease).await
        }
        .boxed()
    }

    fn update(&self, lease: Lease) -> Pending<'_, Lease> {
        async move {
            refuse_elsewhere(&lease.metadata.namespace)?;
            peering::ports::Leases::update(self, lease).await
        }
        .boxed()
    }
}

/// Servers hold their elections where their leases are: nothing else may be written before storage versions are published.
fn refuse_elsewhere(namespace: &str) -> Result<(), PortError> {
    if namespace == NAMESPACE {
        return Ok(());
    }
    Err(PortError::Unavailable {
        reason: format!("elections among servers are held in {NAMESPACE}, not in {namespace}"),
    })
}
