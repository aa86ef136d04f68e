//! `extension-apiserver-authentication` as storage has it: what all servers on it say about front proxies.

use std::sync::Arc;

use registry::{Item, Shelf};
use store::Key;

/// Where ConfigMaps are.
pub(super) const CONFIG_MAPS: &str = "configmaps";
/// The object below that.
const NAME: &[u8] = b"kube-system/extension-apiserver-authentication";

/// The ConfigMap to which every server on one storage adds its `--requestheader-*` settings.
#[derive(Clone, Debug)]
pub struct PublishedTrust {
    pub(super) shelf: Arc<Shelf>,
}

impl PublishedTrust {
    /// The object, JSON, as far as the cache has come; `None` if there is none.
    pub fn config_map(&self) -> Option<Vec<u8>> {
        let mut key = self.shelf.prefix().to_vec();
        key.extend_from_slice(NAME);
        let cached = self.shelf.get(&Key::from(key))?;
        match &cached.item {
            Item::Object(stored) => Some(stored.body.to_vec()),
            Item::Raw(_) | Item::Undecodable(_) => None,
        }
    }
}
