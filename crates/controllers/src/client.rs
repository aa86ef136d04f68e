//! A client of one API server under one identity: requests with timeouts, and watches.
//!
//! `ApiError` separates responses from failures: only `ApiError::Status` is a response of the server; after the other
//! variants a request may or may not have been executed. Only `ApiError::is_object_not_found` proves that an object
//! does not exist.

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

pub use connections::{ApiServerAddress, ClientConnections, ServerTrust};
pub use watch_stream::{ApiWatchEvent, ApiWatchStream};

/// The timeout of a write: longer than the server's own, so that the server's response is received.
const WRITE_TIMEOUT: Duration = Duration::from_secs(65);
/// The timeout of a read, or of the start of a watch. Shorter, because a read can be repeated: a retry succeeds at once
/// if the first was forwarded to a peer that turned out to be unreachable.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest response body. A page of a list is bounded by [`PAGE_SIZE`] and etcd's limit of 1.5 MB per object.
const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// Objects per page of a list.
pub(crate) const PAGE_SIZE: usize = 500;
/// `Accept` for the metadata of an object.
pub(crate) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// `Accept` for a list of metadata.
pub(crate) const METADATA_LIST_ONLY: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A client with one identity. Clones share the connections.
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

/// A successful response, or a 304.
#[derive(Debug)]
pub struct ApiResponse {
    /// The HTTP status.
    pub code: StatusCode,
    /// The ETag, if the server sent one.
    pub etag: Option<HeaderValue>,
    /// The whole body.
    pub body: Bytes,
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server responded with this error status.
    #[error("{0}")]
    Status(Box<Status>),
    /// No response: the request may or may not have been executed.
    #[error("no response: {0}")]
    NoResponse(String),
    /// A response that cannot be decoded.
    #[error("invalid response: {0}")]
    InvalidResponse(String),
}

impl ApiError {
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            Self::NoResponse(_) | Self::InvalidResponse(_) => None,
        }
    }

    /// True if the server says that exactly this object does not exist. A 404 without this name only says that a path
    /// is not served, which proves nothing about objects.
    pub fn is_object_not_found(&self, resource: GroupVersionResource<&str>, name: &str) -> bool {
        self.status().is_some_and(|status| {
            status.reason == StatusReason::NotFound
                && status.details.as_ref().is_some_and(|details| {
                    details.name == name && details.kind == resource.resource && details.group == resource.group
                })
        })
    }

    /// True if the server does not serve the path of the resource.
    pub(crate) fn is_resource_not_served(&self) -> bool {
        self.status().is_some_and(|status| {
            status.http_code() == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
        })
    }

    /// True if the server answered 404. Of an object this proves something only for resources that every server of the cluster serves.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.http_code() == 404)
    }

    /// True if the object was changed since it was read, or replaced by another.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.http_code() == 409)
    }

    /// True if the resourceVersion of a watch or the continue token of a list has expired.
    pub(crate) fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.http_code() == 410)
    }
}

impl ApiClient {
    /// Creates a client with a bearer token; `user_agent` appears in audit logs.
    pub fn new(connections: Arc<ClientConnections>, token: &str, user_agent: &str) -> Self {
        let mut authorization =
            HeaderValue::try_from(format!("Bearer {token}")).expect("tokens are made of letters and digits");
        authorization.set_sensitive(true);
        let agent = format!("unskew/{} {user_agent}", env!("CARGO_PKG_VERSION"));
        Self { connections, authorization, user_agent: HeaderValue::try_from(agent).expect("agents are plain text") }
    }

    /// Reads an object, a list or a document.
    pub async fn get(&self, path: &str, accept: &'static str) -> Result<ApiResponse, ApiError> {
        self.send(self.request(Method::GET, path).header(ACCEPT, accept), Bytes::new(), READ_TIMEOUT).await
    }

    /// Gets a document unless it still has this ETag; then the code is 304.
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

    /// Creates an object in a collection.
    pub async fn create(&self, path: &str, object: &Value) -> Result<ApiResponse, ApiError> {
        self.send_write(Method::POST, path, "application/json", object).await
    }

    /// Replaces an object.
    pub async fn update(&self, path: &str, object: &Value) -> Result<ApiResponse, ApiError> {
        self.send_write(Method::PUT, path, "application/json", object).await
    }

    pub(crate) async fn merge_patch(&self, path: &str, patch: &Value) -> Result<ApiResponse, ApiError> {
        self.send_write(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    pub(crate) async fn apply(&self, path: &str, configuration: &Value) -> Result<ApiResponse, ApiError> {
        self.send_write(Method::PATCH, path, "application/apply-patch+yaml", configuration).await
    }

    /// Deletes an object, or all objects of a collection.
    pub async fn delete(&self, path: &str, options: &Value) -> Result<ApiResponse, ApiError> {
        self.send_write(Method::DELETE, path, "application/json", options).await
    }

    /// Starts a watch.
    pub async fn watch(&self, path: &str, accept: &'static str) -> Result<ApiWatchStream, ApiError> {
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
    tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| Err(ApiError::NoResponse("timed out".to_owned())))
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
