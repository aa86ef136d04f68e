//! `/openapi/v2` and `/openapi/v3`.

use api::Status;
use api::media::Encoding;
use bytes::Bytes;
use edge::{Body, Response};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use kinds::openapi::OpenApi;
use schema::openapi::{OpenApiDocument, protobuf};

const JSON_MEDIA_TYPE: &str = Encoding::Json.media_type();
/// For URLs with the document's hash, whose content never changes.
const IMMUTABLE_CACHE_CONTROL: &str = "public, immutable";

/// Serves an OpenAPI document; `None` if the path is not one. Each document is built on its first request.
pub(crate) fn serve(
    documents: &OpenApi,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Option<Result<Response, Status>> {
    let document = match path.trim_end_matches('/') {
        "/openapi/v2" if prefers_protobuf(headers) => {
            return Some(Ok(document_response(documents.swagger_protobuf(), protobuf::CONTENT_TYPE, false, headers)));
        }
        "/openapi/v2" => documents.swagger(),
        "/openapi/v3" => documents.index(),
        path => documents.version(path.strip_prefix("/openapi/v3/")?)?,
    };
    if !accepts_json(headers) {
        return Some(Err(Status::not_acceptable(&[JSON_MEDIA_TYPE])));
    }
    let is_content_addressed = api::query::first_value(query, "hash").is_some_and(|hash| *hash == *document.hash);
    Some(Ok(document_response(document, JSON_MEDIA_TYPE, is_content_addressed, headers)))
}

/// The media types of `Accept` in the client's order, without parameters.
fn accepted_media_types(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.split(',').filter_map(|clause| clause.split(';').next()).map(str::trim)
}

fn matches_json(media_type: &str) -> bool {
    matches!(media_type, "" | "*/*" | "application/*" | JSON_MEDIA_TYPE)
}

fn accepts_json(headers: &HeaderMap) -> bool {
    accepted_media_types(headers).any(matches_json)
}

/// True if `Accept` names protobuf before any type that JSON matches.
fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let mut supported =
        accepted_media_types(headers).filter(|name| matches_json(name) || protobuf::MEDIA_TYPES.contains(name));
    supported.next().is_some_and(|first| !matches_json(first))
}

fn document_response(
    document: &OpenApiDocument,
    content_type: &'static str,
    is_content_addressed: bool,
    headers: &HeaderMap,
) -> Response {
    let etag = HeaderValue::try_from(format!("\"{}\"", document.hash)).expect("a hash is a header value");
    let mut response = Response::new(Body::Empty);
    let is_not_modified = headers.get(IF_NONE_MATCH) == Some(&etag);
    response.headers_mut().insert(ETAG, etag);
    if is_content_addressed {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(IMMUTABLE_CACHE_CONTROL));
    }
    if is_not_modified {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    *response.body_mut() = Body::from(Bytes::from_owner(document.body.clone()));
    response
}
