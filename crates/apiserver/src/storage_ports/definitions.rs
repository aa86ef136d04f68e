//! CustomResourceDefinitions and APIServices from the cache. This server does not serve the resources that they define,
//! but must not respond 404 for them: a peer may serve them.

use std::sync::Arc;

use api::GroupVersionResource;
use futures_util::future::BoxFuture;
use membership::ports::{ChangeNotifications, DefinitionStorage};
use registry::{CacheWatcher, CachedValue, Registry, ResourceCache};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use store::Key;

pub(super) const CRDS_PREFIX: &str = "apiextensions.k8s.io/customresourcedefinitions";
pub(super) const API_SERVICES_PREFIX: &str = "apiregistration.k8s.io/apiservices";

/// The CustomResourceDefinitions and APIServices of the cluster. Clones share the caches.
#[derive(Clone, Debug)]
pub struct StoredDefinitions {
    pub(super) registry: Registry,
    pub(super) crd_cache: Arc<ResourceCache>,
    pub(super) api_service_cache: Arc<ResourceCache>,
}

#[derive(Deserialize)]
struct CustomResourceDefinition {
    spec: CustomResourceDefinitionSpec,
    #[serde(default)]
    status: CustomResourceDefinitionStatus,
}

#[derive(Deserialize)]
struct CustomResourceDefinitionSpec {
    #[serde(default)]
    versions: Vec<CustomResourceDefinitionVersion>,
}

#[derive(Deserialize)]
struct CustomResourceDefinitionVersion {
    name: String,
    #[serde(default)]
    served: bool,
}

#[derive(Default, Deserialize)]
struct CustomResourceDefinitionStatus {
    #[serde(default)]
    conditions: Vec<StatusCondition>,
}

#[derive(Deserialize)]
struct StatusCondition {
    r#type: String,
    status: String,
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

impl CustomResourceDefinition {
    /// True if the definition is established and marks the version as served.
    fn serves_version(&self, version: &str) -> bool {
        let is_established =
            |condition: &StatusCondition| condition.r#type == "Established" && condition.status == "True";
        self.status.conditions.iter().any(is_established)
            && self.spec.versions.iter().any(|candidate| candidate.name == version && candidate.served)
    }
}

impl DefinitionStorage for StoredDefinitions {
    fn defines(&self, name: GroupVersionResource<&str>) -> bool {
        let GroupVersionResource { group, version, resource } = name;
        // A CRD is named RESOURCE.GROUP and an APIService VERSION.GROUP.
        let definition = decode_by_name::<CustomResourceDefinition>(&self.crd_cache, &format!("{resource}.{group}"));
        let api_service = decode_by_name::<ApiService>(&self.api_service_cache, &format!("{version}.{group}"));
        definition.is_some_and(|definition| definition.serves_version(version))
            || api_service.is_some_and(|service| service.spec.service.is_some())
    }

    fn watch(&self) -> Box<dyn ChangeNotifications> {
        let watched = [&self.crd_cache, &self.api_service_cache]
            .map(|resource_cache| CacheSubscription { resource_cache: resource_cache.clone(), watcher: None });
        Box::new(DefinitionChanges { registry: self.registry.clone(), subscriptions: watched })
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
    subscriptions: [CacheSubscription; 2],
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
            let [resources, services] = &mut self.subscriptions;
            tokio::select! {
                () = resources.wait_for_change(&self.registry) => {}
                () = services.wait_for_change(&self.registry) => {}
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(definition: &str, version: &str, expected: bool) {
        let custom: CustomResourceDefinition = serde_json::from_str(definition).unwrap();
        assert_eq!(custom.serves_version(version), expected, "{definition} {version}");
    }

    #[test]
    fn only_served_versions_of_established_crds_count() {
        let spec = r#""spec":{"versions":[{"name":"v1","served":true},{"name":"v1beta1","served":false}]}"#;
        let with = |established: &str| {
            format!(r#"{{{spec},"status":{{"conditions":[{{"type":"Established","status":"{established}"}}]}}}}"#)
        };
        check(&with("True"), "v1", true);
        check(&with("True"), "v1beta1", false);
        check(&with("True"), "v2", false);
        check(&with("False"), "v1", false);
        check(&format!("{{{spec}}}"), "v1", false);
    }
}
