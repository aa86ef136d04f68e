//! Every failure Kubernetes has a constructor for, with its reason, its code and its words.

use std::fmt::Display;

use super::{Cause, Details, Outcome, Reason, Status};
use crate::field_error::FieldError;
use crate::names::{GroupKind, GroupResource};
use crate::quote::Quoted;
use crate::target::Misfit;

impl Status {
    /// 404: the object does not exist.
    pub fn not_found(resource: GroupResource<&str>, name: &str) -> Self {
        let message = format!("{resource} {} not found", Quoted(name));
        Self::failure(404, Reason::NotFound, message).about(resource, name)
    }

    /// 404: no server knows the path. A plain `not_found` would promise that the resource exists.
    pub fn path_not_found() -> Self {
        Self::failure(404, Reason::NotFound, "the server could not find the requested resource").with_details()
    }

    /// 405: other methods are allowed on the path.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(405, Reason::MethodNotAllowed, message).with_details()
    }

    /// What kube-apiserver answers to a request that fits no route of its resource.
    pub fn of_misfit(misfit: Misfit) -> Self {
        match misfit {
            Misfit::NotFound => Self::path_not_found(),
            Misfit::MethodNotAllowed => Self::method_not_allowed(),
            Misfit::NameRequired => Self::bad_request("name must be provided"),
            Misfit::NamespaceRequired => Self::bad_request("Namespace parameter required."),
        }
    }

    /// 409: an object of that name exists.
    pub fn already_exists(resource: GroupResource<&str>, name: &str) -> Self {
        let message = format!("{resource} {} already exists", Quoted(name));
        Self::failure(409, Reason::AlreadyExists, message).about(resource, name)
    }

    /// 409: every generated name was taken.
    pub fn generate_name_conflict(resource: GroupResource<&str>, name: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            Quoted(name)
        );
        Self::failure(409, Reason::AlreadyExists, message).about(resource, name).with_retry_after(retry_after_seconds)
    }

    /// 401: who you are is not known.
    pub fn unauthorized(reason: &str) -> Self {
        let message = if reason.is_empty() { "not authorized" } else { reason };
        Self::failure(401, Reason::Unauthorized, message)
    }

    /// 403: you may not. Resource and name may be empty.
    pub fn forbidden(resource: GroupResource<&str>, name: &str, why: impl Display) -> Self {
        let message = if resource.group.is_empty() && resource.resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", Quoted(name))
        };
        Self::failure(403, Reason::Forbidden, message).about(resource, name)
    }

    /// 409: the object changed since it was read, or a precondition does not hold.
    pub fn conflict(resource: GroupResource<&str>, name: &str, why: impl Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", Quoted(name));
        Self::failure(409, Reason::Conflict, message).about(resource, name)
    }

    /// 409: other field managers own what was applied.
    pub fn apply_conflict(causes: Vec<Cause>, message: impl Into<String>) -> Self {
        let mut status = Self::failure(409, Reason::Conflict, message);
        status.details.get_or_insert_default().causes = causes;
        status
    }

    /// 410: it was there and is no more.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::failure(410, Reason::Gone, message)
    }

    /// 410: the resource version or continue token is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, Reason::Expired, message)
    }

    /// 422: the object breaks rules.
    pub fn invalid(kind: GroupKind<&str>, name: &str, errors: &[FieldError]) -> Self {
        let message = match FieldError::aggregate(errors) {
            None => format!("{kind} {} is invalid", Quoted(name)),
            Some(errors) => format!("{kind} {} is invalid: {errors}", Quoted(name)),
        };
        let mut status = Self::failure(422, Reason::Invalid, message);
        let causes = errors.iter().map(Cause::from).collect();
        let (group, kind, name) = (kind.group.to_owned(), kind.kind.to_owned(), name.to_owned());
        status.details = Some(Box::new(Details { name, group, kind, causes, ..Details::default() }));
        status
    }

    /// 400: the request itself makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, Reason::BadRequest, message)
    }

    /// 429: slow down, and try again after some seconds.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::failure(429, Reason::TooManyRequests, message).with_retry_after(retry_after_seconds)
    }

    /// 429: slow down, without a word about when.
    pub fn too_many_requests_error(message: impl Display) -> Self {
        Self::failure(429, Reason::TooManyRequests, format!("Too many requests: {message}"))
    }

    /// 503: not now.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, Reason::ServiceUnavailable, message)
    }

    /// 405: the resource does not do that.
    pub fn method_not_supported(resource: GroupResource<&str>, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind {}", Quoted(&resource.to_string()));
        Self::failure(405, Reason::MethodNotAllowed, message).about(resource, "")
    }

    /// 500: a passing fault; nothing was executed, and the client should try again.
    pub fn server_timeout(resource: GroupResource<&str>, operation: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        Self::failure(500, Reason::ServerTimeout, message)
            .about(resource, operation)
            .with_retry_after(retry_after_seconds)
    }

    /// 500: as [`Status::server_timeout`], where only the kind is known.
    pub fn server_timeout_for_kind(kind: GroupKind<&str>, operation: &str, retry_after_seconds: u32) -> Self {
        let resource = GroupResource { group: kind.group, resource: kind.kind };
        Self::server_timeout(resource, operation, retry_after_seconds)
    }

    /// 500: our fault.
    pub fn internal_error(error: impl Display) -> Self {
        Self::failure(500, Reason::InternalError, format!("Internal error occurred: {error}"))
            .with_cause("", error.to_string())
    }

    /// 500: a stored object cannot be read.
    pub fn storage_read_error(message: impl Into<String>) -> Self {
        Self::failure(500, Reason::StorageReadError, message)
    }

    /// 504: it took too long; it may still happen.
    pub fn timeout(message: impl Display, retry_after_seconds: u32) -> Self {
        Self::failure(504, Reason::Timeout, format!("Timeout: {message}")).with_retry_after(retry_after_seconds)
    }

    /// 504: the client has seen a later revision than this server.
    pub fn too_large_resource_version(wanted: u64, current: u64, retry_after_seconds: u32) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        Self::timeout(message, retry_after_seconds).with_cause("ResourceVersionTooLarge", "Too large resource version")
    }

    /// 413: the body is too big.
    pub fn request_entity_too_large(message: impl Display) -> Self {
        Self::failure(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {message}"))
    }

    /// 406: no encoding that the client accepts.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::failure(406, Reason::NotAcceptable, message)
    }

    /// 406: no encoding that the client accepts for the kind it asked for.
    pub fn not_acceptable_conversion(kind: &str, accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        let message = format!("only the following media types are accepted when converting to {kind}: {accepted}");
        Self::failure(406, Reason::NotAcceptable, message)
    }

    /// 415: the body has an unknown encoding.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::failure(415, Reason::UnsupportedMediaType, message)
    }

    /// What client-go makes of a response that is no Status, for a server that reads another server's answers.
    pub fn unrecognized(code: u16, response: &UnrecognizedResponse<'_>) -> Self {
        let UnrecognizedResponse { verb, resource, name, body, retry_after_seconds } = *response;
        let (reason, message) = words_for(code, verb, body);
        let verb = verb.to_lowercase();
        let message = match (resource.group.is_empty() && resource.resource.is_empty(), name) {
            (true, _) => message,
            (false, "") => format!("{message} ({verb} {resource})"),
            (false, name) => format!("{message} ({verb} {resource} {name})"),
        };
        Self::failure(code, reason, message)
            .about(resource, name)
            .with_cause("UnexpectedServerResponse", body)
            .with_retry_after(retry_after_seconds)
    }

    /// 200: the object is gone.
    pub fn deleted(resource: GroupResource<&str>, name: &str, uid: &str) -> Self {
        let mut status = Self { outcome: Outcome::Success, ..Self::default() }.about(resource, name);
        uid.clone_into(&mut status.details.get_or_insert_default().uid);
        status
    }

    fn failure(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), ..Self::default() }
    }

    fn about(mut self, resource: GroupResource<&str>, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        name.clone_into(&mut details.name);
        resource.group.clone_into(&mut details.group);
        resource.resource.clone_into(&mut details.kind);
        self
    }

    fn with_details(mut self) -> Self {
        self.details.get_or_insert_default();
        self
    }
}

impl From<&FieldError> for Cause {
    fn from(error: &FieldError) -> Self {
        Self { reason: error.kind().reason().into(), message: error.body(), field: error.field().to_owned() }
    }
}

/// A response that is no Status: what was asked, and what came back.
#[derive(Clone, Copy, Debug)]
pub struct UnrecognizedResponse<'a> {
    /// The HTTP method.
    pub verb: &'a str,
    /// What was asked for; may be empty.
    pub resource: GroupResource<&'a str>,
    /// The object asked for; may be empty.
    pub name: &'a str,
    /// The body, as far as it was read.
    pub body: &'a str,
    /// The `Retry-After` header, or 0.
    pub retry_after_seconds: u32,
}

fn words_for(code: u16, verb: &str, body: &str) -> (Reason, String) {
    let (reason, words) = match code {
        400 => (Reason::BadRequest, "the server rejected our request for an unknown reason"),
        401 => (Reason::Unauthorized, "the server has asked for the client to provide credentials"),
        403 => (Reason::Forbidden, body),
        404 => (Reason::NotFound, "the server could not find the requested resource"),
        405 => (Reason::MethodNotAllowed, "the server does not allow this method on the requested resource"),
        406 if matches!(body, "" | "unknown") => {
            (Reason::NotAcceptable, "the server was unable to respond with a content type that the client supports")
        }
        406 => (Reason::NotAcceptable, body),
        409 if verb == "POST" => (Reason::AlreadyExists, "the server reported a conflict"),
        409 => (Reason::Conflict, "the server reported a conflict"),
        415 => (Reason::UnsupportedMediaType, body),
        422 => (Reason::Invalid, "the server rejected our request due to an error in our request"),
        429 => {
            (Reason::TooManyRequests, "the server has received too many requests and has asked us to try again later")
        }
        503 => (Reason::ServiceUnavailable, "the server is currently unable to handle the request"),
        504 => (
            Reason::Timeout,
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        500.. => {
            let message =
                format!("an error on the server ({}) has prevented the request from succeeding", Quoted(body));
            return (Reason::InternalError, message);
        }
        _ => {
            let message =
                format!("the server responded with the status code {code} but did not return more information");
            return (Reason::Unknown, message);
        }
    };
    (reason, words.to_owned())
}
