//! Making tokens: the subresource `serviceaccounts/token`.

use api::json::to_go_json;
use api::quote::Quoted;
use api::time::Time;
use api::wire::{null_is_default, object, optional_object, read};
use api::{FieldError, GroupKind, GroupResource, GroupVersion, Status};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::claims::{Claims, KubernetesClaims, Reference};
use super::jwt;
use super::key::SigningKey;
use super::objects::{Kind, Objects};
use crate::user::service_account_name;

/// Kubernetes' shortest life of a token: 10 minutes.
const SECONDS_MIN: i64 = 600;
/// Kubernetes' longest life of a token.
const SECONDS_MAX: i64 = 1 << 32;
/// The life of a token that is asked for without one.
const SECONDS_DEFAULT: i64 = 3600;
/// The life that kubelets ask for on behalf of pods that do not care. Such pods may not know that tokens end, so they get a
/// year and a note in the audit log instead.
const SECONDS_OF_PODS: i64 = 3607;
/// The year.
const SECONDS_EXTENDED: i64 = 365 * 24 * 3600;

/// Makes tokens with one key.
#[derive(Debug)]
pub struct Issuer {
    /// What the tokens say who made them.
    pub name: String,
    /// The key.
    pub key: SigningKey,
    /// Whom tokens are for that name nobody: this server.
    pub audiences: Vec<String>,
    /// Longer lives are cut down to this one, with a warning.
    pub seconds_max: Option<i64>,
    /// Whether pods that do not care get a year.
    pub extends: bool,
}

/// One request for a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    /// The account's namespace, from the path.
    pub namespace: &'a str,
    /// The account's name, from the path.
    pub name: &'a str,
    /// The TokenRequest.
    pub body: &'a [u8],
    /// Now.
    pub now: Timestamp,
    /// Random bytes for the token's id.
    pub random: [u8; 16],
}

/// A token that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The TokenRequest with its status filled in.
    pub body: Vec<u8>,
    /// What the client is to be warned of.
    pub warnings: Vec<String>,
    /// The value of the audit annotation `authentication.kubernetes.io/issued-credential-id`.
    pub credential_id: String,
}

/// Why no token was made.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum TokenRequestError {
    /// The body is no TokenRequest.
    #[error("the token request cannot be read: {0}")]
    Unreadable(String),
    /// The request breaks rules. The name is part of Kubernetes' message in some cases and not in others.
    #[error("the token request is invalid")]
    Invalid {
        /// The name to report.
        name: String,
        /// What is wrong.
        errors: Vec<FieldError>,
    },
    /// The account or what the token is to be bound to does not exist.
    #[error("{} {} not found", kind.resource(), Quoted(name))]
    NotFound {
        /// Which kind.
        kind: Kind,
        /// Which one.
        name: String,
    },
    /// The request is about another account of the same name.
    #[error("the UID in the token request ({requested}) does not match the UID of the service account ({actual})")]
    OtherAccount {
        /// The account's name.
        name: String,
        /// The uid in the request.
        requested: String,
        /// The uid there is.
        actual: String,
    },
    /// The token would be bound to another object of the same name.
    #[error(
        "the UID in the bound object reference ({requested}) does not match the UID in record. The object might have been \
         deleted and then recreated"
    )]
    OtherObject {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The uid in the request.
        requested: String,
    },
    /// The pod runs as somebody else.
    #[error("cannot bind token for serviceaccount {} to pod running with different serviceaccount name.", Quoted(.0))]
    OtherPod(String),
    /// Tokens cannot be bound to this.
    #[error("cannot bind token to object of type {0}")]
    UnsupportedKind(String),
    /// The key did not sign.
    #[error("failed to generate token")]
    Signing,
}

#[derive(Default, Serialize, Deserialize)]
struct Wire {
    #[serde(default, deserialize_with = "object")]
    metadata: Metadata,
    #[serde(default, deserialize_with = "object")]
    spec: Spec,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
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
struct Spec {
    #[serde(default, deserialize_with = "null_is_default")]
    audiences: Vec<String>,
    #[serde(default)]
    expiration_seconds: Option<i64>,
    #[serde(default, deserialize_with = "optional_object")]
    bound_object_ref: Option<BoundObject>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BoundObject {
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
struct Pod {
    #[serde(default, deserialize_with = "object")]
    spec: PodSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default, deserialize_with = "null_is_default")]
    service_account_name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    node_name: String,
}

impl Issuer {
    /// Makes the token that was asked for.
    pub fn issue(&self, request: &TokenRequest<'_>, objects: &dyn Objects) -> Result<Issued, TokenRequestError> {
        let mut wire: Wire = read(request.body).map_err(|error| TokenRequestError::Unreadable(error.to_string()))?;
        check_place(&wire.metadata, request)?;
        let account = reference(objects, Kind::ServiceAccount, request.namespace, request.name)?;
        if !wire.metadata.uid.is_empty() && wire.metadata.uid != account.uid {
            let (requested, actual) = (wire.metadata.uid, account.uid);
            return Err(TokenRequestError::OtherAccount { name: request.name.to_owned(), requested, actual });
        }
        if wire.spec.audiences.is_empty() {
            wire.spec.audiences.clone_from(&self.audiences);
        }
        let mut seconds = wire.spec.expiration_seconds.unwrap_or(SECONDS_DEFAULT);
        check_seconds(seconds)?;
        let mut claims = KubernetesClaims { namespace: request.namespace.to_owned(), ..KubernetesClaims::default() };
        if let Some(bound) = &wire.spec.bound_object_ref {
            bind(&mut claims, bound, request, objects)?;
        }
        let mut warnings = Vec::new();
        if let Some(seconds_max) = self.seconds_max.filter(|seconds_max| seconds > *seconds_max) {
            warnings.push(format!("requested expiration of {seconds} seconds shortened to {seconds_max} seconds"));
            seconds = seconds_max;
        }
        wire.spec.expiration_seconds = Some(seconds);
        wire.metadata = Metadata {
            name: account.name.clone(),
            namespace: request.namespace.to_owned(),
            uid: account.uid.clone(),
            creation_timestamp: Some(request.now.into()),
        };
        claims.account = account;
        let claims = self.claims(request, &wire.spec, seconds, claims);
        let token = jwt::sign(&self.key, &serde_json::json!(claims)).map_err(|_| TokenRequestError::Signing)?;
        let expiration = request.now + SignedDuration::from_secs(seconds);
        let body = response(&wire, token, expiration.into());
        Ok(Issued { body, warnings, credential_id: format!("JTI={}", claims.id) })
    }

    fn claims(
        &self,
        request: &TokenRequest<'_>,
        spec: &Spec,
        seconds: i64,
        mut kubernetes: KubernetesClaims,
    ) -> Claims {
        let now = request.now.as_second();
        let mut expires = now + seconds;
        let is_for_us = spec.audiences.iter().all(|audience| self.audiences.contains(audience));
        if self.extends && kubernetes.pod.is_some() && seconds == SECONDS_OF_PODS && is_for_us {
            kubernetes.warn_after = Some(expires);
            expires = now + SECONDS_EXTENDED;
        }
        Claims {
            issuer: self.name.clone(),
            subject: service_account_name(request.namespace, request.name),
            audiences: spec.audiences.clone(),
            expires: Some(expires),
            begins: Some(now),
            issued: Some(now),
            id: uuid::Builder::from_random_bytes(request.random).into_uuid().to_string(),
            kubernetes,
        }
    }
}

/// Name and namespace in the body may be left out, but must not contradict the path.
fn check_place(metadata: &Metadata, request: &TokenRequest<'_>) -> Result<(), TokenRequestError> {
    let invalid = |field: &str, value: &str, detail: &str| {
        let errors = vec![FieldError::invalid(field, value, detail)];
        Err(TokenRequestError::Invalid { name: request.name.to_owned(), errors })
    };
    let Metadata { name, namespace, .. } = metadata;
    if !name.is_empty() && name != request.name {
        return invalid("metadata.name", name, "must match the service account name if specified");
    }
    if !namespace.is_empty() && namespace != request.namespace {
        return invalid("metadata.namespace", namespace, "must match the service account namespace if specified");
    }
    Ok(())
}

fn check_seconds(seconds: i64) -> Result<(), TokenRequestError> {
    let detail = if seconds < SECONDS_MIN {
        "may not specify a duration less than 10 minutes"
    } else if seconds > SECONDS_MAX {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let errors = vec![FieldError::invalid("spec.expirationSeconds", seconds, detail)];
    Err(TokenRequestError::Invalid { name: String::new(), errors })
}

/// Adds what the token is bound to. A token for a pod also says where the pod runs.
fn bind(
    claims: &mut KubernetesClaims,
    bound: &BoundObject,
    request: &TokenRequest<'_>,
    objects: &dyn Objects,
) -> Result<(), TokenRequestError> {
    let version = GroupVersion::parse(&bound.api_version).unwrap_or(GroupVersion { group: "", version: "" });
    let kind = match (version.group, bound.kind.as_str()) {
        ("", "Pod") => Kind::Pod,
        ("", "Secret") => Kind::Secret,
        ("", "Node") => Kind::Node,
        _ => return Err(TokenRequestError::UnsupportedKind(version.with_kind(bound.kind.as_str()).to_string())),
    };
    let namespace = if kind == Kind::Node { "" } else { request.namespace };
    let found = reference(objects, kind, namespace, &bound.name)?;
    if kind == Kind::Pod {
        let json = objects.read(kind, namespace, &bound.name).unwrap_or_default();
        let PodSpec { service_account_name, node_name } = read::<Pod>(&json).unwrap_or_default().spec;
        if service_account_name != request.name {
            return Err(TokenRequestError::OtherPod(request.name.to_owned()));
        }
        if !node_name.is_empty() {
            let node = reference(objects, Kind::Node, "", &node_name);
            claims.node = Some(node.unwrap_or(Reference { name: node_name, uid: String::new() }));
        }
    }
    if !bound.uid.is_empty() && bound.uid != found.uid {
        let (kind, name, requested) = (bound.kind.clone(), bound.name.clone(), bound.uid.clone());
        return Err(TokenRequestError::OtherObject { kind, name, requested });
    }
    match kind {
        Kind::Pod => claims.pod = Some(found),
        Kind::Secret => claims.secret = Some(found),
        Kind::Node | Kind::ServiceAccount => claims.node = Some(found),
    }
    Ok(())
}

fn reference(objects: &dyn Objects, kind: Kind, namespace: &str, name: &str) -> Result<Reference, TokenRequestError> {
    let existing = objects.find(kind, namespace, name);
    let existing = existing.ok_or_else(|| TokenRequestError::NotFound { kind, name: name.to_owned() })?;
    Ok(Reference { name: name.to_owned(), uid: existing.uid })
}

fn response(wire: &Wire, token: String, expiration_timestamp: Time) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Response<'a> {
        kind: &'static str,
        api_version: &'static str,
        metadata: &'a Metadata,
        spec: &'a Spec,
        status: TokenStatus,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct TokenStatus {
        token: String,
        expiration_timestamp: Time,
    }
    to_go_json(&Response {
        kind: "TokenRequest",
        api_version: "authentication.k8s.io/v1",
        metadata: &wire.metadata,
        spec: &wire.spec,
        status: TokenStatus { token, expiration_timestamp },
    })
}

impl TokenRequestError {
    /// The answer to the client.
    pub fn to_status(&self) -> Status {
        let core = |resource| GroupResource { group: "", resource };
        let group = "authentication.k8s.io";
        match self {
            Self::Unreadable(_) | Self::OtherPod(_) | Self::UnsupportedKind(_) => Status::bad_request(self.to_string()),
            Self::Invalid { name, errors } => Status::invalid(GroupKind { group, kind: "TokenRequest" }, name, errors),
            Self::NotFound { kind, name } => Status::not_found(core(kind.resource()), name),
            Self::OtherAccount { name, .. } => {
                Status::conflict(GroupResource { group, resource: "TokenRequest" }, name, self)
            }
            Self::OtherObject { kind, name, .. } => Status::conflict(core(kind), name, self),
            Self::Signing => Status::internal_error(self),
        }
    }
}
