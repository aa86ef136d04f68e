//! How an exchange with a peer breaks off.

use h2::Reason;

/// What a connection says for itself when it breaks off.
#[derive(Debug, thiserror::Error)]
pub enum PeerConnectionError {
    /// One that carried a single request.
    #[error(transparent)]
    Http1(#[from] hyper::Error),
    /// One that others share.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// A request with a body was to share a connection, which none does.
    #[error("requests with a body do not share connections")]
    BodyNotAllowed,
}

impl PeerConnectionError {
    /// Whether the peer sent something that is no HTTP.
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
