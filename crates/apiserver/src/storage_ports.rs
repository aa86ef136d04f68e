//! Implements the storage ports of `membership`, `election` and `storageversion`. Leases and StorageVersion objects go
//! through the registry and are visible to clients; endpoint records and discovery documents are raw values that no
//! REST path reaches.

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

use crate::definitions::LiveDefinitions;
use crate::extension_apis::LiveExtensionApis;

pub use cluster_authentication::PublishedClusterAuthentication;
pub use definitions::StoredDefinitions;
pub use identity_leases::IdentityLeases;
pub use raw_records::{EndpointRecords, StoredDocuments};
pub use storage_versions::StorageVersionObjects;

/// The prefix of endpoint records, as in kube-apiserver.
const ENDPOINT_RECORDS_PREFIX: &str = "peerserverleases";
/// The prefix of discovery documents. No resource can use it: group and resource names contain no underscore.
const DOCUMENTS_PREFIX: &str = "_unskew/documents";
/// The prefix of the key that every write of an admission configuration changes, and that every other write compares.
const ADMISSION_GUARD_PREFIX: &str = "_unskew/admission";
/// The prefix of Leases, whether the server serves them over REST or not.
const LEASES_PREFIX: &str = "leases";

/// The key prefixes that the ports need in the watch cache, without those in `existing`.
pub fn internal_resource_prefixes(prefix: &str, existing: &[(Key, ValueFormat)]) -> Vec<(Key, ValueFormat)> {
    let required = [
        (LEASES_PREFIX, ValueFormat::Objects),
        (storage_versions::STORAGE_VERSIONS_PREFIX, ValueFormat::Objects),
        (definitions::CRDS_PREFIX, ValueFormat::Objects),
        (definitions::API_SERVICES_PREFIX, ValueFormat::Objects),
        (cluster_authentication::CONFIG_MAPS_PREFIX, ValueFormat::Objects),
        (ENDPOINT_RECORDS_PREFIX, ValueFormat::Raw),
        (DOCUMENTS_PREFIX, ValueFormat::Raw),
        (ADMISSION_GUARD_PREFIX, ValueFormat::Raw),
    ];
    let required = required.map(|(part, form)| (key_prefix(prefix, part), form));
    required.into_iter().filter(|(key, _)| existing.iter().all(|(other, _)| other != key)).collect()
}

/// The storage ports of one server.
#[derive(Clone, Debug)]
pub struct PeeringStorage {
    /// The identity lease of each member.
    pub leases: IdentityLeases,
    /// The address of each member.
    pub records: EndpointRecords,
    /// The discovery documents that members publish.
    pub documents: StoredDocuments,
    /// CustomResourceDefinitions and APIServices.
    pub definitions: StoredDefinitions,
    /// The front-proxy settings that all servers publish.
    pub cluster_authentication: PublishedClusterAuthentication,
    /// Waits for the cache to catch up with storage.
    pub progress: CacheProgress,
}

impl PeeringStorage {
    /// Creates the ports. The registry's cache must hold [`crate::resource_prefixes`] and
    /// [`internal_resource_prefixes`] of `prefix`.
    pub fn new(
        registry: &Registry,
        store: &Arc<dyn Store>,
        prefix: &str,
        live: &LiveDefinitions,
        extension_apis: Option<&LiveExtensionApis>,
    ) -> Self {
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
                live: live.clone(),
                api_service_cache: resource_cache(definitions::API_SERVICES_PREFIX),
            },
            cluster_authentication: PublishedClusterAuthentication {
                resource_cache: resource_cache(cluster_authentication::CONFIG_MAPS_PREFIX),
            },
            progress: CacheProgress { definitions: live.clone(), extension_apis: extension_apis.cloned() },
        }
    }
}

/// The cache of the APIServices.
pub(crate) fn api_services_cache(cache: &WatchCache, prefix: &str) -> Arc<ResourceCache> {
    resource_cache(cache, &key_prefix(prefix, definitions::API_SERVICES_PREFIX))
}

/// The cache of the CustomResourceDefinitions.
pub(crate) fn definitions_cache(cache: &WatchCache, prefix: &str) -> Arc<ResourceCache> {
    resource_cache(cache, &key_prefix(prefix, definitions::CRDS_PREFIX))
}

pub(crate) fn admission_guard_prefix(prefix: &str) -> Key {
    key_prefix(prefix, ADMISSION_GUARD_PREFIX)
}

pub(crate) fn storage_versions_prefix(prefix: &str) -> Key {
    key_prefix(prefix, storage_versions::STORAGE_VERSIONS_PREFIX)
}

fn key_prefix(prefix: &str, path: &str) -> Key {
    Key::from(format!("{prefix}/{path}/"))
}

fn resource_cache(cache: &WatchCache, key: &Key) -> Arc<ResourceCache> {
    cache.resource_cache(key).expect("the cache was started with the prefixes of the ports").clone()
}

/// The progress of the watch cache that feeds all ports, and of the values that follow it.
#[derive(Clone, Debug)]
pub struct CacheProgress {
    definitions: LiveDefinitions,
    /// `None` if no APIService is followed.
    extension_apis: Option<LiveExtensionApis>,
}

impl FeedProgress for CacheProgress {
    fn catch_up(&self) -> PortFuture<'_, ()> {
        Box::pin(async move {
            let has_extension_apis = async || match &self.extension_apis {
                Some(extension_apis) => extension_apis.catch_up_with_cache().await,
                None => true,
            };
            match self.definitions.catch_up().await && has_extension_apis().await {
                true => Ok(()),
                false => Err(unavailable("the watch cache has not caught up with storage")),
            }
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err, which passes errors by value")]
fn unavailable(reason: impl ToString) -> PortError {
    PortError::Unavailable { reason: reason.to_string() }
}
