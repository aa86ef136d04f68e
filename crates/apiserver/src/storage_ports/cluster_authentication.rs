//! Reads the ConfigMap `extension-apiserver-authentication`, in which all servers publish their front-proxy settings.

use std::sync::Arc;

use registry::{CachedValue, ResourceCache};
use store::Key;

pub(super) const CONFIG_MAPS_PREFIX: &str = "configmaps";
const CLUSTER_AUTHENTICATION_KEY: &[u8] = b"kube-system/extension-apiserver-authentication";

/// The ConfigMap to which every server on one storage adds its `--requestheader-*` settings.
#[derive(Clone, Debug)]
pub struct PublishedClusterAuthentication {
    pub(super) resource_cache: Arc<ResourceCache>,
}

impl PublishedClusterAuthentication {
    /// The ConfigMap as JSON from the cache; `None` if it does not exist.
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
