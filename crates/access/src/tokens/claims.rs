//! The claims of service account tokens.

use std::collections::BTreeMap;

use api::wire::{null_is_default, object, optional_object};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::user::{CREDENTIAL_ID_KEY, NODE_NAME_KEY, NODE_UID_KEY, POD_NAME_KEY, POD_UID_KEY, User};

/// The claims of a token issued by `serviceaccounts/token`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// The URL of the issuer.
    #[serde(default, rename = "iss")]
    pub issuer: String,
    /// The user name of the service account.
    #[serde(default, rename = "sub")]
    pub subject: String,
    /// The audiences; empty in legacy tokens, which are for API servers.
    #[serde(default, rename = "aud", deserialize_with = "string_or_list", skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// Expiration, in Unix seconds.
    #[serde(
        default,
        rename = "exp",
        deserialize_with = "deserialize_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_at: Option<i64>,
    /// Start of validity, in Unix seconds.
    #[serde(
        default,
        rename = "nbf",
        deserialize_with = "deserialize_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub not_before: Option<i64>,
    /// Time of issue, in Unix seconds.
    #[serde(
        default,
        rename = "iat",
        deserialize_with = "deserialize_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub issued_at: Option<i64>,
    /// The token's unique id.
    #[serde(default, rename = "jti", deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The claims under `kubernetes.io`.
    #[serde(default, rename = "kubernetes.io", deserialize_with = "object")]
    pub kubernetes: KubernetesClaims,
}

/// The service account and the objects that the token is bound to: deleting any of them invalidates the token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KubernetesClaims {
    /// The namespace of account, pod and secret.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The account that the token authenticates.
    #[serde(default, rename = "serviceaccount", deserialize_with = "object")]
    pub service_account: ClaimedObject,
    /// The pod the token is bound to.
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    pub pod: Option<ClaimedObject>,
    /// The secret the token is bound to.
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    pub secret: Option<ClaimedObject>,
    /// The node the token is bound to, or the node of its pod.
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    pub node: Option<ClaimedObject>,
    /// Use after this time, in Unix seconds, is annotated in the audit log: the client should have fetched a new token.
    #[serde(
        default,
        rename = "warnafter",
        deserialize_with = "deserialize_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub warn_after: Option<i64>,
    /// Any other claims. Tokens bound to webhook configurations, which this server never issues, are rejected.
    #[serde(flatten)]
    pub other_claims: BTreeMap<String, serde_json::Value>,
}

/// An object that existed when the token was issued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedObject {
    /// The object's name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Detects a recreated object of the same name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The claims of a secret-based token, as Kubernetes issued them before 1.24.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct LegacyClaims {
    #[serde(default, rename = "sub")]
    pub(super) subject: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub(super) account_name: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub(super) account_uid: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/secret.name")]
    pub(super) secret_name: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/namespace")]
    pub(super) namespace: String,
}

/// Tolerated clock difference between issuer and verifier; Kubernetes' value.
pub(super) const LEEWAY_SECONDS: i64 = 60;

/// A token is used outside its validity period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenTimeError {
    /// `exp` has passed.
    #[error("service account token has expired")]
    Expired,
    /// `nbf` is in the future.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// `iat` is in the future.
    #[error("service account token is issued in the future")]
    IssuedInFuture,
}

impl Claims {
    /// Checks `nbf`, `exp` and `iat`, with a tolerance of `LEEWAY_SECONDS`.
    pub fn check_time(&self, now: Timestamp) -> Result<(), TokenTimeError> {
        let now = now.as_second();
        let is_later =
            |instant: Option<i64>| instant.is_some_and(|instant| now.saturating_add(LEEWAY_SECONDS) < instant);
        if is_later(self.not_before) {
            return Err(TokenTimeError::NotYetValid);
        }
        if self.expires_at.is_some_and(|expires| now.saturating_sub(LEEWAY_SECONDS) > expires) {
            return Err(TokenTimeError::Expired);
        }
        if is_later(self.issued_at) { Err(TokenTimeError::IssuedInFuture) } else { Ok(()) }
    }

    /// Returns the user, with pod, node and token id as extra values.
    pub fn user(&self) -> User {
        let KubernetesClaims { namespace, service_account: account, pod, node, .. } = &self.kubernetes;
        let mut user = User::service_account(namespace, &account.name, &account.uid);
        let mut add_extra = |key: &str, value: &str| user.extra.insert(key.to_owned(), vec![value.to_owned()]);
        if let Some(pod) = pod.as_ref().filter(|pod| !pod.name.is_empty() && !pod.uid.is_empty()) {
            add_extra(POD_NAME_KEY, &pod.name);
            add_extra(POD_UID_KEY, &pod.uid);
        }
        if let Some(node) = node.as_ref().filter(|node| !node.name.is_empty()) {
            add_extra(NODE_NAME_KEY, &node.name);
            if !node.uid.is_empty() {
                add_extra(NODE_UID_KEY, &node.uid);
            }
        }
        if !self.id.is_empty() {
            add_extra(CREDENTIAL_ID_KEY, &format!("JTI={}", self.id));
        }
        user
    }
}

/// Deserializes `aud`, which may be a string or a list.
fn string_or_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Option::<OneOrMany>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(OneOrMany::One(one)) => vec![one],
        Some(OneOrMany::Many(many)) => many,
    })
}

/// Deserializes Unix seconds; drops a fraction.
fn deserialize_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let number = Option::<serde_json::Number>::deserialize(deserializer)?;
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates at times far beyond any clock")]
    Ok(number.and_then(|number| number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64))))
}
