//! A client of one API server, under one identity: requests with a time limit, and watches.
//!
//! It tells what was answered from what was not: `CallError::Refused` is the server's own word, everything else leaves open
//! what became of the request. Only `CallError::is_absent` says that an object is not there.

mod connections;
mod own_certificate;
mod watching;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::status::Reason;
use api::{GroupVersionResource, Status};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_NONE_MATCH, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;

pub use connections::{Address, Connections};
pub(crate) use watching::{Change, Watching};

/// How long a write may take: longer than a server takes to give one up, so that its own word is heard.
const WRITE_TIMEOUT: Duration = Duration::from_secs(65);
/// How long a read may take, or the begin of a watch. Shorter, because nothing is lost by asking again: one that a server hands
/// on to a peer that has just fallen silent is answered at once when that is known.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read: a page of a list, whose objects etcd bounds to 1.5 MB each, is cut by [`PAGE`].
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How many objects are asked for at once.
pub(crate) const PAGE: usize = 500;
/// What asks for metadata alone.
pub(crate) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The same for lists.
pub(crate) const METADATA_LIST_ONLY: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// One identity at one server. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    connections: Arc<Connections>,
    authorization: HeaderValue,
    agent: HeaderValue,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// What came back, if it is no refusal.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) etag: Option<HeaderValue>,
    pub(crate) body: Bytes,
}

/// Why there is nothing to work with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The server said no, and this is what it said.
    #[error("{0}")]
    Refused(Box<Status>),
    /// No answer: nobody knows whether the request was executed.
    #[error("no answer: {0}")]
    Unanswered(String),
    /// An answer that is none.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
}

impl CallError {
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) => Some(status),
            Self::Unanswered(_) | Self::Unreadable(_) => None,
        }
    }

    /// Whether the server says of this very object that it does not exist. A 404 that names no object, or another, says that a
    /// path is not served, which proves nothing about objects.
    pub(crate) fn is_absent(&self, resource: GroupVersionResource<&str>, name: &str) -> bool {
        self.status().is_some_and(|status| {
            status.reason == Reason::NotFound
                && status.details.as_ref().is_some_and(|details| {
                    details.name == name && details.kind == resource.resource && details.group == resource.group
                })
        })
    }

    /// Whether the server says that it has no such path: the resource is not served.
    pub(crate) fn is_unserved(&self) -> bool {
        self.status().is_some_and(|status| {
            status.http_code() == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
        })
    }

    /// Whether the object was changed since it was read, or is another one by now.
    pub(crate) fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.http_code() == 409)
    }

    /// Whether a watch or a page is too far behind.
    pub(crate) fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.http_code() == 410)
    }
}

impl Client {
    /// A client that shows a bearer token, and calls itself `agent` in audit logs.
    pub fn new(connections: Arc<Connections>, token: &str, agent: &str) -> Self {
        let mut authorization =
            HeaderValue::try_from(format!("Bearer {token}")).expect("tokens are made of letters and digits");
        authorization.set_sensitive(true);
        let agent = format!("unskew/{} {agent}", env!("CARGO_PKG_VERSION"));
        Self { connections, authorization, agent: HeaderValue::try_from(agent).expect("agents are plain text") }
    }

    /// Gets an object or a list, in the form that `accept` names.
    pub(crate) async fn get(&self, path: &str, accept: &'static str) -> Result<Answer, CallError> {
        self.call(self.request(Method::GET, path).header(ACCEPT, accept), Bytes::new(), READ_TIMEOUT).await
    }

    /// Gets a page unless it is the one that is known: then the answer's code is 304.
    pub(crate) async fn get_newer(
        &self,
        path: &str,
        accept: &'static str,
        known: Option<&HeaderValue>,
    ) -> Result<Answer, CallError> {
        let mut request = self.request(Method::GET, path).header(ACCEPT, accept);
        if let Some(etag) = known {
            request = request.header(IF_NONE_MATCH, etag);
        }
        self.call(request, Bytes::new(), READ_TIMEOUT).await
    }

    /// Creates an object.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Answer, CallError> {
        self.write(Method::POST, path, "application/json", object).await
    }

    /// Replaces an object.
    pub(crate) async fn update(&self, path: &str, object: &Value) -> Result<Answer, CallError> {
        self.write(Method::PUT, path, "application/json", object).await
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Result<Answer, CallError> {
        self.write(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    /// Deletes an object, or all objects of a collection.
    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Result<Answer, CallError> {
        self.write(Method::DELETE, path, "application/json", options).await
    }

    /// Begins a watch.
    pub(crate) async fn watch(&self, path: &str, accept: &'static str) -> Result<Watching, CallError> {
        let request = self.request(Method::GET, path).header(ACCEPT, accept);
        let request = request.body(Full::default()).map_err(|error| CallError::Unreadable(error.to_string()))?;
        let begin = async {
            let (response, seat) = self.connections.watch(request).await?;
            match response.status().is_success() {
                true => Ok(Watching::new(response.into_body(), seat)),
                false => Err(refusal(&read(response).await?)),
            }
        };
        in_time(READ_TIMEOUT, begin).await
    }

    async fn write(&self, method: Method, path: &str, form: &'static str, body: &Value) -> Result<Answer, CallError> {
        let request = self.request(method, path).header(CONTENT_TYPE, form).header(ACCEPT, "application/json");
        self.call(request, body.to_string().into(), WRITE_TIMEOUT).await
    }

    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.connections.authority()))
            .header(HOST, self.connections.authority())
            .header(AUTHORIZATION, self.authorization.clone())
            .header(USER_AGENT, self.agent.clone())
    }

    async fn call(&self, request: http::request::Builder, body: Bytes, limit: Duration) -> Result<Answer, CallError> {
        let request = request.body(Full::new(body)).map_err(|error| CallError::Unreadable(error.to_string()))?;
        let answer = in_time(limit, async { read(self.connections.send(request).await?).await }).await?;
        if answer.code.is_success() || answer.code == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        Err(refusal(&answer))
    }
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(CallError::Unanswered("it took too long".to_owned())))
}

async fn read(response: Response<Incoming>) -> Result<Answer, CallError> {
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| CallError::Unanswered(error.to_string()))?.to_bytes();
    Ok(Answer { code: parts.status, etag: parts.headers.get(ETAG).cloned(), body })
}

fn refusal(answer: &Answer) -> CallError {
    let status = Status::from_json(&answer.body).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&answer.body[..answer.body.len().min(200)]).trim().to_owned();
        Status { code: answer.code.as_u16(), message: text, ..Status::default() }
    });
    CallError::Refused(Box::new(status))
}

#[cfg(test)]
mod tests;
