//! ValidatingAdmissionPolicy: all matching policies are evaluated, the first denial is the answer.

use std::borrow::Cow;
use std::time::Duration;

use api::json::{JsonObject, to_go_json};
use api::status::{StatusCause, StatusReason};
use api::{GroupVersionKind, Status};
use serde::Serialize;
use serde_json::Value;

use super::error_type;
use super::expressions::{Evaluated, VariableValues};
use super::params::{self, Param, text_of};
use super::set::{Binding, BoundPolicy, Policy, PolicyRules, Validation};
use super::variables::{RUN_COST_MAX, Run, namespace_of, shown_namespace, whole_namespace, with_lazy};
use crate::chain::{Context, Interruption, Write};
use crate::notes::{CheckOutcome, PolicyCheck};
use crate::ports::ParamResource;
use crate::refusal::Refusal;
use crate::webhook::FailurePolicy;
use crate::webhook::matching::{self, Invocation};

const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";
/// A longer result of a message expression is not shown.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
/// A longer value of an audit annotation is cut.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;

/// A denial: the text after `denied request: `, its reason, and by whom.
struct Denial<'p> {
    policy: &'p str,
    binding: Option<&'p str>,
    message: String,
    reason: &'p str,
}

/// What one run found.
#[derive(Default)]
struct RunResult<'p> {
    findings: Vec<Finding<'p>>,
    annotations: Vec<(&'p str, String)>,
    /// Audit annotations that cannot be evaluated, unless failures are ignored.
    annotation_errors: Vec<(String, Duration)>,
}

/// A validation that failed, or that could not be evaluated.
struct Finding<'p> {
    index: usize,
    message: String,
    reason: &'p str,
    elapsed: Duration,
    /// True for an error of a policy whose failures are ignored.
    is_ignored: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FailureValue<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [String],
}

/// Evaluates the matching policies on what is going to be stored.
pub(crate) fn dispatch(write: &mut Write<'_>, context: &Context<'_>) -> Result<(), Interruption> {
    let candidates = context.policies.validating.candidates(write, context);
    if candidates.is_empty() || super::is_excluded(&write.attributes) {
        return Ok(());
    }
    let mut denials = Vec::new();
    for policy in candidates {
        evaluate(policy, write, context, &mut denials).map_err(|refusal| write.refused(refusal))?;
    }
    match denials.first() {
        Some(denial) => Err(write.refused(denial.status(write))),
        None => Ok(()),
    }
}

impl Denial<'_> {
    fn status(&self, write: &Write<'_>) -> Status {
        let Self { policy, message, .. } = self;
        let message = match self.binding {
            Some(binding) => {
                format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}")
            }
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
        };
        let attributes = &write.attributes;
        let name = attributes.shown_name(write.object.as_ref());
        let mut status = Status::forbidden(attributes.resource.group_resource(), name, message.clone());
        status.reason = StatusReason::from(if self.reason.is_empty() { "Invalid" } else { self.reason });
        status.code = match self.reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        status.details.get_or_insert_default().causes.push(StatusCause { message, ..StatusCause::default() });
        status
    }
}

fn evaluate<'p>(
    BoundPolicy { policy, bindings }: &'p BoundPolicy,
    write: &mut Write<'_>,
    context: &Context<'_>,
    denials: &mut Vec<Denial<'p>>,
) -> Result<(), Refusal> {
    let Some(criteria) = &policy.criteria else {
        misconfigured(denials, policy, None, "policy contained no match constraints, a required field");
        return Ok(());
    };
    let invocation = match matching::find_invocation(criteria, write, write.object.as_ref(), context) {
        Ok(Some(invocation)) => invocation,
        Ok(None) => return Ok(()),
        Err(refusal) => {
            misconfigured(denials, policy, None, &text_of(refusal));
            return Ok(());
        }
    };
    let param_resource = match policy.param_kind.as_ref().map(|kind| kind.resolve(context.view)).transpose() {
        Ok(resource) => resource,
        Err(error) => {
            misconfigured(denials, policy, None, &error);
            return Ok(());
        }
    };
    let mut annotations: Vec<(&str, Vec<String>)> = Vec::new();
    for binding in bindings {
        let configured = match runs_of(binding, param_resource.as_ref(), &invocation, write, context) {
            Ok(configured) => configured,
            Err(error) => {
                misconfigured(denials, policy, Some(&binding.name), &error);
                continue;
            }
        };
        let Some(MatchedBinding { params, objects }) = configured else { continue };
        let namespace = namespace_of(write, context)?;
        let mut results = Vec::new();
        for param in &params {
            let both = objects.each_ref().map(Option::as_deref);
            let run = Run::new(write, &invocation, both, param.as_ref(), context);
            results.push(validate(policy, &run, namespace));
        }
        for result in results {
            enforce_result(result, policy, binding, write, denials, &mut annotations);
        }
    }
    for (key, values) in annotations {
        write.notes.annotate(format!("{}/{key}", policy.name), values.join(", "));
    }
    Ok(())
}

/// What the runs of a binding need.
struct MatchedBinding<'w> {
    /// One per run.
    params: Vec<Param>,
    /// The new and the old object in the version of the invocation.
    objects: [Option<Cow<'w, JsonObject>>; 2],
}

/// Prepares the runs of a binding; `None` if it does not match.
fn runs_of<'w>(
    binding: &Binding,
    param_resource: Option<&ParamResource>,
    invocation: &Invocation,
    write: &'w Write<'_>,
    context: &Context<'_>,
) -> Result<Option<MatchedBinding<'w>>, String> {
    if let Some(criteria) = &binding.criteria
        && matching::find_invocation(criteria, write, write.object.as_ref(), context).map_err(text_of)?.is_none()
    {
        return Ok(None);
    }
    let params = params::collect(param_resource, binding, &write.attributes, context.view)?;
    if params.is_empty() {
        return Ok(None);
    }
    let objects = versioned(write, invocation, context);
    let objects = objects.map_err(|error| format!("failed to convert object version: {error}"))?;
    Ok(Some(MatchedBinding { params, objects }))
}

/// Applies the actions of a binding to what one run found, and adds its audit annotations to those of the policy.
fn enforce_result<'p>(
    result: RunResult<'p>,
    policy: &'p Policy,
    binding: &'p Binding,
    write: &mut Write<'_>,
    denials: &mut Vec<Denial<'p>>,
    annotations: &mut Vec<(&'p str, Vec<String>)>,
) {
    for finding in result.findings {
        enforce(policy, binding, finding, write, denials);
    }
    for (message, elapsed) in result.annotation_errors {
        write.notes.add_check(check(policy, binding, CheckOutcome::Denied, &message, elapsed));
        denials.push(Denial { policy: &policy.name, binding: Some(&binding.name), message, reason: "" });
    }
    for (key, value) in result.annotations {
        let at = annotations.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            annotations.push((key, Vec::new()));
            annotations.len() - 1
        });
        if !annotations[at].1.contains(&value) {
            annotations[at].1.push(value);
        }
    }
}

/// Denies because of the configuration, whatever the actions of the binding are, unless failures are ignored.
fn misconfigured<'p>(denials: &mut Vec<Denial<'p>>, policy: &'p Policy, binding: Option<&'p str>, error: &str) {
    if policy.failure_policy == FailurePolicy::Fail {
        let what = if binding.is_some() { "binding" } else { "policy" };
        let message = format!("failed to configure {what}: {error}");
        denials.push(Denial { policy: &policy.name, binding, message, reason: "" });
    }
}

/// The new and the old object in the version of the rule that matched.
pub(super) fn versioned<'w>(
    write: &'w Write<'_>,
    invocation: &Invocation,
    context: &Context<'_>,
) -> Result<[Option<Cow<'w, JsonObject>>; 2], String> {
    let kind: GroupVersionKind<&str> = invocation.kind.borrowed();
    let convert = |object: Option<&'w JsonObject>| match object {
        Some(object) if kind != write.attributes.kind => context.kinds.convert(object, kind).map(Cow::Owned).map(Some),
        object => Ok(object.map(Cow::Borrowed)),
    };
    Ok([convert(write.object.as_ref())?, convert(write.old_object)?])
}

/// Does what the actions of a binding say about a finding.
fn enforce<'p>(
    policy: &'p Policy,
    binding: &'p Binding,
    finding: Finding<'p>,
    write: &mut Write<'_>,
    denials: &mut Vec<Denial<'p>>,
) {
    let Finding { index: expression_index, message, reason, elapsed, is_ignored } = finding;
    if is_ignored {
        write.notes.add_check(check(policy, binding, CheckOutcome::Allowed, &message, elapsed));
        return;
    }
    for action in &binding.actions {
        let outcome = match action.as_str() {
            "Deny" => {
                let (policy, binding, message) = (&*policy.name, Some(&*binding.name), message.clone());
                denials.push(Denial { policy, binding, message, reason });
                CheckOutcome::Denied
            }
            "Audit" => {
                let value = FailureValue {
                    message: &message,
                    policy: &policy.name,
                    binding: &binding.name,
                    expression_index,
                    validation_actions: &binding.actions,
                };
                let value = String::from_utf8_lossy(&to_go_json(&[value])).into_owned();
                write.notes.annotate(FAILURE_ANNOTATION, value);
                CheckOutcome::Audited
            }
            "Warn" => {
                write.notes.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                    policy.name, binding.name
                ));
                CheckOutcome::Warned
            }
            _ => continue,
        };
        write.notes.add_check(check(policy, binding, outcome, &message, elapsed));
    }
}

/// Like Kubernetes, which counts a failed validation as `invalid_error`.
fn check(policy: &Policy, binding: &Binding, outcome: CheckOutcome, message: &str, elapsed: Duration) -> PolicyCheck {
    let (policy, binding) = (policy.name.clone(), binding.name.clone());
    PolicyCheck { policy, binding, outcome, error_type: error_type(message), elapsed }
}

/// Evaluates match conditions, validations, messages and audit annotations of one run.
fn validate<'p>(policy: &'p Policy, run: &Run<'_>, namespace: Option<&JsonObject>) -> RunResult<'p> {
    let PolicyRules::Validating { validations, annotations } = &policy.rules else { return RunResult::default() };
    match run.is_matched(policy) {
        Ok(true) => {}
        Ok(false) => return RunResult::default(),
        Err(error) => return failed_run(policy, error),
    }
    let shown = namespace.map_or(Value::Null, |namespace| Value::Object(shown_namespace(namespace)));
    let findings = match findings_of(policy, validations, run, &shown) {
        Ok(findings) => findings,
        Err(error) => return failed_run(policy, error),
    };
    let mut result = RunResult { findings, ..RunResult::default() };
    let unfiltered = namespace.map_or(Value::Null, |namespace| Value::Object(whole_namespace(namespace)));
    let inputs = run.inputs(&unfiltered, false);
    let values = VariableValues::new(&policy.variables, &inputs, None, run.clock);
    let all = with_lazy(&inputs, &values);
    let mut budget = RUN_COST_MAX;
    let expressions = annotations.iter().map(|(_, value)| Some(value));
    let evaluated = match values.evaluate_all(expressions, &all, None, &mut budget) {
        Ok(evaluated) => evaluated,
        Err(error) => return failed_run(policy, error),
    };
    for ((key, _), Evaluated { result: value, elapsed }) in annotations.iter().zip(evaluated.into_iter().flatten()) {
        match value {
            Ok(value) => {
                let value = value.as_str().unwrap_or_default().trim();
                let end = value.floor_char_boundary(ANNOTATION_BYTES_MAX);
                if !value.is_empty() {
                    result.annotations.push((key, value[..end].to_owned()));
                }
            }
            Err(error) if policy.failure_policy == FailurePolicy::Fail => {
                result.annotation_errors.push((error, elapsed));
            }
            Err(_) => {}
        }
    }
    result
}

/// A run that ended early.
fn failed_run(policy: &Policy, message: String) -> RunResult<'_> {
    let is_ignored = policy.failure_policy == FailurePolicy::Ignore;
    let finding = Finding { index: 0, message, reason: "", elapsed: Duration::ZERO, is_ignored };
    RunResult { findings: vec![finding], ..RunResult::default() }
}

/// Evaluates validations, then messages within the rest of the budget.
fn findings_of<'p>(
    policy: &'p Policy,
    validations: &'p [Validation],
    run: &Run<'_>,
    namespace: &Value,
) -> Result<Vec<Finding<'p>>, String> {
    let mut budget = RUN_COST_MAX;
    let (inputs, authorizer) = (run.inputs(namespace, true), Some(&run.authorizer as &dyn k8s_cel::Authorizer));
    let values = VariableValues::new(&policy.variables, &inputs, authorizer, run.clock);
    let all = with_lazy(&inputs, &values);
    let expressions = validations.iter().map(|validation| Some(&validation.expression));
    let results = values.evaluate_all(expressions, &all, authorizer, &mut budget)?;
    let of_messages = run.inputs(namespace, false);
    let message_values = VariableValues::new(&policy.variables, &of_messages, None, run.clock);
    let all = with_lazy(&of_messages, &message_values);
    let expressions = validations.iter().map(|validation| validation.message_expression.as_ref());
    let messages = message_values.evaluate_all(expressions, &all, None, &mut budget);
    let mut findings = Vec::new();
    for (index, (validation, evaluated)) in validations.iter().zip(results).enumerate() {
        let Some(Evaluated { result, elapsed }) = evaluated else { continue };
        let (message, reason, is_error) = match (result, &messages) {
            (Err(error), _) => (error, "", true),
            (Ok(_), Err(error)) => (format!("failed messageExpression: {error}"), "", true),
            (Ok(value), Ok(_)) if value.as_bool() == Some(true) => continue,
            (Ok(_), Ok(messages)) => {
                let computed = messages.get(index).and_then(|message| message.as_ref()?.result.as_ref().ok()?.as_str());
                (message_of(validation, computed), validation.reason.as_str(), false)
            }
        };
        let is_ignored = is_error && policy.failure_policy == FailurePolicy::Ignore;
        findings.push(Finding { index, message, reason, elapsed, is_ignored });
    }
    Ok(findings)
}

/// The message of a failed validation: computed, else written, else the expression.
fn message_of(validation: &Validation, computed: Option<&str>) -> String {
    let is_shown = |text: &&str| !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
    if let Some(computed) = computed.map(str::trim).filter(is_shown) {
        return computed.to_owned();
    }
    match validation.message.trim() {
        "" => format!("failed expression: {}", validation.expression.text.trim()),
        message => message.to_owned(),
    }
}
