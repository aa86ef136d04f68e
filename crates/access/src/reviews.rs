//! The reviews: questions about access that are asked and answered as objects and never stored.
//!
//! Each takes the object of the request and gives the object of the response, as JSON.

mod access;
mod identity;
mod rules;
mod selectors;

use api::{FieldError, GroupKind, Status};

pub use access::{local_subject_access_review, self_subject_access_review, subject_access_review};
pub use identity::{self_subject_review, token_review};
pub use rules::self_subject_rules_review;

use crate::authorize::Authorizer;
use crate::rbac::Index;

/// The group of the reviews of access.
const AUTHORIZATION: &str = "authorization.k8s.io";
/// The group of the reviews of identity.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// What the reviews of access are answered by.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    /// The chain of authorizers.
    pub authorizer: &'a Authorizer,
    /// What bindings grant.
    pub index: &'a Index,
}

/// Why a review is not answered.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ReviewError {
    /// The body is no such object.
    #[error("the {kind} cannot be read: {reason}")]
    Unreadable {
        /// What it should be.
        kind: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The object breaks rules.
    #[error("the {kind} is invalid")]
    Invalid {
        /// Its kind, of `authorization.k8s.io`.
        kind: &'static str,
        /// What is wrong.
        errors: Vec<FieldError>,
    },
    /// The request makes no sense, in Kubernetes' words.
    #[error("{0}")]
    BadRequest(String),
}

impl ReviewError {
    /// The answer to the client.
    pub fn to_status(&self) -> Status {
        match self {
            Self::Unreadable { .. } | Self::BadRequest(_) => Status::bad_request(self.to_string()),
            Self::Invalid { kind, errors } => Status::invalid(GroupKind { group: AUTHORIZATION, kind }, "", errors),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(kind: &'static str, body: &[u8]) -> Result<T, ReviewError> {
    api::wire::read(body).map_err(|error| ReviewError::Unreadable { kind, reason: error.to_string() })
}

/// Writes an object of one of the two groups.
fn write(group: &str, kind: &str, object: &impl serde::Serialize) -> Vec<u8> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed<'a, T> {
        kind: &'a str,
        api_version: String,
        #[serde(flatten)]
        object: &'a T,
    }
    api::json::to_go_json(&Typed { kind, api_version: format!("{group}/v1"), object })
}

#[cfg(test)]
mod tests;
