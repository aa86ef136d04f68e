//! What tokens depend on: accounts, secrets, pods and nodes as this server has seen them.

use std::borrow::Cow;
use std::sync::Arc;

use access::tokens::{Existing, Kind, Objects};
use api::GroupVersionResource;
use object::Stored;
use registry::{Cached, Item, Registry, Shelf};
use serde::Deserialize;
use store::Key;

/// The cache's shelves of the four kinds. A token is judged by them at every use, so it dies as soon as the deletion of what
/// it depends on is seen here.
#[derive(Clone, Debug)]
pub struct Accounts {
    registry: Registry,
    shelves: Vec<(Kind, Arc<Shelf>)>,
}

#[derive(Deserialize)]
struct Envelope {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    deletion_timestamp: Option<api::time::Time>,
}

impl Accounts {
    /// The objects of a registry, whose shelves are found by the name of the resource.
    pub(crate) fn new(
        registry: Registry,
        shelf: impl Fn(GroupVersionResource<&'static str>) -> Option<Arc<Shelf>>,
    ) -> Self {
        let kinds = [Kind::ServiceAccount, Kind::Secret, Kind::Pod, Kind::Node];
        let shelves = kinds.into_iter().filter_map(|kind| {
            let name = GroupVersionResource { group: "", version: "v1", resource: kind.resource() };
            Some((kind, shelf(name)?))
        });
        Self { registry, shelves: shelves.collect() }
    }

    /// Waits until everything is seen that was written before, by whichever server. `false`: it cannot be had.
    pub(crate) async fn catch_up(&self) -> bool {
        self.registry.catch_up_with_store().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a token may depend on an object that is not seen yet");
            false
        })
    }

    fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Cached>> {
        let (_, shelf) = self.shelves.iter().find(|(known, _)| *known == kind)?;
        // Names come from tokens and bodies; none may reach into another namespace.
        if namespace.contains('/') || name.contains('/') {
            return None;
        }
        let mut key = shelf.prefix().to_vec();
        if !namespace.is_empty() {
            key.extend_from_slice(namespace.as_bytes());
            key.push(b'/');
        }
        key.extend_from_slice(name.as_bytes());
        shelf.get(&Key::from(key))
    }
}

impl Objects for Accounts {
    fn read(&self, kind: Kind, namespace: &str, name: &str) -> Option<Cow<'_, [u8]>> {
        let cached = self.get(kind, namespace, name)?;
        Some(Cow::Owned(stored(&cached)?.body.to_vec()))
    }

    fn find(&self, kind: Kind, namespace: &str, name: &str) -> Option<Existing> {
        let cached = self.get(kind, namespace, name)?;
        let stored = stored(&cached)?;
        let Envelope { metadata } = serde_json::from_slice(&stored.body).ok()?;
        let deletion = metadata.deletion_timestamp.map(api::time::Time::timestamp);
        Some(Existing { uid: stored.uid.to_string(), deletion })
    }
}

fn stored(cached: &Cached) -> Option<&Stored> {
    match &cached.item {
        Item::Object(stored) => Some(stored),
        Item::Raw(_) | Item::Undecodable(_) => None,
    }
}
