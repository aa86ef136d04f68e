//! Why a write is not admitted.

use api::Status;
use api::json::JsonObject;

use crate::attributes::Attributes;

/// The reason for which a plugin refuses a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// 403, `<resource> "<name>" is forbidden: <text>`.
    Forbidden(String),
    /// A complete response, e.g. that of a webhook.
    Status(Box<Status>),
}

impl Refusal {
    /// 403 with a text that follows `is forbidden: `.
    pub fn forbidden(text: impl Into<String>) -> Self {
        Self::Forbidden(text.into())
    }

    /// 500, `Internal error occurred: <text>`.
    pub fn internal(text: impl std::fmt::Display) -> Self {
        Self::Status(Box::new(Status::internal_error(text)))
    }

    /// The response to the request.
    pub fn into_status(self, attributes: &Attributes<'_>, object: Option<&JsonObject>) -> Status {
        match self {
            Self::Status(status) => *status,
            Self::Forbidden(text) => {
                Status::forbidden(attributes.resource.group_resource(), attributes.shown_name(object), text)
            }
        }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}
