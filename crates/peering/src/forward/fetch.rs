//! Asking peers for their documents, over the connections that requests use.

use http::header::HOST;
use http::{Method, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use transport::peer::{DialError, Line, RequestBody};

use super::{Candidate, Forwarder};
use crate::ports::{Fetch, FetchAnswer, FetchFault, FetchRequest, Pending};

/// Whoever asks gives it a time limit; nothing is counted against the peer, because a document that cannot be had says little
/// about requests.
impl Fetch for Forwarder {
    fn fetch(&self, request: FetchRequest) -> Pending<'_, FetchAnswer, FetchFault> {
        Box::pin(self.fetch_now(request))
    }
}

impl Forwarder {
    async fn fetch_now(&self, request: FetchRequest) -> Result<FetchAnswer, FetchFault> {
        let FetchRequest { server, address, path, headers, bytes_max } = request;
        let peer = self.0.peers.get(&Candidate { server, address });
        let mut get = Request::new(());
        *get.method_mut() = Method::GET;
        *get.uri_mut() = path.parse().map_err(|error| broken(&error))?;
        *get.headers_mut() = headers;
        get.headers_mut().insert(HOST, peer.host.clone());
        let response = match peer.pool.take() {
            // An idle connection that ends now may just have been closed; a new one shows what is the matter.
            Some(line) => send(line, &get).await.ok(),
            None => None,
        };
        let response = match response {
            Some(response) => response,
            None => {
                send(peer.pool.open(self.0.limits.connect_timeout).await.map_err(|error| dial_fault(&error))?, &get)
                    .await?
            }
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, bytes_max).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() { FetchFault::TooLong { bytes_max } } else { broken(&*error) }
        })?;
        Ok(FetchAnswer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

async fn send(line: Line, get: &Request<()>) -> Result<http::Response<transport::peer::PeerBody>, FetchFault> {
    line.send(get.clone().map(|()| RequestBody::empty())).await.map_err(|error| broken(&error))
}

fn dial_fault(error: &DialError) -> FetchFault {
    match error {
        DialError::Unreachable(_) | DialError::Proxy(_) => FetchFault::Unreachable { reason: error.to_string() },
        DialError::Tls(_) => FetchFault::Tls { reason: error.to_string() },
        DialError::TimedOut => FetchFault::TimedOut,
    }
}

fn broken(error: &(dyn std::error::Error + 'static)) -> FetchFault {
    FetchFault::Broken { reason: error.to_string() }
}
