//! Discovery of resources, which forgets a resource only after proof.
//!
//! A discovery document that has shrunk proves nothing: the server may have lost contact with the peers that serve the
//! rest. A resource that was listed once is kept until a request for it returns a 404 for the path.

use std::sync::Arc;

use discovery::parse::parse_aggregated;
use discovery::{GroupDiscoveryList, parse};
use http::StatusCode;
use http::header::HeaderValue;

use crate::client::{ApiClient, ApiError, METADATA_LIST_ONLY};
use crate::resources::{DiscoveredResource, DiscoveredResources};

const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The last discovery documents with their ETags, and the resources found in them.
#[derive(Debug)]
pub(crate) struct DiscoveryCache {
    client: ApiClient,
    core: DiscoveryDocument,
    others: DiscoveryDocument,
    resources: Arc<DiscoveredResources>,
}

#[derive(Debug)]
struct DiscoveryDocument {
    path: &'static str,
    etag: Option<HeaderValue>,
    groups: Arc<GroupDiscoveryList>,
}

/// A discovery document that could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoveryError {
    #[error("{path}: {source}")]
    Request {
        path: &'static str,
        #[source]
        source: ApiError,
    },
    #[error("{path}: {source}")]
    Parse {
        path: &'static str,
        #[source]
        source: parse::ParseError,
    },
}

impl DiscoveryCache {
    pub(crate) fn new(client: ApiClient) -> Self {
        let page = |path| DiscoveryDocument { path, etag: None, groups: Arc::new(GroupDiscoveryList::new(Vec::new())) };
        Self { client, core: page("/api"), others: page("/apis"), resources: Arc::default() }
    }

    /// Reads discovery and returns all listed resources, plus earlier ones that are not proven gone.
    pub(crate) async fn refresh(&mut self) -> Result<Arc<DiscoveredResources>, DiscoveryError> {
        let is_newer = self.core.refresh(&self.client).await? | self.others.refresh(&self.client).await?;
        let has_unlisted = || {
            let state = crate::resources::DiscoveryState::Unlisted;
            self.resources.all().iter().any(|resource| resource.discovery_state == state)
        };
        if !is_newer && !has_unlisted() {
            return Ok(self.resources.clone());
        }
        let listed = DiscoveredResources::from_documents(&self.core.groups, &self.others.groups);
        let mut gone = Vec::new();
        for missing in self.resources.missing_in(&listed) {
            if self.is_gone(&missing).await {
                gone.push(missing);
            }
        }
        self.resources = Arc::new(reconcile(&self.resources, listed, &gone));
        Ok(self.resources.clone())
    }

    /// True if a request for the resource returns a 404 for its path.
    async fn is_gone(&self, resource: &DiscoveredResource) -> bool {
        let path = format!("{}?limit=1", resource.path(""));
        let asked = self.client.get(&path, METADATA_LIST_ONLY).await;
        let is_gone = asked.as_ref().is_err_and(ApiError::is_resource_not_served);
        if !is_gone {
            tracing::info!(resource = %resource.name, "discovery no longer lists the resource, keeping it until a request returns 404");
        }
        is_gone
    }
}

/// The listed resources, plus previous ones that are not in `gone`.
fn reconcile(
    previous: &DiscoveredResources,
    mut listed: DiscoveredResources,
    gone: &[Arc<DiscoveredResource>],
) -> DiscoveredResources {
    for missing in previous.missing_in(&listed) {
        if !gone.contains(&missing) {
            listed.keep_unlisted(&missing);
        }
    }
    listed
}

impl DiscoveryDocument {
    /// Fetches the document; returns true if it has changed.
    async fn refresh(&mut self, client: &ApiClient) -> Result<bool, DiscoveryError> {
        let path = self.path;
        let answer = client.get_if_modified(path, ACCEPT_AGGREGATED, self.etag.as_ref()).await;
        let answer = answer.map_err(|source| DiscoveryError::Request { path, source })?;
        if answer.code == StatusCode::NOT_MODIFIED {
            return Ok(false);
        }
        let groups = parse_aggregated(&answer.body).map_err(|source| DiscoveryError::Parse { path, source })?;
        self.groups = Arc::new(groups);
        self.etag = answer.etag;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::DiscoveryState;
    use crate::resources::tests::parse_resources;

    #[test]
    fn unlisted_resource_is_kept_until_proven_gone() {
        let whole = parse_resources(&["v1 pods Pod ns list,delete", "batch/v1 jobs Job ns list,delete"]);
        let shrunk = || parse_resources(&["v1 pods Pod ns list,delete"]);
        let state =
            |known: &DiscoveredResources| known.find_by_kind("batch/v1", "Job").map(|jobs| jobs.discovery_state);
        let kept = reconcile(&whole, shrunk(), &[]);
        assert_eq!(state(&kept), Some(DiscoveryState::Unlisted));
        let still_kept = reconcile(&kept, shrunk(), &[]);
        assert_eq!(state(&still_kept), Some(DiscoveryState::Unlisted), "repeated reads do not remove it");
        let back = reconcile(&still_kept, whole, &[]);
        assert_eq!(state(&back), Some(DiscoveryState::Confirmed));
        let gone = reconcile(&still_kept, shrunk(), &still_kept.missing_in(&shrunk()));
        assert_eq!((state(&gone), gone.all().len()), (None, 1));
    }
}
