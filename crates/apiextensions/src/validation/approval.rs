//! Groups of the Kubernetes community, which need an annotation about the approval of their API.

use api::FieldError;
use api::json::JsonObject;

use super::json_fields::{object, text};
use super::webhook_url::parse_request_uri;

/// Names where the API was approved, or begins with `unapproved`.
pub const APPROVED_ANNOTATION: &str = "api-approved.kubernetes.io";

const PROTECTED_DOMAINS: [&str; 2] = ["k8s.io", "kubernetes.io"];

/// The state of the approval of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    /// The annotation is neither a URL nor a reason.
    Invalid,
    /// The annotation is a URL.
    Approved,
    /// The annotation begins with `unapproved`.
    Bypassed,
    /// No annotation.
    Missing,
}

/// True if definitions in the group need the annotation.
pub fn is_protected_group(group: &str) -> bool {
    let is_within =
        |domain: &&str| group.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    PROTECTED_DOMAINS.iter().any(|domain| is_within(domain))
}

/// The state of the approval, and the text that conditions and errors have about it.
pub fn approval_state(definition: &JsonObject) -> (ApprovalState, String) {
    let annotation = annotation(definition);
    let is_url = || parse_request_uri(annotation).is_some_and(|url| !url.host.is_empty() && !url.scheme.is_empty());
    let required = format!("protected groups must have approval annotation \"{APPROVED_ANNOTATION}\"");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    if annotation.is_empty() {
        (ApprovalState::Missing, format!("{required}, {see}"))
    } else if annotation.starts_with("unapproved") {
        (ApprovalState::Bypassed, format!("not approved: {}", api::quote::Quoted(annotation)))
    } else if is_url() {
        (ApprovalState::Approved, format!("approved in {annotation}"))
    } else {
        let reason = format!("{required} with either a URL or a reason starting with \"unapproved\", {see}");
        (ApprovalState::Invalid, reason)
    }
}

/// The error of a definition in a protected group. An update may leave the state as it was.
pub(super) fn approval_error(group: &str, old: Option<&JsonObject>, new: &JsonObject) -> Option<FieldError> {
    if !is_protected_group(group) {
        return None;
    }
    let (state, reason) = approval_state(new);
    if old.is_some_and(|old| approval_state(old).0 == state) {
        return None;
    }
    let path = format!("metadata.annotations[{APPROVED_ANNOTATION}]");
    match state {
        ApprovalState::Approved | ApprovalState::Bypassed => None,
        ApprovalState::Missing => Some(FieldError::required(path, reason)),
        ApprovalState::Invalid => Some(FieldError::invalid(path, annotation(new), reason)),
    }
}

fn annotation(definition: &JsonObject) -> &str {
    let annotations = object(definition, "metadata").and_then(|metadata| object(metadata, "annotations"));
    annotations.map_or("", |annotations| text(annotations, APPROVED_ANNOTATION))
}
