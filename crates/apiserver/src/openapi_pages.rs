//! `/openapi/v2` and `/openapi/v3`.

use std::sync::Arc;

use api::Status;
use api::media::Encoding;
use bytes::Bytes;
use edge::{Body, Response};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION};
use http::{HeaderMap, StatusCode};
use schema::openapi::{OpenApiDocument, protobuf};

use crate::definitions::LiveDefinitions;
use crate::openapi_documents::{OpenApiDocuments, SwaggerEncoding};
use crate::rest;

const JSON_MEDIA_TYPE: &str = Encoding::Json.media_type();
/// For URLs with the document's hash, whose content never changes.
const IMMUTABLE_CACHE_CONTROL: &str = "public, immutable";

/// Serves an OpenAPI document; `None` if the path is not one. Each document is encoded on its first request.
pub(crate) async fn serve(
    documents: &Arc<OpenApiDocuments>,
    definitions: &LiveDefinitions,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Option<Result<Response, Status>> {
    let custom = definitions.snapshot();
    let document = match path.trim_end_matches('/') {
        "/openapi/v2" if prefers_protobuf(headers) => {
            let document = documents.swagger(SwaggerEncoding::Protobuf, custom).await;
            return Some(Ok(document_response(&document, protobuf::CONTENT_TYPE, false, headers)));
        }
        "/openapi/v2" => documents.swagger(SwaggerEncoding::Json, custom).await,
        "/openapi/v3" => documents.index(&custom),
        path => {
            let path = path.strip_prefix("/openapi/v3/")?;
            match documents.version(path, custom).await {
                Some(document) => document,
                None => match custom_version(documents, definitions, path).await {
                    Ok(document) => document?,
                    Err(status) => return Some(Err(status)),
                },
            }
        }
    };
    if !accepts_json(headers) {
        return Some(Err(Status::not_acceptable(&[JSON_MEDIA_TYPE])));
    }
    let is_version = path.starts_with("/openapi/v3/");
    let wanted = api::query::first_value(query, "hash").filter(|_| is_version);
    if wanted.as_ref().is_some_and(|wanted| **wanted != *document.hash) {
        let current = format!("{}?hash={}", path.trim_end_matches('/'), document.hash);
        return Some(Ok(redirect(&current)));
    }
    Some(Ok(document_response(&document, JSON_MEDIA_TYPE, wanted.is_some(), headers)))
}

/// The document of a group-version of custom resources. Its absence is proven against storage.
async fn custom_version(
    documents: &Arc<OpenApiDocuments>,
    definitions: &LiveDefinitions,
    path: &str,
) -> Result<Option<OpenApiDocument>, Status> {
    // The group of a definition has a dot.
    if !path.split('/').nth(1).is_some_and(|group| group.contains('.')) {
        return Ok(None);
    }
    if !definitions.catch_up().await {
        return Err(rest::definitions_behind());
    }
    Ok(documents.version(path, definitions.snapshot()).await)
}

/// Sends a client that asks for the content of another hash to the current document, as kube-apiserver does.
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
