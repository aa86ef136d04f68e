//! Requests to one server, as the administrator of the lab.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::Value;
use transport::peer::{ConnectionPool, Connector, DialError, PeerBody, PoolLimits, PooledConnection, RequestBody};

/// Servers are on this machine, or should be near: nothing they are asked takes longer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than any discovery document or list that we ask for.
const BODY_MAX_BYTES: usize = 64 << 20;

/// A client of one server. Clones share connections.
#[derive(Clone, Debug)]
pub struct AdminClient {
    pool: Arc<ConnectionPool>,
    host: String,
    token: Option<String>,
}

/// A question.
#[derive(Clone, Debug)]
pub struct AdminRequest {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Bytes,
}

impl AdminRequest {
    /// Asks for a path.
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    /// Sends JSON.
    pub fn with_json_body(method: Method, path: impl Into<String>, body: &Value) -> Self {
        let content_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let headers = vec![("content-type", content_type.to_owned())];
        Self { method, path: path.into(), headers, body: body.to_string().into() }
    }

    /// With a header more.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct AdminResponse {
    /// The code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl AdminResponse {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection broke, or the answer is no HTTP.
    #[error("the request failed: {0}")]
    Transport(String),
    /// It took too long.
    #[error("no answer within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
    /// A header or a path cannot be sent.
    #[error("the request cannot be sent: {0}")]
    InvalidRequest(#[from] http::Error),
}

impl AdminClient {
    /// A client of the server that listens there.
    pub fn new(connector: &Arc<Connector>, host: &str, port: u16) -> Self {
        let pool = ConnectionPool::new(connector.clone(), host, port, PoolLimits::default());
        Self { pool, host: format!("{host}:{port}"), token: None }
    }

    /// The same, with a connection of its own for every request, so that a balancer may choose each time.
    #[must_use]
    pub fn without_keep_alive(connector: &Arc<Connector>, host: &str, port: u16) -> Self {
        let limits = PoolLimits { idle_max: 0, ..PoolLimits::default() };
        let pool = ConnectionPool::new(connector.clone(), host, port, limits);
        Self { pool, host: format!("{host}:{port}"), token: None }
    }

    /// The same, showing a bearer token.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Asks, and reads the whole answer.
    pub async fn request(&self, request: AdminRequest) -> Result<AdminResponse, ClientError> {
        let asking = async {
            let (parts, body) = self.send_with_retry(&request).await?.into_parts();
            let body = Limited::new(body, BODY_MAX_BYTES).collect().await;
            let body = body.map_err(|error| ClientError::Transport(error.to_string()))?.to_bytes();
            Ok(AdminResponse { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(REQUEST_TIMEOUT, asking).await.unwrap_or(Err(ClientError::TimedOut))
    }

    /// Asks, and returns the answer as soon as it begins.
    pub async fn open_stream(&self, request: &AdminRequest) -> Result<Response<PeerBody>, ClientError> {
        tokio::time::timeout(REQUEST_TIMEOUT, self.send_with_retry(request)).await.unwrap_or(Err(ClientError::TimedOut))
    }

    async fn send_with_retry(&self, request: &AdminRequest) -> Result<Response<PeerBody>, ClientError> {
        if let Some(connection) = self.pool.take_idle() {
            match self.send_on_connection(connection, request).await {
                // It may have been closed while it was idle; what only reads is asked again.
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
