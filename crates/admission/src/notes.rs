//! What admission tells besides its verdict: warnings for the client, annotations for the audit log.

use std::collections::BTreeMap;
use std::time::Duration;

/// Warnings and audit annotations of one run of the sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    warnings: Vec<String>,
    annotations: BTreeMap<String, String>,
    checks: Vec<PolicyCheck>,
    plugin_runs: Vec<(&'static str, Duration)>,
}

/// One evaluation of an expression of a policy that metrics count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyCheck {
    /// The name of the policy.
    pub policy: String,
    /// The name of its binding.
    pub binding: String,
    /// What came of it.
    pub outcome: CheckOutcome,
    /// `no_error`, `compile_error`, `out_of_budget` or `invalid_error`.
    pub error_type: &'static str,
    /// How long the evaluation took.
    pub elapsed: Duration,
}

/// What came of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// A mutation was evaluated, with or without error.
    Mutated,
    /// An error of a validation was ignored.
    Allowed,
    /// A failed validation denies the request.
    Denied,
    /// A failed validation is recorded in the audit log.
    Audited,
    /// A failed validation is a warning for the client.
    Warned,
}

impl Notes {
    /// Adds a warning; one that was given before is dropped.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() && !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Adds an audit annotation. As in Kubernetes, a key must be a qualified name and keeps its first value.
    pub fn annotate(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let key = key.into();
        if api::validation::validate_label_key(&key).is_empty() {
            self.annotations.entry(key).or_insert_with(|| value.into());
        }
    }

    /// In the order in which they were given, each once.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// By key.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    /// Evaluations that metrics count, in their order.
    pub fn checks(&self) -> &[PolicyCheck] {
        &self.checks
    }

    pub(crate) fn add_check(&mut self, check: PolicyCheck) {
        self.checks.push(check);
    }

    /// How long each plugin took that looked at the write, in their order. Of one that calls webhooks, without the calls.
    pub fn plugin_runs(&self) -> &[(&'static str, Duration)] {
        &self.plugin_runs
    }

    pub(crate) fn add_plugin_run(&mut self, plugin: &'static str, elapsed: Duration) {
        self.plugin_runs.push((plugin, elapsed));
    }

    /// Adds the warnings, annotations and checks of another phase.
    pub fn append(&mut self, other: Self) {
        for warning in other.warnings {
            self.warn(warning);
        }
        for (key, value) in other.annotations {
            self.annotations.entry(key).or_insert(value);
        }
        self.checks.extend(other.checks);
    }
}
