//! Fetches the discovery documents of a peer: both or neither.
//!
//! Accepts, in this order, the aggregated document without peers, the aggregated document (servers without profiles) and the
//! legacy documents (servers without aggregated discovery). A failure is never read as absence.

mod legacy;

use std::sync::Arc;
use std::time::Duration;

use api::Address;
use api::headers::lowercase::{HOP_MARK_VALUE, PEER_PROXIED, REROUTED};
use discovery::parse::{ParseError, parse_aggregated};
use discovery::{GroupDiscoveryList, parse};
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::documents::{Etags, ServerDocument};
use crate::identity::ServerId;
use crate::ports::{Fetch, FetchError, FetchRequest, FetchResponse};

/// The `Accept` header of kube-apiserver, byte for byte.
const DISCOVERY_ACCEPT: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
     application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
);

/// Hop marks, so that a peer that knows no profile answers with its own document. [`Fetch`] adds the user.
const HOP_MARKS: [(HeaderName, HeaderValue); 2] = [
    (HeaderName::from_static(PEER_PROXIED), HeaderValue::from_static(HOP_MARK_VALUE)),
    (HeaderName::from_static(REROUTED), HeaderValue::from_static(HOP_MARK_VALUE)),
];

/// Limits of one fetch of both documents.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryFetchLimits {
    /// For all requests of the fetch together.
    pub timeout: Duration,
    /// For all requests of the fetch together.
    pub bytes_max: usize,
}

impl DiscoveryFetchLimits {
    /// Enough for a healthy peer; the fetch is retried.
    pub const TIMEOUT: Duration = Duration::from_secs(5);
}

impl Default for DiscoveryFetchLimits {
    fn default() -> Self {
        Self { timeout: Self::TIMEOUT, bytes_max: parse::DOCUMENT_BYTES_MAX }
    }
}

/// The peer to fetch from.
#[derive(Clone, Debug)]
pub struct DiscoveryPeer {
    /// The id of the peer.
    pub server: ServerId,
    /// Where the peer listens.
    pub address: Address,
}

/// The last fetched documents, which the peer can confirm by ETag.
#[derive(Clone, Debug)]
pub struct PreviousDiscovery {
    /// The ETags of the last responses.
    pub etags: Etags,
    /// The last documents.
    pub document: Arc<ServerDocument>,
}

/// The result of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchedDiscovery {
    /// The peer serves what it served before.
    Unchanged,
    /// The peer serves something else.
    Changed {
        /// The new documents.
        document: Arc<ServerDocument>,
        /// The ETags of the responses.
        etags: Etags,
    },
}

/// Why the documents of a peer could not be fetched.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct DiscoveryFetchError {
    /// One for each document that failed.
    pub failures: Vec<DocumentFetchError>,
}

/// Why one document could not be fetched.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {kind}")]
pub struct DocumentFetchError {
    /// The path of the request.
    pub path: String,
    /// The cause.
    pub kind: DocumentFetchErrorKind,
}

/// The cause of a failed fetch.
#[derive(Debug, thiserror::Error)]
pub enum DocumentFetchErrorKind {
    /// There was no complete response.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The status was not 200; redirects are not followed.
    #[error("the answer is {0}")]
    Status(StatusCode),
    /// The body is no discovery document.
    #[error(transparent)]
    Document(#[from] ParseError),
    /// The body names a version that cannot be part of a path.
    #[error("{name:?} is no name of a version")]
    InvalidVersionName {
        /// The version name.
        name: String,
    },
}

impl DocumentFetchErrorKind {
    /// The label value for metrics.
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

/// Fetches what a peer serves.
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

/// The root of a document.
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

/// The content of one root.
struct RootDocument {
    etag: String,
    groups: Arc<GroupDiscoveryList>,
}

/// Sends the requests of one fetch.
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
            // A server without aggregated discovery answers with a legacy document.
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
        headers.extend(HOP_MARKS);
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
