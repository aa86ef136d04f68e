//! Constructors for Kubernetes' error responses, with reason, code and message.

use std::fmt::Display;

use super::{Status, StatusCause, StatusDetails, StatusOutcome, StatusReason};
use crate::field_error::FieldError;
use crate::names::{GroupKind, GroupResource};
use crate::quote::Quoted;
use crate::target::RouteMismatch;

impl Status {
    /// 404: the object does not exist.
    pub fn not_found(resource: GroupResource<&str>, name: &str) -> Self {
        let message = format!("{resource} {} not found", Quoted(name));
        Self::failure(404, StatusReason::NotFound, message).with_object_details(resource, name)
    }

    /// 404: no route matches the path. Unlike `not_found`, it does not imply that the resource exists.
    pub fn path_not_found() -> Self {
        Self::failure(404, StatusReason::NotFound, "the server could not find the requested resource")
            .with_empty_details()
    }

    /// 405: the path supports other methods.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(405, StatusReason::MethodNotAllowed, message).with_empty_details()
    }

    /// The response of kube-apiserver to a request that matches no route of its resource.
    pub fn for_route_mismatch(mismatch: RouteMismatch) -> Self {
        match mismatch {
            RouteMismatch::NotFound => Self::path_not_found(),
            RouteMismatch::MethodNotAllowed => Self::method_not_allowed(),
            RouteMismatch::NameRequired => Self::bad_request("name must be provided"),
            RouteMismatch::NamespaceRequired => Self::bad_request("Namespace parameter required."),
        }
    }

    /// 422 for a patch that cannot be applied. kube-apiserver does not say why.
    pub fn unprocessable() -> Self {
        Self::failure(422, StatusReason::Invalid, "the server rejected our request due to an error in our request")
            .with_empty_details()
    }

    /// 409: an object with that name exists.
    pub fn already_exists(resource: GroupResource<&str>, name: &str) -> Self {
        let message = format!("{resource} {} already exists", Quoted(name));
        Self::failure(409, StatusReason::AlreadyExists, message).with_object_details(resource, name)
    }

    /// 409: every generated name was taken.
    pub fn generate_name_conflict(resource: GroupResource<&str>, name: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            Quoted(name)
        );
        Self::failure(409, StatusReason::AlreadyExists, message)
            .with_object_details(resource, name)
            .with_retry_after(retry_after_seconds)
    }

    /// 401: authentication failed.
    pub fn unauthorized(reason: &str) -> Self {
        let message = if reason.is_empty() { "not authorized" } else { reason };
        Self::failure(401, StatusReason::Unauthorized, message)
    }

    /// 403: not permitted. Resource and name may be empty.
    pub fn forbidden(resource: GroupResource<&str>, name: &str, reason: impl Display) -> Self {
        let message = if resource.group.is_empty() && resource.resource.is_empty() {
            format!("forbidden: {reason}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {reason}")
        } else {
            format!("{resource} {} is forbidden: {reason}", Quoted(name))
        };
        Self::failure(403, StatusReason::Forbidden, message).with_object_details(resource, name)
    }

    /// 409: the object was modified since it was read, or a precondition failed.
    pub fn conflict(resource: GroupResource<&str>, name: &str, reason: impl Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {reason}", Quoted(name));
        Self::failure(409, StatusReason::Conflict, message).with_object_details(resource, name)
    }

    /// 410: the resourceVersion or continue token is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, StatusReason::Expired, message)
    }

    /// 422: the object failed validation.
    pub fn invalid(kind: GroupKind<&str>, name: &str, errors: &[FieldError]) -> Self {
        let message = match FieldError::aggregate(errors) {
            None => format!("{kind} {} is invalid", Quoted(name)),
            Some(errors) => format!("{kind} {} is invalid: {errors}", Quoted(name)),
        };
        let mut status = Self::failure(422, StatusReason::Invalid, message);
        let causes = errors.iter().map(StatusCause::from).collect();
        let (group, kind, name) = (kind.group.to_owned(), kind.kind.to_owned(), name.to_owned());
        status.details = Some(Box::new(StatusDetails { name, group, kind, causes, ..StatusDetails::default() }));
        status
    }

    /// 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, StatusReason::BadRequest, message)
    }

    /// 429: retry after some seconds.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::failure(429, StatusReason::TooManyRequests, message).with_retry_after(retry_after_seconds)
    }

    /// 503: temporarily unavailable.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, StatusReason::ServiceUnavailable, message)
    }

    /// 405: the resource does not support the action.
    pub fn method_not_supported(resource: GroupResource<&str>, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind {}", Quoted(&resource.to_string()));
        Self::failure(405, StatusReason::MethodNotAllowed, message).with_object_details(resource, "")
    }

    /// 500: an internal error.
    pub fn internal_error(error: impl Display) -> Self {
        Self::failure(500, StatusReason::InternalError, format!("Internal error occurred: {error}"))
            .with_cause("", error.to_string())
    }

    /// 500: a stored object cannot be decoded.
    pub fn storage_read_error(message: impl Into<String>) -> Self {
        Self::failure(500, StatusReason::StorageReadError, message)
    }

    /// 504: the operation timed out and may still take effect.
    pub fn timeout(message: impl Display, retry_after_seconds: u32) -> Self {
        Self::failure(504, StatusReason::Timeout, format!("Timeout: {message}")).with_retry_after(retry_after_seconds)
    }

    /// 504: the requested revision is newer than this server's.
    pub fn too_large_resource_version(wanted: u64, current: u64, retry_after_seconds: u32) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        Self::timeout(message, retry_after_seconds).with_cause("ResourceVersionTooLarge", "Too large resource version")
    }

    /// 413: the body is too large.
    pub fn request_entity_too_large(message: impl Display) -> Self {
        Self::failure(413, StatusReason::RequestEntityTooLarge, format!("Request entity too large: {message}"))
    }

    /// 406: the client accepts none of the encodings.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::failure(406, StatusReason::NotAcceptable, message)
    }

    /// 415: the body has an unknown encoding.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::failure(415, StatusReason::UnsupportedMediaType, message)
    }

    /// 200: the object is deleted.
    pub fn deleted(resource: GroupResource<&str>, name: &str, uid: &str) -> Self {
        let mut status =
            Self { outcome: StatusOutcome::Success, ..Self::default() }.with_object_details(resource, name);
        uid.clone_into(&mut status.details.get_or_insert_default().uid);
        status
    }

    fn failure(code: u16, reason: StatusReason, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), ..Self::default() }
    }

    fn with_object_details(mut self, resource: GroupResource<&str>, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        name.clone_into(&mut details.name);
        resource.group.clone_into(&mut details.group);
        resource.resource.clone_into(&mut details.kind);
        self
    }

    fn with_empty_details(mut self) -> Self {
        self.details.get_or_insert_default();
        self
    }
}

impl From<&FieldError> for StatusCause {
    fn from(error: &FieldError) -> Self {
        Self { reason: error.kind().reason().into(), message: error.body(), field: error.field().to_owned() }
    }
}
