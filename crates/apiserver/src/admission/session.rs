//! Admission of one request: runs of the sequence, calls of webhooks between them, and what they found.
//!
//! A decision about a write is synchronous and may run several times. A run that needs a webhook's answer ends with an
//! error that no client sees; [`AdmissionSession::resolve`] then performs the calls, and the decision runs again.

use std::time::Duration;

use ::admission::webhook::{ConfigurationKind, FailurePolicy};
use ::admission::{
    Answers, Attributes, CallFailure, Context, Interruption, Notes, Operation, PendingCall, PolicyCheck, RunLookups,
    Write,
};
use api::json::JsonObject;
use api::{GroupVersionKind, GroupVersionResource, Status};
use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::Instant;
use webhook::WebhookError;

use super::metrics::AdmissionMetrics;
use super::served_kinds::RequestKinds;
use super::view::{CachedView, ServerAuthorization};
use crate::ApiServer;
use crate::resource::Resource;
use crate::rest::new_uid;

/// Limit of a request with its admission, as in kube-apiserver.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(34);
/// How long a create of a pod waits for the service account `default` of a new namespace, as in kube-apiserver at most.
const ACCOUNT_WAIT_MAX: Duration = Duration::from_secs(2);
/// The longest single wait for a change of the store.
const CHANGE_WAIT_MAX: Duration = Duration::from_millis(200);
const ACCOUNT_MISSING: &str = "serviceaccount \"default\" not found";

/// One request's admission.
pub(crate) struct AdmissionSession {
    started: Instant,
    deadline: Instant,
    state: Mutex<SessionState>,
}

#[derive(Default)]
struct SessionState {
    answers: Answers,
    /// Calls that the last run needs.
    pending: Vec<PendingCall>,
    /// The message of the last run's refusal.
    refusal: Option<String>,
    /// True once the cache has caught up with the store, so that a refusal counts.
    is_view_current: bool,
    /// True if the last run counts only in a current view.
    needs_current_view: bool,
    /// What policies evaluated in the last decision.
    checks: Vec<PolicyCheck>,
    operation: Option<Operation>,
    /// When the phases began: mutating, validating.
    began: [Option<Instant>; 2],
    /// Phases that came to their end once; those of a decision that is made again are not recorded.
    is_recorded: [bool; 2],
    /// How long webhooks were called in each phase.
    called_for: [Duration; 2],
}

/// The two phases of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionPhase {
    Mutating,
    Validating,
}

/// A write as a decision sees it.
pub(crate) struct AdmittedWrite<'a> {
    pub(crate) operation: Operation,
    pub(crate) resource: &'a Resource,
    pub(crate) name: GroupVersionResource<&'a str>,
    pub(crate) kind: GroupVersionKind<&'a str>,
    pub(crate) subresource: &'a str,
    pub(crate) object_name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) user: &'a access::User,
    pub(crate) options: Option<&'a JsonObject>,
    pub(crate) is_dry_run: bool,
    pub(crate) old_object: Option<&'a JsonObject>,
    pub(crate) random: u64,
}

impl SessionState {
    /// Records a phase in metrics that came to its end for the first time.
    fn record_phase(
        &mut self,
        metrics: &AdmissionMetrics,
        phase: AdmissionPhase,
        result: &Result<(), Interruption>,
        notes: &Notes,
    ) {
        let index = usize::from(phase == AdmissionPhase::Validating);
        let is_final = match result {
            Ok(()) => true,
            Err(Interruption::Refused(_)) => self.is_view_current,
            Err(Interruption::CallsNeeded(_)) => false,
        };
        let (Some(operation), Some(began)) = (self.operation, self.began[index]) else { return };
        if is_final && !std::mem::replace(&mut self.is_recorded[index], true) {
            metrics.observe_step(phase, operation.as_str(), result.is_err(), began.elapsed());
            let called_for = self.called_for[index];
            metrics.observe_plugins(phase, operation, result.is_err(), notes.plugin_runs(), called_for);
        }
    }
}

impl AdmissionSession {
    /// The admission of a request that must be answered at `deadline`.
    pub(crate) fn new(deadline: Instant) -> Self {
        let started = Instant::now();
        Self { started, deadline: deadline.min(started + REQUEST_TIMEOUT), state: Mutex::default() }
    }

    /// Forgets what the last run of the decision needed.
    pub(crate) fn begin_decision(&self) {
        let mut state = self.state.lock();
        state.pending.clear();
        state.refusal = None;
        state.needs_current_view = false;
        state.checks.clear();
    }

    /// True if the last run of the decision needs calls of webhooks.
    pub(crate) fn has_pending_calls(&self) -> bool {
        !self.state.lock().pending.is_empty()
    }

    /// Counts what policies evaluated in the last decision, which is the one that counts.
    pub(crate) fn observe_checks(&self, server: &ApiServer) {
        let checks = std::mem::take(&mut self.state.lock().checks);
        server.admission.metrics.observe_checks(&checks);
    }

    /// Records a refusal that depends on other objects: it counts only in a current view.
    pub(crate) fn record_refusal(&self, message: &str) {
        self.state.lock().refusal = Some(message.to_owned());
    }

    /// Makes the view current. For requests whose outcome no transaction compares.
    pub(crate) async fn catch_up(&self, server: &ApiServer) -> Result<(), Status> {
        if self.state.lock().is_view_current {
            return Ok(());
        }
        if !matches!(server.registry.catch_up_with_store().await, Ok(true)) {
            return Err(view_behind());
        }
        self.state.lock().is_view_current = true;
        Ok(())
    }

    /// Ends a decision that counts only in a current view, unless the view is current.
    pub(crate) fn require_current_view(&self) -> Result<(), Status> {
        let mut state = self.state.lock();
        if state.is_view_current {
            return Ok(());
        }
        state.needs_current_view = true;
        Err(view_behind())
    }

    /// Runs one phase. Returns the object, changed by plugins. `notes` gets what the phase has to tell, also if the write is
    /// refused and the refusal counts.
    pub(crate) fn run(
        &self,
        server: &ApiServer,
        phase: AdmissionPhase,
        write: &AdmittedWrite<'_>,
        object: Option<JsonObject>,
        notes: &mut Notes,
    ) -> Result<Option<JsonObject>, Status> {
        let (webhooks, policies) = (server.admission.webhooks(), server.admission.policies());
        let attributes = Attributes {
            operation: write.operation,
            resource: write.name,
            kind: write.kind,
            subresource: write.subresource,
            name: write.object_name,
            namespace: write.namespace,
            user: write.user,
            options: write.options,
            is_dry_run: write.is_dry_run,
        };
        let mut state = self.state.lock();
        state.operation = Some(write.operation);
        let index = usize::from(phase == AdmissionPhase::Validating);
        state.began[index].get_or_insert_with(Instant::now);
        let view = CachedView::new(server);
        let context = Context {
            view: &view,
            kinds: &RequestKinds { server, resource: write.resource },
            authorization: &ServerAuthorization(&server.access_rules),
            webhooks: &webhooks,
            policies: &policies,
            answers: &state.answers,
            random: write.random,
            clock: monotonic_time,
            lookups: &RunLookups::default(),
        };
        let mut run = Write { attributes, object, old_object: write.old_object, notes: Notes::default() };
        let chain = &server.admission.chain;
        let result = match phase {
            AdmissionPhase::Mutating => chain.mutate(&mut run, &context),
            AdmissionPhase::Validating => chain.validate(&mut run, &context),
        };
        state.record_phase(&server.admission.metrics, phase, &result, &run.notes);
        match result {
            // Params may have changed through another server, and no transaction compares what a dry run finds.
            Ok(()) if !state.is_view_current && (write.is_dry_run || view.has_read_params()) => {
                state.needs_current_view = true;
                Err(view_behind())
            }
            Ok(()) => {
                state.checks.extend_from_slice(run.notes.checks());
                notes.append(run.notes);
                Ok(run.object)
            }
            Err(Interruption::Refused(status)) => {
                if state.is_view_current {
                    state.checks.extend_from_slice(run.notes.checks());
                    notes.append(run.notes);
                }
                state.refusal = Some(status.message.clone());
                Err(*status)
            }
            Err(Interruption::CallsNeeded(calls)) => {
                state.pending = calls;
                Err(Status::internal_error("admission webhooks were not called"))
            }
        }
    }

    /// Does what the last run of the decision needs: calls webhooks, or makes the view current before a refusal counts.
    /// False if the outcome of the run counts.
    pub(crate) async fn resolve(&self, server: &ApiServer) -> Result<bool, Status> {
        let (calls, refusal, is_current, needs_current) = {
            let mut state = self.state.lock();
            let needs_current = std::mem::take(&mut state.needs_current_view);
            (std::mem::take(&mut state.pending), state.refusal.take(), state.is_view_current, needs_current)
        };
        if !calls.is_empty() {
            self.call(server, &calls).await?;
            return Ok(true);
        }
        if needs_current {
            self.catch_up(server).await?;
            return Ok(true);
        }
        let Some(refusal) = refusal else { return Ok(false) };
        if !is_current {
            // The object that is missing may have just been created through another server.
            self.catch_up(server).await?;
            return Ok(true);
        }
        // The service account controller may be about to create it.
        if refusal.contains(ACCOUNT_MISSING) && self.started.elapsed() < ACCOUNT_WAIT_MAX {
            let cache = server.registry.cache();
            let next = store::Revision(cache.applied_revision().0 + 1);
            return Ok(cache.wait_for_revision(next, CHANGE_WAIT_MAX).await.is_ok());
        }
        Ok(false)
    }

    /// Calls webhooks in parallel and keeps their answers.
    async fn call(&self, server: &ApiServer, calls: &[PendingCall]) -> Result<(), Status> {
        let operation = self.state.lock().operation.map_or("", Operation::as_str);
        let timed_out = || Status::timeout("request did not complete within requested timeout", 0);
        let remaining = &|| self.deadline.saturating_duration_since(Instant::now());
        if remaining().is_zero() {
            return Err(timed_out());
        }
        let control = &server.admission;
        let exchanges = calls.iter().map(|call| async move {
            let (uid, started) = (new_uid(), Instant::now());
            let timeout = Duration::from_secs(call.webhook.timeout_seconds.into()).min(remaining());
            let mut config = client_config(&call.webhook.client);
            config.credentials = control.credentials(&call.webhook, &config);
            let response = control.client.call(&config, Bytes::from(call.body(&uid)), timeout).await;
            (call, uid, response, started.elapsed())
        });
        let mut is_ignored_too_late = false;
        let started = Instant::now();
        let exchanges = join_all(exchanges).await;
        let is_validating = calls.iter().any(|call| call.webhook.kind == ConfigurationKind::Validating);
        self.state.lock().called_for[usize::from(is_validating)] += started.elapsed();
        for (call, uid, response, duration) in exchanges {
            let body = response.as_ref().map(|body| &**body).map_err(call_failure);
            let answer = self.state.lock().answers.add(call, &uid, body);
            control.metrics.observe(&call.webhook, operation, &answer, duration);
            if let Some(failure) = answer.failure() {
                let (webhook, reason) = (&call.webhook.name, &failure.reason);
                tracing::warn!(webhook, reason, "admission webhook failed");
                is_ignored_too_late |= call.webhook.failure_policy == FailurePolicy::Ignore && remaining().is_zero();
            }
        }
        if is_ignored_too_late { Err(timed_out()) } else { Ok(()) }
    }
}

fn view_behind() -> Status {
    let behind = "the objects that admission depends on have not caught up with storage";
    Status::service_unavailable(behind).with_retry_after(1)
}

/// Since the first call.
fn monotonic_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

fn call_failure(error: &WebhookError) -> CallFailure {
    match error {
        WebhookError::InvalidConfig(_) => {
            CallFailure { reason: format!("could not get REST client: {error}"), code: 500 }
        }
        WebhookError::Refused { code, .. } => CallFailure::not_called(error, *code),
        WebhookError::Busy { .. } | WebhookError::NoResponse { .. } | WebhookError::TooLong { .. } => {
            CallFailure::not_called(error, 503)
        }
    }
}

fn client_config(client: &::admission::webhook::ClientConfig) -> webhook::ClientConfig {
    use ::admission::webhook::Endpoint;
    let endpoint = match &client.endpoint {
        Endpoint::Url(url) => webhook::Endpoint::Url(url.clone()),
        Endpoint::Service(service) => webhook::Endpoint::Service {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            port: service.port,
            path: service.path.clone(),
        },
    };
    webhook::ClientConfig { endpoint, ca_bundle: client.ca_bundle.clone(), credentials: None }
}
