//! The head of a forwarded request and of its response.
//!
//! Both lose hop-by-hop headers. The request also loses every identity header and gets those of the authenticated user.

use api::headers::lowercase::{self, HOP_MARK_VALUE, PEER_PROXIED, REROUTED};
use http::header::{
    self, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, request, response};
use http_body::SizeHint;
use transport::peer::RequestBody;

use super::{CorsHeaders, ForwardRequest};

const AUDIT_ID: HeaderName = HeaderName::from_static(lowercase::AUDIT_ID);
const FORWARDED_FOR: HeaderName = HeaderName::from_static(lowercase::FORWARDED_FOR);
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Hop-by-hop headers, besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The CORS headers of a response.
const CORS_RESPONSE_HEADERS: [HeaderName; 4] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// The head of a forwarded request without its `Host`.
pub(super) struct ForwardedHead {
    pub(super) method: Method,
    uri: Uri,
    headers: HeaderMap,
    pub(super) is_upgrade: bool,
}

impl ForwardedHead {
    /// `body_size` is the size of the client's body as it was parsed.
    pub(super) fn new(
        request: request::Parts,
        body_size: &SizeHint,
        forward_request: &ForwardRequest<'_>,
        is_upgrade: bool,
    ) -> Self {
        let request::Parts { method, uri, mut headers, .. } = request;
        // The client's host becomes `X-Forwarded-Host`. HTTP/2 and proxies have it in the target, which takes precedence.
        let authority = uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        let host = authority.or_else(|| headers.get(HOST).cloned());
        let protocol = headers.get(UPGRADE).cloned();
        remove_hop_by_hop(&mut headers);
        set_content_length(&mut headers, body_size);
        // The listener has answered it: the client sends the body already.
        headers.remove(EXPECT);
        forward_request.user.write_headers(&mut headers);
        if forward_request.add_hop_mark {
            mark_forwarded(&mut headers);
        }
        if let Some(audit_id) = headers.get(AUDIT_ID).cloned() {
            // Of several ids the first one is in our audit log, so the peer gets that one alone.
            headers.insert(AUDIT_ID, audit_id);
        }
        append_forwarded_for(&mut headers, forward_request.client_ip.to_string());
        headers.remove(FORWARDED_HOST);
        headers.extend(host.map(|host| (FORWARDED_HOST, host)));
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
        if is_upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.extend(protocol.map(|protocol| (UPGRADE, protocol)));
        }
        Self { method, uri: origin_form(&uri), headers, is_upgrade }
    }

    /// The headers without `Host`.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The request to one peer, which `host` names.
    pub(super) fn build_request(&self, host: &HeaderValue, body: RequestBody) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(HOST, host.clone());
        request
    }

    /// A GET of the same target with the same headers, to one peer.
    pub(super) fn build_get_request(&self, host: &HeaderValue) -> Request<RequestBody> {
        let mut request = self.build_request(host, RequestBody::empty());
        *request.method_mut() = Method::GET;
        request.headers_mut().remove(CONTENT_LENGTH);
        request
    }
}

/// Replaces the client's `Content-Length` by the size of the body that is sent: a peer that reads another length would take part of
/// a body for the next request on the connection, which may be another user's.
fn set_content_length(headers: &mut HeaderMap, body_size: &SizeHint) {
    if headers.remove(CONTENT_LENGTH).is_some() {
        headers.extend(body_size.exact().map(|size| (CONTENT_LENGTH, HeaderValue::from(size))));
    }
}

/// Sets both hop marks, once each, so that the peer serves the request itself or refuses it.
pub(super) fn mark_forwarded(headers: &mut HeaderMap) {
    for name in [PEER_PROXIED, REROUTED] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(HOP_MARK_VALUE));
    }
}

/// Prepares the head of a peer's response for the client.
pub(super) fn clean_response_head(response: &mut response::Parts, cors_headers: CorsHeaders) {
    let protocol = response.headers.get(UPGRADE).cloned();
    remove_hop_by_hop(&mut response.headers);
    match cors_headers {
        CorsHeaders::Strip => CORS_RESPONSE_HEADERS.iter().for_each(|name| drop(response.headers.remove(name))),
        CorsHeaders::PassThrough => {}
    }
    if response.status == http::StatusCode::SWITCHING_PROTOCOLS {
        response.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers.extend(protocol.map(|protocol| (UPGRADE, protocol)));
    }
    response.extensions.clear();
    response.version = http::Version::HTTP_11;
}

/// True if a head asks to switch protocols.
pub(super) fn is_upgrade_request(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE) && connection_tokens(headers).any(|word| word.eq_ignore_ascii_case("upgrade"))
}

/// Path and query, unchanged.
fn origin_form(uri: &Uri) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = uri.path_and_query().cloned();
    Uri::from_parts(parts).unwrap_or_default()
}

fn connection_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|line| line.split(',')).map(str::trim)
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // Most heads have none of them.
    if !headers.keys().any(is_hop_by_hop) {
        return;
    }
    let named: Vec<HeaderName> = connection_tokens(headers).filter_map(|word| word.parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

fn append_forwarded_for(headers: &mut HeaderMap, client_ip: String) {
    let mut earlier_hops = headers.get_all(FORWARDED_FOR).into_iter().filter_map(|line| line.to_str().ok()).peekable();
    let all = if earlier_hops.peek().is_some() {
        earlier_hops.chain([&*client_ip]).collect::<Vec<_>>().join(", ")
    } else {
        client_ip
    };
    if let Ok(all) = HeaderValue::try_from(all) {
        headers.insert(FORWARDED_FOR, all);
    }
}

#[cfg(test)]
mod tests;
