//! MutatingAdmissionPolicy: policies change the object one after the other.

use std::borrow::Cow;

use api::json::JsonObject;
use api::status::{StatusCause, StatusReason};
use api::{GroupVersionKind, Status};
use k8s_cel::{Authorizer, Value as CelValue};
use object::patch::JsonPatch;
use object::unstructured::metadata_string;
use serde_json::{Value, json};

use super::error_type;
use super::expressions::{Evaluated, VariableValues};
use super::params::{self, Param, text_of};
use super::set::{Binding, BoundPolicy, Mutation, Policy, PolicyRules};
use super::validating_dispatch::versioned;
use super::variables::{RUN_COST_MAX, Run, namespace_of, whole_namespace, with_lazy};
use crate::attributes::Operation;
use crate::chain::{Context, Interruption, Write};
use crate::notes::{CheckOutcome, PolicyCheck};
use crate::refusal::Refusal;
use crate::webhook::matching::{self, Invocation};
use crate::webhook::{FailurePolicy, Reinvocation};

/// One run of a policy that matches the write as it came.
struct PolicyCall<'p> {
    policy: &'p Policy,
    binding: &'p Binding,
    invocation: Invocation,
    param: Param,
}

/// Errors of policies whose failure counts, with whether the reason of the response is `Invalid`.
#[derive(Default)]
struct Errors(Vec<(String, bool)>);

impl Errors {
    fn add(&mut self, policy: &Policy, binding: Option<&Binding>, error: &str, is_invalid: bool) {
        if policy.failure_policy == FailurePolicy::Ignore {
            return;
        }
        let message = match binding {
            Some(binding) => {
                format!("policy '{}' with binding '{}' denied request: {error}", policy.name, binding.name)
            }
            None => format!("policy {:?} denied request: {error}", policy.name),
        };
        self.0.push((message, is_invalid));
    }
}

/// Runs the matching policies of one round on the object.
pub(crate) fn dispatch(
    write: &mut Write<'_>,
    context: &Context<'_>,
    reinvocation: &mut Reinvocation,
) -> Result<(), Interruption> {
    let candidates = context.policies.mutating.candidates(write, context);
    if candidates.is_empty() || super::is_excluded(&write.attributes) || write.attributes.operation == Operation::Delete
    {
        return Ok(());
    }
    let mut errors = Errors::default();
    let mut calls = Vec::new();
    for policy in candidates {
        collect_calls(policy, write, context, &mut calls, &mut errors);
    }
    if !calls.is_empty() {
        let kind = write.attributes.kind;
        reinvocation.begin(|last| match (last, &write.object) {
            (Some(last), Some(object)) => !context.kinds.is_equal(last, object, kind),
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        });
        let namespace = namespace_of(write, context).map_err(|refusal| write.refused(refusal))?;
        let namespace = namespace.map_or(Value::Null, |namespace| Value::Object(whole_namespace(namespace)));
        let mut is_any_applied = false;
        for call in &calls {
            is_any_applied |= run(call, &namespace, write, context, reinvocation, &mut errors)
                .map_err(|refusal| write.refused(refusal))?;
        }
        // Like Kubernetes, which does not compare: an applied mutation alone asks for the second round.
        if is_any_applied {
            reinvocation.request();
        }
        reinvocation.end(write.object.as_ref());
    }
    if errors.0.is_empty() { Ok(()) } else { Err(write.refused(status(write, &errors))) }
}

fn status(write: &Write<'_>, errors: &Errors) -> Status {
    let attributes = &write.attributes;
    let name = attributes.shown_name(write.object.as_ref());
    let mut status = Status::forbidden(attributes.resource.group_resource(), name, "");
    if let Some((message, is_invalid)) = errors.0.first() {
        message.clone_into(&mut status.message);
        if *is_invalid {
            status.reason = StatusReason::from("Invalid");
        }
    }
    let causes = errors.0.iter().map(|(message, _)| StatusCause { message: message.clone(), ..StatusCause::default() });
    status.details.get_or_insert_default().causes.extend(causes);
    status
}

fn collect_calls<'p>(
    BoundPolicy { policy, bindings }: &'p BoundPolicy,
    write: &Write<'_>,
    context: &Context<'_>,
    calls: &mut Vec<PolicyCall<'p>>,
    errors: &mut Errors,
) {
    let of_policy = |error: &str| format!("failed to configure policy: {error}");
    let of_binding = |error: &str| format!("failed to configure binding: {error}");
    let Some(criteria) = &policy.criteria else {
        return errors.add(policy, None, &of_policy("policy contained no match constraints, a required field"), false);
    };
    let invocation = match matching::find_invocation(criteria, write, write.object.as_ref(), context) {
        Ok(Some(invocation)) => invocation,
        Ok(None) => return,
        Err(refusal) => return errors.add(policy, None, &of_policy(&text_of(refusal)), false),
    };
    let param_resource = match policy.param_kind.as_ref().map(|kind| kind.resolve(context.view)).transpose() {
        Ok(resource) => resource,
        Err(error) => return errors.add(policy, None, &of_policy(&error), false),
    };
    for binding in bindings {
        let params = matches(binding, write, context).and_then(|is_matched| match is_matched {
            true => params::collect(param_resource.as_ref(), binding, &write.attributes, context.view),
            false => Ok(Vec::new()),
        });
        match params {
            Ok(params) => calls.extend(params.into_iter().map(|param| {
                let invocation = invocation.clone();
                PolicyCall { policy, binding, invocation, param }
            })),
            Err(error) => errors.add(policy, Some(binding), &of_binding(&error), false),
        }
    }
}

fn matches(binding: &Binding, write: &Write<'_>, context: &Context<'_>) -> Result<bool, String> {
    let Some(criteria) = &binding.criteria else { return Ok(true) };
    let found = matching::find_invocation(criteria, write, write.object.as_ref(), context);
    found.map(|invocation| invocation.is_some()).map_err(text_of)
}

/// Runs one policy. True if a mutation was applied, whether or not it changed the object. Unlike in Kubernetes, a policy
/// in another version sees and keeps what the ones before changed.
fn run(
    call: &PolicyCall<'_>,
    namespace: &Value,
    write: &mut Write<'_>,
    context: &Context<'_>,
    reinvocation: &mut Reinvocation,
    errors: &mut Errors,
) -> Result<bool, Refusal> {
    let PolicyCall { policy, binding, invocation, param } = call;
    let PolicyRules::Mutating { mutations, is_reinvoked } = &policy.rules else { return Ok(false) };
    let [object, old_object] = versioned(write, invocation, context).map_err(Refusal::internal)?;
    let run = Run::new(write, invocation, [object.as_deref(), old_object.as_deref()], param.as_ref(), context);
    match run.is_matched(policy) {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        Err(error) => {
            errors.add(policy, Some(binding), &error, true);
            return Ok(false);
        }
    }
    let param_name = param.as_ref().map(|param| [metadata_string(param, "namespace"), metadata_string(param, "name")]);
    let id = format!("{}/{}/{}", policy.name, binding.name, param_name.map_or(String::new(), |name| name.join("/")));
    if !reinvocation.includes(&id) {
        return Ok(false);
    }
    let [object, old_object] = [object, old_object].map(|object| object.map(Cow::into_owned));
    let Some(before) = object else {
        reinvocation.record(&id, false, *is_reinvoked);
        return Ok(false);
    };
    let kind = invocation.kind.borrowed();
    let (mut current, mut is_any_applied) = (before.clone(), false);
    for mutation in mutations {
        let run = Run::new(write, invocation, [Some(&current), old_object.as_ref()], param.as_ref(), context);
        let started = (context.clock)();
        let mutated = mutate(policy, mutation, &run, namespace, &current, kind, context);
        let elapsed = (context.clock)().saturating_sub(started);
        let error = match &mutated {
            Ok(Ok(_)) => "no_error",
            Ok(Err(error)) => error_type(error),
            Err(_) => "invalid_error",
        };
        let (policy_name, binding_name) = (policy.name.clone(), binding.name.clone());
        write.notes.add_check(PolicyCheck {
            policy: policy_name,
            binding: binding_name,
            outcome: CheckOutcome::Mutated,
            error_type: error,
            elapsed,
        });
        match mutated? {
            Ok(mutated) => {
                current = mutated;
                is_any_applied = true;
            }
            Err(error) => errors.add(policy, Some(binding), &error, true),
        }
    }
    let is_changed = !context.kinds.is_equal(&before, &current, kind);
    if is_changed {
        let own = write.attributes.kind;
        write.object = Some(if kind == own {
            current
        } else {
            context.kinds.convert(&current, own).map_err(Refusal::internal)?
        });
    }
    reinvocation.record(&id, is_changed, *is_reinvoked);
    Ok(is_any_applied)
}

/// Applies one mutation. The inner error counts by the failure policy, the outer one always.
fn mutate(
    policy: &Policy,
    mutation: &Mutation,
    run: &Run<'_>,
    namespace: &Value,
    object: &JsonObject,
    kind: GroupVersionKind<&str>,
    context: &Context<'_>,
) -> Result<Result<JsonObject, String>, Refusal> {
    if let Err(error) = &mutation.expression.program {
        return Ok(Err(error.clone()));
    }
    let authorizer = Some(&run.authorizer as &dyn Authorizer);
    let inputs = run.inputs(namespace, true);
    let values = VariableValues::new(&policy.variables, &inputs, authorizer, run.clock);
    let all = with_lazy(&inputs, &values);
    let mut budget = RUN_COST_MAX;
    let expressions = std::iter::once(Some(&mutation.expression));
    let value = match values.evaluate_all(expressions, &all, authorizer, &mut budget) {
        Ok(mut results) => match results.pop().flatten() {
            Some(Evaluated { result: Ok(value), .. }) => value,
            Some(Evaluated { result: Err(error), .. }) => return Ok(Err(error)),
            None => return Ok(Ok(object.clone())),
        },
        Err(error) => return Ok(Err(error)),
    };
    if mutation.is_json_patch {
        return match patched(&value, object) {
            // Like Kubernetes, whatever the failure policy is: a patched object must fit its kind.
            Ok(patched) => context.kinds.read_patched(patched, kind, true).map(Ok).map_err(Refusal::internal),
            Err(error) => Ok(Err(error)),
        };
    }
    Ok(configured(&value, object, kind, context).and_then(|merged| context.kinds.read_patched(merged, kind, false)))
}

fn configured(
    value: &CelValue<'_>,
    object: &JsonObject,
    kind: GroupVersionKind<&str>,
    context: &Context<'_>,
) -> Result<JsonObject, String> {
    check_types(value)?;
    let Value::Object(mut configuration) = value.to_json().map_err(|error| error.to_string())? else {
        return Err("invalid return type".to_owned());
    };
    for name in ["apiVersion", "kind"] {
        if let Some(own) = object.get(name) {
            configuration.insert(name.to_owned(), own.clone());
        }
    }
    context.kinds.merge(object, &configuration, kind).map_err(|error| format!("error applying patch: {error}"))
}

fn check_types(value: &CelValue<'_>) -> Result<(), String> {
    match value.misplaced_types() {
        found if found.is_empty() => Ok(()),
        found => Err(format!("type mismatch: {}", found.join("\n"))),
    }
}

/// A patch whose test fails changes nothing.
fn patched(value: &CelValue<'_>, object: &JsonObject) -> Result<JsonObject, String> {
    let CelValue::List(operations) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut patch = Vec::with_capacity(operations.len());
    for operation in operations.iter() {
        let operation = operation.map_err(|error| error.to_string())?;
        if let CelValue::Map(map) = &operation
            && let Ok(Some(value)) = map.find(&CelValue::from("value"))
        {
            check_types(&value)?;
        }
        let mut json = operation.to_json().map_err(|error| {
            format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {error}")
        })?;
        for required in ["op", "path"] {
            if json.get(required).is_none() {
                json[required] = json!("");
            }
        }
        patch.push(json);
    }
    let patch = Value::Array(patch).to_string();
    let parsed = JsonPatch::parse(patch.as_bytes()).map_err(|error| format!("JSON Patch: {error}"))?;
    match parsed.value.apply(object) {
        Ok(Value::Object(patched)) => Ok(patched),
        Ok(_) => Err("JSON Patch: the patched object is not a JSON object".to_owned()),
        Err(error) if object::patch::is_failed_test(&error) => Ok(object.clone()),
        Err(error) => Err(format!("JSON Patch: {error}")),
    }
}
