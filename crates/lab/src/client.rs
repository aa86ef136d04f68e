//! HTTP client for one API server, authenticated as the lab's administrator.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::Value;
use transport::peer::{ConnectionPool, Connector, DialError, PeerBody, PoolLimits, PooledConnection, RequestBody};

/// Limit for connecting, sending and reading a whole response; the servers run on this machine or nearby.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Larger than any discovery document or list that the lab requests.
const BODY_MAX_BYTES: usize = 64 << 20;

/// Client of one API server. Clones share the connection pool.
#[derive(Clone, Debug)]
pub struct AdminClient {
    pool: Arc<ConnectionPool>,
    host: String,
    token: Option<String>,
}

/// A request that [`AdminClient`] can send more than once.
#[derive(Clone, Debug)]
pub struct AdminRequest {
    /// HTTP method; only a GET is retried after a broken idle connection.
    pub method: Method,
    /// Path and query, starting with `/`.
    pub path: String,
    /// Headers besides `Host` and `Authorization`, which the client sets.
    pub headers: Vec<(&'static str, String)>,
    /// Request body; empty for none.
    pub body: Bytes,
}

impl AdminRequest {
    /// Returns a GET request for `path`.
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    /// Returns a request with a JSON body; PATCH is sent as a JSON merge patch.
    pub fn with_json_body(method: Method, path: impl Into<String>, body: &Value) -> Self {
        let content_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let headers = vec![("content-type", content_type.to_owned())];
        Self { method, path: path.into(), headers, body: body.to_string().into() }
    }

    /// Appends a header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A response whose body was read completely.
#[derive(Clone, Debug)]
pub struct AdminResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Response headers.
    pub headers: HeaderMap,
    /// Response body, at most 64 MiB.
    pub body: Bytes,
}

impl AdminResponse {
    /// Parses the body as JSON; `Null` if it is not valid JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection could not be opened.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection broke, or the response is not valid HTTP.
    #[error("the request failed: {0}")]
    Transport(String),
    /// [`REQUEST_TIMEOUT`] passed.
    #[error("no response within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
    /// The path or a header is not valid HTTP.
    #[error("the request cannot be sent: {0}")]
    InvalidRequest(#[from] http::Error),
}

impl AdminClient {
    /// Creates a client with a keep-alive pool for `host:port`.
    pub fn new(connector: &Arc<Connector>, host: &str, port: u16) -> Self {
        let pool = ConnectionPool::new(connector.clone(), host, port, PoolLimits::default());
        Self { pool, host: format!("{host}:{port}"), token: None }
    }

    /// Creates a client that opens a connection per request, so that a load balancer selects a server each time.
    #[must_use]
    pub fn without_keep_alive(connector: &Arc<Connector>, host: &str, port: u16) -> Self {
        let limits = PoolLimits { idle_max: 0, ..PoolLimits::default() };
        let pool = ConnectionPool::new(connector.clone(), host, port, limits);
        Self { pool, host: format!("{host}:{port}"), token: None }
    }

    /// Sends `token` as bearer token with every request.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Sends the request and reads the whole response body.
    pub async fn request(&self, request: AdminRequest) -> Result<AdminResponse, ClientError> {
        let asking = async {
            let (parts, body) = self.send_with_retry(&request).await?.into_parts();
            let body = Limited::new(body, BODY_MAX_BYTES).collect().await;
            let body = body.map_err(|error| ClientError::Transport(error.to_string()))?.to_bytes();
            Ok(AdminResponse { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(REQUEST_TIMEOUT, asking).await.unwrap_or(Err(ClientError::TimedOut))
    }

    /// Sends the request and returns once the response headers arrive; used for watches.
    pub async fn open_stream(&self, request: &AdminRequest) -> Result<Response<PeerBody>, ClientError> {
        tokio::time::timeout(REQUEST_TIMEOUT, self.send_with_retry(request)).await.unwrap_or(Err(ClientError::TimedOut))
    }

    /// Sends on an idle connection if there is one, else on a new one; retries a GET once if the idle one broke.
    async fn send_with_retry(&self, request: &AdminRequest) -> Result<Response<PeerBody>, ClientError> {
        if let Some(connection) = self.pool.take_idle() {
            match self.send_on_connection(connection, request).await {
                // The server may have closed the idle connection: retry reads on a new one.
                Err(ClientError::Transport(_)) if request.method == Method::GET => {}
                outcome => return outcome,
            }
        }
        let connection = self.pool.open(REQUEST_TIMEOUT).await?;
        self.send_on_connection(connection, request).await
    }

    async fn send_on_connection(
        &self,
        connection: PooledConnection,
        admin_request: &AdminRequest,
    ) -> Result<Response<PeerBody>, ClientError> {
        let mut request =
            Request::builder().method(&admin_request.method).uri(&admin_request.path).header("host", &self.host);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in &admin_request.headers {
            request = request.header(*name, value);
        }
        let body = match admin_request.body.is_empty() {
            true => RequestBody::empty(),
            false => RequestBody::new(Full::new(admin_request.body.clone()).map_err(|never| match never {})),
        };
        connection.send(request.body(body)?).await.map_err(|error| ClientError::Transport(error.to_string()))
    }
}
