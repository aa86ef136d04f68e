//! Discovery, read again and again, and never forgetting on its own.
//!
//! A document that has shrunk proves nothing: the server may have lost sight of those who serve the rest. What was listed once
//! is asked for, and only a server that says it has no such path makes it forgotten.

use std::sync::Arc;

use discovery::parse::parse_aggregated;
use discovery::{GroupDiscoveryList, parse};
use http::StatusCode;
use http::header::HeaderValue;

use crate::client::{ApiClient, ApiError, METADATA_LIST_ONLY};
use crate::resources::{DiscoveredResource, DiscoveredResources};

const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What discovery said, and what to ask it with next time.
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

/// Why discovery gave nothing.
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

    /// What there is now, and what there was and may still be.
    pub(crate) async fn refresh(&mut self) -> Result<Arc<DiscoveredResources>, DiscoveryError> {
        let is_newer = self.core.refresh(&self.client).await? | self.others.refresh(&self.client).await?;
        let has_unlisted = || {
            let standing = crate::resources::DiscoveryState::Unlisted;
            self.resources.all().iter().any(|resource| resource.discovery_state == standing)
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

    async fn is_gone(&self, resource: &DiscoveredResource) -> bool {
        let path = format!("{}?limit=1", resource.path(""));
        let asked = self.client.get(&path, METADATA_LIST_ONLY).await;
        let is_gone = asked.as_ref().is_err_and(ApiError::is_resource_not_served);
        if !is_gone {
            tracing::info!(resource = %resource.name, "discovery lists it no longer; it is kept until proven gone");
        }
        is_gone
    }
}

/// What is listed, and what was known before and is not proven to be gone.
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
    /// Whether there was a newer one.
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
        let standing =
            |known: &DiscoveredResources| known.find_by_kind("batch/v1", "Job").map(|jobs| jobs.discovery_state);
        let kept = reconcile(&whole, shrunk(), &[]);
        assert_eq!(standing(&kept), Some(DiscoveryState::Unlisted));
        let still_kept = reconcile(&kept, shrunk(), &[]);
        assert_eq!(standing(&still_kept), Some(DiscoveryState::Unlisted), "however often it is read");
        let back = reconcile(&still_kept, whole, &[]);
        assert_eq!(standing(&back), Some(DiscoveryState::Confirmed));
        let gone = reconcile(&still_kept, shrunk(), &still_kept.missing_in(&shrunk()));
        assert_eq!((standing(&gone), gone.all().len()), (None, 1));
    }
}
