//! [`Fetch`] over the forwarder: GET requests that this server sends to members on its own behalf.

use forward::{Candidate, ForwardedUser, Forwarder, GetError};
use membership::ports::{Fetch, FetchError, FetchRequest, FetchResponse, PortFuture};
use transport::peer::DialError;

/// Fetches discovery documents and other pages from members over the forwarder's connections.
#[derive(Debug)]
pub struct PeerFetch {
    /// Opens and pools the connections to members.
    pub forwarder: Forwarder,
    /// The user that the identity headers of every request name.
    pub user: ForwardedUser,
}

impl PeerFetch {
    /// Creates a fetcher whose requests name the forwarder's own user.
    pub fn new(forwarder: Forwarder) -> Self {
        let user = forwarder.own_user().clone();
        Self { forwarder, user }
    }
}

impl Fetch for PeerFetch {
    fn fetch(&self, request: FetchRequest) -> PortFuture<'_, FetchResponse, FetchError> {
        let FetchRequest { server, address, path, mut headers, bytes_max } = request;
        self.user.write_headers(&mut headers);
        Box::pin(async move {
            let candidate = Candidate::new(server.name().clone(), address);
            let response =
                self.forwarder.get(&candidate, &path, headers, bytes_max).await.map_err(|error| fetch_error(&error))?;
            let (head, body) = response.into_parts();
            Ok(FetchResponse { status: head.status, headers: head.headers, body })
        })
    }
}

fn fetch_error(error: &GetError) -> FetchError {
    let reason = error.to_string();
    match error {
        GetError::Dial(DialError::Unreachable(_) | DialError::Proxy(_)) => FetchError::Unreachable { reason },
        GetError::Dial(DialError::Tls(_)) => FetchError::Tls { reason },
        GetError::Dial(DialError::TimedOut) => FetchError::TimedOut,
        GetError::TooLong { bytes_max } => FetchError::TooLong { bytes_max: *bytes_max },
        GetError::InvalidPath(_) | GetError::ConnectionBroken(_) | GetError::BodyBroken(_) => {
            FetchError::Broken { reason }
        }
    }
}
