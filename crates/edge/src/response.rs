//! Responses that several handlers make: JSON, plain text, and Go's page for unknown paths.

use api::media::Encoding;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};

use crate::{Body, Response};

/// A `Content-Type` or `Accept` of JSON.
pub const JSON: HeaderValue = HeaderValue::from_static(Encoding::Json.media_type());

/// A response of 200 with a JSON body.
pub fn json_response(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A page as Go's `http.Error` writes it.
pub fn plain_text_response(status: StatusCode, content: String) -> Response {
    let mut response = Response::new(Body::from(content));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Go's 404 for a path that no handler has.
pub fn page_not_found() -> Response {
    plain_text_response(StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
}
