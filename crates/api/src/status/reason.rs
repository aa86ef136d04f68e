//! The machine-readable reasons of a `Status`.

use serde::{Deserialize, Deserializer};

/// Why an operation failed, for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatusReason {
    /// No reason; clients fall back to the code.
    #[default]
    Unknown,
    /// 401: authentication failed.
    Unauthorized,
    /// 403: not permitted.
    Forbidden,
    /// 404: no such object or resource.
    NotFound,
    /// 409: an object with that name exists.
    AlreadyExists,
    /// 409: the object was modified concurrently.
    Conflict,
    /// 410: the resource is no longer available.
    Gone,
    /// 422: the object failed validation; see the causes.
    Invalid,
    /// 500: a transient error; retry.
    ServerTimeout,
    /// 500: a stored object cannot be decoded.
    StorageReadError,
    /// 504: the operation timed out and may still take effect.
    Timeout,
    /// 429: retry later.
    TooManyRequests,
    /// 400: the request is malformed.
    BadRequest,
    /// 405: the resource does not support the action.
    MethodNotAllowed,
    /// 406: the client accepts none of the encodings.
    NotAcceptable,
    /// 413: the body is too large.
    RequestEntityTooLarge,
    /// 415: the body has an unknown encoding.
    UnsupportedMediaType,
    /// 500: an internal error.
    InternalError,
    /// 410: the resourceVersion or continue token is too old.
    Expired,
    /// 503: temporarily unavailable.
    ServiceUnavailable,
    /// A reason of another server that this release does not know.
    Other(Box<str>),
}

impl StatusReason {
    /// Returns the wire value; empty for [`StatusReason::Unknown`].
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
