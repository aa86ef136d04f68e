//! Asking a peer what it serves: both documents or neither.
//!
//! We accept, in this order, the aggregated document without peers, the aggregated document (servers that know no profile), and
//! the legacy documents (servers that know no aggregation). Failure is never read as absence.

mod legacy;

use std::sync::Arc;
use std::time::Duration;

use discovery::parse::{ParseError, parse_aggregated};
use discovery::{Groups, parse};
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::documents::{Etags, ServerDocument};
use crate::endpoints::Address;
use crate::forward::identity::{GROUP, UID, USER};
use crate::hop;
use crate::identity::ServerId;
use crate::ports::{Fetch, FetchAnswer, FetchFault, FetchRequest};

/// kube-apiserver's own preference, word for word.
const ACCEPTED: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
     application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
);

/// The user that servers are to each other; the default roles let it read discovery.
const IDENTITY: [(HeaderName, HeaderValue); 3] = [
    (USER, HeaderValue::from_static("system:apiserver")),
    (UID, HeaderValue::from_static("system:apiserver")),
    (GROUP, HeaderValue::from_static("system:authenticated")),
];

/// How long and how much.
#[derive(Clone, Copy, Debug)]
pub struct AskLimits {
    /// For everything together.
    pub timeout: Duration,
    /// For everything together.
    pub bytes_max: usize,
}

impl AskLimits {
    /// A peer that needs longer is not well; the next try may be better.
    pub const TIMEOUT: Duration = Duration::from_secs(5);
}

impl Default for AskLimits {
    fn default() -> Self {
        Self { timeout: Self::TIMEOUT, bytes_max: parse::BYTES_MAX }
    }
}

/// Whom to ask.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its name.
    pub server: ServerId,
    /// Where it listens.
    pub address: Address,
}

/// What a peer answered before, and can now confirm.
#[derive(Clone, Debug)]
pub struct Former {
    /// The ETags of that answer.
    pub etags: Etags,
    /// The answer.
    pub document: Arc<ServerDocument>,
}

/// What a peer serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What it served before.
    Same,
    /// This.
    New {
        /// What it serves.
        document: Arc<ServerDocument>,
        /// What it can be confirmed with.
        etags: Etags,
    },
}

/// Why it is not known what a peer serves.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct AskError {
    /// One for each of the two documents that failed.
    pub faults: Vec<AskFault>,
}

/// What went wrong with one of the documents.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {kind}")]
pub struct AskFault {
    /// What was asked for.
    pub path: String,
    /// What went wrong.
    pub kind: FaultKind,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum FaultKind {
    /// There was no answer.
    #[error(transparent)]
    Fetch(#[from] FetchFault),
    /// The answer was another than 200; redirects are not followed.
    #[error("the answer is {0}")]
    Status(StatusCode),
    /// The answer is no discovery document.
    #[error(transparent)]
    Document(#[from] ParseError),
    /// The answer names a version that cannot be asked for.
    #[error("{name:?} is no name of a version")]
    Name {
        /// The name.
        name: String,
    },
}

impl FaultKind {
    /// A word for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Fetch(FetchFault::Unreachable { .. }) => "unreachable",
            Self::Fetch(FetchFault::Tls { .. }) => "tls",
            Self::Fetch(FetchFault::TimedOut) => "timeout",
            Self::Fetch(FetchFault::TooLong { .. }) => "too_long",
            Self::Fetch(FetchFault::Broken { .. }) => "broken",
            Self::Status(status) if status.is_redirection() => "redirect",
            Self::Status(StatusCode::UNAUTHORIZED) => "unauthorized",
            Self::Status(_) => "status",
            Self::Document(_) | Self::Name { .. } => "garbage",
        }
    }
}

/// Asks a peer what it serves.
pub async fn ask(
    fetch: &dyn Fetch,
    peer: &Peer,
    former: Option<&Former>,
    limits: AskLimits,
) -> Result<Answer, AskError> {
    let asking = ask_unhurried(fetch, peer, former, limits);
    tokio::time::timeout(limits.timeout, asking).await.unwrap_or_else(|_| {
        let fault = |path: &str| AskFault { path: path.to_owned(), kind: FetchFault::TimedOut.into() };
        Err(AskError { faults: vec![fault("/api"), fault("/apis")] })
    })
}

async fn ask_unhurried(
    fetch: &dyn Fetch,
    peer: &Peer,
    former: Option<&Former>,
    limits: AskLimits,
) -> Result<Answer, AskError> {
    let line = Line { fetch, peer, bytes_max: limits.bytes_max / 2 };
    let of_api =
        former.map(|Former { etags, document }| Part { etag: etags.api.clone(), groups: document.core().clone() });
    let of_apis =
        former.map(|Former { etags, document }| Part { etag: etags.apis.clone(), groups: document.apis().clone() });
    let (core, apis) = match tokio::join!(line.ask_for(Half::Api, of_api), line.ask_for(Half::Apis, of_apis)) {
        (Ok(core), Ok(apis)) => (core, apis),
        (core, apis) => return Err(AskError { faults: core.err().into_iter().chain(apis.err()).collect() }),
    };
    let document = ServerDocument::new(core.groups, apis.groups);
    let etags = Etags { api: core.etag, apis: apis.etag };
    if former.is_some_and(|former| *former.document == document && former.etags == etags) {
        return Ok(Answer::Same);
    }
    Ok(Answer::New { document: Arc::new(document), etags })
}

/// One of the two documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Api,
    Apis,
}

impl Half {
    fn path(self) -> &'static str {
        match self {
            Self::Api => "/api",
            Self::Apis => "/apis",
        }
    }
}

/// What one of them holds.
struct Part {
    etag: String,
    groups: Arc<Groups>,
}

/// The way to a peer.
struct Line<'a> {
    fetch: &'a dyn Fetch,
    peer: &'a Peer,
    bytes_max: usize,
}

impl Line<'_> {
    async fn ask_for(&self, half: Half, former: Option<Part>) -> Result<Part, AskFault> {
        let path = half.path();
        let fault = |kind: FaultKind| AskFault { path: path.to_owned(), kind };
        let former = former.filter(|former| !former.etag.is_empty());
        let etag = former.as_ref().map_or("", |former| &former.etag);
        let answer = self.get(path, etag, self.bytes_max).await?;
        match (answer.status, former) {
            (StatusCode::NOT_MODIFIED, Some(former)) => return Ok(former),
            (StatusCode::OK, _) => {}
            (other, _) => return Err(fault(FaultKind::Status(other))),
        }
        match parse_aggregated(&answer.body) {
            Ok(groups) => Ok(Part { groups: Arc::new(groups), etag: text(&answer.headers, &ETAG) }),
            // A server without aggregated discovery answers with what it has.
            Err(ParseError::Kind { .. }) => {
                let groups = self.ask_legacy(half, &answer.body).await?;
                Ok(Part { groups: Arc::new(groups), etag: String::new() })
            }
            Err(error) => Err(fault(error.into())),
        }
    }

    async fn get(&self, path: &str, etag: &str, bytes_max: usize) -> Result<FetchAnswer, AskFault> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, ACCEPTED);
        headers.extend(IDENTITY);
        hop::mark(&mut headers);
        if let Ok(etag) = HeaderValue::from_str(etag)
            && !etag.is_empty()
        {
            headers.insert(IF_NONE_MATCH, etag);
        }
        let Peer { server, address } = self.peer.clone();
        let request = FetchRequest { server, address, path: path.to_owned(), headers, bytes_max };
        let answer = self.fetch.fetch(request).await;
        let fault = |kind: FaultKind| AskFault { path: path.to_owned(), kind };
        let answer = answer.map_err(|error| fault(error.into()))?;
        if answer.body.len() > bytes_max {
            return Err(fault(FetchFault::TooLong { bytes_max }.into()));
        }
        Ok(answer)
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
