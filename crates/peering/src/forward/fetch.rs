//! Asking peers for their documents, over the connections that requests use.

use http::header::HOST;
use http::{Method, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use transport::peer::{DialError, PooledConnection, RequestBody};

use super::{Candidate, Forwarder};
use crate::ports::{Fetch, FetchError, FetchRequest, FetchResponse, PortFuture};

/// Whoever asks gives it a time limit; nothing is counted against the peer, because a document that cannot be had says little
/// about requests.
impl Fetch for Forwarder {
    fn fetch(&self, request: FetchRequest) -> PortFuture<'_, FetchResponse, FetchError> {
        Box::pin(self.fetch_from_peer(request))
    }
}

impl Forwarder {
    async fn fetch_from_peer(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let FetchRequest { server, address, path, headers, bytes_max } = request;
        let peer = self.0.peer_set.get(&Candidate { server, address });
        let mut get = Request::new(());
        *get.method_mut() = Method::GET;
        *get.uri_mut() = path.parse().map_err(|error| broken_response(&error))?;
        *get.headers_mut() = headers;
        get.headers_mut().insert(HOST, peer.host.clone());
        let response = match peer.front_proxy_pool.take_idle() {
            // An idle connection that ends now may just have been closed; a new one shows what is the matter.
            Some(connection) => send_get(connection, &get).await.ok(),
            None => None,
        };
        let response = match response {
            Some(response) => response,
            None => {
                send_get(
                    peer.front_proxy_pool
                        .open(self.0.limits.connect_timeout)
                        .await
                        .map_err(|error| fetch_error_from_dial(&error))?,
                    &get,
                )
                .await?
            }
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, bytes_max).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() { FetchError::TooLong { bytes_max } } else { broken_response(&*error) }
        })?;
        Ok(FetchResponse { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

async fn send_get(
    connection: PooledConnection,
    get: &Request<()>,
) -> Result<http::Response<transport::peer::PeerBody>, FetchError> {
    connection.send(get.clone().map(|()| RequestBody::empty())).await.map_err(|error| broken_response(&error))
}

fn fetch_error_from_dial(error: &DialError) -> FetchError {
    match error {
        DialError::Unreachable(_) | DialError::Proxy(_) => FetchError::Unreachable { reason: error.to_string() },
        DialError::Tls(_) => FetchError::Tls { reason: error.to_string() },
        DialError::TimedOut => FetchError::TimedOut,
    }
}

fn broken_response(error: &(dyn std::error::Error + 'static)) -> FetchError {
    FetchError::Broken { reason: error.to_string() }
}
