//! What peering and storage versions need of storage: leases and StorageVersion objects through the registry, as any client
//! sees them; endpoint records and documents below keys that no REST path reaches.

mod definitions;
mod elections;
mod feed;
mod leases;
mod raw;
mod storage_versions;
mod trust;

use std::sync::Arc;

use api::PortError;
use peering::ports::{Pending, Progress};
use registry::{Cache, Form, Registry, Shelf};
use store::{Key, Store};

pub use definitions::StoredDefinitions;
pub use leases::IdentityLeases;
pub use raw::{EndpointRecords, StoredDocuments};
pub use storage_versions::StorageVersionObjects;
pub use trust::PublishedTrust;

/// kube-apiserver's own place for endpoint records.
const RECORDS: &str = "peerserverleases";
/// No DNS name has an underscore, so that no resource is ever called so.
const DOCUMENTS: &str = "_unskew/documents";
/// Where Leases are, served or not.
const LEASES: &str = "leases";

/// The shelves that peering and storage versions need beside those of the REST API.
pub fn shelves(prefix: &str, others: &[(Key, Form)]) -> Vec<(Key, Form)> {
    let wanted = [
        (LEASES, Form::Objects),
        (storage_versions::STORAGE_VERSIONS, Form::Objects),
        (definitions::RESOURCES, Form::Objects),
        (definitions::SERVICES, Form::Objects),
        (trust::CONFIG_MAPS, Form::Objects),
        (RECORDS, Form::Raw),
        (DOCUMENTS, Form::Raw),
    ];
    let wanted = wanted.map(|(part, form)| (key(prefix, part), form));
    wanted.into_iter().filter(|(key, _)| others.iter().all(|(other, _)| other != key)).collect()
}

/// The ports of one server.
#[derive(Clone, Debug)]
pub struct Ports {
    /// The identity leases.
    pub leases: IdentityLeases,
    /// The endpoint records.
    pub records: EndpointRecords,
    /// The stored documents.
    pub documents: StoredDocuments,
    /// The definitions of custom resources and aggregated APIs.
    pub definitions: StoredDefinitions,
    /// What servers on this storage say about front proxies.
    pub trust: PublishedTrust,
    /// How far the cache has come.
    pub progress: CacheProgress,
}

impl Ports {
    /// Ports on a registry whose cache has the [`shelves`] of `prefix`.
    pub fn new(registry: &Registry, store: &Arc<dyn Store>, prefix: &str) -> Self {
        let shelf = |part: &str| shelf(registry.cache(), &key(prefix, part));
        Self {
            leases: IdentityLeases { registry: registry.clone(), shelf: shelf(LEASES) },
            records: EndpointRecords { registry: registry.clone(), store: store.clone(), shelf: shelf(RECORDS) },
            documents: StoredDocuments { registry: registry.clone(), store: store.clone(), shelf: shelf(DOCUMENTS) },
            definitions: StoredDefinitions {
                registry: registry.clone(),
                resources: shelf(definitions::RESOURCES),
                services: shelf(definitions::SERVICES),
            },
            trust: PublishedTrust { shelf: shelf(trust::CONFIG_MAPS) },
            progress: CacheProgress(registry.clone()),
        }
    }
}

/// Where StorageVersion objects lie.
pub(crate) fn storage_versions_prefix(prefix: &str) -> Key {
    key(prefix, storage_versions::STORAGE_VERSIONS)
}

fn key(prefix: &str, part: &str) -> Key {
    Key::from(format!("{prefix}/{part}/"))
}

fn shelf(cache: &Cache, key: &Key) -> Arc<Shelf> {
    cache.shelf(key).expect("the cache was started with the shelves of the ports").clone()
}

/// How far the cache has come that all feeds read from.
#[derive(Clone, Debug)]
pub struct CacheProgress(Registry);

impl Progress for CacheProgress {
    fn catch_up(&self) -> Pending<'_, ()> {
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
