//! `extension-apiserver-authentication` as storage has it: what all servers on it say about front proxies.

use std::sync::Arc;

use registry::{CachedValue, ResourceCache};
use store::Key;

/// Where ConfigMaps are.
pub(super) const CONFIG_MAPS_PREFIX: &str = "configmaps";
/// The object below that.
const CLUSTER_AUTHENTICATION_KEY: &[u8] = b"kube-system/extension-apiserver-authentication";

/// The ConfigMap to which every server on one storage adds its `--requestheader-*` settings.
#[derive(Clone, Debug)]
pub struct PublishedClusterAuthentication {
    pub(super) resource_cache: Arc<ResourceCache>,
}

impl PublishedClusterAuthentication {
    /// The object, JSON, as far as the cache has come; `None` if there is none.
    pub fn config_map(&self) -> Option<Vec<u8>> {
        let mut key = self.resource_cache.prefix().to_vec();
        key.extend_from_slice(CLUSTER_AUTHENTICATION_KEY);
        let cached = self.resource_cache.get(&Key::from(key))?;
        match &cached.value {
            CachedValue::Object(stored) => Some(stored.body.to_vec()),
            CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
        }
    }
}
