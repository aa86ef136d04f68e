//! What a webhook's answer means.

use std::collections::BTreeMap;

use api::Status;
use api::json::JsonObject;
use api::quote::Quoted;
use api::status::{StatusDetails, StatusReason};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use object::unstructured::{flag, integer, nested_object, text, texts};
use serde_json::Value;

use super::configuration::{ConfigurationKind, Webhook};

/// The least code of a response that refuses a write.
const REFUSAL_CODE_MIN: u16 = 400;
/// The only type of patches that Kubernetes knows.
const JSON_PATCH: &str = "JSONPatch";

/// A call that brought no usable answer; whether the write goes on depends on the webhook's failure policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// Follows `failed calling webhook "<name>": `.
    pub reason: String,
    /// For metrics.
    pub code: u16,
}

/// A webhook's answer, checked against what was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub(crate) verdict: Verdict,
    pub(crate) warnings: Vec<String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// With the operations of a JSON patch, or nothing.
    Allowed(Option<Vec<u8>>),
    Denied(Box<Status>),
    Failed(CallFailure),
}

impl CallFailure {
    /// A call that failed before an answer came. `error` is the client's text.
    pub fn not_called(error: impl std::fmt::Display, code: u16) -> Self {
        Self { reason: format!("failed to call webhook: {error}"), code }
    }

    fn invalid(error: impl std::fmt::Display) -> Self {
        Self { reason: format!("received invalid webhook response: {error}"), code: 503 }
    }
}

impl Answer {
    /// Reads the body of a successful response to a review with `uid`.
    pub(crate) fn read(webhook: &Webhook, review_version: &str, uid: &str, body: Result<&[u8], CallFailure>) -> Self {
        let parsed = body.and_then(|body| {
            let parsed: Result<JsonObject, _> = serde_json::from_slice(body);
            parsed.map_err(|error| CallFailure::not_called(error, 503))
        });
        let answer = parsed.and_then(|review| match review_version {
            "v1" => read_v1(webhook, uid, &review),
            _ => read_v1beta1(webhook, &review),
        });
        answer.unwrap_or_else(Self::failed)
    }

    pub(crate) fn failed(failure: CallFailure) -> Self {
        Self { verdict: Verdict::Failed(failure), warnings: Vec::new(), annotations: BTreeMap::new() }
    }

    /// The status code for metrics: 200 if the write may go on.
    pub fn code(&self) -> u16 {
        match &self.verdict {
            Verdict::Allowed(_) => 200,
            Verdict::Denied(status) => status.code,
            Verdict::Failed(failure) => failure.code,
        }
    }

    /// Why there is no usable answer.
    pub fn failure(&self) -> Option<&CallFailure> {
        match &self.verdict {
            Verdict::Failed(failure) => Some(failure),
            Verdict::Allowed(_) | Verdict::Denied(_) => None,
        }
    }

    /// True if the webhook refuses the write.
    pub fn is_denial(&self) -> bool {
        matches!(self.verdict, Verdict::Denied(_))
    }
}

fn read_v1(webhook: &Webhook, uid: &str, review: &JsonObject) -> Result<Answer, CallFailure> {
    let Some(response) = nested_object(review, &["response"]) else {
        return Err(CallFailure::invalid("webhook response was absent"));
    };
    let given = text(response, &["uid"]);
    if given != uid {
        return Err(CallFailure::invalid(format!("expected response.uid={}, got {}", Quoted(uid), Quoted(given))));
    }
    let (api_version, kind) = (text(review, &["apiVersion"]), text(review, &["kind"]));
    if (api_version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        return Err(CallFailure::invalid(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={kind}"
        )));
    }
    let patch = read_patch(response)?;
    let patch_type = response.get("patchType").and_then(Value::as_str);
    match (webhook.kind, patch.is_empty(), patch_type) {
        (ConfigurationKind::Validating, false, _) => {
            return Err(CallFailure::invalid("validating webhook may not return response.patch"));
        }
        (ConfigurationKind::Validating, true, Some(_)) => {
            return Err(CallFailure::invalid("validating webhook may not return response.patchType"));
        }
        (ConfigurationKind::Mutating, false, None) => {
            return Err(CallFailure::invalid("webhook returned response.patch but not response.patchType"));
        }
        (ConfigurationKind::Mutating, true, Some(_)) => {
            return Err(CallFailure::invalid("webhook returned response.patchType but not response.patch"));
        }
        (ConfigurationKind::Mutating, false, Some("")) => {
            return Err(CallFailure::invalid("webhook returned invalid response.patchType of \"\""));
        }
        (ConfigurationKind::Mutating | ConfigurationKind::Validating, _, _) => {}
    }
    Ok(answer(webhook, response, patch, patch_type.unwrap_or_default()))
}

/// Neither kind nor uid were checked in this version, and every patch is a JSON patch.
fn read_v1beta1(webhook: &Webhook, review: &JsonObject) -> Result<Answer, CallFailure> {
    let Some(response) = nested_object(review, &["response"]) else {
        return Err(CallFailure::invalid("webhook response was absent"));
    };
    let patch = match webhook.kind {
        ConfigurationKind::Mutating => read_patch(response)?,
        ConfigurationKind::Validating => Vec::new(),
    };
    Ok(answer(webhook, response, patch, JSON_PATCH))
}

fn read_patch(response: &JsonObject) -> Result<Vec<u8>, CallFailure> {
    match response.get("patch") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(patch) => patch
            .as_str()
            .and_then(|text| BASE64_STANDARD.decode(text.replace(['\r', '\n'], "")).ok())
            .ok_or_else(|| CallFailure::not_called("response.patch is not base64", 503)),
    }
}

fn answer(webhook: &Webhook, response: &JsonObject, patch: Vec<u8>, patch_type: &str) -> Answer {
    let verdict = if !flag(response, &["allowed"]) {
        Verdict::Denied(Box::new(denial(webhook, nested_object(response, &["status"]))))
    } else if patch.is_empty() {
        Verdict::Allowed(None)
    } else {
        check_patch(patch, patch_type)
    };
    let annotations = nested_object(response, &["auditAnnotations"]).into_iter().flatten();
    Answer {
        verdict,
        warnings: texts(response, &["warnings"]).map(str::to_owned).collect(),
        annotations: annotations
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
    }
}

/// Reads the operations of a patch. An empty list is no patch.
fn check_patch(patch: Vec<u8>, patch_type: &str) -> Verdict {
    match object::patch::JsonPatch::parse(&patch) {
        Err(rejection) => {
            let text = rejection.to_string();
            let text = text.strip_prefix("error decoding patch: ").unwrap_or(&text);
            let text = text.replace("[]handlers.jsonPatchOp", "jsonpatch.Patch");
            let reason = format!("received undecodable patch in webhook response: {text}");
            Verdict::Failed(CallFailure { reason, code: 503 })
        }
        Ok(_) if serde_json::from_slice::<Vec<Value>>(&patch).is_ok_and(|operations| operations.is_empty()) => {
            Verdict::Allowed(None)
        }
        Ok(_) if patch_type != JSON_PATCH => {
            let reason = format!("unsupported patch type {}", Quoted(patch_type));
            Verdict::Failed(CallFailure { reason, code: 400 })
        }
        Ok(_) => Verdict::Allowed(Some(patch)),
    }
}

/// The response to the client: the webhook's status, with a message that names the webhook.
fn denial(webhook: &Webhook, status: Option<&JsonObject>) -> Status {
    let field = |name| status.map(|status| text(status, &[name])).unwrap_or_default();
    let denied = format!("admission webhook {} denied the request", Quoted(&webhook.name));
    let code = status.and_then(|status| integer(status, &["code"])).and_then(|code| u16::try_from(code).ok());
    let details = status.and_then(|status| status.get("details")).filter(|details| details.is_object());
    Status {
        message: match (field("message"), field("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        },
        reason: StatusReason::from(field("reason")),
        code: code.unwrap_or_default().max(REFUSAL_CODE_MIN),
        details: details
            .and_then(|details| serde_json::from_value::<StatusDetails>(details.clone()).ok())
            .map(Box::new),
        ..Status::default()
    }
}
