//! Who did what, and what became of it: one line of JSON per stage of a request, as kube-apiserver writes them.
//!
//! A [`RequestRecord`] goes along with a request, in its extensions, so that gate and handlers can add to it. Without `--audit-log-path`
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

pub use log::AuditLog;
pub use policy::{Level, Policy, PolicyError, Stage};

use crate::Request;
use event::{AuditEvent, ObjectReference};
use policy::AuditDecision;

/// The header that carries a request's id in both directions, and from server to server.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A longer id is not taken over: it would be in every line about the request.
const AUDIT_ID_LENGTH_MAX: usize = 128;

/// What is recorded, and where.
#[derive(Debug)]
pub struct Auditor {
    policy: Policy,
    log: AuditLog,
}

/// One request, from its arrival to the end of its answer.
#[derive(Debug)]
pub struct RequestRecord {
    auditor: Arc<Auditor>,
    id: String,
    uri: String,
    verb: String,
    source_ips: Vec<String>,
    user_agent: String,
    object_reference: Option<ObjectReference>,
    received: Timestamp,
    state: Mutex<RecordState>,
}

/// What becomes known on the way.
#[derive(Debug, Default)]
struct RecordState {
    /// Whether and how much of it is recorded; known as soon as the user is.
    decision: AuditDecision,
    user: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
    request_object: Option<Box<RawValue>>,
    /// Whether the event that ends the trail was made: there is exactly one.
    is_complete: bool,
    annotations: BTreeMap<&'static str, String>,
}

/// Who an event names.
#[derive(Clone, Debug, Default)]
pub struct AuditedUsers {
    /// Who asks; `None` if nobody knows.
    pub user: Option<Arc<User>>,
    /// Whom they act as.
    pub impersonated: Option<Arc<User>>,
}

/// The id of a request: the one it brings, or a new one. The request has it from then on, for whomever it is sent on to.
pub(crate) fn ensure_audit_id(headers: &mut HeaderMap) -> HeaderValue {
    let client_id =
        headers.get(AUDIT_ID).filter(|id| !id.is_empty() && id.len() <= AUDIT_ID_LENGTH_MAX && id.to_str().is_ok());
    let is_new = client_id.is_none();
    let mut id = client_id.cloned().unwrap_or_else(new_audit_id);
    // No secret, but never the same again: HTTP/2 is not to keep it in its tables, where it would push out what recurs.
    id.set_sensitive(true);
    if is_new {
        headers.insert(AUDIT_ID, id.clone());
    }
    id
}

/// A UUID. It must be unique, and need not be hard to guess.
fn new_audit_id() -> HeaderValue {
    let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid();
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).expect("a UUID is a valid header value")
}

impl Auditor {
    /// Records what the policy says.
    pub fn new(policy: Policy, log: AuditLog) -> Self {
        Self { policy, log }
    }

    /// Begins to follow a request.
    pub(crate) fn start_record(
        self: &Arc<Self>,
        id: &HeaderValue,
        client_ip: IpAddr,
        target: &Target<'_>,
        headers: &HeaderMap,
    ) -> Arc<RequestRecord> {
        let text =
            |value: Option<&HeaderValue>| value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        Arc::new(RequestRecord {
            auditor: self.clone(),
            id: text(Some(id)),
            uri: target.path_and_query().to_owned(),
            verb: target.verb().to_owned(),
            source_ips: source_ips(headers, client_ip),
            user_agent: text(headers.get(USER_AGENT)),
            object_reference: ObjectReference::for_target(target),
            received: Timestamp::now(),
            state: Mutex::default(),
        })
    }
}

/// Where a request says that it comes from, and where it does come from, which is the last.
fn source_ips(headers: &HeaderMap, client_ip: IpAddr) -> Vec<String> {
    let forwarded = headers.get("x-forwarded-for").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let forwarded_ips = forwarded.split(',').filter_map(|part| part.trim().parse::<IpAddr>().ok());
    let mut all: Vec<String> = forwarded_ips.map(|ip| ip.to_string()).collect();
    let peer = client_ip.to_canonical().to_string();
    if all.last() != Some(&peer) {
        all.push(peer);
    }
    all
}

impl RequestRecord {
    /// The trail of a request, if it is followed.
    pub fn from_request(request: &Request) -> Option<Arc<Self>> {
        request.extensions().get::<Arc<Self>>().cloned()
    }

    /// Adds a fact that is not part of the request.
    pub fn annotate(&self, key: &'static str, value: impl Into<String>) {
        self.state.lock().annotations.insert(key, value.into());
    }

    /// Adds what the client sent, as JSON; made only if it is recorded.
    pub fn set_request_object(&self, json: impl FnOnce() -> Vec<u8>) {
        let mut state = self.state.lock();
        // The name of an object that is created is only in the object.
        let is_recorded = state.decision.level >= Level::Request
            || state.decision.level == Level::Metadata
                && self.object_reference.as_ref().is_some_and(ObjectReference::lacks_name);
        if is_recorded {
            state.request_object = String::from_utf8(json()).ok().and_then(|json| RawValue::from_string(json).ok());
        }
    }

    /// Who asks is known, so that it is known whether this is recorded.
    pub(crate) fn record_user(&self, target: &Target<'_>, user: Option<Arc<User>>) {
        let mut state = self.state.lock();
        state.decision = self.auditor.policy.decide(user.as_deref(), target);
        state.user = user;
        drop(state);
        self.record_event(Stage::RequestReceived, None, None);
    }

    /// Nobody knows who asks. As in Kubernetes this has one event, of a stage of its own.
    pub(crate) fn record_unauthorized(&self, target: &Target<'_>, failure: &Status) {
        self.state.lock().decision = self.auditor.policy.decide(None, target);
        self.record_final_event(Stage::ResponseStarted, failure.http_code(), Some(failure));
    }

    pub(crate) fn set_impersonated(&self, user: Option<Arc<User>>) {
        self.state.lock().impersonated = user;
    }

    /// The head of a long answer is sent.
    pub(crate) fn record_response_started(&self, code: u16) {
        self.record_event(Stage::ResponseStarted, Some(code), None);
    }

    /// The answer is over. `failure` is what the client was told instead of what it asked for.
    pub(crate) fn record_response_complete(&self, code: u16, failure: Option<&Status>) {
        self.record_final_event(Stage::ResponseComplete, code, failure);
    }

    pub(crate) fn record_panic(&self, failure: &Status) {
        self.record_final_event(Stage::Panic, failure.http_code(), Some(failure));
    }

    /// Records the event that ends the trail, if none was recorded yet.
    fn record_final_event(&self, stage: Stage, code: u16, failure: Option<&Status>) {
        if !std::mem::replace(&mut self.state.lock().is_complete, true) {
            self.record_event(stage, Some(code), failure);
        }
    }

    fn record_event(&self, stage: Stage, code: Option<u16>, failure: Option<&Status>) {
        let state = self.state.lock();
        if !state.decision.records(stage) {
            return;
        }
        let line = AuditEvent::new(self, &state, stage, code, failure).to_line();
        drop(state);
        self.auditor.log.write(&line);
    }
}

/// Ends the trail of a request when dropped, whatever became of the request.
#[derive(Debug)]
pub(crate) struct RequestRecordGuard {
    request_record: Arc<RequestRecord>,
    /// The status of the response; `None` while there is none.
    code: Option<u16>,
}

impl RequestRecordGuard {
    pub(crate) fn new(request_record: Arc<RequestRecord>) -> Self {
        Self { request_record, code: None }
    }

    pub(crate) fn request_record(&self) -> &RequestRecord {
        &self.request_record
    }

    /// The head of a long response is sent; its end follows with the drop.
    pub(crate) fn record_response_started(&mut self, code: u16) {
        self.code = Some(code);
        self.request_record.record_response_started(code);
    }
}

impl Drop for RequestRecordGuard {
    fn drop(&mut self) {
        match self.code {
            Some(code) => self.request_record.record_response_complete(code, None),
            // The client disconnected. kube-apiserver records its writes so.
            None => {
                let status = Status::timeout("request did not complete within requested timeout - context canceled", 0);
                self.request_record.record_response_complete(status.http_code(), Some(&status));
            }
        }
    }
}

#[cfg(test)]
mod tests;
