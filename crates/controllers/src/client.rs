//! A client of one API server, under one identity: requests with a time limit, and watches.
//!
//! It tells what was answered from what was not: `ApiError::Refused` is the server's own word, everything else leaves open
//! what became of the request. Only `ApiError::is_object_not_found` says that an object is not there.

mod connections;
mod pinned_certificate;
mod watch_stream;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::status::StatusReason;
use api::{GroupVersionResource, Status};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_NONE_MATCH, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;

pub use connections::{ApiServerAddress, ClientConnections};
pub(crate) use watch_stream::{ApiWatchEvent, ApiWatchStream};

/// How long a write may take: longer than a server takes to give one up, so that its own word is heard.
const WRITE_TIMEOUT: Duration = Duration::from_secs(65);
/// How long a read may take, or the begin of a watch. Shorter, because nothing is lost by asking again: one that a server hands
/// on to a peer that has just fallen silent is answered at once when that is known.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read: a page of a list, whose objects etcd bounds to 1.5 MB each, is cut by [`PAGE_SIZE`].
const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// How many objects are asked for at once.
pub(crate) const PAGE_SIZE: usize = 500;
/// What asks for metadata alone.
pub(crate) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The same for lists.
pub(crate) const METADATA_LIST_ONLY: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// One identity at one server. Clones share its connections.
#[derive(Clone)]
pub struct ApiClient {
    connections: Arc<ClientConnections>,
    authorization: HeaderValue,
    user_agent: HeaderValue,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").field("agent", &self.user_agent).finish_non_exhaustive()
    }
}

/// What came back, if it is no refusal.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) code: StatusCode,
    pub(crate) etag: Option<HeaderValue>,
    pub(crate) body: Bytes,
}

/// Why there is nothing to work with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The server said no, and this is what it said.
    #[error("{0}")]
    Status(Box<Status>),
    /// No answer: nobody knows whether the request was executed.
    #[error("no answer: {0}")]
    NoResponse(String),
    /// An answer that is none.
    #[error("the answer cannot be read: {0}")]
    InvalidResponse(String),
}

impl ApiError {
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            Self::NoResponse(_) | Self::InvalidResponse(_) => None,
        }
    }

    /// Whether the server says of this very object that it does not exist. A 404 that names no object, or another, says that a
    /// path is not served, which proves nothing about objects.
    pub(crate) fn is_object_not_found(&self, resource: GroupVersionResource<&str>, name: &str) -> bool {
        self.status().is_some_and(|status| {
            status.reason == StatusReason::NotFound
                && status.details.as_ref().is_some_and(|details| {
                    details.name == name && details.kind == resource.resource && details.group == resource.group
                })
        })
    }

    /// Whether the server says that it has no such path: the resource is not served.
    pub(crate) fn is_resource_not_served(&self) -> bool {
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

impl ApiClient {
    /// A client that shows a bearer token, and calls itself `agent` in audit logs.
    pub fn new(connections: Arc<ClientConnections>, token: &str, user_agent: &str) -> Self {
        let mut authorization =
            HeaderValue::try_from(format!("Bearer {token}")).expect("tokens are made of letters and digits");
        authorization.set_sensitive(true);
        let agent = format!("unskew/{} {user_agent}", env!("CARGO_PKG_VERSION"));
        Self { connections, authorization, user_agent: HeaderValue::try_from(agent).expect("agents are plain text") }
    }

    /// Gets an object or a list, in the form that `accept` names.
    pub(crate) async fn get(&self, path: &str, accept: &'static str) -> Result<ApiResponse, ApiError> {
        self.send(self.request(Method::GET, path).header(ACCEPT, accept), Bytes::new(), READ_TIMEOUT).await
    }

    /// Gets a page unless it is the one that is known: then the answer's code is 304.
    pub(crate) async fn get_if_modified(
        &self,
        path: &str,
        accept: &'static str,
        etag: Option<&HeaderValue>,
    ) -> Result<ApiResponse, ApiError> {
        let mut request = self.request(Method::GET, path).header(ACCEPT, accept);
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        self.send(request, Bytes::new(), READ_TIMEOUT).await
    }

    /// Creates an object.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<ApiResponse, ApiError> {
        self.send_write(Method::POST, path, "application/json", object).await
    }

    /// Replaces an object.
    pub(crate) async fn update(&self, path: &str, object: &Value) -> Result<ApiResponse, ApiError> {
        self.send_write(Method::PUT, path, "application/json", object).await
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn merge_patch(&self, path: &str, patch: &Value) -> Result<ApiResponse, ApiError> {
        self.send_write(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    /// Deletes an object, or all objects of a collection.
    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Result<ApiResponse, ApiError> {
        self.send_write(Method::DELETE, path, "application/json", options).await
    }

    /// Begins a watch.
    pub(crate) async fn watch(&self, path: &str, accept: &'static str) -> Result<ApiWatchStream, ApiError> {
        let request = self.request(Method::GET, path).header(ACCEPT, accept);
        let request = request.body(Full::default()).map_err(|error| ApiError::InvalidResponse(error.to_string()))?;
        let begin = async {
            let (response, seat) = self.connections.open_watch(request).await?;
            match response.status().is_success() {
                true => Ok(ApiWatchStream::new(response.into_body(), seat)),
                false => Err(status_error(&read_response(response).await?)),
            }
        };
        with_timeout(READ_TIMEOUT, begin).await
    }

    async fn send_write(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: &Value,
    ) -> Result<ApiResponse, ApiError> {
        let request = self.request(method, path).header(CONTENT_TYPE, content_type).header(ACCEPT, "application/json");
        self.send(request, body.to_string().into(), WRITE_TIMEOUT).await
    }

    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.connections.authority()))
            .header(HOST, self.connections.authority())
            .header(AUTHORIZATION, self.authorization.clone())
            .header(USER_AGENT, self.user_agent.clone())
    }

    async fn send(
        &self,
        request: http::request::Builder,
        body: Bytes,
        timeout: Duration,
    ) -> Result<ApiResponse, ApiError> {
        let request = request.body(Full::new(body)).map_err(|error| ApiError::InvalidResponse(error.to_string()))?;
        let answer =
            with_timeout(timeout, async { read_response(self.connections.send_request(request).await?).await }).await?;
        if answer.code.is_success() || answer.code == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        Err(status_error(&answer))
    }
}

async fn with_timeout<T>(timeout: Duration, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    tokio::time::timeout(timeout, work)
        .await
        .unwrap_or_else(|_| Err(ApiError::NoResponse("it took too long".to_owned())))
}

async fn read_response(response: Response<Incoming>) -> Result<ApiResponse, ApiError> {
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
    let body = body.map_err(|error| ApiError::NoResponse(error.to_string()))?.to_bytes();
    Ok(ApiResponse { code: parts.status, etag: parts.headers.get(ETAG).cloned(), body })
}

fn status_error(answer: &ApiResponse) -> ApiError {
    let status = Status::from_json(&answer.body).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&answer.body[..answer.body.len().min(200)]).trim().to_owned();
        Status { code: answer.code.as_u16(), message: text, ..Status::default() }
    });
    ApiError::Status(Box::new(status))
}

#[cfg(test)]
mod tests;
