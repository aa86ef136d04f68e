//! Maps errors of the registry, of object rules and of access control to the Status that the client receives.

mod access;

pub(crate) use access::{
    status_for_denied, status_for_escalation, status_for_impersonation, status_for_review, status_for_token_request,
};

use api::status::{StatusOutcome, StatusReason};
use api::target::ResourceTarget;
use api::{FieldError, GroupKind, GroupResource, Status};
use object::{Rejection, RejectionSubject};
use registry::{ReadError, WriteError};

/// The object that a Status message names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusContext<'a> {
    pub(crate) resource: GroupResource<&'a str>,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

impl StatusContext<'_> {
    fn group_kind(&self) -> GroupKind<&str> {
        // Kubernetes keeps events of both groups as those of the core group, and its messages show it.
        let group = if self.resource.group == "events.k8s.io" { "" } else { self.resource.group };
        GroupKind { group, kind: self.kind }
    }
}

/// The Status of an object that breaks a rule.
pub(crate) fn status_for_rejection(rejection: Rejection, status_context: StatusContext<'_>) -> Status {
    match rejection {
        Rejection::BadRequest(message) => Status::bad_request(message),
        Rejection::Forbidden(message) => Status::forbidden(status_context.resource, status_context.name, message),
        Rejection::Invalid { subject, errors } => match subject {
            RejectionSubject::Kind => Status::invalid(status_context.group_kind(), status_context.name, &errors),
            RejectionSubject::Resource => {
                let GroupResource { group, resource: kind } = status_context.resource;
                Status::invalid(GroupKind { group, kind }, status_context.name, &errors)
            }
            RejectionSubject::Options(kind) => status_for_options(kind, &errors),
            RejectionSubject::Scale => {
                Status::invalid(GroupKind { group: "autoscaling", kind: "Scale" }, status_context.name, &errors)
            }
            RejectionSubject::Patch => Status::invalid(GroupKind { group: "", kind: "" }, "", &errors),
        },
        Rejection::Conflict { subject: RejectionSubject::Kind, reason } => {
            let GroupKind { group, kind: resource } = status_context.group_kind();
            Status::conflict(GroupResource { group, resource }, status_context.name, reason)
        }
        Rejection::Conflict { reason, .. } => Status::conflict(status_context.resource, status_context.name, reason),
        Rejection::TooLarge(message) => Status::request_entity_too_large(message),
        Rejection::Unprocessable(_) => Status::unprocessable(),
        // Kubernetes gives such errors no reason.
        Rejection::Unclassified(message) => Status { message, code: 500, ..Status::default() },
    }
}

/// The Status of a failed read. Never 404: a failed read does not prove absence.
pub(crate) fn status_for_read_error(error: ReadError) -> Status {
    match error {
        ReadError::Store(store::Error::Compacted { .. }) => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        ReadError::Store(store::Error::FutureRevision { requested, current })
        | ReadError::RevisionTooLarge { requested, current } => {
            Status::too_large_resource_version(requested.0, current.0, 1)
        }
        ReadError::Store(error) => {
            tracing::warn!(%error, "storage read failed");
            Status::service_unavailable("storage cannot be read at the moment").with_retry_after(1)
        }
        ReadError::CacheBehind { .. } => Status::service_unavailable(error.to_string()).with_retry_after(1),
        ReadError::Undecodable { .. } => Status::storage_read_error(error.to_string()),
        ReadError::Stopped(_) => edge::error_response::error_status(edge::Error::ShuttingDown),
    }
}

/// The Status of a failed write. It carries `Retry-After` only if nothing was written.
pub(crate) fn status_for_write_error(error: WriteError<Status>) -> Status {
    match error {
        WriteError::Refused(status) => status,
        WriteError::BarrierClosed(held) => Status::service_unavailable(held.reason)
            .with_cause(api::status::CAUSE_PEER_NOT_READY, "nothing was executed")
            .with_retry_after(1),
        WriteError::Read(error) => status_for_read_error(error),
        WriteError::Store(store::Error::TooLarge { reason }) => Status::request_entity_too_large(reason),
        // No Retry-After: clients would retry any verb, but the write may have been executed.
        WriteError::Store(error @ store::Error::OutcomeUnknown { .. }) => {
            tracing::warn!(%error, "write outcome is unknown");
            Status::service_unavailable("the outcome of the write is unknown: it may have been stored")
        }
        WriteError::Store(error) => {
            tracing::warn!(%error, "storage write failed");
            Status::service_unavailable("storage cannot be written at the moment").with_retry_after(1)
        }
        WriteError::ConditionChanged { .. }
        | WriteError::CompanionChanged { .. }
        | WriteError::ComputationRefused
        | WriteError::TooManyConflicts => Status::service_unavailable(error.to_string()).with_retry_after(1),
    }
}

/// The Status of invalid query options of a kind such as `ListOptions`.
pub(crate) fn status_for_options(kind: &str, errors: &[FieldError]) -> Status {
    Status::invalid(GroupKind { group: "meta.k8s.io", kind }, "", errors)
}

/// The Status of a request for a resource that discovery lists, as in every server of the release, but this server does
/// not implement.
pub(crate) fn status_for_unimplemented(target: &ResourceTarget<'_>) -> Status {
    let resource = match &*target.subresource {
        "" => target.resource.to_string(),
        subresource => format!("{}/{subresource}", target.resource),
    };
    let resource = GroupResource { group: &*target.group, resource: &*resource };
    Status {
        message: format!(
            "{} of {resource} is not built in this server, and no other server has it",
            target.verb.as_str()
        ),
        reason: StatusReason::MethodNotAllowed,
        code: 501,
        ..Status::default()
    }
}

/// The Status of an eviction of a pod that several PodDisruptionBudgets select. Like kube-apiserver's it has no reason.
pub(crate) fn status_for_ambiguous_budgets() -> Status {
    let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    Status { message: message.to_owned(), code: 500, ..Status::default() }
}

/// The Status of a created subresource that returns no object.
pub(crate) fn created_status() -> Status {
    Status { outcome: StatusOutcome::Success, code: 201, ..Status::default() }
}
