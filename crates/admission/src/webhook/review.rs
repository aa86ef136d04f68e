//! The AdmissionReview that is sent to a webhook.

use access::user::UserInfo;
use api::GroupVersionKind;
use api::json::{JsonObject, to_go_json};
use serde::Serialize;
use serde_json::Value;

use super::matching::Invocation;
use crate::attributes::Attributes;

/// A review without its uid, which differs for each call: `{"kind":…,"request":{"uid":"` + uid + the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReviewTemplate {
    pub(crate) version: &'static str,
    before_uid: Vec<u8>,
    after_uid: Vec<u8>,
}

impl ReviewTemplate {
    /// The body of a call.
    pub(crate) fn with_uid(&self, uid: &str) -> Vec<u8> {
        [&self.before_uid, uid.as_bytes(), &self.after_uid].concat()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: AdmissionRequest<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionRequest<'a> {
    uid: &'static str,
    kind: KindName<'a>,
    resource: ResourceName<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: KindName<'a>,
    request_resource: ResourceName<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'static str,
    user_info: UserInfo<'a>,
    object: Option<&'a JsonObject>,
    old_object: Option<&'a JsonObject>,
    dry_run: bool,
    options: Option<&'a JsonObject>,
}

#[derive(Serialize)]
struct KindName<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

#[derive(Serialize)]
struct ResourceName<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

fn request<'a>(
    attributes: &'a Attributes<'_>,
    invocation: &'a Invocation,
    objects: [Option<&'a JsonObject>; 2],
) -> AdmissionRequest<'a> {
    let (kind, resource) = (invocation.kind.borrowed(), invocation.resource.borrowed());
    let (request_kind, request_resource) = (attributes.kind, attributes.resource);
    let [object, old_object] = objects;
    AdmissionRequest {
        uid: "",
        kind: KindName { group: kind.group, version: kind.version, kind: kind.kind },
        resource: ResourceName { group: resource.group, version: resource.version, resource: resource.resource },
        sub_resource: attributes.subresource,
        request_kind: KindName { group: request_kind.group, version: request_kind.version, kind: request_kind.kind },
        request_resource: ResourceName {
            group: request_resource.group,
            version: request_resource.version,
            resource: request_resource.resource,
        },
        request_sub_resource: attributes.subresource,
        name: attributes.name,
        namespace: attributes.namespace,
        operation: attributes.operation.as_str(),
        user_info: UserInfo::from(attributes.user),
        object,
        old_object,
        dry_run: attributes.is_dry_run,
        options: attributes.options,
    }
}

/// The review for a webhook, in the first of its versions that this crate knows; `None` if it knows none of them.
/// `objects` are the new and the old one, in the version of the invocation.
pub(crate) fn review(
    versions: &[String],
    attributes: &Attributes<'_>,
    invocation: &Invocation,
    objects: [Option<&JsonObject>; 2],
) -> Option<ReviewTemplate> {
    let (version, api_version) = versions.iter().find_map(|version| match version.as_str() {
        "v1" => Some(("v1", "admission.k8s.io/v1")),
        "v1beta1" => Some(("v1beta1", "admission.k8s.io/v1beta1")),
        _ => None,
    })?;
    let request = request(attributes, invocation, objects);
    let review = to_go_json(&AdmissionReview { kind: "AdmissionReview", api_version, request });
    // The uid is the first empty string of the review.
    let at = br#"{"kind":"AdmissionReview","apiVersion":"","request":{"uid":""#.len() + api_version.len();
    let (before_uid, after_uid) = review.split_at(at);
    Some(ReviewTemplate { version, before_uid: before_uid.to_vec(), after_uid: after_uid.to_vec() })
}

/// The `request` variable of expressions: the request of a review without uid and objects.
pub(crate) fn request_value(attributes: &Attributes<'_>, kind: &GroupVersionKind) -> Value {
    // Expressions see the resource of the request, but the kind of the rule that matched.
    let invocation = Invocation { resource: attributes.resource.owned(), kind: kind.clone() };
    let mut value = serde_json::to_value(request(attributes, &invocation, [None, None])).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        for name in ["uid", "object", "oldObject"] {
            fields.remove(name);
        }
    }
    value
}
