//! The [`LeaseClient`] of leader elections over HTTP.

use api::objects::Lease;
use api::{GroupVersionResource, PortError};
use bytes::Bytes;
use election::{LeaseClient, LeaseFuture};
use serde_json::Value;

use crate::client::{ApiClient, ApiError};

const LEASES: GroupVersionResource<&str> =
    GroupVersionResource { group: "coordination.k8s.io", version: "v1", resource: "leases" };

/// Leases of the API server.
#[derive(Debug)]
pub struct ApiLeaseClient(pub ApiClient);

impl LeaseClient for ApiLeaseClient {
    fn get(&self, namespace: &str, name: &str) -> LeaseFuture<'_, Option<Lease>> {
        let (path, name) = (format!("{}/{name}", leases_path(namespace)), name.to_owned());
        Box::pin(async move {
            match self.0.get(&path, "application/json").await {
                Ok(answer) => parse_lease(&answer.body).map(Some),
                Err(error) if error.is_object_not_found(LEASES, &name) => Ok(None),
                Err(error) => Err(lease_error(&error, &name)),
            }
        })
    }

    fn create(&self, lease: Lease) -> LeaseFuture<'_, Lease> {
        Box::pin(async move {
            let (path, name) = (leases_path(&lease.metadata.namespace), lease.metadata.name.clone());
            let created = self.0.create(&path, &lease_json(&lease)).await;
            parse_lease(&created.map_err(|error| lease_error(&error, &name))?.body)
        })
    }

    fn update(&self, lease: Lease) -> LeaseFuture<'_, Lease> {
        Box::pin(async move {
            let name = lease.metadata.name.clone();
            let path = format!("{}/{name}", leases_path(&lease.metadata.namespace));
            let updated = self.0.update(&path, &lease_json(&lease)).await;
            parse_lease(&updated.map_err(|error| lease_error(&error, &name))?.body)
        })
    }
}

fn leases_path(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

fn lease_json(lease: &Lease) -> Value {
    serde_json::to_value(lease).expect("a lease has string keys")
}

fn parse_lease(body: &Bytes) -> Result<Lease, PortError> {
    serde_json::from_slice(body).map_err(|error| PortError::Unavailable { reason: error.to_string() })
}

fn lease_error(error: &ApiError, name: &str) -> PortError {
    match error {
        error if error.is_conflict() => PortError::Conflict,
        error if error.is_object_not_found(LEASES, name) => PortError::NotFound,
        error => PortError::Unavailable { reason: error.to_string() },
    }
}
