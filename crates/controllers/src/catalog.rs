//! Discovery, read again and again, and never forgetting on its own.
//!
//! A document that has shrunk proves nothing: the server may have lost sight of those who serve the rest. What was listed once
//! is asked for, and only a server that says it has no such path makes it forgotten.

use std::sync::Arc;

use discovery::parse::parse_aggregated;
use discovery::{Groups, parse};
use http::StatusCode;
use http::header::HeaderValue;

use crate::client::{CallError, Client, METADATA_LIST_ONLY};
use crate::resources::{Resource, Resources};

const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What discovery said, and what to ask it with next time.
#[derive(Debug)]
pub(crate) struct Catalog {
    client: Client,
    core: Page,
    others: Page,
    known: Arc<Resources>,
}

#[derive(Debug)]
struct Page {
    path: &'static str,
    etag: Option<HeaderValue>,
    groups: Arc<Groups>,
}

/// Why discovery gave nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CatalogError {
    #[error("{path}: {source}")]
    Call {
        path: &'static str,
        #[source]
        source: CallError,
    },
    #[error("{path}: {source}")]
    Parse {
        path: &'static str,
        #[source]
        source: parse::ParseError,
    },
}

impl Catalog {
    pub(crate) fn new(client: Client) -> Self {
        let page = |path| Page { path, etag: None, groups: Arc::new(Groups::new(Vec::new())) };
        Self { client, core: page("/api"), others: page("/apis"), known: Arc::default() }
    }

    /// What there is now, and what there was and may still be.
    pub(crate) async fn read(&mut self) -> Result<Arc<Resources>, CatalogError> {
        let is_newer = self.core.read(&self.client).await? | self.others.read(&self.client).await?;
        let has_unlisted = || {
            let standing = crate::resources::Standing::Unlisted;
            self.known.all().iter().any(|resource| resource.standing == standing)
        };
        if !is_newer && !has_unlisted() {
            return Ok(self.known.clone());
        }
        let listed = Resources::from_documents(&self.core.groups, &self.others.groups);
        let mut gone = Vec::new();
        for missing in self.known.missing_in(&listed) {
            if self.is_gone(&missing).await {
                gone.push(missing);
            }
        }
        self.known = Arc::new(reconcile(&self.known, listed, &gone));
        Ok(self.known.clone())
    }

    async fn is_gone(&self, resource: &Resource) -> bool {
        let path = format!("{}?limit=1", resource.path(""));
        let asked = self.client.get(&path, METADATA_LIST_ONLY).await;
        let is_gone = asked.as_ref().is_err_and(CallError::is_unserved);
        if !is_gone {
            tracing::info!(resource = %resource.name, "discovery lists it no longer; it is kept until proven gone");
        }
        is_gone
    }
}

/// What is listed, and what was known before and is not proven to be gone.
fn reconcile(known: &Resources, mut listed: Resources, gone: &[Arc<Resource>]) -> Resources {
    for missing in known.missing_in(&listed) {
        if !gone.contains(&missing) {
            listed.keep_unlisted(&missing);
        }
    }
    listed
}

impl Page {
    /// Whether there was a newer one.
    async fn read(&mut self, client: &Client) -> Result<bool, CatalogError> {
        let path = self.path;
        let answer = client.get_newer(path, ACCEPT_AGGREGATED, self.etag.as_ref()).await;
        let answer = answer.map_err(|source| CatalogError::Call { path, source })?;
        if answer.code == StatusCode::NOT_MODIFIED {
            return Ok(false);
        }
        let groups = parse_aggregated(&answer.body).map_err(|source| CatalogError::Parse { path, source })?;
        self.groups = Arc::new(groups);
        self.etag = answer.etag;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Standing;
    use crate::resources::tests::resources;

    #[test]
    fn a_document_that_shrank_forgets_nothing_until_it_is_proven_gone() {
        let whole = resources(&["v1 pods Pod ns list,delete", "batch/v1 jobs Job ns list,delete"]);
        let shrunk = || resources(&["v1 pods Pod ns list,delete"]);
        let standing = |known: &Resources| known.of_kind("batch/v1", "Job").map(|jobs| jobs.standing);
        let kept = reconcile(&whole, shrunk(), &[]);
        assert_eq!(standing(&kept), Some(Standing::Unlisted));
        let still_kept = reconcile(&kept, shrunk(), &[]);
        assert_eq!(standing(&still_kept), Some(Standing::Unlisted), "however often it is read");
        let back = reconcile(&still_kept, whole, &[]);
        assert_eq!(standing(&back), Some(Standing::Confirmed));
        let gone = reconcile(&still_kept, shrunk(), &still_kept.missing_in(&shrunk()));
        assert_eq!((standing(&gone), gone.all().len()), (None, 1));
    }
}
