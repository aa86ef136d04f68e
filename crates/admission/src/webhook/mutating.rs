//! Mutating webhooks: one after the other, each sees what the ones before made of the object.

use api::json::JsonObject;
use api::quote::Quoted;
use api::{GroupVersionKind, Status};
use object::patch::JsonPatch;
use serde_json::{Value, json};

use super::answers::PendingCall;
use super::conditions::{self, ConditionVerdict};
use super::configuration::{ConfigurationKind, FailurePolicy, SideEffects, Webhook};
use super::matching::{self, Invocation};
use super::reinvocation::Reinvocation;
use super::response::{Answer, CallFailure, Verdict};
use super::review::review;
use crate::chain::{Context, Interruption, Write};
use crate::refusal::Refusal;

const MUTATION_ANNOTATION: &str = "mutation.webhook.admission.k8s.io/";
/// Audit annotations with this prefix hold patches; they are recorded where the body of a request is.
pub const PATCH_ANNOTATION: &str = "patch.webhook.admission.k8s.io/";
const FAILED_OPEN_ANNOTATION: &str = "failed-open.mutation.webhook.admission.k8s.io/";

/// The objects of a write in the version that the last webhook wanted.
struct VersionedObjects {
    kind: GroupVersionKind,
    object: Option<JsonObject>,
    old_object: Option<JsonObject>,
    is_patched: bool,
    /// Set when the object is converted or patched.
    is_replaced: bool,
}

/// Runs the matching webhooks of one round on the object.
pub(crate) fn dispatch(
    write: &mut Write<'_>,
    context: &Context<'_>,
    reinvocation: &mut Reinvocation,
) -> Result<(), Interruption> {
    let candidates_for = |write: &Write<'_>, object: Option<&JsonObject>| {
        context.webhooks.candidates(ConfigurationKind::Mutating, write, object, context)
    };
    let mut candidates = candidates_for(write, write.object.as_ref());
    if candidates.is_empty() || matching::is_exempt(&write.attributes) {
        return Ok(());
    }
    let kind = write.attributes.kind;
    reinvocation.begin(|last| match (last, &write.object) {
        (Some(last), Some(object)) => !context.kinds.is_equal(last, object, kind),
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    });
    let mut versioned: Option<VersionedObjects> = None;
    let mut next = 0;
    loop {
        // The webhooks that follow are for the labels that the object has now.
        if let Some(versioned) = versioned.as_mut().filter(|versioned| versioned.is_replaced) {
            versioned.is_replaced = false;
            candidates = candidates_for(write, versioned.object.as_ref());
        }
        let at = candidates.partition_point(|(index, _)| *index < next);
        let Some(&(index, webhook)) = candidates.get(at) else { break };
        next = index + 1;
        let object = versioned.as_ref().map_or(write.object.as_ref(), |versioned| versioned.object.as_ref());
        let found = matching::find_invocation(&webhook.criteria, write, object, context);
        let Some(invocation) = found.map_err(|refusal| write.refused(refusal))? else { continue };
        // Conditions are evaluated before the webhooks that do not run again are left out, as in Kubernetes.
        if webhook.conditions.is_empty() && !reinvocation.includes(&webhook.id) {
            continue;
        }
        let objects = VersionedObjects::convert(versioned.take(), write, &invocation, context)
            .map_err(|refusal| write.refused(refusal))?;
        let is_called = is_condition_met(webhook, &invocation, write, &objects, context)?;
        let objects = versioned.insert(objects);
        if !is_called || !reinvocation.includes(&webhook.id) {
            continue;
        }
        let annotation = format!("round_{}_index_{index}", reinvocation.round());
        let answer = answer_of(webhook, &invocation, write, objects, context)?;
        let is_changed = apply(webhook, &answer, write, objects, context, &annotation);
        reinvocation.record(&webhook.id, is_changed == Ok(true), webhook.is_reinvoked);
        is_changed.map_err(|refusal| write.refused(refusal))?;
    }
    if let Some(VersionedObjects { object: Some(object), is_patched: true, .. }) = versioned {
        let served = context.kinds.convert(&object, kind).map_err(|error| write.refused(Refusal::internal(error)))?;
        write.object = Some(served);
    }
    reinvocation.end(write.object.as_ref());
    Ok(())
}

impl VersionedObjects {
    fn convert(
        before: Option<Self>,
        write: &Write<'_>,
        invocation: &Invocation,
        context: &Context<'_>,
    ) -> Result<Self, Refusal> {
        let wanted = invocation.kind.borrowed();
        let (from, object, old_object, is_patched) = match before {
            Some(before) if before.kind == invocation.kind => return Ok(before),
            Some(before) => (before.kind, before.object, before.old_object, before.is_patched),
            None => (write.attributes.kind.owned(), write.object.clone(), write.old_object.cloned(), false),
        };
        let convert = |object: Option<JsonObject>| match object {
            Some(object) if from != invocation.kind => {
                context.kinds.convert(&object, wanted).map(Some).map_err(Refusal::internal)
            }
            object => Ok(object),
        };
        let (object, old_object) = (convert(object)?, convert(old_object)?);
        let is_replaced = from != invocation.kind;
        Ok(Self { kind: invocation.kind.clone(), object, old_object, is_patched, is_replaced })
    }

    fn both(&self) -> [Option<&JsonObject>; 2] {
        [self.object.as_ref(), self.old_object.as_ref()]
    }
}

fn is_condition_met(
    webhook: &Webhook,
    invocation: &Invocation,
    write: &Write<'_>,
    objects: &VersionedObjects,
    context: &Context<'_>,
) -> Result<bool, Interruption> {
    if webhook.conditions.is_empty() {
        return Ok(true);
    }
    condition_result(write, conditions::evaluate(webhook, invocation, write, objects.both(), context))
}

/// Turns the verdict of conditions into whether the webhook is called.
pub(super) fn condition_result(write: &Write<'_>, verdict: ConditionVerdict) -> Result<bool, Interruption> {
    match verdict {
        ConditionVerdict::Match => Ok(true),
        ConditionVerdict::NoMatch => Ok(false),
        ConditionVerdict::Failed(error) => {
            let attributes = &write.attributes;
            Err(write.refused(Status::forbidden(attributes.resource.group_resource(), attributes.name, error)))
        }
    }
}

/// The answer of a webhook: one that needs no call, or one that was given before; else the call is needed.
fn answer_of(
    webhook: &std::sync::Arc<Webhook>,
    invocation: &Invocation,
    write: &Write<'_>,
    objects: &VersionedObjects,
    context: &Context<'_>,
) -> Result<Answer, Interruption> {
    match prepare_call(webhook, invocation, write, objects.both()) {
        Err(refusal) => Err(write.refused(refusal)),
        Ok(Err(failure)) => Ok(Answer::failed(failure)),
        Ok(Ok(call)) => match context.answers.get(&call) {
            Some(answer) => Ok((**answer).clone()),
            None => Err(Interruption::CallsNeeded(vec![call])),
        },
    }
}

/// The call of a webhook; a failure if there can be none, and a refusal if a dry run must not reach the webhook.
pub(super) fn prepare_call(
    webhook: &std::sync::Arc<Webhook>,
    invocation: &Invocation,
    write: &Write<'_>,
    objects: [Option<&JsonObject>; 2],
) -> Result<Result<PendingCall, CallFailure>, Refusal> {
    let failure = |reason: &str| Ok(Err(CallFailure { reason: reason.to_owned(), code: 400 }));
    if write.attributes.is_dry_run {
        match webhook.side_effects {
            None => return failure("Webhook SideEffects is nil"),
            Some(SideEffects::Some) => {
                let text = format!("admission webhook {} does not support dry run", Quoted(&webhook.name));
                return Err(Status::bad_request(text).into());
            }
            Some(SideEffects::NoneOnDryRun) => {}
        }
    }
    match review(&webhook.review_versions, &write.attributes, invocation, objects) {
        Some(review) => Ok(Ok(PendingCall::new(webhook, review))),
        None => failure(
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)",
        ),
    }
}

/// 500, `failed calling webhook "<name>": <reason>`.
pub(super) fn failed_closed(webhook: &Webhook, failure: &CallFailure) -> Refusal {
    Refusal::internal(format!("failed calling webhook {}: {}", Quoted(&webhook.name), failure.reason))
}

/// Records what a webhook said besides its verdict.
pub(super) fn record_remarks(webhook: &Webhook, answer: &Answer, write: &mut Write<'_>) {
    for (key, value) in &answer.annotations {
        write.notes.annotate(format!("{}/{key}", webhook.name), value);
    }
    for warning in &answer.warnings {
        write.notes.warn(warning);
    }
}

/// Applies an answer. The result tells whether the object changed.
fn apply(
    webhook: &Webhook,
    answer: &Answer,
    write: &mut Write<'_>,
    objects: &mut VersionedObjects,
    context: &Context<'_>,
    annotation: &str,
) -> Result<bool, Refusal> {
    record_remarks(webhook, answer, write);
    let outcome = match &answer.verdict {
        Verdict::Denied(status) => Err(Refusal::Status(status.clone())),
        Verdict::Allowed(None) => Ok(false),
        Verdict::Allowed(Some(patch)) => apply_patch(webhook, patch, objects, context).inspect(|_| {
            let operations: Value = serde_json::from_slice(patch).unwrap_or_default();
            let value = json!({"configuration": webhook.configuration, "webhook": webhook.name, "patch": operations, "patchType": "JSONPatch"});
            write.notes.annotate(format!("{PATCH_ANNOTATION}{annotation}"), value.to_string());
        }),
        Verdict::Failed(failure) => match webhook.failure_policy {
            FailurePolicy::Fail => Err(failed_closed(webhook, failure)),
            FailurePolicy::Ignore => {
                write.notes.annotate(format!("{FAILED_OPEN_ANNOTATION}{annotation}"), &webhook.name);
                Ok(false)
            }
        },
    };
    let is_mutated = outcome == Ok(true);
    let value = format!(
        r#"{{"configuration":{},"webhook":{},"mutated":{is_mutated}}}"#,
        Value::from(webhook.configuration.as_str()),
        Value::from(webhook.name.as_str())
    );
    write.notes.annotate(format!("{MUTATION_ANNOTATION}{annotation}"), value);
    outcome
}

fn apply_patch(
    webhook: &Webhook,
    patch: &[u8],
    objects: &mut VersionedObjects,
    context: &Context<'_>,
) -> Result<bool, Refusal> {
    let Some(object) = &objects.object else {
        return Err(Refusal::internal(format!(
            "admission webhook {} attempted to modify the object, which is not supported for this operation",
            Quoted(&webhook.name)
        )));
    };
    let patched = JsonPatch::parse(patch).and_then(|patch| patch.value.apply(object)).map_err(Refusal::internal)?;
    let Value::Object(patched) = patched else {
        return Err(Refusal::internal("the patched object is not a JSON object"));
    };
    let kind = objects.kind.borrowed();
    let patched = context.kinds.read_patched(patched, kind, false).map_err(Refusal::internal)?;
    let is_changed = !context.kinds.is_equal(object, &patched, kind);
    objects.object = Some(patched);
    objects.is_patched = true;
    objects.is_replaced = true;
    Ok(is_changed)
}
