//! GET requests of this server itself to a candidate, over the connections that forwarded requests use.

use bytes::Bytes;
use http::header::{HOST, HeaderMap};
use http::uri::InvalidUri;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use transport::peer::{BoxError, DialError, PeerBody, PeerConnectionError, PooledConnection, RequestBody};

use super::{Candidate, Forwarder};

/// Why a GET to a candidate failed.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// No connection could be opened.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The path is no URI.
    #[error(transparent)]
    InvalidPath(#[from] InvalidUri),
    /// The connection ended before the head of the response, or carried something other than HTTP.
    #[error(transparent)]
    ConnectionBroken(#[from] PeerConnectionError),
    /// The connection ended within the body of the response.
    #[error("{0}")]
    BodyBroken(BoxError),
    /// The body of the response exceeds the limit.
    #[error("the response is longer than {bytes_max} bytes")]
    TooLong {
        /// The limit.
        bytes_max: usize,
    },
}

impl Forwarder {
    /// Sends a GET to one candidate and reads the whole response. The caller limits the time. A failure does not count against the
    /// candidate, because it says little about forwarded requests.
    pub async fn get(
        &self,
        candidate: &Candidate,
        path: &str,
        headers: HeaderMap,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, GetError> {
        let peer = self.0.peer_set.get(candidate);
        let mut get = Request::new(());
        *get.method_mut() = Method::GET;
        *get.uri_mut() = path.parse()?;
        *get.headers_mut() = headers;
        get.headers_mut().insert(HOST, peer.host.clone());
        let response = match peer.front_proxy_pool.take_idle() {
            // The peer may just have closed an idle connection; a new one shows whether it fails.
            Some(connection) => send_get(connection, &get).await.ok(),
            None => None,
        };
        let response = match response {
            Some(response) => response,
            None => send_get(peer.front_proxy_pool.open(self.0.limits.connect_timeout).await?, &get).await?,
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, bytes_max).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() { GetError::TooLong { bytes_max } } else { GetError::BodyBroken(error) }
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

async fn send_get(connection: PooledConnection, get: &Request<()>) -> Result<Response<PeerBody>, PeerConnectionError> {
    connection.send(get.clone().map(|()| RequestBody::empty())).await.map_err(|failed| failed.error)
}
