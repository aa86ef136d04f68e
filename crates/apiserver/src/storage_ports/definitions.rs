//! The resources that definitions in storage bring: custom resources, and aggregated APIs from the cache of APIServices.
//! A resource that this server does not serve itself must not be 404 because of that: a peer may serve it.

use std::sync::Arc;

use api::GroupVersionResource;
use futures_util::future::BoxFuture;
use membership::ports::{ChangeNotifications, DefinitionStorage};
use registry::{CacheWatcher, CachedValue, Registry, ResourceCache};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use store::Key;
use tokio::sync::watch;

use crate::definitions::{CustomResources, LiveDefinitions};

pub(super) const CRDS_PREFIX: &str = "apiextensions.k8s.io/customresourcedefinitions";
pub(super) const API_SERVICES_PREFIX: &str = "apiregistration.k8s.io/apiservices";

/// The CustomResourceDefinitions and APIServices of the cluster. Clones share the caches.
#[derive(Clone, Debug)]
pub struct StoredDefinitions {
    pub(super) registry: Registry,
    pub(super) live: LiveDefinitions,
    pub(super) api_service_cache: Arc<ResourceCache>,
}

#[derive(Deserialize)]
struct ApiService {
    spec: ApiServiceSpec,
}

#[derive(Deserialize)]
struct ApiServiceSpec {
    /// The Service of the aggregated API server; `None` if kube-apiserver serves the version itself.
    #[serde(default)]
    service: Option<serde_json::Value>,
}

impl DefinitionStorage for StoredDefinitions {
    fn defines(&self, name: GroupVersionResource<&str>) -> bool {
        let custom = self.live.snapshot();
        // One whose definition cannot be read is served here too: with the reason.
        if custom.resource(name).is_some() {
            return true;
        }
        // An APIService is named VERSION.GROUP.
        let service_name = format!("{}.{}", name.version, name.group);
        let api_service = decode_by_name::<ApiService>(&self.api_service_cache, &service_name);
        api_service.is_some_and(|service| service.spec.service.is_some())
    }

    fn watch(&self) -> Box<dyn ChangeNotifications> {
        let api_services = CacheSubscription { resource_cache: self.api_service_cache.clone(), watcher: None };
        Box::new(DefinitionChanges {
            registry: self.registry.clone(),
            definitions: self.live.snapshots(),
            api_services,
        })
    }
}

/// Decodes the cached object of this name; `None` if it is absent or undecodable.
fn decode_by_name<T: DeserializeOwned>(resource_cache: &ResourceCache, name: &str) -> Option<T> {
    let key = Key::from([resource_cache.prefix().as_ref(), name.as_bytes()].concat());
    match &resource_cache.get(&key)?.value {
        CachedValue::Object(stored) => serde_json::from_slice(&stored.body).ok(),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
    }
}

struct DefinitionChanges {
    registry: Registry,
    definitions: watch::Receiver<Arc<CustomResources>>,
    api_services: CacheSubscription,
}

struct CacheSubscription {
    resource_cache: Arc<ResourceCache>,
    /// `None` before the first call, and after the watcher expired.
    watcher: Option<CacheWatcher>,
}

impl CacheSubscription {
    /// Waits for a change. Also returns after the first synchronization and when changes were missed.
    async fn wait_for_change(&mut self, registry: &Registry) {
        let Some(watcher) = &mut self.watcher else {
            if registry.cache().wait_for_sync().await.is_err() {
                // The server stops: no change will follow.
                std::future::pending::<()>().await;
            }
            self.watcher = registry.watch(&self.resource_cache, self.resource_cache.snapshot().revision).ok();
            return;
        };
        if watcher.next_changes().await.is_err() {
            self.watcher = None;
        }
    }
}

impl ChangeNotifications for DefinitionChanges {
    fn wait_for_change(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Self { registry, definitions, api_services } = self;
            tokio::select! {
                // Fails when the server stops: no change will follow.
                Ok(()) = definitions.changed() => {}
                () = api_services.wait_for_change(registry) => {}
            }
        })
    }
}
