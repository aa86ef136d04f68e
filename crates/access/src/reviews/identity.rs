//! TokenReview and SelfSubjectReview: whose token is this, and who am I?

use api::time::Time;
use api::wire::{null_is_default, object};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AUTHENTICATION, ReviewError, read, write};
use crate::authenticate::{AuthenticationError, BearerTokens};
use crate::tokens::Objects;
use crate::user::{User, UserInfo};

/// Whose token the review holds, for the audiences it names or else for this server.
pub fn token_review(
    body: &[u8],
    tokens: &BearerTokens,
    objects: &dyn Objects,
    now: Timestamp,
) -> Result<Vec<u8>, ReviewError> {
    let kind = "TokenReview";
    let review: Review = read(kind, body)?;
    let Spec { token, audiences } = &review.spec;
    if token.is_empty() {
        return Err(ReviewError::BadRequest("token is required for TokenReview in authentication".to_owned()));
    }
    let audiences = if audiences.is_empty() { &tokens.audiences } else { audiences };
    let found = tokens.find(token, audiences, objects, now);
    let status = match &found {
        Ok(Some(found)) => TokenStatus {
            authenticated: true,
            user: UserInfo::from(&*found.user),
            audiences: &found.audiences,
            error: String::new(),
        },
        Ok(None) => TokenStatus { error: AuthenticationError::UnknownToken.to_string(), ..TokenStatus::default() },
        Err(error) => TokenStatus { error: error.to_string(), ..TokenStatus::default() },
    };
    Ok(write(AUTHENTICATION, kind, &Answer { metadata: Metadata::default(), spec: Some(&review.spec), status }))
}

/// Who the one who asks is. This is what `kubectl auth whoami` shows.
pub fn self_subject_review(user: &User, now: Timestamp) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct SelfStatus<'a> {
        user_info: UserInfo<'a>,
    }
    let metadata = Metadata { creation_timestamp: Some(now.into()) };
    let status = SelfStatus { user_info: user.into() };
    write(AUTHENTICATION, "SelfSubjectReview", &Answer { metadata, spec: None, status })
}

#[derive(Default, Deserialize)]
struct Review {
    #[serde(default, deserialize_with = "object")]
    spec: Spec,
}

#[derive(Default, Serialize, Deserialize)]
struct Spec {
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    token: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    audiences: Vec<String>,
}

#[derive(Serialize)]
struct Answer<'a, Status> {
    metadata: Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a Spec>,
    status: Status,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Time>,
}

#[derive(Default, Serialize)]
struct TokenStatus<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    authenticated: bool,
    user: UserInfo<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    audiences: &'a [String],
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
}
