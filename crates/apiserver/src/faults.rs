//! What went wrong below, as the Status that a client is told.

use api::status::Reason;
use api::{GroupKind, GroupResource, Status};
use object::{Refusal, Subject};
use registry::{ReadError, WriteError};

/// What a request is about, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) resource: GroupResource<&'a str>,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

impl About<'_> {
    fn group_kind(&self) -> GroupKind<&str> {
        GroupKind { group: self.resource.group, kind: self.kind }
    }
}

/// A rule of one object was broken.
pub(crate) fn refused(refusal: Refusal, about: About<'_>) -> Status {
    match refusal {
        Refusal::BadRequest(message) => Status::bad_request(message),
        Refusal::Invalid { subject, errors } => match subject {
            Subject::Kind | Subject::Resource => Status::invalid(about.group_kind(), about.name, &errors),
            Subject::Options(kind) => Status::invalid(GroupKind { group: "meta.k8s.io", kind }, "", &errors),
            Subject::Scale => Status::invalid(GroupKind { group: "autoscaling", kind: "Scale" }, about.name, &errors),
            Subject::Patch => Status::invalid(GroupKind { group: "", kind: "" }, "", &errors),
        },
        Refusal::Conflict { reason, .. } => Status::conflict(about.resource, about.name, reason),
        Refusal::TooLarge(message) => Status::request_entity_too_large(message),
        Refusal::Unprocessable(message) => Status { message, reason: Reason::Invalid, code: 422, ..Status::default() },
        Refusal::Unclassified(message) => Status::internal_error(message),
    }
}

/// A read had no answer. None of these is an absence.
pub(crate) fn unread(error: ReadError) -> Status {
    match error {
        ReadError::Store(store::Error::Compacted { .. }) => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        ReadError::Store(store::Error::Future { requested, current })
        | ReadError::TooLarge { wanted: requested, current } => {
            Status::too_large_resource_version(requested.0, current.0, 1)
        }
        ReadError::Store(error) => {
            tracing::warn!(%error, "storage cannot be read");
            Status::service_unavailable("storage cannot be read at the moment").with_retry_after(1)
        }
        ReadError::Behind { .. } => Status::service_unavailable(error.to_string()).with_retry_after(1),
        ReadError::Undecodable { .. } => Status::storage_read_error(error.to_string()),
        ReadError::Stopped(_) => Status::service_unavailable("apiserver is shutting down").with_retry_after(1),
    }
}

/// A write did not happen, or may not have.
pub(crate) fn unwritten(error: WriteError<Status>) -> Status {
    match error {
        WriteError::Refused(status) => status,
        WriteError::Held(held) => Status::service_unavailable(held.reason)
            .with_cause(peering::status::CAUSE_PEER_NOT_READY, "nothing was executed")
            .with_retry_after(1),
        WriteError::Read(error) => unread(error),
        WriteError::Store(store::Error::TooLarge { reason }) => Status::request_entity_too_large(reason),
        // Without Retry-After, because clients repeat any verb on it and this one may have happened.
        WriteError::Store(error @ store::Error::Unresolved { .. }) => {
            tracing::warn!(%error, "the outcome of a write is unknown");
            Status::service_unavailable("the outcome of the write is unknown: it may have been stored")
        }
        WriteError::Store(error) => {
            tracing::warn!(%error, "storage did not take a write");
            Status::service_unavailable("storage cannot be written at the moment").with_retry_after(1)
        }
        WriteError::Moved | WriteError::Busy => Status::service_unavailable(error.to_string()).with_retry_after(1),
    }
}
