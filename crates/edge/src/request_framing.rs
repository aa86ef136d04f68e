//! Requests that are refused before any stage sees them, because servers read their heads differently.
//!
//! hyper refuses most ambiguous heads itself. What it accepts beyond Go's server is refused here with Go's status codes, so that
//! a proxy in front and a server behind agree on where a request ends and for which host it is.

use http::header::{ALLOW, CONNECTION, HOST, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request, StatusCode, Version};

use crate::Response;
use crate::response::plain_text_response;

/// Why a request is refused. The connection is closed after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FramingError {
    /// A tunnel to an address: there is none behind an API server, and HTTP clients read every 2xx as the start of one.
    #[error("405 CONNECT is not supported\n")]
    Connect,
    /// Any encoding besides one `chunked`: nothing here decodes it, and a server behind would have to.
    #[error("Unsupported transfer encoding")]
    TransferEncoding,
    /// HTTP/1.1 requires `Host`.
    #[error("400 Bad Request: missing required Host header")]
    MissingHost,
    /// Several `Host` headers.
    #[error("400 Bad Request: too many Host headers")]
    SeveralHosts,
}

impl FramingError {
    /// Checks the head of a request; `None` if it is unambiguous.
    pub(crate) fn find<B>(request: &Request<B>) -> Option<Self> {
        let headers = request.headers();
        if request.method() == Method::CONNECT {
            return Some(Self::Connect);
        }
        let mut encodings = headers.get_all(TRANSFER_ENCODING).into_iter();
        let is_chunked = |encoding: &HeaderValue| encoding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
        match (encodings.next(), encodings.next()) {
            (None, _) => {}
            (Some(only), None) if is_chunked(only) => {}
            (Some(_), _) => return Some(Self::TransferEncoding),
        }
        let mut hosts = headers.get_all(HOST).into_iter();
        match (hosts.next(), hosts.next()) {
            (Some(_), Some(_)) => Some(Self::SeveralHosts),
            (None, _) if request.version() == Version::HTTP_11 => Some(Self::MissingHost),
            (None | Some(_), None) | (None, Some(_)) => None,
        }
    }

    pub(crate) fn to_response(self, version: Version) -> Response {
        let status = match self {
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::TransferEncoding => StatusCode::NOT_IMPLEMENTED,
            Self::MissingHost | Self::SeveralHosts => StatusCode::BAD_REQUEST,
        };
        let mut response = plain_text_response(status, self.to_string());
        if self == Self::Connect {
            let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            response.headers_mut().insert(ALLOW, methods);
        }
        // HTTP/2 has no such header, and its streams end by themselves.
        if version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, version: Version, headers: &[(&str, &str)], expected: Option<FramingError>) {
        let mut request = Request::builder().method(method).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let found = FramingError::find(&request.body(()).unwrap());
        assert_eq!(found, expected, "{headers:?}");
        if let Some(error) = found {
            let response = error.to_response(version);
            assert!(response.status().is_client_error() || response.status() == StatusCode::NOT_IMPLEMENTED);
            assert_eq!(response.headers().contains_key(CONNECTION), version < Version::HTTP_2);
        }
    }

    #[test]
    fn unambiguous_requests_pass() {
        check(Method::GET, Version::HTTP_11, &[("host", "a")], None);
        check(Method::POST, Version::HTTP_11, &[("host", "a"), ("transfer-encoding", "Chunked")], None);
        check(Method::GET, Version::HTTP_10, &[], None);
        check(Method::GET, Version::HTTP_2, &[], None);
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        let host = ("host", "a");
        check(Method::CONNECT, Version::HTTP_11, &[host], Some(FramingError::Connect));
        check(Method::CONNECT, Version::HTTP_2, &[], Some(FramingError::Connect));
        for encoding in ["gzip, chunked", "chunked, chunked", "identity", ""] {
            let headers = [host, ("transfer-encoding", encoding)];
            check(Method::POST, Version::HTTP_11, &headers, Some(FramingError::TransferEncoding));
        }
        let twice = [host, ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")];
        check(Method::POST, Version::HTTP_11, &twice, Some(FramingError::TransferEncoding));
        check(Method::GET, Version::HTTP_11, &[], Some(FramingError::MissingHost));
        check(Method::GET, Version::HTTP_11, &[host, ("host", "b")], Some(FramingError::SeveralHosts));
        check(Method::GET, Version::HTTP_2, &[host, ("host", "b")], Some(FramingError::SeveralHosts));
    }
}
