//! What peering and storage versions need of storage: leases and StorageVersion objects through the registry, as any client
//! sees them; endpoint records and documents below keys that no REST path reaches.

mod cluster_authentication;
mod definitions;
mod elections;
mod identity_leases;
mod raw_records;
mod resource_feed;
mod storage_versions;

use std::sync::Arc;

use api::PortError;
use membership::ports::{FeedProgress, PortFuture};
use registry::{Registry, ResourceCache, ValueFormat, WatchCache};
use store::{Key, Store};

pub use cluster_authentication::PublishedClusterAuthentication;
pub use definitions::StoredDefinitions;
pub use identity_leases::IdentityLeases;
pub use raw_records::{EndpointRecords, StoredDocuments};
pub use storage_versions::StorageVersionObjects;

/// kube-apiserver's own place for endpoint records.
const ENDPOINT_RECORDS_PREFIX: &str = "peerserverleases";
/// No DNS name has an underscore, so that no resource is ever called so.
const DOCUMENTS_PREFIX: &str = "_unskew/documents";
/// Where Leases are, served or not.
const LEASES_PREFIX: &str = "leases";

/// The shelves that peering and storage versions need beside those of the REST API.
pub fn internal_resource_prefixes(prefix: &str, existing: &[(Key, ValueFormat)]) -> Vec<(Key, ValueFormat)> {
    let required = [
        (LEASES_PREFIX, ValueFormat::Objects),
        (storage_versions::STORAGE_VERSIONS_PREFIX, ValueFormat::Objects),
        (definitions::CRDS_PREFIX, ValueFormat::Objects),
        (definitions::API_SERVICES_PREFIX, ValueFormat::Objects),
        (cluster_authentication::CONFIG_MAPS_PREFIX, ValueFormat::Objects),
        (ENDPOINT_RECORDS_PREFIX, ValueFormat::Raw),
        (DOCUMENTS_PREFIX, ValueFormat::Raw),
    ];
    let required = required.map(|(part, form)| (key_prefix(prefix, part), form));
    required.into_iter().filter(|(key, _)| existing.iter().all(|(other, _)| other != key)).collect()
}

/// The ports of one server.
#[derive(Clone, Debug)]
pub struct PeeringStorage {
    /// The identity leases.
    pub leases: IdentityLeases,
    /// The endpoint records.
    pub records: EndpointRecords,
    /// The stored documents.
    pub documents: StoredDocuments,
    /// The definitions of custom resources and aggregated APIs.
    pub definitions: StoredDefinitions,
    /// What servers on this storage say about front proxies.
    pub cluster_authentication: PublishedClusterAuthentication,
    /// How far the cache has come.
    pub progress: CacheProgress,
}

impl PeeringStorage {
    /// Ports on a registry whose cache has the [`crate::resource_prefixes`] of `prefix`.
    pub fn new(registry: &Registry, store: &Arc<dyn Store>, prefix: &str) -> Self {
        let resource_cache = |part: &str| resource_cache(registry.cache(), &key_prefix(prefix, part));
        Self {
            leases: IdentityLeases { registry: registry.clone(), resource_cache: resource_cache(LEASES_PREFIX) },
            records: EndpointRecords {
                registry: registry.clone(),
                store: store.clone(),
                resource_cache: resource_cache(ENDPOINT_RECORDS_PREFIX),
            },
            documents: StoredDocuments {
                registry: registry.clone(),
                store: store.clone(),
                resource_cache: resource_cache(DOCUMENTS_PREFIX),
            },
            definitions: StoredDefinitions {
                registry: registry.clone(),
                crd_cache: resource_cache(definitions::CRDS_PREFIX),
                api_service_cache: resource_cache(definitions::API_SERVICES_PREFIX),
            },
            cluster_authentication: PublishedClusterAuthentication {
                resource_cache: resource_cache(cluster_authentication::CONFIG_MAPS_PREFIX),
            },
            progress: CacheProgress(registry.clone()),
        }
    }
}

/// Where StorageVersion objects lie.
pub(crate) fn storage_versions_prefix(prefix: &str) -> Key {
    key_prefix(prefix, storage_versions::STORAGE_VERSIONS_PREFIX)
}

fn key_prefix(prefix: &str, path: &str) -> Key {
    Key::from(format!("{prefix}/{path}/"))
}

fn resource_cache(cache: &WatchCache, key: &Key) -> Arc<ResourceCache> {
    cache.resource_cache(key).expect("the cache was started with the shelves of the ports").clone()
}

/// How far the cache has come that all feeds read from.
#[derive(Clone, Debug)]
pub struct CacheProgress(Registry);

impl FeedProgress for CacheProgress {
    fn catch_up(&self) -> PortFuture<'_, ()> {
        Box::pin(async move {
            match self.0.catch_up_with_store().await {
                Ok(true) => Ok(()),
                Ok(false) => Err(unavailable("the watch cache is behind")),
                Err(error) => Err(unavailable(error)),
            }
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "errors are given to it by value")]
fn unavailable(reason: impl ToString) -> PortError {
    PortError::Unavailable { reason: reason.to_string() }
}
