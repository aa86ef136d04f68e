//! The audit log: one line of JSON per stage of a request, as kube-apiserver writes it.
//!
//! An `AuditRecord` is the audit part of a [`RequestRecord`](crate::RequestRecord). Without `--audit-log-path` there is none, and a
//! request costs nothing but its id.

mod event;
mod log;
mod policy;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use access::User;
use api::headers::lowercase;
use api::{Status, Target};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, USER_AGENT};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::value::RawValue;

pub use log::AuditLog;
pub use policy::{Level, Policy, PolicyError, Stage};

use crate::error_response::{Error, error_status};
use event::{AuditEvent, ObjectReference};
use policy::AuditDecision;

/// The header with the id of a request, in both directions and between servers.
pub const AUDIT_ID: HeaderName = HeaderName::from_static(lowercase::AUDIT_ID);

/// A longer id of a client is replaced, because every event contains it.
const AUDIT_ID_LENGTH_MAX: usize = 128;

/// The audit policy and log of a server.
#[derive(Debug)]
pub struct Auditor {
    policy: Policy,
    log: AuditLog,
}

/// One request, from its arrival to the end of its response. Dropping it writes the final event if there was none yet.
#[derive(Debug)]
pub(crate) struct AuditRecord {
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

/// What becomes known while the request is served.
#[derive(Debug, Default)]
struct RecordState {
    /// The decision of the policy, made when the user is known.
    decision: AuditDecision,
    user: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
    request_object: Option<Box<RawValue>>,
    /// The status of a long-running response that is being sent; `None` before, and for others.
    started_code: Option<u16>,
    /// True once the final event was written: there is exactly one.
    is_complete: bool,
    annotations: BTreeMap<Cow<'static, str>, String>,
}

/// The users of an event.
#[derive(Clone, Debug, Default)]
pub struct AuditedUsers {
    /// The authenticated user; `None` if authentication is left to an upstream.
    pub user: Option<Arc<User>>,
    /// The user that the authenticated one impersonates.
    pub impersonated: Option<Arc<User>>,
}

/// Returns the id of a request. If the client sent no valid one, sets a new one, so that a peer gets it too.
pub(crate) fn ensure_audit_id(headers: &mut HeaderMap) -> HeaderValue {
    let client_id =
        headers.get(AUDIT_ID).filter(|id| !id.is_empty() && id.len() <= AUDIT_ID_LENGTH_MAX && id.to_str().is_ok());
    let is_new = client_id.is_none();
    let mut id = client_id.cloned().unwrap_or_else(new_audit_id);
    // Not a secret, but unique: keep it out of the HTTP/2 header tables, where it would evict headers that recur.
    id.set_sensitive(true);
    if is_new {
        headers.insert(AUDIT_ID, id.clone());
    }
    id
}

/// A random UUID; unique, but not unpredictable.
fn new_audit_id() -> HeaderValue {
    let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid();
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).expect("a UUID is a valid header value")
}

impl Auditor {
    /// Writes the events that the policy selects to the log.
    pub fn new(policy: Policy, log: AuditLog) -> Self {
        Self { policy, log }
    }

    /// Starts the audit record of a request.
    pub(crate) fn start_record(
        self: &Arc<Self>,
        id: &HeaderValue,
        client_ip: IpAddr,
        target: &Target<'_>,
        headers: &HeaderMap,
    ) -> AuditRecord {
        let text =
            |value: Option<&HeaderValue>| value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        AuditRecord {
            auditor: self.clone(),
            id: text(Some(id)),
            uri: target.path_and_query().to_owned(),
            verb: target.verb().to_owned(),
            source_ips: source_ips(headers, client_ip),
            user_agent: text(headers.get(USER_AGENT)),
            object_reference: ObjectReference::for_target(target),
            received: Timestamp::now(),
            state: Mutex::default(),
        }
    }
}

/// The addresses of `X-Forwarded-For`, and last the address of the connection.
fn source_ips(headers: &HeaderMap, client_ip: IpAddr) -> Vec<String> {
    let forwarded = headers.get(lowercase::FORWARDED_FOR).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let forwarded_ips = forwarded.split(',').filter_map(|part| part.trim().parse::<IpAddr>().ok());
    let mut all: Vec<String> = forwarded_ips.map(|ip| ip.to_string()).collect();
    let peer = client_ip.to_canonical().to_string();
    if all.last() != Some(&peer) {
        all.push(peer);
    }
    all
}

impl AuditRecord {
    pub(crate) fn annotate(&self, key: Cow<'static, str>, value: String) {
        self.state.lock().annotations.insert(key, value);
    }

    /// True at the levels that record the body of the request.
    pub(crate) fn has_request_object(&self) -> bool {
        self.state.lock().decision.level >= Level::Request
    }

    /// Adds the body of the request, as JSON; `json` is called only if the policy asks for it.
    pub(crate) fn set_request_object(&self, json: impl FnOnce() -> Vec<u8>) {
        let mut state = self.state.lock();
        // The name of a new object is only in its body.
        let is_recorded = state.decision.level >= Level::Request
            || state.decision.level == Level::Metadata
                && self.object_reference.as_ref().is_some_and(ObjectReference::lacks_name);
        if is_recorded {
            state.request_object = String::from_utf8(json()).ok().and_then(|json| RawValue::from_string(json).ok());
        }
    }

    /// Sets the user, decides by the policy, and records the receipt of the request.
    pub(crate) fn record_user(&self, target: &Target<'_>, user: Option<Arc<User>>) {
        let mut state = self.state.lock();
        state.decision = self.auditor.policy.decide(user.as_deref(), target);
        state.user = user;
        drop(state);
        self.record_event(Stage::RequestReceived, None, None);
    }

    /// Records that authentication failed: one event, without a user.
    pub(crate) fn record_unauthorized(&self, target: &Target<'_>, failure: &Status) {
        self.state.lock().decision = self.auditor.policy.decide(None, target);
        self.record_failure(Stage::ResponseStarted, failure);
    }

    pub(crate) fn set_impersonated(&self, user: Option<Arc<User>>) {
        self.state.lock().impersonated = user;
    }

    /// Records the head of a long-running response; its end follows with the drop.
    pub(crate) fn record_response_started(&self, code: u16) {
        self.state.lock().started_code = Some(code);
        self.record_event(Stage::ResponseStarted, Some(code), None);
    }

    pub(crate) fn record_response_complete(&self, code: u16) {
        self.record_final_event(Stage::ResponseComplete, code, None);
    }

    /// Records the failure that the client gets in place of a response.
    pub(crate) fn record_failure(&self, stage: Stage, failure: &Status) {
        self.record_final_event(stage, failure.http_code(), Some(failure));
    }

    /// Records the final event, once.
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

impl Drop for AuditRecord {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        match (state.is_complete, state.started_code) {
            (true, _) => {}
            (false, Some(code)) => self.record_response_complete(code),
            (false, None) => {
                self.record_failure(Stage::ResponseComplete, &error_status(Error::ClientDisconnected));
            }
        }
    }
}

#[cfg(test)]
mod tests;
