//! The objects that service account tokens are bound to: ServiceAccounts, Secrets, Pods and Nodes from the watch cache.

use std::borrow::Cow;
use std::sync::Arc;

use access::tokens::{BoundObjectKind, BoundObjectState, BoundObjects};
use api::GroupVersionResource;
use object::StoredObject;
use registry::{CachedEntry, CachedValue, Registry, ResourceCache};
use serde::Deserialize;
use store::Key;

/// The caches of the four kinds. Tokens are validated against them on every use, so a token becomes invalid as soon as
/// this server sees the deletion of an object that it is bound to.
#[derive(Clone, Debug)]
pub struct CachedBoundObjects {
    registry: Registry,
    resource_caches: Vec<(BoundObjectKind, Arc<ResourceCache>)>,
}

#[derive(Deserialize)]
struct DeletionEnvelope {
    metadata: DeletionMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeletionMetadata {
    #[serde(default)]
    deletion_timestamp: Option<api::time::Time>,
}

impl CachedBoundObjects {
    /// `resource_cache` looks up the cache of a resource; kinds without one are treated as having no objects.
    pub(crate) fn new(
        registry: Registry,
        resource_cache: impl Fn(GroupVersionResource<&'static str>) -> Option<Arc<ResourceCache>>,
    ) -> Self {
        let kinds =
            [BoundObjectKind::ServiceAccount, BoundObjectKind::Secret, BoundObjectKind::Pod, BoundObjectKind::Node];
        let resource_caches = kinds.into_iter().filter_map(|kind| {
            let name = GroupVersionResource { group: "", version: "v1", resource: kind.resource() };
            Some((kind, resource_cache(name)?))
        });
        Self { registry, resource_caches: resource_caches.collect() }
    }

    /// Waits until the cache contains every write made before the call through any server. `false` if it does not catch
    /// up.
    pub(crate) async fn catch_up(&self) -> bool {
        self.registry.catch_up_with_store().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "watch cache cannot catch up with storage");
            false
        })
    }

    fn get_cached(&self, kind: BoundObjectKind, namespace: &str, name: &str) -> Option<Arc<CachedEntry>> {
        let (_, resource_cache) = self.resource_caches.iter().find(|(known, _)| *known == kind)?;
        // Names come from tokens and request bodies and must not reach into another namespace.
        if namespace.contains('/') || name.contains('/') {
            return None;
        }
        let mut key = resource_cache.prefix().to_vec();
        if !namespace.is_empty() {
            key.extend_from_slice(namespace.as_bytes());
            key.push(b'/');
        }
        key.extend_from_slice(name.as_bytes());
        resource_cache.get(&Key::from(key))
    }
}

impl BoundObjects for CachedBoundObjects {
    fn get_json(&self, kind: BoundObjectKind, namespace: &str, name: &str) -> Option<Cow<'_, [u8]>> {
        let cached = self.get_cached(kind, namespace, name)?;
        Some(Cow::Owned(as_stored_object(&cached)?.body.to_vec()))
    }

    fn get_state(&self, kind: BoundObjectKind, namespace: &str, name: &str) -> Option<BoundObjectState> {
        let cached = self.get_cached(kind, namespace, name)?;
        let stored = as_stored_object(&cached)?;
        let DeletionEnvelope { metadata } = serde_json::from_slice(&stored.body).ok()?;
        let deletion = metadata.deletion_timestamp.map(api::time::Time::timestamp);
        Some(BoundObjectState { uid: stored.uid.to_string(), deletion_time: deletion })
    }
}

fn as_stored_object(cached: &CachedEntry) -> Option<&StoredObject> {
    match &cached.value {
        CachedValue::Object(stored) => Some(stored),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
    }
}
