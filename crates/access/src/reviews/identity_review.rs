//! TokenReview and SelfSubjectReview: which user does a token, or the caller, authenticate as?

use api::json::JsonObject;
use api::time::Time;
use api::wire::{null_is_default, object};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AUTHENTICATION_GROUP, ReviewError, decode_review, encode_review};
use crate::authentication::{AuthenticationError, TokenAuthenticator};
use crate::tokens::BoundObjects;
use crate::user::{User, UserInfo};

/// Authenticates the token in a TokenReview, for the audiences it names or else for this server's.
pub fn token_review(
    body: &[u8],
    token_authenticator: &TokenAuthenticator,
    objects: &dyn BoundObjects,
    now: Timestamp,
) -> Result<Vec<u8>, ReviewError> {
    let kind = "TokenReview";
    let review: TokenReview = decode_review(kind, body)?;
    let TokenReviewSpec { token, audiences } = &review.spec;
    if token.is_empty() {
        return Err(ReviewError::BadRequest("token is required for TokenReview in authentication".to_owned()));
    }
    let audiences = if audiences.is_empty() { &token_authenticator.audiences } else { audiences };
    let result = token_authenticator.authenticate_token(token, audiences, objects, now);
    let status = match &result {
        Ok(Some(result)) => TokenReviewStatus {
            authenticated: true,
            user: UserInfo::from(&*result.user),
            audiences: &result.audiences,
            error: String::new(),
        },
        Ok(None) => {
            TokenReviewStatus { error: AuthenticationError::UnknownToken.to_string(), ..TokenReviewStatus::default() }
        }
        Err(error) => TokenReviewStatus { error: error.to_string(), ..TokenReviewStatus::default() },
    };
    Ok(encode_review(
        AUTHENTICATION_GROUP,
        kind,
        &IdentityReviewResponse { metadata: &review.metadata, spec: Some(&review.spec), status },
    ))
}

/// Returns the calling user as a SelfSubjectReview, which `kubectl auth whoami` shows.
pub fn self_subject_review(user: &User, now: Timestamp) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct SelfSubjectReviewStatus<'a> {
        user_info: UserInfo<'a>,
    }
    let metadata = CreationTime { creation_timestamp: now.into() };
    let status = SelfSubjectReviewStatus { user_info: user.into() };
    encode_review(AUTHENTICATION_GROUP, "SelfSubjectReview", &IdentityReviewResponse { metadata, spec: None, status })
}

#[derive(Default, Deserialize)]
struct TokenReview {
    /// Returned as it was sent.
    #[serde(default, deserialize_with = "null_is_default")]
    metadata: JsonObject,
    #[serde(default, deserialize_with = "object")]
    spec: TokenReviewSpec,
}

#[derive(Default, Serialize, Deserialize)]
struct TokenReviewSpec {
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    token: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    audiences: Vec<String>,
}

#[derive(Serialize)]
struct IdentityReviewResponse<'a, Metadata, Status> {
    metadata: Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a TokenReviewSpec>,
    status: Status,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreationTime {
    creation_timestamp: Time,
}

#[derive(Default, Serialize)]
struct TokenReviewStatus<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    authenticated: bool,
    user: UserInfo<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    audiences: &'a [String],
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
}
