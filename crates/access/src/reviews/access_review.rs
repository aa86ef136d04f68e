//! SubjectAccessReview, LocalSubjectAccessReview and SelfSubjectAccessReview: may a user perform an action?

use std::collections::BTreeMap;

use api::FieldError;
use api::wire::{null_is_default, object, optional_object};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::selector_attributes::SelectorAttributes;
use super::{AUTHORIZATION_GROUP, AuthorizerSnapshot, ReviewError, decode_review, encode_review};
use crate::attributes::{Attributes, ResourceAttributes};
use crate::user::User;

/// Evaluates a SubjectAccessReview for the user named in its spec.
pub fn subject_access_review(body: &[u8], authorizer: AuthorizerSnapshot<'_>) -> Result<Vec<u8>, ReviewError> {
    let kind = "SubjectAccessReview";
    let review: AccessReview<SubjectAccessReviewSpec> = decode_review(kind, body)?;
    let mut errors = review.spec.validate();
    errors.extend(review.metadata.error_unless_empty("must be empty", &[]));
    ensure_valid(errors)?;
    Ok(respond(kind, &review, authorizer, &review.spec.to_user()))
}

/// Evaluates a LocalSubjectAccessReview, whose namespaces must equal that of the request.
pub fn local_subject_access_review(
    body: &[u8],
    namespace: &str,
    authorizer: AuthorizerSnapshot<'_>,
) -> Result<Vec<u8>, ReviewError> {
    let kind = "LocalSubjectAccessReview";
    let review: AccessReview<SubjectAccessReviewSpec> = decode_review(kind, body)?;
    let mut errors = review.spec.validate();
    errors.extend(review.metadata.error_unless_empty("must be empty except for namespace", &["namespace"]));
    let own_namespace = review.metadata.0.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if let Some(resource) = &review.spec.requested_access.resource_attributes
        && resource.namespace != own_namespace
    {
        let field = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid(field, resource.namespace.as_str(), "must match metadata.namespace"));
    }
    if let Some(path) = &review.spec.requested_access.non_resource_attributes {
        errors.push(path.invalid("disallowed on this kind of request"));
    }
    ensure_valid(errors)?;
    if namespace != own_namespace {
        let message = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
        return Err(ReviewError::BadRequest(message));
    }
    Ok(respond(kind, &review, authorizer, &review.spec.to_user()))
}

/// Evaluates a SelfSubjectAccessReview for the calling user.
pub fn self_subject_access_review(
    body: &[u8],
    authorizer: AuthorizerSnapshot<'_>,
    user: &User,
) -> Result<Vec<u8>, ReviewError> {
    let kind = "SelfSubjectAccessReview";
    let review: AccessReview<RequestedAccess> = decode_review(kind, body)?;
    let mut errors = review.spec.validate();
    errors.extend(review.spec.validate_selectors());
    errors.extend(review.metadata.error_unless_empty("must be empty", &[]));
    ensure_valid(errors)?;
    Ok(respond(kind, &review, authorizer, user))
}

#[derive(Default, Deserialize)]
struct AccessReview<Spec: Default> {
    #[serde(default, deserialize_with = "null_is_default")]
    metadata: ReviewMetadata,
    #[serde(default, deserialize_with = "object", bound(deserialize = "Spec: Deserialize<'de>"))]
    spec: Spec,
}

/// Metadata that is the server's own.
const SERVER_SET_FIELDS: [&str; 5] =
    ["creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "selfLink", "uid"];

/// The metadata of the request, which must be empty except for `managedFields` and permitted fields.
#[derive(Default, Deserialize)]
struct ReviewMetadata(Map<String, Value>);

#[derive(Default, Serialize, Deserialize)]
struct SubjectAccessReviewSpec {
    #[serde(flatten)]
    requested_access: RequestedAccess,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    user: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    uid: String,
}

/// The two alternatives of a review's spec; exactly one must be set.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestedAccess {
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<ResourceAttributesSpec>,
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<NonResourceAttributesSpec>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceAttributesSpec {
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    verb: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    version: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    resource: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    subresource: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    field_selector: Option<SelectorAttributes>,
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    label_selector: Option<SelectorAttributes>,
}

#[derive(Default, Serialize, Deserialize)]
struct NonResourceAttributesSpec {
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    verb: String,
}

#[derive(Serialize)]
struct AccessReviewResponse<'a, Spec> {
    metadata: BTreeMap<&'static str, &'a Value>,
    spec: &'a Spec,
    status: AccessReviewStatus,
}

/// `denied` is never set, because no authorization mode denies explicitly.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessReviewStatus {
    allowed: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    evaluation_error: String,
}

trait HasRequestedAccess {
    fn requested_access(&self) -> &RequestedAccess;
}

impl HasRequestedAccess for RequestedAccess {
    fn requested_access(&self) -> &RequestedAccess {
        self
    }
}

impl HasRequestedAccess for SubjectAccessReviewSpec {
    fn requested_access(&self) -> &RequestedAccess {
        &self.requested_access
    }
}

impl ReviewMetadata {
    fn error_unless_empty(&self, detail: &str, allowed_fields: &[&str]) -> Option<FieldError> {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        let is_allowed = |(field, value): (&String, &Value)| {
            field == "managedFields" || allowed_fields.contains(&field.as_str()) || is_empty(value)
        };
        // The server sets these itself, so that their values are dropped and not refused.
        let mut metadata = self.0.clone();
        metadata.retain(|field, _| !SERVER_SET_FIELDS.contains(&field.as_str()));
        if metadata.iter().all(is_allowed) {
            return None;
        }
        Some(FieldError::invalid("metadata", Value::Object(metadata), detail))
    }
}

impl SubjectAccessReviewSpec {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = self.requested_access.validate();
        if self.user.is_empty() && self.groups.is_empty() {
            errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
        }
        errors.extend(self.requested_access.validate_selectors());
        errors
    }

    /// Uses the groups as given, without adding `system:authenticated`.
    fn to_user(&self) -> User {
        let Self { user, groups, extra, uid, .. } = self;
        User { name: user.clone(), uid: uid.clone(), groups: groups.clone(), extra: extra.clone() }
    }
}

impl NonResourceAttributesSpec {
    /// Kubernetes shows the fields of its internal type.
    fn invalid(&self, detail: &str) -> FieldError {
        let shown = format!("{{\"Path\":{:?},\"Verb\":{:?}}}", self.path, self.verb);
        FieldError::invalid_without_value("spec.nonResourceAttributes", detail).showing(shown)
    }
}

impl RequestedAccess {
    fn validate(&self) -> Vec<FieldError> {
        match (&self.resource_attributes, &self.non_resource_attributes) {
            (Some(_), Some(path)) => {
                let detail = "cannot be specified in combination with resourceAttributes";
                vec![path.invalid(detail)]
            }
            (None, None) => {
                let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                vec![FieldError::invalid("spec.resourceAttributes", Value::Null, detail)]
            }
            (Some(_), None) | (None, Some(_)) => Vec::new(),
        }
    }

    fn validate_selectors(&self) -> Vec<FieldError> {
        let Some(resource) = &self.resource_attributes else { return Vec::new() };
        let path = "spec.resourceAttributes";
        let field = resource
            .field_selector
            .iter()
            .flat_map(|selector| selector.validate_as_field_selector(&format!("{path}.fieldSelector")));
        let label = resource
            .label_selector
            .iter()
            .flat_map(|selector| selector.validate_as_label_selector(&format!("{path}.labelSelector")));
        field.chain(label).collect()
    }

    fn to_attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        if let Some(spec) = &self.resource_attributes {
            let resource = ResourceAttributes {
                group: &spec.group,
                version: if spec.version.is_empty() { "*" } else { &spec.version },
                resource: &spec.resource,
                subresource: &spec.subresource,
                namespace: &spec.namespace,
                name: &spec.name,
            };
            return Attributes::for_resource(user, &spec.verb, resource);
        }
        let (verb, path) = self.non_resource_attributes.as_ref().map_or(("", ""), |spec| (&spec.verb, &spec.path));
        Attributes::for_path(user, verb, path)
    }

    /// Describes selectors that cannot be parsed. RBAC ignores selectors, so the decision does not change.
    fn evaluation_error(&self) -> String {
        let Some(resource) = &self.resource_attributes else { return String::new() };
        let field = resource.field_selector.as_ref().and_then(SelectorAttributes::ignored_field_terms);
        let label = resource.label_selector.as_ref().and_then(SelectorAttributes::ignored_label_terms);
        let problems = [field.map(|problem| ("field", problem)), label.map(|problem| ("label", problem))];
        let problems = problems.into_iter().flatten().map(|(selector_kind, problem)| {
            format!("spec.resourceAttributes.{selector_kind}Selector {} due to parse error", problem.as_str())
        });
        problems.collect::<Vec<_>>().join("; ")
    }
}

/// Decides the requested access for the user and encodes the response.
fn respond<Spec: HasRequestedAccess + Default + Serialize>(
    kind: &str,
    review: &AccessReview<Spec>,
    authorizer: AuthorizerSnapshot<'_>,
    user: &User,
) -> Vec<u8> {
    let requested_access = review.spec.requested_access();
    let attributes = requested_access.to_attributes(user);
    let decision = authorizer.authorizer.decide(authorizer.index, &attributes);
    let status = AccessReviewStatus {
        allowed: decision.is_allowed(),
        reason: decision.reason(),
        evaluation_error: requested_access.evaluation_error(),
    };
    let namespace = review.metadata.0.get("namespace").filter(|namespace| *namespace != "");
    let metadata = namespace.map(|namespace| ("namespace", namespace)).into_iter().collect();
    encode_review(AUTHORIZATION_GROUP, kind, &AccessReviewResponse { metadata, spec: &review.spec, status })
}

/// Kubernetes' messages lack the kind.
fn ensure_valid(errors: Vec<FieldError>) -> Result<(), ReviewError> {
    if errors.is_empty() { Ok(()) } else { Err(ReviewError::Invalid { kind: "", errors }) }
}
