//! OpenAPI requests and responses.

use api::Status;
use api::media::Encoding;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION};
use http::{HeaderMap, StatusCode};
use schema::openapi::{OpenApiDocument, protobuf};

use crate::{Body, Response};

const JSON_MEDIA_TYPE: &str = Encoding::Json.media_type();
/// For URLs with the document's hash, whose content never changes.
const IMMUTABLE_CACHE_CONTROL: &str = "public, immutable";

/// An OpenAPI page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenApiPage<'p> {
    /// `/openapi/v3`.
    Index,
    /// `/openapi/v3/<path>`.
    Version(&'p str),
    /// `/openapi/v2`.
    Swagger(SwaggerEncoding),
}

/// The encodings of `/openapi/v2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwaggerEncoding {
    /// The default.
    Json,
    /// What kubectl requests.
    Protobuf,
}

impl<'p> OpenApiPage<'p> {
    /// The requested page; `None` if the path is none.
    pub fn from_request(path: &'p str, headers: &HeaderMap) -> Option<Self> {
        match path.trim_end_matches('/') {
            "/openapi/v2" if prefers_protobuf(headers) => Some(Self::Swagger(SwaggerEncoding::Protobuf)),
            "/openapi/v2" => Some(Self::Swagger(SwaggerEncoding::Json)),
            "/openapi/v3" => Some(Self::Index),
            path => path.strip_prefix("/openapi/v3/").map(Self::Version),
        }
    }

    /// The response with this page's document. A request that names another hash is redirected to the current one, as
    /// kube-apiserver does.
    pub fn respond(self, document: &OpenApiDocument, query: &str, headers: &HeaderMap) -> Result<Response, Status> {
        if self == Self::Swagger(SwaggerEncoding::Protobuf) {
            return Ok(document_response(document, protobuf::CONTENT_TYPE, false, headers));
        }
        if !accepted_media_types(headers).any(matches_json) {
            return Err(Status::not_acceptable(&[JSON_MEDIA_TYPE]));
        }
        let Self::Version(path) = self else {
            return Ok(document_response(document, JSON_MEDIA_TYPE, false, headers));
        };
        let wanted = api::query::first_value(query, "hash");
        if wanted.as_ref().is_some_and(|wanted| **wanted != *document.hash) {
            return Ok(redirect(&format!("/openapi/v3/{path}?hash={}", document.hash)));
        }
        Ok(document_response(document, JSON_MEDIA_TYPE, wanted.is_some(), headers))
    }
}

fn redirect(address: &str) -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(address) = HeaderValue::try_from(address) {
        response.headers_mut().insert(LOCATION, address);
    }
    response
}

/// The media types of `Accept` in the client's order, without parameters.
fn accepted_media_types(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.split(',').filter_map(|clause| clause.split(';').next()).map(str::trim)
}

fn matches_json(media_type: &str) -> bool {
    matches!(media_type, "" | "*/*" | "application/*" | JSON_MEDIA_TYPE)
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
    *response.body_mut() = Body::from(document.body.clone());
    response
}
