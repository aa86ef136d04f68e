//! Builds the HTTP response for an encoded document.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::document::EncodedDocument;

/// Returns the response to a GET or HEAD for this document.
///
/// As in kube-apiserver: `If-None-Match` is compared as a single ETag (no list, no `W/`, no `*`), and a match results
/// in 304 without a body; only aggregated documents have `ETag`, `Vary: Accept` and `Cache-Control: public`; a
/// compressed body adds `Vary: Accept-Encoding`. The HTTP server sets Content-Length and handles HEAD.
pub fn respond(document: &EncodedDocument, request: &HeaderMap) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    if let Some(etag) = &document.etag {
        let headers = response.headers_mut();
        headers.insert(ETAG, etag.clone());
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        if request.get(IF_NONE_MATCH) == Some(etag) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
    }
    response.headers_mut().insert(CONTENT_TYPE, document.content_type.clone());
    match accepts_gzip(request).then(|| document.gzip()).flatten() {
        Some(gzip) => {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
            *response.body_mut() = gzip.clone();
        }
        None => *response.body_mut() = document.identity.clone(),
    }
    response
}

/// Reports whether the first `Accept-Encoding` header lists `gzip` with non-zero weight. As in kube-apiserver, a
/// wildcard does not count.
fn accepts_gzip(request: &HeaderMap) -> bool {
    let Some(Ok(accepted)) = request.get(ACCEPT_ENCODING).map(HeaderValue::to_str) else { return false };
    accepted.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip")) && parts.all(is_not_zero_weight)
    })
}

/// Returns false for a parameter `q=0`.
fn is_not_zero_weight(parameter: &str) -> bool {
    let Some((name, weight)) = parameter.split_once('=') else { return true };
    !(name.trim().eq_ignore_ascii_case("q") && weight.trim().parse() == Ok(0.0_f32))
}

#[cfg(test)]
mod tests;
