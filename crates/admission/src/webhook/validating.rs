//! Validating webhooks: all matching ones are called in parallel, and all must agree.

use api::json::JsonObject;

use super::answers::PendingCall;
use super::conditions;
use super::configuration::{ConfigurationKind, FailurePolicy, Webhook};
use super::matching::{self, Invocation};
use super::mutating::{condition_result, failed_closed, prepare_call, record_remarks};
use super::response::{Answer, Verdict};
use crate::chain::{Context, Interruption, Write};
use crate::refusal::Refusal;

const FAILED_OPEN_ANNOTATION: &str = "failed-open.validating.webhook.admission.k8s.io/";

/// Calls the matching webhooks. Of several refusals the client gets that of the first webhook in order.
pub(crate) fn dispatch(write: &mut Write<'_>, context: &Context<'_>) -> Result<(), Interruption> {
    let object = write.object.as_ref();
    let candidates = context.webhooks.candidates(ConfigurationKind::Validating, write, object, context);
    if candidates.is_empty() || matching::is_exempt(&write.attributes) {
        return Ok(());
    }
    let mut answers: Vec<(&Webhook, Result<Answer, Refusal>)> = Vec::new();
    let mut calls: Vec<PendingCall> = Vec::new();
    for (_, webhook) in candidates {
        let found = matching::find_invocation(&webhook.criteria, write, write.object.as_ref(), context);
        let Some(invocation) = found.map_err(|refusal| write.refused(refusal))? else { continue };
        let converted;
        let objects = if invocation.kind.borrowed() == write.attributes.kind {
            [write.object.as_ref(), write.old_object]
        } else {
            converted = convert_both(write, &invocation, context).map_err(|refusal| write.refused(refusal))?;
            [converted[0].as_ref(), converted[1].as_ref()]
        };
        if !webhook.conditions.is_empty()
            && !condition_result(write, conditions::evaluate(webhook, &invocation, write, objects, context))?
        {
            continue;
        }
        match prepare_call(webhook, &invocation, write, objects) {
            Err(refusal) => answers.push((webhook, Err(refusal))),
            Ok(Err(failure)) => answers.push((webhook, Ok(Answer::failed(failure)))),
            Ok(Ok(call)) => match context.answers.get(&call) {
                Some(answer) => answers.push((webhook, Ok((**answer).clone()))),
                None => calls.push(call),
            },
        }
    }
    if !calls.is_empty() {
        return Err(Interruption::CallsNeeded(calls));
    }
    let mut first_refusal = None;
    for (index, (webhook, answer)) in answers.into_iter().enumerate() {
        let outcome = answer.and_then(|answer| judge(webhook, &answer, index, write));
        if let Err(refusal) = outcome {
            first_refusal.get_or_insert(refusal);
        }
    }
    first_refusal.map_or(Ok(()), |refusal| Err(write.refused(refusal)))
}

fn judge(webhook: &Webhook, answer: &Answer, index: usize, write: &mut Write<'_>) -> Result<(), Refusal> {
    record_remarks(webhook, answer, write);
    match &answer.verdict {
        Verdict::Allowed(_) => Ok(()),
        Verdict::Denied(status) => Err(Refusal::Status(status.clone())),
        Verdict::Failed(failure) => match webhook.failure_policy {
            FailurePolicy::Fail => Err(failed_closed(webhook, failure)),
            FailurePolicy::Ignore => {
                write.notes.annotate(format!("{FAILED_OPEN_ANNOTATION}round_0_index_{index}"), &webhook.name);
                Ok(())
            }
        },
    }
}

fn convert_both(
    write: &Write<'_>,
    invocation: &Invocation,
    context: &Context<'_>,
) -> Result<[Option<JsonObject>; 2], Refusal> {
    let convert = |object: Option<&JsonObject>| {
        let convert = |object| context.kinds.convert(object, invocation.kind.borrowed());
        object.map(convert).transpose().map_err(Refusal::internal)
    };
    Ok([convert(write.object.as_ref())?, convert(write.old_object)?])
}
