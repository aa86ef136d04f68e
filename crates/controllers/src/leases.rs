//! Elections over HTTP: the port that `election` asks for, on this client.

use api::objects::Lease;
use api::{GroupVersionResource, PortError};
use bytes::Bytes;
use election::{Leases, Pending};
use serde_json::Value;

use crate::client::{CallError, Client};

const LEASES: GroupVersionResource<&str> =
    GroupVersionResource { group: "coordination.k8s.io", version: "v1", resource: "leases" };

/// Leases as the API server has them.
#[derive(Debug)]
pub(crate) struct ApiLeases(pub(crate) Client);

impl Leases for ApiLeases {
    fn get(&self, namespace: &str, name: &str) -> Pending<'_, Option<Lease>> {
        let (path, name) = (format!("{}/{name}", path(namespace)), name.to_owned());
        Box::pin(async move {
            match self.0.get(&path, "application/json").await {
                Ok(answer) => read(&answer.body).map(Some),
                Err(error) if error.is_absent(LEASES, &name) => Ok(None),
                Err(error) => Err(fault(&error, &name)),
            }
        })
    }

    fn create(&self, lease: Lease) -> Pending<'_, Lease> {
        Box::pin(async move {
            let (path, name) = (path(&lease.metadata.namespace), lease.metadata.name.clone());
            let created = self.0.create(&path, &value(&lease)).await;
            read(&created.map_err(|error| fault(&error, &name))?.body)
        })
    }

    fn update(&self, lease: Lease) -> Pending<'_, Lease> {
        Box::pin(async move {
            let name = lease.metadata.name.clone();
            let path = format!("{}/{name}", path(&lease.metadata.namespace));
            let updated = self.0.update(&path, &value(&lease)).await;
            read(&updated.map_err(|error| fault(&error, &name))?.body)
        })
    }
}

fn path(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

fn value(lease: &Lease) -> Value {
    serde_json::to_value(lease).expect("a lease has string keys")
}

fn read(body: &Bytes) -> Result<Lease, PortError> {
    serde_json::from_slice(body).map_err(|error| PortError::Unavailable { reason: error.to_string() })
}

fn fault(error: &CallError, name: &str) -> PortError {
    match error {
        error if error.is_conflict() => PortError::Conflict,
        error if error.is_absent(LEASES, name) => PortError::NotFound,
        error => PortError::Unavailable { reason: error.to_string() },
    }
}
