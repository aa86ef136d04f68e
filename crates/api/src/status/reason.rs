//! The machine-readable reasons of a `Status`.

use serde::{Deserialize, Deserializer};

/// Why an operation failed, for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatusReason {
    /// No reason is given; clients fall back to the code.
    #[default]
    Unknown,
    /// 401: who you are is not known.
    Unauthorized,
    /// 403: you may not.
    Forbidden,
    /// 404: there is no such object or resource.
    NotFound,
    /// 409: an object of that name exists.
    AlreadyExists,
    /// 409: somebody else wrote first.
    Conflict,
    /// 410: it was there and is no more.
    Gone,
    /// 422: the object breaks rules; see the causes.
    Invalid,
    /// 500: a passing fault; try again.
    ServerTimeout,
    /// 500: a stored object cannot be read.
    StorageReadError,
    /// 504: it took too long; it may still happen.
    Timeout,
    /// 429: slow down.
    TooManyRequests,
    /// 400: the request itself makes no sense.
    BadRequest,
    /// 405: the resource does not do that.
    MethodNotAllowed,
    /// 406: no encoding that the client accepts.
    NotAcceptable,
    /// 413: the body is too big.
    RequestEntityTooLarge,
    /// 415: the body has an unknown encoding.
    UnsupportedMediaType,
    /// 500: our fault.
    InternalError,
    /// 410: the resource version or continue token is too old.
    Expired,
    /// 503: not now.
    ServiceUnavailable,
    /// A reason this release does not know, from another server.
    Other(Box<str>),
}

impl StatusReason {
    /// As on the wire; empty for [`StatusReason::Unknown`].
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unknown => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Invalid => "Invalid",
            Self::ServerTimeout => "ServerTimeout",
            Self::StorageReadError => "StorageReadError",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::InternalError => "InternalError",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Other(text) => text,
        }
    }
}

impl From<&str> for StatusReason {
    fn from(text: &str) -> Self {
        const KNOWN: [StatusReason; 20] = [
            StatusReason::Unknown,
            StatusReason::Unauthorized,
            StatusReason::Forbidden,
            StatusReason::NotFound,
            StatusReason::AlreadyExists,
            StatusReason::Conflict,
            StatusReason::Gone,
            StatusReason::Invalid,
            StatusReason::ServerTimeout,
            StatusReason::StorageReadError,
            StatusReason::Timeout,
            StatusReason::TooManyRequests,
            StatusReason::BadRequest,
            StatusReason::MethodNotAllowed,
            StatusReason::NotAcceptable,
            StatusReason::RequestEntityTooLarge,
            StatusReason::UnsupportedMediaType,
            StatusReason::InternalError,
            StatusReason::Expired,
            StatusReason::ServiceUnavailable,
        ];
        KNOWN.into_iter().find(|reason| reason.as_str() == text).unwrap_or_else(|| Self::Other(text.into()))
    }
}

impl<'de> Deserialize<'de> for StatusReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(deserializer)?.as_str()))
    }
}
