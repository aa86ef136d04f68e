//! What discovery lists of extension API servers.

use std::sync::Arc;

use discovery::build::{DiscoverySource, LocalGroupVersion};
use discovery::{DiscoveryFreshness, GroupDiscoveryList, ResourceDiscovery};

use crate::api_service::RemoteApiService;

/// The resources of a group-version as its extension API server lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedResources {
    /// In document order.
    pub resources: Vec<Arc<ResourceDiscovery>>,
    /// False if the last request for the document failed: the resources are those listed before.
    pub is_current: bool,
}

impl ListedResources {
    /// The resources of a group-version in the document of its server; none if the document does not list it, as in kube-apiserver.
    pub fn from_document(document: &GroupDiscoveryList, api_service: &RemoteApiService) -> Self {
        let listed = document.version(&api_service.group, &api_service.version);
        Self { resources: listed.map(|version| version.resources.clone()).unwrap_or_default(), is_current: true }
    }

    /// What is listed after a failed request: the last known resources, marked as not current; none if there never were any.
    pub fn after_failure(last: Option<&Self>) -> Self {
        Self { resources: last.map(|last| last.resources.clone()).unwrap_or_default(), is_current: false }
    }
}

/// The entry of a group-version in discovery; `Stale` until its server was reached.
pub fn group_version(api_service: &RemoteApiService, listed: Option<&ListedResources>) -> LocalGroupVersion {
    let is_current = listed.is_some_and(|listed| listed.is_current);
    LocalGroupVersion {
        source: DiscoverySource::Aggregated,
        group: api_service.group.as_str().into(),
        version: api_service.version.as_str().into(),
        group_priority: api_service.group_priority,
        version_priority: api_service.version_priority,
        freshness: if is_current { DiscoveryFreshness::Current } else { DiscoveryFreshness::Stale },
        resources: listed.map(|listed| listed.resources.clone()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn api_service() -> RemoteApiService {
        let Value::Object(object) = json!({"spec": {"group": "w.example", "version": "v1", "groupPriorityMinimum": 2000,
            "versionPriority": 7, "service": {"namespace": "n", "name": "s"}}})
        else {
            unreachable!("a literal object")
        };
        RemoteApiService::from_object(&object).unwrap()
    }

    #[test]
    fn last_known_resources_stay_listed_as_stale() {
        let document = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [
            {"metadata": {"name": "w.example"}, "versions": [{"version": "v1", "resources": [
                {"resource": "things", "scope": "Namespaced", "singularResource": "thing", "verbs": ["get"]}]}]}]});
        let document = discovery::parse::parse_aggregated(document.to_string().as_bytes()).unwrap();
        let service = api_service();
        assert_eq!(group_version(&service, None).freshness, DiscoveryFreshness::Stale);
        let known = ListedResources::from_document(&document, &service);
        let listed = group_version(&service, Some(&known));
        assert_eq!((listed.freshness, listed.resources.len()), (DiscoveryFreshness::Current, 1));
        let away = ListedResources::after_failure(Some(&known));
        let listed = group_version(&service, Some(&away));
        assert_eq!((listed.freshness, listed.resources.len()), (DiscoveryFreshness::Stale, 1));
        assert_eq!((listed.group_priority, listed.version_priority), (2000, 7));
        assert!(ListedResources::after_failure(None).resources.is_empty());
        let other = RemoteApiService { version: "v2".to_owned(), ..service };
        let unlisted = ListedResources::from_document(&document, &other);
        assert!(unlisted.is_current && unlisted.resources.is_empty());
    }
}
