//! Metrics of admission webhooks and policies, with Kubernetes' names.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use ::admission::chain::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
use ::admission::webhook::{ConfigurationKind, FailurePolicy};
use ::admission::{Answer, CheckOutcome, Operation, PolicyCheck, Webhook};
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use super::session::AdmissionPhase;

/// Seconds, as in kube-apiserver.
const DURATION_BUCKETS: [f64; 7] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0];
/// Of whole phases, as in kube-apiserver.
const STEP_BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
/// Seconds, as in kube-apiserver.
const CHECK_BUCKETS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];
/// Codes above are counted as this one, as in kube-apiserver.
const CODE_MAX: u16 = 600;

pub(super) struct AdmissionMetrics {
    step: HistogramVec,
    controllers: ControllerMetrics,
    duration: HistogramVec,
    requests: IntCounterVec,
    rejections: IntCounterVec,
    fail_open: IntCounterVec,
    validating_checks: PolicyMetrics,
    mutating_checks: PolicyMetrics,
}

/// How long single plugins took. A write runs about thirty, so that their histograms are looked up once.
struct ControllerMetrics {
    histograms: HistogramVec,
    /// By plugin; then by phase, operation and verdict.
    found: HashMap<&'static str, [OnceLock<Histogram>; 16]>,
}

/// Checks of one kind of policies.
struct PolicyMetrics {
    total: IntCounterVec,
    duration: HistogramVec,
}

impl PolicyMetrics {
    /// `what` says what is counted.
    fn new(registry: &Registry, [total, duration]: [&str; 2], what: &str, labels: &[&str]) -> Self {
        let help = format!("How long the evaluation took: {what}, by policy, binding and outcome");
        Self {
            total: counter(registry, total, &format!("{what}, by policy, binding and outcome"), labels),
            duration: histogram(registry, duration, &help, &CHECK_BUCKETS, labels),
        }
    }
}

fn counter(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let counter = IntCounterVec::new(Opts::new(name, help), labels).expect("the name and labels are valid");
    registry.register(Box::new(counter.clone())).expect("each name is registered once");
    counter
}

fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64], labels: &[&str]) -> HistogramVec {
    let histogram = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)
        .expect("the name and labels are valid");
    registry.register(Box::new(histogram.clone())).expect("each name is registered once");
    histogram
}

impl AdmissionMetrics {
    pub(super) fn new(registry: &Registry, plugins: &[&'static str]) -> Self {
        let counter = |name: &str, help: &str, labels: &[&str]| counter(registry, name, help, labels);
        let histogram =
            |name: &str, help: &str, buckets: &[f64], labels: &[&str]| histogram(registry, name, help, buckets, labels);
        const OF_VALIDATING: &[&str] = &["policy", "policy_binding", "error_type", "enforcement_action"];
        Self {
            validating_checks: PolicyMetrics::new(
                registry,
                [
                    "apiserver_validating_admission_policy_check_total",
                    "apiserver_validating_admission_policy_check_duration_seconds",
                ],
                "Failed validations of policies",
                OF_VALIDATING,
            ),
            mutating_checks: PolicyMetrics::new(
                registry,
                [
                    "apiserver_mutating_admission_policy_check_total",
                    "apiserver_mutating_admission_policy_check_duration_seconds",
                ],
                "Mutations of policies",
                &OF_VALIDATING[..3],
            ),
            controllers: ControllerMetrics {
                histograms: histogram(
                    "apiserver_admission_controller_admission_duration_seconds",
                    "How long admission plugins took, by plugin, type, operation and whether the write was rejected",
                    &STEP_BUCKETS,
                    &["name", "type", "operation", "rejected"],
                ),
                found: plugins.iter().map(|plugin| (*plugin, Default::default())).collect(),
            },
            duration: histogram(
                "apiserver_admission_webhook_admission_duration_seconds",
                "How long calls of admission webhooks took, by webhook, type, operation and whether the write was rejected",
                &DURATION_BUCKETS,
                &["name", "type", "operation", "rejected"],
            ),
            step: histogram(
                "apiserver_admission_step_admission_duration_seconds",
                "How long the phases of admission took with their webhooks, by type, operation and whether the write was rejected",
                &STEP_BUCKETS,
                &["type", "operation", "rejected"],
            ),
            requests: counter(
                "apiserver_admission_webhook_request_total",
                "Calls of admission webhooks, by webhook, type, operation, code and whether the write was rejected",
                &["name", "type", "operation", "code", "rejected"],
            ),
            rejections: counter(
                "apiserver_admission_webhook_rejection_count",
                "Writes that admission webhooks rejected, by webhook, type, operation, error type and code",
                &["name", "type", "operation", "error_type", "rejection_code"],
            ),
            fail_open: counter(
                "apiserver_admission_webhook_fail_open_count",
                "Failed calls of admission webhooks that were ignored, by webhook and type",
                &["name", "type"],
            ),
        }
    }

    /// Records a phase that came to its end.
    pub(super) fn observe_step(&self, phase: AdmissionPhase, operation: &str, is_rejected: bool, duration: Duration) {
        let labels = [phase_label(phase), operation, rejected_label(is_rejected)];
        self.step.with_label_values(&labels).observe(duration.as_secs_f64());
    }

    /// Records the plugins of a phase, of which the last one may have rejected the write. `called_for` is the time that
    /// webhooks took.
    pub(super) fn observe_plugins(
        &self,
        phase: AdmissionPhase,
        operation: Operation,
        is_rejected: bool,
        plugins: &[(&'static str, Duration)],
        called_for: Duration,
    ) {
        let calling = plugins.iter().rposition(|(plugin, _)| [MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS].contains(plugin));
        for (at, (plugin, duration)) in plugins.iter().enumerate() {
            let is_rejected = is_rejected && at + 1 == plugins.len();
            let calls = if calling == Some(at) { called_for } else { Duration::ZERO };
            self.observe_plugin(plugin, phase, operation, is_rejected, *duration + calls);
        }
    }

    /// Records the run of one plugin.
    pub(super) fn observe_plugin(
        &self,
        plugin: &'static str,
        phase: AdmissionPhase,
        operation: Operation,
        is_rejected: bool,
        duration: Duration,
    ) {
        let Some(found) = self.controllers.found.get(plugin) else { return };
        let of_operation = match operation {
            Operation::Create => 0,
            Operation::Update => 1,
            Operation::Delete => 2,
            Operation::Connect => 3,
        };
        let index = of_operation * 4 + usize::from(phase == AdmissionPhase::Validating) * 2 + usize::from(is_rejected);
        let labels = [plugin, phase_label(phase), operation.as_str(), rejected_label(is_rejected)];
        let histogram = found[index].get_or_init(|| self.controllers.histograms.with_label_values(&labels));
        histogram.observe(duration.as_secs_f64());
    }

    /// Counts what policies evaluated.
    pub(super) fn observe_checks(&self, checks: &[PolicyCheck]) {
        for check in checks {
            let action = match check.outcome {
                CheckOutcome::Mutated => "",
                CheckOutcome::Allowed => "allow",
                CheckOutcome::Denied => "deny",
                CheckOutcome::Audited => "audit",
                CheckOutcome::Warned => "warn",
            };
            let all = [&check.policy, &check.binding, check.error_type, action];
            let (metrics, labels) = match check.outcome {
                CheckOutcome::Mutated => (&self.mutating_checks, &all[..3]),
                CheckOutcome::Allowed | CheckOutcome::Denied | CheckOutcome::Audited | CheckOutcome::Warned => {
                    (&self.validating_checks, &all[..])
                }
            };
            metrics.total.with_label_values(labels).inc();
            metrics.duration.with_label_values(labels).observe(check.elapsed.as_secs_f64());
        }
    }

    pub(super) fn observe(&self, webhook: &Webhook, operation: &str, answer: &Answer, duration: Duration) {
        let phase = match webhook.kind {
            ConfigurationKind::Mutating => "admit",
            ConfigurationKind::Validating => "validating",
        };
        let is_ignored = answer.failure().is_some() && webhook.failure_policy == FailurePolicy::Ignore;
        let is_rejected = answer.is_denial() || (answer.failure().is_some() && !is_ignored);
        let rejected = rejected_label(is_rejected);
        let code = answer.code().min(CODE_MAX).to_string();
        let name = &*webhook.name;
        self.duration.with_label_values(&[name, phase, operation, rejected]).observe(duration.as_secs_f64());
        self.requests.with_label_values(&[name, phase, operation, &code, rejected]).inc();
        if is_rejected {
            let error_type = if answer.is_denial() { "no_error" } else { "calling_webhook_error" };
            self.rejections.with_label_values(&[name, phase, operation, error_type, &code]).inc();
        }
        if is_ignored {
            self.fail_open.with_label_values(&[name, phase]).inc();
        }
    }
}

fn phase_label(phase: AdmissionPhase) -> &'static str {
    match phase {
        AdmissionPhase::Mutating => "admit",
        AdmissionPhase::Validating => "validate",
    }
}

fn rejected_label(is_rejected: bool) -> &'static str {
    if is_rejected { "true" } else { "false" }
}
