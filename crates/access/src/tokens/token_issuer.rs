//! Issues service account tokens: the subresource `serviceaccounts/token`.

use api::json::to_go_json;
use api::quote::Quoted;
use api::time::Time;
use api::wire::{null_is_default, object, optional_object, read};
use api::{FieldError, GroupVersion};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::bound_objects::{BoundObjectKind, BoundObjects};
use super::claims::{ClaimedObject, Claims, KubernetesClaims};
use super::jwt;
use super::key::SigningKey;
use super::token_verifier::TOKEN_LENGTH_MAX;
use crate::user::service_account_name;

/// The shortest lifetime Kubernetes accepts: 10 minutes.
const EXPIRATION_SECONDS_MIN: i64 = 600;
/// The longest lifetime Kubernetes accepts.
const EXPIRATION_SECONDS_MAX: i64 = 1 << 32;
/// The lifetime if the request does not specify one.
const EXPIRATION_SECONDS_DEFAULT: i64 = 3600;
/// The lifetime that kubelets request for projected tokens without an explicit one. Pods that do not reload tokens
/// would break, so with `extend_expiration` these tokens are valid for a year and their late use is annotated in the
/// audit log.
const PROJECTED_EXPIRATION_SECONDS: i64 = 3607;
/// The lifetime of an extended token: one year.
const EXTENDED_EXPIRATION_SECONDS: i64 = 365 * 24 * 3600;

/// Issues tokens signed with one key.
#[derive(Debug)]
pub struct TokenIssuer {
    /// The `iss` claim.
    pub issuer: String,
    /// The key that signs.
    pub signing_key: SigningKey,
    /// The audiences of tokens that request none: this server's.
    pub audiences: Vec<String>,
    /// Longer requested lifetimes are shortened to this one, with a warning.
    pub max_expiration_seconds: Option<i64>,
    /// Extend projected tokens to one year.
    pub extend_expiration: bool,
}

/// One request for a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    /// The account's namespace, from the path.
    pub namespace: &'a str,
    /// The account's name, from the path.
    pub name: &'a str,
    /// The TokenRequest, as JSON.
    pub body: &'a [u8],
    /// The time of issue.
    pub now: Timestamp,
    /// Random bytes for the token's id.
    pub random: [u8; 16],
}

/// An issued token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    /// The TokenRequest with its status set.
    pub body: Vec<u8>,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// The value of the audit annotation `authentication.kubernetes.io/issued-credential-id`.
    pub credential_id: String,
}

/// Why no token was issued.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum TokenRequestError {
    /// The body cannot be decoded.
    #[error("the token request cannot be read: {0}")]
    InvalidBody(String),
    /// The request fails validation.
    #[error("the token request is invalid")]
    Invalid {
        /// The name in the message; empty where Kubernetes omits it.
        name: String,
        /// The validation errors.
        errors: Vec<FieldError>,
    },
    /// The account or the object to bind to does not exist.
    #[error("{} {} not found", kind.resource(), Quoted(name))]
    NotFound {
        /// The kind of the missing object.
        kind: BoundObjectKind,
        /// The name of the missing object.
        name: String,
    },
    /// The request names the uid of another account with the same name.
    #[error("the UID in the token request ({requested}) does not match the UID of the service account ({actual})")]
    AccountUidMismatch {
        /// The account's name.
        name: String,
        /// The uid in the request.
        requested: String,
        /// The uid of the existing account.
        actual: String,
    },
    /// The reference names the uid of another object with the same name.
    #[error(
        "the UID in the bound object reference ({requested}) does not match the UID in record. The object might have been \
         deleted and then recreated"
    )]
    BoundObjectUidMismatch {
        /// The kind of the bound object.
        kind: String,
        /// The name of the bound object.
        name: String,
        /// The uid in the request.
        requested: String,
    },
    /// The pod to bind to runs with another service account.
    #[error("cannot bind token for serviceaccount {} to pod running with different serviceaccount name.", Quoted(.0))]
    PodUsesOtherAccount(String),
    /// Tokens cannot be bound to this kind.
    #[error("cannot bind token to object of type {0}")]
    UnsupportedKind(String),
    /// The signature could not be computed.
    #[error("failed to generate token")]
    SigningFailed,
}

#[derive(Default, Serialize, Deserialize)]
struct WireTokenRequest {
    #[serde(default, deserialize_with = "object")]
    metadata: TokenRequestMetadata,
    #[serde(default, deserialize_with = "object")]
    spec: TokenRequestSpec,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenRequestMetadata {
    #[serde(default, deserialize_with = "null_is_default")]
    name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    namespace: String,
    #[serde(default, deserialize_with = "null_is_default")]
    uid: String,
    #[serde(default, skip_deserializing)]
    creation_timestamp: Option<Time>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenRequestSpec {
    #[serde(default, deserialize_with = "null_is_default")]
    audiences: Vec<String>,
    #[serde(default)]
    expiration_seconds: Option<i64>,
    #[serde(default, deserialize_with = "optional_object")]
    bound_object_ref: Option<BoundObjectReference>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BoundObjectReference {
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    uid: String,
}

#[derive(Default, Deserialize)]
struct WirePod {
    #[serde(default, deserialize_with = "object")]
    spec: WirePodSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePodSpec {
    #[serde(default, deserialize_with = "null_is_default")]
    service_account_name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    node_name: String,
}

impl TokenIssuer {
    /// Validates the request, checks the bound objects and issues the token.
    pub fn issue(
        &self,
        request: &TokenRequest<'_>,
        objects: &dyn BoundObjects,
    ) -> Result<IssuedToken, TokenRequestError> {
        let mut wire_request: WireTokenRequest =
            read(request.body).map_err(|error| TokenRequestError::InvalidBody(error.to_string()))?;
        check_metadata_matches_path(&wire_request.metadata, request)?;
        let account = find_object(objects, BoundObjectKind::ServiceAccount, request.namespace, request.name)?;
        if !wire_request.metadata.uid.is_empty() && wire_request.metadata.uid != account.uid {
            let (requested, actual) = (wire_request.metadata.uid, account.uid);
            return Err(TokenRequestError::AccountUidMismatch { name: request.name.to_owned(), requested, actual });
        }
        if wire_request.spec.audiences.is_empty() {
            wire_request.spec.audiences.clone_from(&self.audiences);
        }
        let mut seconds = wire_request.spec.expiration_seconds.unwrap_or(EXPIRATION_SECONDS_DEFAULT);
        check_expiration_seconds(seconds)?;
        let mut claims = KubernetesClaims { namespace: request.namespace.to_owned(), ..KubernetesClaims::default() };
        if let Some(bound) = &wire_request.spec.bound_object_ref {
            bind_to_object(&mut claims, bound, request, objects)?;
        }
        let mut warnings = Vec::new();
        if let Some(seconds_max) = self.max_expiration_seconds.filter(|seconds_max| seconds > *seconds_max) {
            warnings.push(format!("requested expiration of {seconds} seconds shortened to {seconds_max} seconds"));
            seconds = seconds_max;
        }
        wire_request.spec.expiration_seconds = Some(seconds);
        wire_request.metadata = TokenRequestMetadata {
            name: account.name.clone(),
            namespace: request.namespace.to_owned(),
            uid: account.uid.clone(),
            creation_timestamp: Some(request.now.into()),
        };
        claims.service_account = account;
        let claims = self.build_claims(request, &wire_request.spec, seconds, claims);
        let token =
            jwt::sign(&self.signing_key, &serde_json::json!(claims)).map_err(|_| TokenRequestError::SigningFailed)?;
        check_length(&token)?;
        let expiration = request.now + SignedDuration::from_secs(seconds);
        let body = encode_response(&wire_request, token, expiration.into());
        Ok(IssuedToken { body, warnings, credential_id: format!("JTI={}", claims.id) })
    }

    fn build_claims(
        &self,
        request: &TokenRequest<'_>,
        spec: &TokenRequestSpec,
        seconds: i64,
        mut kubernetes: KubernetesClaims,
    ) -> Claims {
        let now = request.now.as_second();
        let mut expires = now + seconds;
        let is_for_this_server = spec.audiences.iter().all(|audience| self.audiences.contains(audience));
        if self.extend_expiration
            && kubernetes.pod.is_some()
            && seconds == PROJECTED_EXPIRATION_SECONDS
            && is_for_this_server
        {
            kubernetes.warn_after = Some(expires);
            expires = now + EXTENDED_EXPIRATION_SECONDS;
        }
        Claims {
            issuer: self.issuer.clone(),
            subject: service_account_name(request.namespace, request.name),
            audiences: spec.audiences.clone(),
            expires_at: Some(expires),
            not_before: Some(now),
            issued_at: Some(now),
            id: uuid::Builder::from_random_bytes(request.random).into_uuid().to_string(),
            kubernetes,
        }
    }
}

/// Checks name and namespace in the body, which may be omitted but must not contradict the path.
fn check_metadata_matches_path(
    metadata: &TokenRequestMetadata,
    request: &TokenRequest<'_>,
) -> Result<(), TokenRequestError> {
    let invalid = |field: &str, value: &str, detail: &str| {
        let errors = vec![FieldError::invalid(field, value, detail)];
        Err(TokenRequestError::Invalid { name: request.name.to_owned(), errors })
    };
    let TokenRequestMetadata { name, namespace, .. } = metadata;
    if !name.is_empty() && name != request.name {
        return invalid("metadata.name", name, "must match the service account name if specified");
    }
    if !namespace.is_empty() && namespace != request.namespace {
        return invalid("metadata.namespace", namespace, "must match the service account namespace if specified");
    }
    Ok(())
}

fn check_expiration_seconds(seconds: i64) -> Result<(), TokenRequestError> {
    let detail = if seconds < EXPIRATION_SECONDS_MIN {
        "may not specify a duration less than 10 minutes"
    } else if seconds > EXPIRATION_SECONDS_MAX {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let errors = vec![FieldError::invalid("spec.expirationSeconds", seconds, detail)];
    Err(TokenRequestError::Invalid { name: String::new(), errors })
}

/// A token that no server accepts is not issued.
fn check_length(token: &str) -> Result<(), TokenRequestError> {
    if token.len() <= TOKEN_LENGTH_MAX {
        return Ok(());
    }
    let detail = format!("a token with these audiences is longer than {TOKEN_LENGTH_MAX} bytes");
    let errors = vec![FieldError::forbidden("spec.audiences", detail)];
    Err(TokenRequestError::Invalid { name: String::new(), errors })
}

/// Adds the bound object to the claims; for a pod, also its node.
fn bind_to_object(
    claims: &mut KubernetesClaims,
    bound: &BoundObjectReference,
    request: &TokenRequest<'_>,
    objects: &dyn BoundObjects,
) -> Result<(), TokenRequestError> {
    let version = GroupVersion::parse(&bound.api_version).unwrap_or(GroupVersion { group: "", version: "" });
    let kind = match (version.group, bound.kind.as_str()) {
        ("", "Pod") => BoundObjectKind::Pod,
        ("", "Secret") => BoundObjectKind::Secret,
        ("", "Node") => BoundObjectKind::Node,
        _ => return Err(TokenRequestError::UnsupportedKind(version.with_kind(bound.kind.as_str()).to_string())),
    };
    let namespace = if kind == BoundObjectKind::Node { "" } else { request.namespace };
    let found = find_object(objects, kind, namespace, &bound.name)?;
    if kind == BoundObjectKind::Pod {
        let json = objects.get_json(kind, namespace, &bound.name).unwrap_or_default();
        let WirePodSpec { service_account_name, node_name } = read::<WirePod>(&json).unwrap_or_default().spec;
        if service_account_name != request.name {
            return Err(TokenRequestError::PodUsesOtherAccount(request.name.to_owned()));
        }
        if !node_name.is_empty() {
            let node = find_object(objects, BoundObjectKind::Node, "", &node_name);
            claims.node = Some(node.unwrap_or(ClaimedObject { name: node_name, uid: String::new() }));
        }
    }
    if !bound.uid.is_empty() && bound.uid != found.uid {
        let (kind, name, requested) = (bound.kind.clone(), bound.name.clone(), bound.uid.clone());
        return Err(TokenRequestError::BoundObjectUidMismatch { kind, name, requested });
    }
    match kind {
        BoundObjectKind::Pod => claims.pod = Some(found),
        BoundObjectKind::Secret => claims.secret = Some(found),
        BoundObjectKind::Node | BoundObjectKind::ServiceAccount => claims.node = Some(found),
    }
    Ok(())
}

fn find_object(
    objects: &dyn BoundObjects,
    kind: BoundObjectKind,
    namespace: &str,
    name: &str,
) -> Result<ClaimedObject, TokenRequestError> {
    let existing = objects.get_state(kind, namespace, name);
    let existing = existing.ok_or_else(|| TokenRequestError::NotFound { kind, name: name.to_owned() })?;
    Ok(ClaimedObject { name: name.to_owned(), uid: existing.uid })
}

fn encode_response(wire_request: &WireTokenRequest, token: String, expiration_timestamp: Time) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct TokenRequestResponse<'a> {
        kind: &'static str,
        api_version: &'static str,
        metadata: &'a TokenRequestMetadata,
        spec: &'a TokenRequestSpec,
        status: TokenRequestStatus,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct TokenRequestStatus {
        token: String,
        expiration_timestamp: Time,
    }
    to_go_json(&TokenRequestResponse {
        kind: "TokenRequest",
        api_version: "authentication.k8s.io/v1",
        metadata: &wire_request.metadata,
        spec: &wire_request.spec,
        status: TokenRequestStatus { token, expiration_timestamp },
    })
}
