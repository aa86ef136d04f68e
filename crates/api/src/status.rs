//! Kubernetes' `Status`: the body of error responses and of some successful ones.
//!
//! Clients check `reason` first and `code` if the reason is unknown; the constructors in `constructors.rs` set both.
//! Fields are written in Go's order and omitted if empty.

mod constructors;
mod execution;
mod reason;

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};

pub use execution::{CAUSE_NOT_SERVED_BY_PEER, CAUSE_PEER_NOT_READY};
pub use reason::StatusReason;

use crate::json::to_go_json;
use crate::metadata::ListMeta;
use crate::wire::null_is_default;

/// A `meta/v1` Status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Status {
    /// Contains a new continue token if an old one expired; otherwise empty.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The `status` field.
    #[serde(default, rename = "status")]
    pub outcome: StatusOutcome,
    /// For humans.
    #[serde(default, deserialize_with = "null_is_default")]
    pub message: String,
    /// For programs.
    #[serde(default, deserialize_with = "null_is_default")]
    pub reason: StatusReason,
    /// The object or fields concerned.
    #[serde(default)]
    pub details: Option<Box<StatusDetails>>,
    /// The HTTP status; if 0, see [`Status::http_code`].
    #[serde(default, deserialize_with = "null_is_default")]
    pub code: u16,
    /// Texts of the `Warning` headers that the response carries. No part of the body.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// Whether the operation succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatusOutcome {
    /// The operation failed.
    #[default]
    Failure,
    /// The operation succeeded.
    Success,
}

/// The object or fields that a [`Status`] concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "str::is_empty")]
    pub name: String,
    /// The group of the resource or kind.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "str::is_empty")]
    pub group: String,
    /// The resource, or for `Invalid` the kind.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "str::is_empty")]
    pub kind: String,
    /// The uid of the object.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "str::is_empty")]
    pub uid: String,
    /// The individual errors.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Clients repeat the request after this time, whatever its verb; 0 means not set.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One of the errors behind a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCause {
    /// The machine-readable name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    /// For humans.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "str::is_empty")]
    pub message: String,
    /// The path of the field, such as `spec.ports[0].name`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "str::is_empty")]
    pub field: String,
}

impl Status {
    /// Tells the client to retry after `seconds`. Correct only if nothing was executed: clients retry any verb.
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// Adds a cause.
    pub fn with_cause(mut self, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let cause = StatusCause { reason: reason.into(), message: message.into(), field: String::new() };
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// Returns the value of the `Retry-After` header, in seconds.
    pub fn retry_after(&self) -> Option<u32> {
        self.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// Reports whether one of the causes has this reason.
    pub fn has_cause(&self, reason: &str) -> bool {
        self.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
    }

    /// Returns the HTTP status of the response.
    pub fn http_code(&self) -> u16 {
        match (self.code, self.outcome) {
            (0, StatusOutcome::Success) => 200,
            (0, StatusOutcome::Failure) => 500,
            (code, StatusOutcome::Success | StatusOutcome::Failure) => code,
        }
    }

    /// Returns the response body, with a trailing newline.
    pub fn to_json(&self) -> Vec<u8> {
        let mut bytes = to_go_json(self);
        bytes.push(b'\n');
        bytes
    }

    /// Parses a response body; `None` if it is not a Status, such as another kind or a proxy's HTML page.
    pub fn from_json(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct TypeMeta {
            kind: String,
            api_version: String,
        }
        let claim: TypeMeta = serde_json::from_slice(body).ok()?;
        let is_status = claim.kind == "Status" && matches!(&*claim.api_version, "v1" | "meta.k8s.io/v1");
        if is_status { serde_json::from_slice(body).ok() } else { None }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct WireStatus<'a> {
            kind: &'static str,
            api_version: &'static str,
            metadata: &'a ListMeta,
            status: StatusOutcome,
            #[serde(skip_serializing_if = "str::is_empty")]
            message: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            reason: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            details: Option<&'a StatusDetails>,
            #[serde(skip_serializing_if = "is_zero")]
            code: u32,
        }
        WireStatus {
            kind: "Status",
            api_version: "v1",
            metadata: &self.metadata,
            status: self.outcome,
            message: &self.message,
            reason: self.reason.as_str(),
            details: self.details.as_deref(),
            code: self.code.into(),
        }
        .serialize(serializer)
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
