//! The answers of webhooks to one request, kept under what was sent.

use std::collections::HashMap;
use std::sync::Arc;

use super::configuration::{ClientConfig, ConfigurationKind, Webhook};
use super::response::{Answer, CallFailure};
use super::review::ReviewTemplate;

/// A call that the sequence needs.
#[derive(Clone, Debug)]
pub struct PendingCall {
    /// The webhook to call.
    pub webhook: Arc<Webhook>,
    review: ReviewTemplate,
}

/// Answers so far, one set per request.
#[derive(Debug, Default)]
pub struct Answers {
    by_call: HashMap<CallKey, Arc<Answer>>,
}

/// What is sent, and where. A webhook whose configuration changes otherwise is not called again.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CallKey {
    kind: ConfigurationKind,
    id: String,
    client: ClientConfig,
    /// The webhook learns it with the call.
    timeout_seconds: u32,
    /// Without uid.
    review: ReviewTemplate,
}

impl PendingCall {
    pub(super) fn new(webhook: &Arc<Webhook>, review: ReviewTemplate) -> Self {
        Self { webhook: webhook.clone(), review }
    }

    /// The body to send; `uid` is new for each call.
    pub fn body(&self, uid: &str) -> Vec<u8> {
        self.review.with_uid(uid)
    }

    fn key(&self) -> CallKey {
        let Webhook { kind, id, client, timeout_seconds, .. } = &*self.webhook;
        CallKey {
            kind: *kind,
            id: id.clone(),
            client: client.clone(),
            timeout_seconds: *timeout_seconds,
            review: self.review.clone(),
        }
    }
}

impl Answers {
    /// Checks what came back for a call and keeps it. Returns the answer, for metrics.
    pub fn add(&mut self, call: &PendingCall, uid: &str, body: Result<&[u8], CallFailure>) -> Arc<Answer> {
        let answer = Arc::new(Answer::read(&call.webhook, call.review.version, uid, body));
        self.by_call.insert(call.key(), answer.clone());
        answer
    }

    pub(super) fn get(&self, call: &PendingCall) -> Option<&Arc<Answer>> {
        if self.by_call.is_empty() { None } else { self.by_call.get(&call.key()) }
    }
}
