//! Errors of an exchange with a peer.

use h2::Reason;

/// The error that a connection failed with.
#[derive(Debug, thiserror::Error)]
pub enum PeerConnectionError {
    /// An error of an HTTP/1.1 connection.
    #[error(transparent)]
    Http1(#[from] hyper::Error),
    /// An error of an HTTP/2 stream or connection.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// A request with a body was given an HTTP/2 stream; only requests without one are multiplexed.
    #[error("requests with a body cannot use a multiplexed connection")]
    BodyNotAllowed,
}

impl PeerConnectionError {
    /// Reports whether the peer sent malformed HTTP.
    pub fn is_protocol_violation(&self) -> bool {
        let breaks_rules =
            |reason| matches!(reason, Reason::PROTOCOL_ERROR | Reason::FRAME_SIZE_ERROR | Reason::COMPRESSION_ERROR);
        match self {
            Self::Http1(error) => error.is_parse(),
            Self::Http2(error) => error.is_library() && error.reason().is_some_and(breaks_rules),
            Self::BodyNotAllowed => false,
        }
    }
}
