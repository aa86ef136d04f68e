//! The key by which servers agree on the webhooks and policies in force.
//!
//! A write of a webhook configuration, policy or binding changes the key in its own transaction. Every other write
//! compares the key with the state that its decision was made under, so that no write is committed under configurations
//! that a server changed before. Kubernetes' servers do not know the key: theirs take effect when the watch delivers them.

use std::sync::Arc;

use registry::{ResourceCache, WatchCache};
use store::{Compare, Key, Op, Revision};

/// The guard as this server's cache has it.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionGuard {
    cache: Arc<ResourceCache>,
    key: Key,
}

impl AdmissionGuard {
    /// The guard below a prefix; `None` if the cache does not follow it.
    pub(crate) fn new(cache: &WatchCache, prefix: &Key) -> Option<Self> {
        let cache = cache.resource_cache(prefix)?.clone();
        Some(Self { cache, key: Key::from([prefix.as_ref(), b"configurations"].concat()) })
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// The condition of a write that is decided under what the cache has at `revision` or later, and that revision.
    pub(crate) fn condition(&self) -> (Compare, Revision) {
        let revision = self.cache.get(&self.key).map(|entry| entry.revision);
        (Compare { key: self.key.clone(), revision }, revision.unwrap_or(Revision(0)))
    }

    /// The change that goes with a write of a configuration. The value has no meaning.
    pub(crate) fn change(&self) -> Op {
        Op::Put { key: self.key.clone(), value: b"1".to_vec().into(), ttl: None }
    }
}
