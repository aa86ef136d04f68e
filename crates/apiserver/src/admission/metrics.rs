//! Metrics of admission webhooks and policies, with Kubernetes' names.

use std::time::Duration;

use ::admission::webhook::{ConfigurationKind, FailurePolicy};
use ::admission::{Answer, CheckOutcome, PolicyCheck, Webhook};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

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
    duration: HistogramVec,
    requests: IntCounterVec,
    rejections: IntCounterVec,
    fail_open: IntCounterVec,
    validating_checks: PolicyMetrics,
    mutating_checks: PolicyMetrics,
}

/// Checks of one kind of policies.
struct PolicyMetrics {
    total: IntCounterVec,
    duration: HistogramVec,
}

impl AdmissionMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels).expect("the name and labels are valid");
            registry.register(Box::new(counter.clone())).expect("each name is registered once");
            counter
        };
        let histogram = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            let histogram = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)
                .expect("the name and labels are valid");
            registry.register(Box::new(histogram.clone())).expect("each name is registered once");
            histogram
        };
        const OF_VALIDATING: &[&str] = &["policy", "policy_binding", "error_type", "enforcement_action"];
        const OF_MUTATING: &[&str] = &["policy", "policy_binding", "error_type"];
        Self {
            validating_checks: PolicyMetrics {
                total: counter(
                    "apiserver_validating_admission_policy_check_total",
                    "Failed validations of policies, by policy, binding, type of error and enforcement action",
                    OF_VALIDATING,
                ),
                duration: histogram(
                    "apiserver_validating_admission_policy_check_duration_seconds",
                    "How long the evaluation of failed validations took, by policy, binding, type of error and action",
                    &CHECK_BUCKETS,
                    OF_VALIDATING,
                ),
            },
            mutating_checks: PolicyMetrics {
                total: counter(
                    "apiserver_mutating_admission_policy_check_total",
                    "Mutations of policies, by policy, binding and type of error",
                    OF_MUTATING,
                ),
                duration: histogram(
                    "apiserver_mutating_admission_policy_check_duration_seconds",
                    "How long mutations of policies took, by policy, binding and type of error",
                    &CHECK_BUCKETS,
                    OF_MUTATING,
                ),
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
        let phase = match phase {
            AdmissionPhase::Mutating => "admit",
            AdmissionPhase::Validating => "validate",
        };
        let rejected = if is_rejected { "true" } else { "false" };
        self.step.with_label_values(&[phase, operation, rejected]).observe(duration.as_secs_f64());
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
        let rejected = if is_rejected { "true" } else { "false" };
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
