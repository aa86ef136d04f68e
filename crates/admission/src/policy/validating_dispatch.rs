//! ValidatingAdmissionPolicy: all matching policies are evaluated, the first denial is the answer.

use api::json::{JsonObject, to_go_json};
use api::status::{StatusCause, StatusReason};
use api::{GroupVersionKind, Status};
use serde::Serialize;
use serde_json::Value;

use super::expressions::VariableValues;
use super::params::{self, ParamError, text_of};
use super::set::{Binding, Policy, PolicyRules, Validation};
use super::variables::{RUN_COST_MAX, Run, namespace_of, shown_namespace, with_lazy};
use crate::chain::{Context, Interruption, Write};
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

/// What one run found: denials with the index of their expression, and audit annotations.
#[derive(Default)]
struct RunResult<'p> {
    denials: Vec<(usize, String, &'p str)>,
    annotations: Vec<(&'p str, String)>,
    annotation_errors: Vec<String>,
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
    let candidates = context.policies.validating.candidates(write.attributes.resource.resource);
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
    policy: &'p Policy,
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
    let mut annotations: Vec<(&str, Vec<String>)> = Vec::new();
    for binding in &policy.bindings {
        if let Some(criteria) = &binding.criteria {
            match matching::find_invocation(criteria, write, write.object.as_ref(), context) {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(refusal) => {
                    misconfigured(denials, policy, Some(&binding.name), &text_of(refusal));
                    continue;
                }
            }
        }
        let params = match params::collect(policy, binding, &write.attributes, context.view) {
            Ok(params) => params,
            Err(ParamError::OfBinding(error)) => {
                misconfigured(denials, policy, Some(&binding.name), &error);
                continue;
            }
            Err(ParamError::OfPolicy(error)) => {
                misconfigured(denials, policy, None, &error);
                break;
            }
        };
        if params.is_empty() {
            continue;
        }
        let objects = match versioned(write, &invocation, context) {
            Ok(objects) => objects,
            Err(error) => {
                let error = format!("failed to convert object version: {error}");
                misconfigured(denials, policy, Some(&binding.name), &error);
                continue;
            }
        };
        let namespace = namespace_of(write, context)?;
        let mut results = Vec::new();
        for param in &params {
            let both = [objects[0].as_ref(), objects[1].as_ref()];
            let run = Run::new(write, &invocation, both, param.as_ref(), context);
            results.push(validate(policy, &run, namespace.as_ref()));
        }
        drop(params);
        for result in results {
            enforce_result(result, policy, binding, write, denials, &mut annotations);
        }
    }
    for (key, values) in annotations {
        write.notes.annotate(format!("{}/{key}", policy.name), values.join(", "));
    }
    Ok(())
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
    let found = result.denials.into_iter().map(|(index, message, reason)| (Some(index), message, reason));
    let errors = result.annotation_errors.into_iter().map(|message| (None, message, ""));
    for (index, message, reason) in found.chain(errors) {
        if enforce(policy, binding, index, &message, write) {
            let (policy, binding) = (policy.name.as_str(), Some(binding.name.as_str()));
            denials.push(Denial { policy, binding, message, reason });
        }
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
pub(super) fn versioned(
    write: &Write<'_>,
    invocation: &Invocation,
    context: &Context<'_>,
) -> Result<[Option<JsonObject>; 2], String> {
    let kind: GroupVersionKind<&str> = invocation.kind.borrowed();
    let convert = |object: Option<&JsonObject>| match object {
        Some(object) if kind != write.attributes.kind => context.kinds.convert(object, kind).map(Some),
        object => Ok(object.cloned()),
    };
    Ok([convert(write.object.as_ref())?, convert(write.old_object)?])
}

/// Does what the actions of a binding say about a failed validation. True if the request is denied. An audit annotation
/// that cannot be evaluated, which has no index, always denies.
fn enforce(policy: &Policy, binding: &Binding, index: Option<usize>, message: &str, write: &mut Write<'_>) -> bool {
    let Some(expression_index) = index else { return true };
    let mut is_denied = false;
    for action in &binding.actions {
        match action.as_str() {
            "Deny" => is_denied = true,
            "Audit" => {
                let value = FailureValue {
                    message,
                    policy: &policy.name,
                    binding: &binding.name,
                    expression_index,
                    validation_actions: &binding.actions,
                };
                let value = String::from_utf8_lossy(&to_go_json(&[value])).into_owned();
                write.notes.annotate(FAILURE_ANNOTATION, value);
            }
            "Warn" => write.notes.warn(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                policy.name, binding.name
            )),
            _ => {}
        }
    }
    is_denied
}

/// Evaluates validations, messages and audit annotations of one run.
fn validate<'p>(policy: &'p Policy, run: &Run<'_>, namespace: Option<&JsonObject>) -> RunResult<'p> {
    let is_failing = policy.failure_policy == FailurePolicy::Fail;
    let mut result = RunResult::default();
    let PolicyRules::Validating { validations, annotations } = &policy.rules else { return result };
    let failed = |error: String| RunResult {
        denials: is_failing.then_some((0, error, "")).into_iter().collect(),
        ..RunResult::default()
    };
    match run.is_matched(policy) {
        Ok(true) => {}
        Ok(false) => return result,
        Err(error) => return failed(error),
    }
    let shown = namespace.map_or(Value::Null, |namespace| Value::Object(shown_namespace(namespace)));
    let mut budget = RUN_COST_MAX;
    let (inputs, authorizer) = (run.inputs(&shown, true), Some(&run.authorizer as &dyn k8s_cel::Authorizer));
    let values = VariableValues::new(&policy.variables, &inputs, authorizer);
    let all = with_lazy(&inputs, &values);
    let expressions = validations.iter().map(|validation| Some(&validation.expression));
    let results = match values.evaluate_all(expressions, &all, authorizer, &mut budget) {
        Ok(results) => results,
        Err(error) => return failed(error),
    };
    let of_messages = run.inputs(&shown, false);
    let message_values = VariableValues::new(&policy.variables, &of_messages, None);
    let all = with_lazy(&of_messages, &message_values);
    let expressions = validations.iter().map(|validation| validation.message_expression.as_ref());
    let messages = message_values.evaluate_all(expressions, &all, None, &mut budget);
    for (index, (validation, outcome)) in validations.iter().zip(results).enumerate() {
        let denial = match (outcome, &messages) {
            (None, _) => continue,
            (Some(Err(error)), _) => is_failing.then_some((error, "")),
            (Some(Ok(_)), Err(error)) => is_failing.then(|| (format!("failed messageExpression: {error}"), "")),
            (Some(Ok(value)), Ok(_)) if value.as_bool() == Some(true) => None,
            (Some(Ok(_)), Ok(messages)) => {
                let computed = messages.get(index).and_then(|message| message.as_ref()?.as_ref().ok()?.as_str());
                Some((message_of(validation, computed), validation.reason.as_str()))
            }
        };
        result.denials.extend(denial.map(|(message, reason)| (index, message, reason)));
    }
    let unfiltered = namespace.map_or(Value::Null, |namespace| Value::Object(namespace.clone()));
    let inputs = run.inputs(&unfiltered, false);
    let values = VariableValues::new(&policy.variables, &inputs, None);
    let all = with_lazy(&inputs, &values);
    let mut budget = RUN_COST_MAX;
    match values.evaluate_all(annotations.iter().map(|(_, value)| Some(value)), &all, None, &mut budget) {
        Err(error) => return failed(error),
        Ok(results) => {
            for ((key, _), outcome) in annotations.iter().zip(results) {
                match outcome {
                    Some(Ok(value)) => {
                        let value = value.as_str().unwrap_or_default().trim();
                        let end = value.floor_char_boundary(ANNOTATION_BYTES_MAX);
                        if !value.is_empty() {
                            result.annotations.push((key, value[..end].to_owned()));
                        }
                    }
                    Some(Err(error)) if is_failing => result.annotation_errors.push(error),
                    Some(Err(_)) | None => {}
                }
            }
        }
    }
    result
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
