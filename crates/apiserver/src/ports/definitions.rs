//! The definitions of custom resources and of aggregated APIs, as this server has seen them in storage. It serves none of
//! them itself, but must not call absent what they bring.

use std::sync::Arc;

use api::GroupVersionResource;
use futures_util::future::BoxFuture;
use peering::ports::{Changes, Definitions};
use registry::{Item, Registry, Shelf, Watcher};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use store::Key;

/// Where CustomResourceDefinitions are.
pub(super) const RESOURCES: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Where APIServices are.
pub(super) const SERVICES: &str = "apiregistration.k8s.io/apiservices";

/// The definitions of a cluster. Clones share them.
#[derive(Clone, Debug)]
pub struct StoredDefinitions {
    pub(super) registry: Registry,
    pub(super) resources: Arc<Shelf>,
    pub(super) services: Arc<Shelf>,
}

#[derive(Deserialize)]
struct CustomResource {
    spec: CustomResourceSpec,
    #[serde(default)]
    status: CustomResourceStatus,
}

#[derive(Deserialize)]
struct CustomResourceSpec {
    #[serde(default)]
    versions: Vec<CustomResourceVersion>,
}

#[derive(Deserialize)]
struct CustomResourceVersion {
    name: String,
    #[serde(default)]
    served: bool,
}

#[derive(Default, Deserialize)]
struct CustomResourceStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Deserialize)]
struct ApiService {
    spec: ApiServiceSpec,
}

#[derive(Deserialize)]
struct ApiServiceSpec {
    /// Who serves the version; `None` for API servers themselves.
    #[serde(default)]
    service: Option<serde_json::Value>,
}

impl CustomResource {
    /// A server has taken it up, and serves this version of it.
    fn brings(&self, version: &str) -> bool {
        let is_established = |condition: &Condition| condition.r#type == "Established" && condition.status == "True";
        self.status.conditions.iter().any(is_established)
            && self.spec.versions.iter().any(|known| known.name == version && known.served)
    }
}

impl Definitions for StoredDefinitions {
    fn bring(&self, name: GroupVersionResource<&str>) -> bool {
        let GroupVersionResource { group, version, resource } = name;
        // Both kinds are called after what they bring.
        let custom = read::<CustomResource>(&self.resources, &format!("{resource}.{group}"));
        let handed_on = read::<ApiService>(&self.services, &format!("{version}.{group}"));
        custom.is_some_and(|custom| custom.brings(version))
            || handed_on.is_some_and(|service| service.spec.service.is_some())
    }

    fn follow(&self) -> Box<dyn Changes> {
        let watched = [&self.resources, &self.services].map(|shelf| Watched { shelf: shelf.clone(), watcher: None });
        Box::new(DefinitionChanges { registry: self.registry.clone(), watched })
    }
}

/// What is stored under a name, if it can be read.
fn read<T: DeserializeOwned>(shelf: &Shelf, name: &str) -> Option<T> {
    let key = Key::from([shelf.prefix().as_ref(), name.as_bytes()].concat());
    match &shelf.get(&key)?.item {
        Item::Object(stored) => serde_json::from_slice(&stored.body).ok(),
        Item::Raw(_) | Item::Undecodable(_) => None,
    }
}

struct DefinitionChanges {
    registry: Registry,
    watched: [Watched; 2],
}

struct Watched {
    shelf: Arc<Shelf>,
    /// `None` before the first look, and again after changes were missed.
    watcher: Option<Watcher>,
}

impl Watched {
    /// Waits for a change. Missed ones are a change as well, and so is the first look.
    async fn changed(&mut self, registry: &Registry) {
        let Some(watcher) = &mut self.watcher else {
            if registry.cache().filled().await.is_err() {
                // The server stops, and nothing will ever be new.
                std::future::pending::<()>().await;
            }
            self.watcher = registry.watch(&self.shelf, self.shelf.snapshot().revision).ok();
            return;
        };
        if watcher.next().await.is_err() {
            self.watcher = None;
        }
    }
}

impl Changes for DefinitionChanges {
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let [resources, services] = &mut self.watched;
            tokio::select! {
                () = resources.changed(&self.registry) => {}
                () = services.changed(&self.registry) => {}
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(definition: &str, version: &str, expected: bool) {
        let custom: CustomResource = serde_json::from_str(definition).unwrap();
        assert_eq!(custom.brings(version), expected, "{definition} {version}");
    }

    #[test]
    fn only_versions_that_are_served_of_a_definition_that_was_taken_up_are_brought() {
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
