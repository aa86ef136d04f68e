//! Who did what, and what became of it: one line of JSON per stage of a request, as kube-apiserver writes them.
//!
//! A [`Trail`] goes along with a request, in its extensions, so that gate and handlers can add to it. Without `--audit-log-path`
//! there is none, and a request costs nothing but its id.

mod event;
mod log;
mod policy;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use access::User;
use api::{Status, Target};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, USER_AGENT};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::value::RawValue;

pub use log::Log;
pub use policy::{Level, Policy, PolicyError, Stage};

use crate::Request;
use event::{Event, ObjectReference};
use policy::Verdict;

/// The header that carries a request's id in both directions, and from server to server.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A longer id is not taken over: it would be in every line about the request.
const ID_LENGTH_MAX: usize = 128;

/// What is recorded, and where.
#[derive(Debug)]
pub struct Auditor {
    policy: Policy,
    log: Log,
}

/// One request, from its arrival to the end of its answer.
#[derive(Debug)]
pub struct Trail {
    auditor: Arc<Auditor>,
    id: String,
    uri: String,
    verb: String,
    source_ips: Vec<String>,
    user_agent: String,
    object: Option<ObjectReference>,
    received: Timestamp,
    state: Mutex<State>,
}

/// What becomes known on the way.
#[derive(Debug, Default)]
struct State {
    /// Whether and how much of it is recorded; known as soon as the user is.
    verdict: Verdict,
    user: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
    request_object: Option<Box<RawValue>>,
    /// Whether the event that ends the trail was made: there is exactly one.
    is_over: bool,
    annotations: BTreeMap<&'static str, String>,
}

/// Who an event names.
#[derive(Clone, Debug, Default)]
pub struct Actors {
    /// Who asks; `None` if nobody knows.
    pub user: Option<Arc<User>>,
    /// Whom they act as.
    pub impersonated: Option<Arc<User>>,
}

/// The id of a request: the one it brings, or a new one. The request has it from then on, for whomever it is sent on to.
pub(crate) fn identify(headers: &mut HeaderMap) -> HeaderValue {
    let brought = headers.get(AUDIT_ID).filter(|id| !id.is_empty() && id.len() <= ID_LENGTH_MAX && id.to_str().is_ok());
    let is_new = brought.is_none();
    let mut id = brought.cloned().unwrap_or_else(new_id);
    // No secret, but never the same again: HTTP/2 is not to keep it in its tables, where it would push out what recurs.
    id.set_sensitive(true);
    if is_new {
        headers.insert(AUDIT_ID, id.clone());
    }
    id
}

/// A UUID. It must be unique, and need not be hard to guess.
fn new_id() -> HeaderValue {
    let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid();
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).expect("a UUID is a valid header value")
}

impl Auditor {
    /// Records what the policy says.
    pub fn new(policy: Policy, log: Log) -> Self {
        Self { policy, log }
    }

    /// Begins to follow a request.
    pub(crate) fn follow(
        self: &Arc<Self>,
        id: &HeaderValue,
        peer: IpAddr,
        target: &Target<'_>,
        headers: &HeaderMap,
    ) -> Arc<Trail> {
        let text =
            |value: Option<&HeaderValue>| value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        Arc::new(Trail {
            auditor: self.clone(),
            id: text(Some(id)),
            uri: target.raw().to_owned(),
            verb: target.verb().to_owned(),
            source_ips: source_ips(headers, peer),
            user_agent: text(headers.get(USER_AGENT)),
            object: ObjectReference::of(target),
            received: Timestamp::now(),
            state: Mutex::default(),
        })
    }
}

/// Where a request says that it comes from, and where it does come from, which is the last.
fn source_ips(headers: &HeaderMap, peer: IpAddr) -> Vec<String> {
    let forwarded = headers.get("x-forwarded-for").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let claimed = forwarded.split(',').filter_map(|part| part.trim().parse::<IpAddr>().ok());
    let mut all: Vec<String> = claimed.map(|ip| ip.to_string()).collect();
    let peer = peer.to_canonical().to_string();
    if all.last() != Some(&peer) {
        all.push(peer);
    }
    all
}

impl Trail {
    /// The trail of a request, if it is followed.
    pub fn of(request: &Request) -> Option<Arc<Self>> {
        request.extensions().get::<Arc<Self>>().cloned()
    }

    /// Adds a fact that is not part of the request.
    pub fn annotate(&self, key: &'static str, value: impl Into<String>) {
        self.state.lock().annotations.insert(key, value.into());
    }

    /// Adds what the client sent, as JSON; made only if it is recorded.
    pub fn note_request_object(&self, json: impl FnOnce() -> Vec<u8>) {
        let mut state = self.state.lock();
        // The name of an object that is created is only in the object.
        let is_wanted = state.verdict.level >= Level::Request
            || state.verdict.level == Level::Metadata && self.object.as_ref().is_some_and(ObjectReference::lacks_name);
        if is_wanted {
            state.request_object = String::from_utf8(json()).ok().and_then(|json| RawValue::from_string(json).ok());
        }
    }

    /// Who asks is known, so that it is known whether this is recorded.
    pub(crate) fn note_user(&self, target: &Target<'_>, user: Option<Arc<User>>) {
        let mut state = self.state.lock();
        state.verdict = self.auditor.policy.judge(user.as_deref(), target);
        state.user = user;
        drop(state);
        self.record(Stage::RequestReceived, None, None);
    }

    /// Nobody knows who asks. As in Kubernetes this has one event, of a stage of its own.
    pub(crate) fn note_unauthorized(&self, target: &Target<'_>, failure: &Status) {
        self.state.lock().verdict = self.auditor.policy.judge(None, target);
        self.end(Stage::ResponseStarted, failure.http_code(), Some(failure));
    }

    pub(crate) fn note_impersonated(&self, user: Option<Arc<User>>) {
        self.state.lock().impersonated = user;
    }

    /// The head of a long answer is sent.
    pub(crate) fn note_started(&self, code: u16) {
        self.record(Stage::ResponseStarted, Some(code), None);
    }

    /// The answer is over. `failure` is what the client was told instead of what it asked for.
    pub(crate) fn note_complete(&self, code: u16, failure: Option<&Status>) {
        self.end(Stage::ResponseComplete, code, failure);
    }

    pub(crate) fn note_panic(&self, failure: &Status) {
        self.end(Stage::Panic, failure.http_code(), Some(failure));
    }

    /// Records the event that ends the trail, if none was recorded yet.
    fn end(&self, stage: Stage, code: u16, failure: Option<&Status>) {
        if !std::mem::replace(&mut self.state.lock().is_over, true) {
            self.record(stage, Some(code), failure);
        }
    }

    fn record(&self, stage: Stage, code: Option<u16>, failure: Option<&Status>) {
        let state = self.state.lock();
        if !state.verdict.records(stage) {
            return;
        }
        let line = Event::new(self, &state, stage, code, failure).to_line();
        drop(state);
        self.auditor.log.write(&line);
    }
}

/// Ends the trail of a request when dropped, whatever became of the request.
#[derive(Debug)]
pub(crate) struct Ending {
    trail: Arc<Trail>,
    /// The status of the response; `None` while there is none.
    code: Option<u16>,
}

impl Ending {
    pub(crate) fn new(trail: Arc<Trail>) -> Self {
        Self { trail, code: None }
    }

    pub(crate) fn trail(&self) -> &Trail {
        &self.trail
    }

    /// The head of a long response is sent; its end follows with the drop.
    pub(crate) fn note_started(&mut self, code: u16) {
        self.code = Some(code);
        self.trail.note_started(code);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        match self.code {
            Some(code) => self.trail.note_complete(code, None),
            // The client disconnected. kube-apiserver records its writes so.
            None => {
                let status = Status::timeout("request did not complete within requested timeout - context canceled", 0);
                self.trail.note_complete(status.http_code(), Some(&status));
            }
        }
    }
}

#[cfg(test)]
mod tests;
