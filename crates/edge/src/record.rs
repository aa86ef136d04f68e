//! One record per request, for the audit log, the access log and the metrics.
//!
//! The pipeline starts a [`RequestRecord`], hands it to access control and to the handler, and ends it with the response. With
//! both logs off the record is empty and each of its methods does nothing.

use std::borrow::Cow;
use std::sync::Arc;

use access::User;
use api::{Status, Target};
use http::HeaderValue;
use tokio::time::Instant;

use crate::access_log::{AccessLog, AccessLogEntry, AccessLogFields};
use crate::audit::{AuditRecord, Auditor, Stage};
use crate::metrics::{Metrics, verb_label};
use crate::{Body, ClientConnection, Error, Request, Response};

/// The content type of a server-side apply. As in kube-apiserver's metrics, one with parameters does not count.
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The sinks of all records of one pipeline.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) metrics: Metrics,
    pub(crate) auditor: Option<Arc<Auditor>>,
    pub(crate) access_log: Option<AccessLog>,
}

/// What the audit log and the access log learn about one request. Dropping it writes the final audit event and the line of the
/// access log, so that a request whose client disconnects is recorded too.
#[derive(Debug, Default)]
pub struct RequestRecord {
    audit: Option<Box<AuditRecord>>,
    /// Whether the request is a server-side apply, which metrics count apart from other patches.
    is_apply: bool,
    pub(crate) log_entry: Option<Box<AccessLogEntry>>,
}

/// The failure that a client gets in place of the response it asked for.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    pub(crate) status: Status,
    /// The stage of the audit event that ends the request.
    stage: Stage,
}

impl RequestFailure {
    pub(crate) fn new(error: Error) -> Self {
        let stage = if matches!(error, Error::Unauthorized { .. }) {
            // As in Kubernetes, a request without a user has one event, of this stage.
            Stage::ResponseStarted
        } else if matches!(error, Error::Panicked) {
            Stage::Panic
        } else {
            Stage::ResponseComplete
        };
        Self { status: crate::error_response::error_status(error), stage }
    }
}

impl Recorder {
    /// Starts the record of a request. `target` is `None` if the request line is malformed: such a request has no audit events.
    pub(crate) fn start(
        &self,
        id: &HeaderValue,
        connection: &ClientConnection,
        target: Option<&Target<'_>>,
        request: &Request,
    ) -> RequestRecord {
        let client_ip = connection.client_address.ip();
        let entry = |log: &AccessLog| Box::new(log.start_entry(id, client_ip, target, request));
        RequestRecord {
            audit: self
                .auditor
                .as_ref()
                .zip(target)
                .map(|(auditor, target)| Box::new(auditor.start_record(id, client_ip, target, request.headers()))),
            is_apply: request.method() == http::Method::PATCH
                && request.headers().get(http::header::CONTENT_TYPE).is_some_and(|found| found == APPLY_PATCH),
            log_entry: self.access_log.as_ref().map(entry),
        }
    }

    /// Records the head of a response. A long-running response ends its audit trail when its body ends.
    pub(crate) fn record_response(
        &self,
        record: &mut RequestRecord,
        target: &Target<'_>,
        started: Instant,
        response: &Response,
        failure: Option<&RequestFailure>,
    ) {
        if let Target::Resource(resource) = target {
            let duration = (!target.is_long_running()).then(|| started.elapsed());
            let verb = if record.is_apply { "APPLY" } else { verb_label(resource.verb) };
            self.metrics.count_request(verb, resource, response.status(), duration);
        }
        let code = response.status().as_u16();
        let Some(audit) = &record.audit else { return };
        match failure {
            Some(RequestFailure { status, stage: Stage::ResponseStarted }) => audit.record_unauthorized(target, status),
            Some(RequestFailure { status, stage }) => audit.record_failure(*stage, status),
            None if target.is_long_running() => return audit.record_response_started(code),
            None => audit.record_response_complete(code),
        }
        record.audit = None;
    }
}

impl RequestRecord {
    /// Adds an annotation to the audit events that follow. `value` is called only if the request is audited.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl FnOnce() -> String) {
        if let Some(audit) = &self.audit {
            audit.annotate(key.into(), value());
        }
    }

    /// Like [`Self::annotate`], but only if the audit policy asks for the body of the request.
    pub fn annotate_with_request(&self, key: impl Into<Cow<'static, str>>, value: impl FnOnce() -> String) {
        if let Some(audit) = self.audit.as_ref().filter(|audit| audit.has_request_object()) {
            audit.annotate(key.into(), value());
        }
    }

    /// Adds the body of the request, as JSON, to the audit events that follow. `json` is called only if the policy asks for it.
    pub fn set_request_object(&self, json: impl FnOnce() -> Vec<u8>) {
        if let Some(audit) = &self.audit {
            audit.set_request_object(json);
        }
    }

    /// Sets the number of retries of a request that was forwarded and failed.
    pub fn set_retries(&self, retries: usize) {
        self.update_log(|fields| fields.retries = retries);
    }

    /// Sets the authenticated user, by which the audit policy decides, and its name in the access log, `None` if only the server
    /// that responds knows it. Writes the first audit event.
    pub(crate) fn set_user(
        &self,
        target: &Target<'_>,
        name: impl FnOnce() -> Option<String>,
        user: impl FnOnce() -> Option<Arc<User>>,
    ) {
        self.update_log(|fields| fields.user = name());
        if let Some(audit) = &self.audit {
            audit.record_user(target, user());
        }
    }

    pub(crate) fn set_impersonated(&self, user: impl FnOnce() -> Option<Arc<User>>) {
        if let Some(audit) = &self.audit {
            audit.set_impersonated(user());
        }
    }

    /// Sets the routing rule that chose the destination.
    pub(crate) fn set_rule(&self, rule: u8) {
        self.update_log(|fields| fields.rule = Some(rule));
    }

    /// Sets the message of the failure that the client gets.
    pub(crate) fn set_error(&self, message: &str) {
        self.update_log(|fields| fields.error = Some(message.to_owned()));
    }

    fn update_log(&self, change: impl FnOnce(&mut AccessLogFields)) {
        if let Some(entry) = &self.log_entry {
            change(&mut entry.fields.lock());
        }
    }

    /// Keeps the record until the body of the response is sent or dropped.
    pub(crate) fn attach_to(mut self, response: Response) -> Response {
        if let Some(entry) = &mut self.log_entry {
            entry.record_response(&response);
        }
        match self {
            Self { audit: None, log_entry: None, .. } => response,
            record => response.map(|body| Body::Recorded { body: Box::new(body), record }),
        }
    }

    pub(crate) fn count_bytes(&mut self, bytes: usize) {
        if let Some(entry) = &mut self.log_entry {
            entry.count_bytes(bytes);
        }
    }
}
