//! Asking a peer what it serves: both documents or neither.
//!
//! We accept, in this order, the aggregated document without peers, the aggregated document (servers that know no profile), and
//! the legacy documents (servers that know no aggregation). Failure is never read as absence.

mod legacy;

use std::sync::Arc;
use std::time::Duration;

use discovery::parse::{ParseError, parse_aggregated};
use discovery::{GroupDiscoveryList, parse};
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::documents::{Etags, ServerDocument};
use crate::endpoint_record::Address;
use crate::forward::identity::{GROUP, UID, USER};
use crate::hop;
use crate::identity::ServerId;
use crate::ports::{Fetch, FetchError, FetchRequest, FetchResponse};

/// kube-apiserver's own preference, word for word.
const DISCOVERY_ACCEPT: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
     application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
);

/// The user that servers are to each other; the default roles let it read discovery.
const APISERVER_IDENTITY_HEADERS: [(HeaderName, HeaderValue); 3] = [
    (USER, HeaderValue::from_static("system:apiserver")),
    (UID, HeaderValue::from_static("system:apiserver")),
    (GROUP, HeaderValue::from_static("system:authenticated")),
];

/// How long and how much.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryFetchLimits {
    /// For everything together.
    pub timeout: Duration,
    /// For everything together.
    pub bytes_max: usize,
}

impl DiscoveryFetchLimits {
    /// A peer that needs longer is not well; the next try may be better.
    pub const TIMEOUT: Duration = Duration::from_secs(5);
}

impl Default for DiscoveryFetchLimits {
    fn default() -> Self {
        Self { timeout: Self::TIMEOUT, bytes_max: parse::DOCUMENT_BYTES_MAX }
    }
}

/// Whom to ask.
#[derive(Clone, Debug)]
pub struct DiscoveryPeer {
    /// Its name.
    pub server: ServerId,
    /// Where it listens.
    pub address: Address,
}

/// What a peer answered before, and can now confirm.
#[derive(Clone, Debug)]
pub struct PreviousDiscovery {
    /// The ETags of that answer.
    pub etags: Etags,
    /// The answer.
    pub document: Arc<ServerDocument>,
}

/// What a peer serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchedDiscovery {
    /// What it served before.
    Unchanged,
    /// This.
    Changed {
        /// What it serves.
        document: Arc<ServerDocument>,
        /// What it can be confirmed with.
        etags: Etags,
    },
}

/// Why it is not known what a peer serves.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct DiscoveryFetchError {
    /// One for each of the two documents that failed.
    pub failures: Vec<DocumentFetchError>,
}

/// What went wrong with one of the documents.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {kind}")]
pub struct DocumentFetchError {
    /// What was asked for.
    pub path: String,
    /// What went wrong.
    pub kind: DocumentFetchErrorKind,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum DocumentFetchErrorKind {
    /// There was no answer.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The answer was another than 200; redirects are not followed.
    #[error("the answer is {0}")]
    Status(StatusCode),
    /// The answer is no discovery document.
    #[error(transparent)]
    Document(#[from] ParseError),
    /// The answer names a version that cannot be asked for.
    #[error("{name:?} is no name of a version")]
    InvalidVersionName {
        /// The name.
        name: String,
    },
}

impl DocumentFetchErrorKind {
    /// A word for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Fetch(FetchError::Unreachable { .. }) => "unreachable",
            Self::Fetch(FetchError::Tls { .. }) => "tls",
            Self::Fetch(FetchError::TimedOut) => "timeout",
            Self::Fetch(FetchError::TooLong { .. }) => "too_long",
            Self::Fetch(FetchError::Broken { .. }) => "broken",
            Self::Status(status) if status.is_redirection() => "redirect",
            Self::Status(StatusCode::UNAUTHORIZED) => "unauthorized",
            Self::Status(_) => "status",
            Self::Document(_) | Self::InvalidVersionName { .. } => "garbage",
        }
    }
}

/// Asks a peer what it serves.
pub async fn fetch_discovery(
    fetch: &dyn Fetch,
    peer: &DiscoveryPeer,
    previous: Option<&PreviousDiscovery>,
    limits: DiscoveryFetchLimits,
) -> Result<FetchedDiscovery, DiscoveryFetchError> {
    let fetching = fetch_discovery_without_timeout(fetch, peer, previous, limits);
    tokio::time::timeout(limits.timeout, fetching).await.unwrap_or_else(|_| {
        let fault = |path: &str| DocumentFetchError { path: path.to_owned(), kind: FetchError::TimedOut.into() };
        Err(DiscoveryFetchError { failures: vec![fault("/api"), fault("/apis")] })
    })
}

async fn fetch_discovery_without_timeout(
    fetch: &dyn Fetch,
    peer: &DiscoveryPeer,
    previous: Option<&PreviousDiscovery>,
    limits: DiscoveryFetchLimits,
) -> Result<FetchedDiscovery, DiscoveryFetchError> {
    let client = PeerDiscoveryClient { fetch, peer, bytes_max: limits.bytes_max / 2 };
    let previous_api = previous.map(|PreviousDiscovery { etags, document }| RootDocument {
        etag: etags.api.clone(),
        groups: document.core().clone(),
    });
    let previous_apis = previous.map(|PreviousDiscovery { etags, document }| RootDocument {
        etag: etags.apis.clone(),
        groups: document.apis().clone(),
    });
    let (core, apis) = match tokio::join!(
        client.fetch_root(DiscoveryRoot::Api, previous_api),
        client.fetch_root(DiscoveryRoot::Apis, previous_apis)
    ) {
        (Ok(core), Ok(apis)) => (core, apis),
        (core, apis) => {
            return Err(DiscoveryFetchError { failures: core.err().into_iter().chain(apis.err()).collect() });
        }
    };
    let document = ServerDocument::new(core.groups, apis.groups);
    let etags = Etags { api: core.etag, apis: apis.etag };
    if previous.is_some_and(|former| *former.document == document && former.etags == etags) {
        return Ok(FetchedDiscovery::Unchanged);
    }
    Ok(FetchedDiscovery::Changed { document: Arc::new(document), etags })
}

/// One of the two documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiscoveryRoot {
    Api,
    Apis,
}

impl DiscoveryRoot {
    fn path(self) -> &'static str {
        match self {
            Self::Api => "/api",
            Self::Apis => "/apis",
        }
    }
}

/// What one of them holds.
struct RootDocument {
    etag: String,
    groups: Arc<GroupDiscoveryList>,
}

/// The way to a peer.
struct PeerDiscoveryClient<'a> {
    fetch: &'a dyn Fetch,
    peer: &'a DiscoveryPeer,
    bytes_max: usize,
}

impl PeerDiscoveryClient<'_> {
    async fn fetch_root(
        &self,
        root: DiscoveryRoot,
        previous: Option<RootDocument>,
    ) -> Result<RootDocument, DocumentFetchError> {
        let path = root.path();
        let fault = |kind: DocumentFetchErrorKind| DocumentFetchError { path: path.to_owned(), kind };
        let former = previous.filter(|former| !former.etag.is_empty());
        let etag = former.as_ref().map_or("", |former| &former.etag);
        let response = self.get(path, etag, self.bytes_max).await?;
        match (response.status, former) {
            (StatusCode::NOT_MODIFIED, Some(former)) => return Ok(former),
            (StatusCode::OK, _) => {}
            (other, _) => return Err(fault(DocumentFetchErrorKind::Status(other))),
        }
        match parse_aggregated(&response.body) {
            Ok(groups) => Ok(RootDocument { groups: Arc::new(groups), etag: header_text(&response.headers, &ETAG) }),
            // A server without aggregated discovery answers with what it has.
            Err(ParseError::WrongKind { .. }) => {
                let groups = self.fetch_legacy(root, &response.body).await?;
                Ok(RootDocument { groups: Arc::new(groups), etag: String::new() })
            }
            Err(error) => Err(fault(error.into())),
        }
    }

    async fn get(&self, path: &str, etag: &str, bytes_max: usize) -> Result<FetchResponse, DocumentFetchError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, DISCOVERY_ACCEPT);
        headers.extend(APISERVER_IDENTITY_HEADERS);
        hop::mark_forwarded(&mut headers);
        if let Ok(etag) = HeaderValue::from_str(etag)
            && !etag.is_empty()
        {
            headers.insert(IF_NONE_MATCH, etag);
        }
        let DiscoveryPeer { server, address } = self.peer.clone();
        let request = FetchRequest { server, address, path: path.to_owned(), headers, bytes_max };
        let response = self.fetch.fetch(request).await;
        let fault = |kind: DocumentFetchErrorKind| DocumentFetchError { path: path.to_owned(), kind };
        let response = response.map_err(|error| fault(error.into()))?;
        if response.body.len() > bytes_max {
            return Err(fault(FetchError::TooLong { bytes_max }.into()));
        }
        Ok(response)
    }
}

fn header_text(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
