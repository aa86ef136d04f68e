//! Who may see the gateway's own pages: whom an upstream would let see them.
//!
//! The upstream is asked in the caller's own name, by a SelfSubjectAccessReview. Whoever it does not allow is sent on to it, and
//! hears from it why.

use std::collections::HashMap;
use std::time::Duration;

use api::headers::lowercase::IMPERSONATE_PREFIX;
use aws_lc_rs::digest;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use parking_lot::Mutex;
use peering::forward::{Effect, Identity, ResponseOrigin, Span};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::gate::Caller;
use crate::way::{Errand, Way};

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// How long an answer holds.
const AGE_MAX: Duration = Duration::from_secs(10);
/// How many answers are remembered.
const ANSWERS_MAX: usize = 4096;
/// How long an upstream may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A review is short.
const BYTES_MAX: usize = 64 << 10;

/// Asks, and remembers the answers for a while.
#[derive(Debug)]
pub struct Reviews {
    way: Way,
    answers: Mutex<HashMap<Key, (Instant, bool)>>,
}

/// Who asked for what: no credentials can be read from it.
type Key = [u8; 32];

impl Reviews {
    /// Asks over this way.
    pub fn new(way: Way) -> Self {
        Self { way, answers: Mutex::default() }
    }

    /// Whether the caller, with the credentials of these headers, may get a page. Without an answer: no.
    pub(crate) async fn allow(&self, caller: &Caller, path: &str, headers: &HeaderMap) -> bool {
        let credentials = credentials_of(headers);
        let key = key_of(&caller.identity, &credentials, path);
        if let Some(&(since, is_allowed)) = self.answers.lock().get(&key)
            && since.elapsed() < AGE_MAX
        {
            return is_allowed;
        }
        let Some(is_allowed) = self.ask(caller, path, credentials).await else { return false };
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, (since, _)| since.elapsed() < AGE_MAX);
        }
        if answers.len() < ANSWERS_MAX {
            answers.insert(key, (Instant::now(), is_allowed));
        }
        is_allowed
    }

    /// `None`: nobody answered, or not with a review.
    async fn ask(&self, caller: &Caller, path: &str, credentials: HeaderMap) -> Option<bool> {
        let review = json!({
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "spec": {"nonResourceAttributes": {"path": path, "verb": "get"}},
        });
        let mut request = Request::post(PATH).body(Full::new(Bytes::from(review.to_string()))).ok()?;
        *request.headers_mut() = credentials;
        request.headers_mut().insert(CONTENT_TYPE, JSON);
        request.headers_mut().insert(ACCEPT, JSON);
        let errand = Errand {
            user: &caller.identity,
            client: caller.client,
            audit_id: None,
            // It is created, and yet nothing is: any number of them does no harm.
            effect: Effect::Reads,
            origin: ResponseOrigin::AnyServer,
            span: Span::Until(Instant::now() + TIMEOUT),
        };
        let response = self.way.ask_anyone(errand, request).await.ok()?;
        if response.status() != StatusCode::CREATED {
            // Who may not even ask may not see.
            return (response.status() == StatusCode::FORBIDDEN).then_some(false);
        }
        let body = Limited::new(response.into_body(), BYTES_MAX).collect().await.ok()?.to_bytes();
        let review: Value = serde_json::from_slice(&body).ok()?;
        Some(review["status"]["allowed"] == true)
    }
}

/// What of a request says who is asking, and as whom.
fn credentials_of(headers: &HeaderMap) -> HeaderMap {
    let is_credential = |name: &HeaderName| *name == AUTHORIZATION || name.as_str().starts_with(IMPERSONATE_PREFIX);
    let lines = headers.iter().filter(|(name, _)| is_credential(name));
    lines.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn key_of(identity: &Identity, credentials: &HeaderMap, path: &str) -> Key {
    let mut named = credentials.clone();
    identity.write(&mut named);
    let mut context = digest::Context::new(&digest::SHA256);
    let mut add = |part: &[u8]| {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    };
    add(path.as_bytes());
    add(&[u8::from(identity.is_vouched_for())]);
    for (name, value) in &named {
        add(name.as_str().as_bytes());
        add(value.as_bytes());
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(user: Option<&str>, lines: &[(&'static str, &'static str)], path: &str) -> Key {
        let headers: HeaderMap = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let identity = match user {
            None => Identity::as_shown(),
            Some(name) => Identity::new(name, "", [], []).unwrap().with_impersonation_open(),
        };
        key_of(&identity, &credentials_of(&headers), path)
    }

    #[test]
    fn answers_are_for_one_user_one_wish_and_one_page() {
        let token = ("authorization", "Bearer a");
        let first = key(None, &[token], "/metrics");
        assert_eq!(first, key(None, &[token, ("accept", "text/plain")], "/metrics"));
        for other in [
            key(None, &[token], "/debug/peers"),
            key(None, &[("authorization", "Bearer b")], "/metrics"),
            key(None, &[], "/metrics"),
            key(None, &[token, ("impersonate-user", "jane")], "/metrics"),
            key(Some("jane"), &[token], "/metrics"),
        ] {
            assert_ne!(first, other);
        }
        // A certificate beats a token, so that the token makes no difference.
        assert_eq!(key(Some("jane"), &[token], "/metrics"), key(Some("jane"), &[], "/metrics"));
        assert_ne!(key(Some("jane"), &[], "/metrics"), key(Some("joe"), &[], "/metrics"));
    }
}
