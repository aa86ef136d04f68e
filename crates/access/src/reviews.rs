//! The reviews: questions about access that are asked and answered as objects and never stored.
//!
//! Each takes the object of the request and gives the object of the response, as JSON.

mod access_review;
mod identity_review;
mod rules_review;
mod selector_attributes;

use api::{FieldError, GroupKind, Status};

pub use access_review::{local_subject_access_review, self_subject_access_review, subject_access_review};
pub use identity_review::{self_subject_review, token_review};
pub use rules_review::self_subject_rules_review;

use crate::authorization::Authorizer;
use crate::rbac::RbacIndex;

/// The group of the reviews of access.
const AUTHORIZATION_GROUP: &str = "authorization.k8s.io";
/// The group of the reviews of identity.
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// What the reviews of access are answered by.
#[derive(Clone, Copy, Debug)]
pub struct AuthorizerSnapshot<'a> {
    /// The chain of authorizers.
    pub authorizer: &'a Authorizer,
    /// What bindings grant.
    pub index: &'a RbacIndex,
}

/// Why a review is not answered.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ReviewError {
    /// The body is no such object.
    #[error("the {kind} cannot be read: {reason}")]
    InvalidBody {
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
            Self::InvalidBody { .. } | Self::BadRequest(_) => Status::bad_request(self.to_string()),
            Self::Invalid { kind, errors } => {
                Status::invalid(GroupKind { group: AUTHORIZATION_GROUP, kind }, "", errors)
            }
        }
    }
}

fn decode_review<T: serde::de::DeserializeOwned>(kind: &'static str, body: &[u8]) -> Result<T, ReviewError> {
    api::wire::read(body).map_err(|error| ReviewError::InvalidBody { kind, reason: error.to_string() })
}

/// Writes an object of one of the two groups.
fn encode_review(group: &str, kind: &str, object: &impl serde::Serialize) -> Vec<u8> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct WithTypeMeta<'a, T> {
        kind: &'a str,
        api_version: String,
        #[serde(flatten)]
        object: &'a T,
    }
    api::json::to_go_json(&WithTypeMeta { kind, api_version: format!("{group}/v1"), object })
}

#[cfg(test)]
mod tests;
