//! SubjectAccessReview, LocalSubjectAccessReview and SelfSubjectAccessReview: may somebody do something?

use std::collections::BTreeMap;

use api::FieldError;
use api::wire::{null_is_default, object, optional_object};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::selectors::Selector;
use super::{AUTHORIZATION, Judge, ReviewError, read, write};
use crate::attributes::{Attributes, Resource};
use crate::user::User;

/// May the user of the review do what it says?
pub fn subject_access_review(body: &[u8], judge: Judge<'_>) -> Result<Vec<u8>, ReviewError> {
    let kind = "SubjectAccessReview";
    let review: Review<SubjectSpec> = read(kind, body)?;
    let mut errors = review.spec.faults();
    errors.extend(review.metadata.fault_unless_empty("must be empty", &[]));
    refuse(kind, errors)?;
    Ok(answer(kind, &review, judge, &review.spec.user()))
}

/// May the user of the review do what it says, in the namespace of the request?
pub fn local_subject_access_review(body: &[u8], namespace: &str, judge: Judge<'_>) -> Result<Vec<u8>, ReviewError> {
    let kind = "LocalSubjectAccessReview";
    let review: Review<SubjectSpec> = read(kind, body)?;
    let mut errors = review.spec.faults();
    errors.extend(review.metadata.fault_unless_empty("must be empty except for namespace", &["namespace"]));
    let own_namespace = review.metadata.0.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if let Some(resource) = &review.spec.asked.resource_attributes
        && resource.namespace != own_namespace
    {
        let field = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid(field, resource.namespace.as_str(), "must match metadata.namespace"));
    }
    if let Some(path) = &review.spec.asked.non_resource_attributes {
        let value = to_value(path);
        errors.push(FieldError::invalid("spec.nonResourceAttributes", value, "disallowed on this kind of request"));
    }
    refuse(kind, errors)?;
    if namespace != own_namespace {
        let message = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
        return Err(ReviewError::BadRequest(message));
    }
    Ok(answer(kind, &review, judge, &review.spec.user()))
}

/// May the one who asks do what the review says?
pub fn self_subject_access_review(body: &[u8], judge: Judge<'_>, user: &User) -> Result<Vec<u8>, ReviewError> {
    let kind = "SelfSubjectAccessReview";
    let review: Review<Question> = read(kind, body)?;
    let mut errors = review.spec.faults();
    errors.extend(review.spec.selector_faults());
    errors.extend(review.metadata.fault_unless_empty("must be empty", &[]));
    refuse(kind, errors)?;
    Ok(answer(kind, &review, judge, user))
}

#[derive(Default, Deserialize)]
struct Review<Spec: Default> {
    #[serde(default, deserialize_with = "null_is_default")]
    metadata: Metadata,
    #[serde(default, deserialize_with = "object", bound(deserialize = "Spec: Deserialize<'de>"))]
    spec: Spec,
}

/// Metadata that should not be there, as it came.
#[derive(Default, Deserialize)]
struct Metadata(Map<String, Value>);

#[derive(Default, Serialize, Deserialize)]
struct SubjectSpec {
    #[serde(flatten)]
    asked: Question,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    user: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    uid: String,
}

/// Exactly one of the two.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<ResourceAttributes>,
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<PathAttributes>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceAttributes {
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
    field_selector: Option<Selector>,
    #[serde(default, deserialize_with = "optional_object", skip_serializing_if = "Option::is_none")]
    label_selector: Option<Selector>,
}

#[derive(Default, Serialize, Deserialize)]
struct PathAttributes {
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    verb: String,
}

#[derive(Serialize)]
struct Answer<'a, Spec> {
    metadata: BTreeMap<&'static str, &'a Value>,
    spec: &'a Spec,
    status: AccessStatus,
}

/// `denied` is never set: nothing here forbids what something else allows.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessStatus {
    allowed: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    evaluation_error: String,
}

trait Asks {
    fn question(&self) -> &Question;
}

impl Asks for Question {
    fn question(&self) -> &Question {
        self
    }
}

impl Asks for SubjectSpec {
    fn question(&self) -> &Question {
        &self.asked
    }
}

impl Metadata {
    fn fault_unless_empty(&self, detail: &str, but: &[&str]) -> Option<FieldError> {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        let is_allowed = |(field, value): (&String, &Value)| {
            field == "managedFields" || but.contains(&field.as_str()) || is_empty(value)
        };
        if self.0.iter().all(is_allowed) {
            return None;
        }
        Some(FieldError::invalid("metadata", Value::Object(self.0.clone()), detail))
    }
}

impl SubjectSpec {
    fn faults(&self) -> Vec<FieldError> {
        let mut faults = self.asked.faults();
        if self.user.is_empty() && self.groups.is_empty() {
            faults.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
        }
        faults.extend(self.asked.selector_faults());
        faults
    }

    /// The groups are taken as they are: nobody is added to `system:authenticated`.
    fn user(&self) -> User {
        let Self { user, groups, extra, uid, .. } = self;
        User { name: user.clone(), uid: uid.clone(), groups: groups.clone(), extra: extra.clone() }
    }
}

impl Question {
    fn faults(&self) -> Vec<FieldError> {
        if self.resource_attributes.is_some() != self.non_resource_attributes.is_some() {
            return Vec::new();
        }
        let value = self.non_resource_attributes.as_ref().map_or(Value::Null, to_value);
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        vec![FieldError::invalid("spec", value, detail)]
    }

    fn selector_faults(&self) -> Vec<FieldError> {
        let Some(resource) = &self.resource_attributes else { return Vec::new() };
        let path = "spec.resourceAttributes";
        let field =
            resource.field_selector.iter().flat_map(|selector| selector.field_faults(&format!("{path}.fieldSelector")));
        let label =
            resource.label_selector.iter().flat_map(|selector| selector.label_faults(&format!("{path}.labelSelector")));
        field.chain(label).collect()
    }

    fn attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        if let Some(asked) = &self.resource_attributes {
            let resource = Resource {
                group: &asked.group,
                version: if asked.version.is_empty() { "*" } else { &asked.version },
                resource: &asked.resource,
                subresource: &asked.subresource,
                namespace: &asked.namespace,
                name: &asked.name,
            };
            return Attributes::resource(user, &asked.verb, resource);
        }
        let (verb, path) = self.non_resource_attributes.as_ref().map_or(("", ""), |asked| (&asked.verb, &asked.path));
        Attributes::path(user, verb, path)
    }

    /// Selectors do not narrow what rules grant, so one that cannot be read changes nothing; but it is told.
    fn evaluation_error(&self) -> String {
        let Some(resource) = &self.resource_attributes else { return String::new() };
        let field = resource.field_selector.as_ref().and_then(Selector::field_problem);
        let label = resource.label_selector.as_ref().and_then(Selector::label_problem);
        let problems = [field.map(|problem| ("field", problem)), label.map(|problem| ("label", problem))];
        let problems = problems.into_iter().flatten().map(|(sort, problem)| {
            format!("spec.resourceAttributes.{sort}Selector {} due to parse error", problem.words())
        });
        problems.collect::<Vec<_>>().join("; ")
    }
}

fn answer<Spec: Asks + Default + Serialize>(
    kind: &str,
    review: &Review<Spec>,
    judge: Judge<'_>,
    user: &User,
) -> Vec<u8> {
    let question = review.spec.question();
    let attributes = question.attributes(user);
    let decision = judge.authorizer.decide(judge.index, &attributes);
    let status = AccessStatus {
        allowed: decision.is_allowed(),
        reason: decision.reason(),
        evaluation_error: question.evaluation_error(),
    };
    let namespace = review.metadata.0.get("namespace").filter(|namespace| *namespace != "");
    let metadata = namespace.map(|namespace| ("namespace", namespace)).into_iter().collect();
    write(AUTHORIZATION, kind, &Answer { metadata, spec: &review.spec, status })
}

fn refuse(kind: &'static str, errors: Vec<FieldError>) -> Result<(), ReviewError> {
    if errors.is_empty() { Ok(()) } else { Err(ReviewError::Invalid { kind, errors }) }
}

fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("attributes are plain data")
}
