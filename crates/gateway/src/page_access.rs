//! Access to the gateway's own pages, decided by an upstream.
//!
//! The gateway sends a SelfSubjectAccessReview with the caller's identity. A caller that is not allowed is forwarded to
//! the upstream, which explains why.

use std::collections::HashMap;
use std::time::Duration;

use api::headers::lowercase::IMPERSONATE_PREFIX;
use aws_lc_rs::digest;
use bytes::Bytes;
use edge::RequestRecord;
use edge::response::JSON;
use forward::{Effect, ForwardRequest, ForwardedUser, Lifetime, ResponseOrigin};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access_control::GatewayCaller;
use crate::upstream_client::UpstreamClient;

const REVIEW_PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// How long a review result is cached.
const CACHE_AGE_MAX: Duration = Duration::from_secs(10);
/// Limit for cached results; further results are not cached.
const CACHE_ENTRIES_MAX: usize = 4096;
/// Limit for one review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Larger than any review.
const REVIEW_BYTES_MAX: usize = 64 << 10;

/// Sends access reviews and caches the results.
#[derive(Debug)]
pub struct PageAccessReviews {
    upstream_client: UpstreamClient,
    cache: Mutex<HashMap<ReviewKey, (Instant, bool)>>,
}

/// SHA-256 of user, credentials and path; reveals no credentials.
type ReviewKey = [u8; 32];

impl PageAccessReviews {
    /// Creates the cache; reviews are sent with `upstream_client`.
    pub fn new(upstream_client: UpstreamClient) -> Self {
        Self { upstream_client, cache: Mutex::default() }
    }

    /// True if the caller, with the credentials of these headers, may get a page. False if no upstream responds.
    pub(crate) async fn is_allowed(&self, caller: &GatewayCaller, path: &str, headers: &HeaderMap) -> bool {
        let credentials = credential_headers(headers);
        let key = review_key(&caller.user, &credentials, path);
        if let Some(&(since, is_allowed)) = self.cache.lock().get(&key)
            && since.elapsed() < CACHE_AGE_MAX
        {
            return is_allowed;
        }
        let Some(is_allowed) = self.send_review(caller, path, credentials).await else { return false };
        let mut cache = self.cache.lock();
        if cache.len() >= CACHE_ENTRIES_MAX {
            cache.retain(|_, (since, _)| since.elapsed() < CACHE_AGE_MAX);
        }
        if cache.len() < CACHE_ENTRIES_MAX {
            cache.insert(key, (Instant::now(), is_allowed));
        }
        is_allowed
    }

    /// Sends the review; `None` if no upstream responds with one.
    async fn send_review(&self, caller: &GatewayCaller, path: &str, credentials: HeaderMap) -> Option<bool> {
        let review = json!({
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "spec": {"nonResourceAttributes": {"path": path, "verb": "get"}},
        });
        let mut request = Request::post(REVIEW_PATH).body(Full::new(Bytes::from(review.to_string()))).ok()?;
        *request.headers_mut() = credentials;
        request.headers_mut().insert(CONTENT_TYPE, JSON);
        request.headers_mut().insert(ACCEPT, JSON);
        let lifetime = Lifetime::Until(Instant::now() + REVIEW_TIMEOUT);
        // A review is created by POST, but nothing is stored: it may be repeated like a read.
        let (effect, origin) = (Effect::Reads, ResponseOrigin::AnyServer);
        let forward_request = ForwardRequest::new(&caller.user, caller.client_ip, effect, origin, lifetime);
        let response =
            self.upstream_client.forward_to_any(forward_request, &RequestRecord::default(), request).await.ok()?;
        if response.status() != StatusCode::CREATED {
            // A caller that may not create reviews may not see the page either.
            return (response.status() == StatusCode::FORBIDDEN).then_some(false);
        }
        let body = Limited::new(response.into_body(), REVIEW_BYTES_MAX).collect().await.ok()?.to_bytes();
        let review: Value = serde_json::from_slice(&body).ok()?;
        Some(review["status"]["allowed"] == true)
    }
}

/// Headers that carry credentials or impersonation.
fn credential_headers(headers: &HeaderMap) -> HeaderMap {
    let is_credential = |name: &HeaderName| *name == AUTHORIZATION || name.as_str().starts_with(IMPERSONATE_PREFIX);
    let lines = headers.iter().filter(|(name, _)| is_credential(name));
    lines.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn review_key(user: &ForwardedUser, credentials: &HeaderMap, path: &str) -> ReviewKey {
    let mut headers = credentials.clone();
    user.write_headers(&mut headers);
    let mut context = digest::Context::new(&digest::SHA256);
    let mut add = |part: &[u8]| {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    };
    add(path.as_bytes());
    add(&[u8::from(user.is_vouched_for())]);
    for (name, value) in &headers {
        add(name.as_str().as_bytes());
        add(value.as_bytes());
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn key_for(user: Option<&str>, lines: &[(&'static str, &'static str)], path: &str) -> ReviewKey {
        let headers: HeaderMap = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let identity = match user {
            None => ForwardedUser::with_client_credentials(),
            Some(name) => ForwardedUser::new(name, "", [], []).unwrap().with_impersonation_by_peer(),
        };
        review_key(&identity, &credential_headers(&headers), path)
    }

    #[test]
    fn review_key_differs_by_user_impersonation_and_path() {
        let token = ("authorization", "Bearer a");
        let first = key_for(None, &[token], "/metrics");
        assert_eq!(first, key_for(None, &[token, ("accept", "text/plain")], "/metrics"));
        for other in [
            key_for(None, &[token], "/debug/peers"),
            key_for(None, &[("authorization", "Bearer b")], "/metrics"),
            key_for(None, &[], "/metrics"),
            key_for(None, &[token, ("impersonate-user", "jane")], "/metrics"),
            key_for(Some("jane"), &[token], "/metrics"),
        ] {
            assert_ne!(first, other);
        }
        // A certificate takes precedence over a token, so the token makes no difference.
        assert_eq!(key_for(Some("jane"), &[token], "/metrics"), key_for(Some("jane"), &[], "/metrics"));
        assert_ne!(key_for(Some("jane"), &[], "/metrics"), key_for(Some("joe"), &[], "/metrics"));
    }
}
