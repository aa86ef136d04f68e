//! `/openapi/v2` and `/openapi/v3`: what every object looks like, for clients that explain and validate.

use api::Status;
use bytes::Bytes;
use catalogue::openapi::{Document, OpenApi, protobuf};
use edge::{Body, Response};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};

const JSON: &str = "application/json";
/// A document whose address names its content never changes.
const IMMUTABLE: &str = "public, immutable";

/// Answers if the path is one of these pages. Documents are built when they are first asked for.
pub(crate) fn serve(
    documents: &OpenApi,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Option<Result<Response, Status>> {
    let document = match path.trim_end_matches('/') {
        "/openapi/v2" if prefers_protobuf(headers) => {
            return Some(Ok(respond(documents.swagger_protobuf(), protobuf::CONTENT_TYPE, false, headers)));
        }
        "/openapi/v2" => documents.swagger(),
        "/openapi/v3" => documents.index(),
        path => documents.version(path.strip_prefix("/openapi/v3/")?)?,
    };
    if !accepts_json(headers) {
        return Some(Err(Status::not_acceptable(&["application/json"])));
    }
    let names_content = api::query::first(query, "hash").is_some_and(|hash| *hash == *document.hash);
    Some(Ok(respond(document, JSON, names_content, headers)))
}

/// What a client accepts, in its order.
fn accepted(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.split(',').filter_map(|clause| clause.split(';').next()).map(str::trim)
}

fn is_json(media_type: &str) -> bool {
    matches!(media_type, "" | "*/*" | "application/*" | "application/json")
}

fn accepts_json(headers: &HeaderMap) -> bool {
    accepted(headers).any(is_json)
}

/// Whether protobuf is named before anything that JSON is.
fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let mut known = accepted(headers).filter(|name| is_json(name) || protobuf::MEDIA_TYPES.contains(name));
    known.next().is_some_and(|first| !is_json(first))
}

fn respond(document: &Document, content_type: &'static str, names_content: bool, headers: &HeaderMap) -> Response {
    let etag = HeaderValue::try_from(format!("\"{}\"", document.hash)).expect("a hash is a header value");
    let mut response = Response::new(Body::Empty);
    let is_known = headers.get(IF_NONE_MATCH) == Some(&etag);
    response.headers_mut().insert(ETAG, etag);
    if names_content {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(IMMUTABLE));
    }
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    *response.body_mut() = Body::from(Bytes::from_owner(document.body.clone()));
    response
}
