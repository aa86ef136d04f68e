//! What a service account's token claims.

use std::collections::BTreeMap;

use api::wire::{null_is_default, object, optional_object};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::user::{CREDENTIAL_ID_KEY, NODE_NAME_KEY, NODE_UID_KEY, POD_NAME_KEY, POD_UID_KEY, User};

/// The claims of a token made by `serviceaccounts/token`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// Who made it.
    #[serde(default, rename = "iss")]
    pub issuer: String,
    /// The user name of the service account.
    #[serde(default, rename = "sub")]
    pub subject: String,
    /// Whom it is meant for. Empty in legacy tokens, which are for API servers.
    #[serde(default, rename = "aud", deserialize_with = "string_or_list", skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// When it ends, in seconds since 1970.
    #[serde(
        default,
        rename = "exp",
        deserialize_with = "deserialize_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_at: Option<i64>,
    /// When it begins.
    #[serde(
        default,
        rename = "nbf",
        deserialize_with = "deserialize_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub not_before: Option<i64>,
    /// When it was made.
    #[serde(
        default,
        rename = "iat",
        deserialize_with = "deserialize_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub issued_at: Option<i64>,
    /// Its own id.
    #[serde(default, rename = "jti", deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// What Kubernetes adds.
    #[serde(default, rename = "kubernetes.io", deserialize_with = "object")]
    pub kubernetes: KubernetesClaims,
}

/// The account and what the token is bound to: it dies with any of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KubernetesClaims {
    /// The namespace of the account, and of pod and secret.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The account.
    #[serde(default, rename = "serviceaccount", deserialize_with = "object")]
    pub service_account: ClaimedObject,
    /// The pod it is bound to.
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    pub pod: Option<ClaimedObject>,
    /// The secret it is bound to.
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    pub secret: Option<ClaimedObject>,
    /// The node it is bound to, or on which the pod runs that it is bound to.
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    pub node: Option<ClaimedObject>,
    /// After this instant its use is noted, since its holder should have fetched a new one.
    #[serde(
        default,
        rename = "warnafter",
        deserialize_with = "deserialize_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub warn_after: Option<i64>,
    /// Bindings to webhook configurations, which no token of ours has: a token with one is refused.
    #[serde(flatten)]
    pub other_claims: BTreeMap<String, serde_json::Value>,
}

/// One object that was there when the token was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedObject {
    /// Its name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its uid.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The claims of a token from a secret, as Kubernetes made them before 1.24.
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

/// How far the clocks of those who make and check tokens may differ; Kubernetes' value.
pub(super) const LEEWAY_SECONDS: i64 = 60;

/// A token outside of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenTimeError {
    /// Its time is over.
    #[error("service account token has expired")]
    Expired,
    /// Its time has not come.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// It claims to be made later than now.
    #[error("service account token is issued in the future")]
    IssuedInFuture,
}

impl Claims {
    /// Whether the token may be used at this instant.
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

    /// The user of the token.
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

/// An audience may be one string or a list.
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

/// A date in seconds, which may have a fraction; the fraction is dropped.
fn deserialize_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let number = Option::<serde_json::Number>::deserialize(deserializer)?;
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and no clock goes that far")]
    Ok(number.and_then(|number| number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64))))
}
