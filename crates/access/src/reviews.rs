//! The review kinds: authorization and authentication queries posted as objects and never stored.
//!
//! Each function takes the request's JSON body and returns the JSON of the response.

mod access_review;
mod identity_review;
mod rules_review;
mod selector_attributes;

use api::FieldError;

pub use access_review::{local_subject_access_review, self_subject_access_review, subject_access_review};
pub use identity_review::{self_subject_review, token_review};
pub use rules_review::self_subject_rules_review;

use crate::authorization::Authorizer;
use crate::rbac::RbacIndex;

/// The group of the access reviews.
pub const AUTHORIZATION_GROUP: &str = "authorization.k8s.io";
/// The group of TokenReview, SelfSubjectReview and TokenRequest, and of the resources `uids` and `userextras`.
pub const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// What access reviews are evaluated against.
#[derive(Clone, Copy, Debug)]
pub struct AuthorizerSnapshot<'a> {
    /// The authorizer chain.
    pub authorizer: &'a Authorizer,
    /// The RBAC index of the moment.
    pub index: &'a RbacIndex,
}

/// Why a review cannot be evaluated.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ReviewError {
    /// The body cannot be decoded.
    #[error("the {kind} cannot be read: {reason}")]
    InvalidBody {
        /// The expected kind.
        kind: &'static str,
        /// The decoding error.
        reason: String,
    },
    /// The object fails validation.
    #[error("the {kind} is invalid")]
    Invalid {
        /// A kind of `authorization.k8s.io`.
        kind: &'static str,
        /// The validation errors, in field order.
        errors: Vec<FieldError>,
    },
    /// A semantic error, with kube-apiserver's message.
    #[error("{0}")]
    BadRequest(String),
}

fn decode_review<T: serde::de::DeserializeOwned>(kind: &'static str, body: &[u8]) -> Result<T, ReviewError> {
    api::wire::read(body).map_err(|error| ReviewError::InvalidBody { kind, reason: error.to_string() })
}

/// Serializes a review of one of the two groups.
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
