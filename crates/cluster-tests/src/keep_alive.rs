//! A client that reuses its connection, for tests that send thousands of requests.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;

use crate::Client;
use crate::client::FullResponse;

/// A hanging server must not hang the run.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Servers close idle connections; the second attempt has a new one.
const ATTEMPTS_MAX: usize = 3;

/// One connection to one server, opened on first use and again after the server closed it.
pub struct KeepAliveClient {
    client: Client,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl KeepAliveClient {
    /// A connection with the address and credentials of `client`.
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), connection: None }
    }

    /// Sends JSON and reads the whole response. Resends on a new connection if the old one was closed, so that only
    /// requests that may be repeated belong here. None if the server closes every connection without a response, as a server
    /// does whose handler panics.
    pub async fn send(&mut self, method: &Method, path: &str, body: &Bytes) -> Option<FullResponse> {
        for _ in 0..ATTEMPTS_MAX {
            let sending = tokio::time::timeout(RESPONSE_TIMEOUT, self.try_send(method, path, body));
            if let Some(response) = sending.await.expect("the server responds in time") {
                return Some(response);
            }
            self.connection = None;
        }
        None
    }

    async fn try_send(&mut self, method: &Method, path: &str, body: &Bytes) -> Option<FullResponse> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.client.connect().await.ok()?,
        };
        connection.ready().await.ok()?;
        let request = self.client.request_builder(method.clone(), path).header("content-type", "application/json");
        let request = request.body(Full::new(body.clone())).expect("the request is well-formed");
        let (parts, body) = connection.send_request(request).await.ok()?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        self.connection = Some(connection);
        Some(FullResponse { status: parts.status, headers: parts.headers, body })
    }
}
