//! The JSON form of an event: `audit.k8s.io/v1`, with Go's order of fields.

use std::borrow::Cow;
use std::collections::BTreeMap;

use access::user::UserInfo;
use api::time::MicroTime;
use api::{Status, Target};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::policy::{Level, Stage};
use super::{AuditRecord, RecordState};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditEvent<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: Level,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: UserInfo<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<UserInfo<'a>>,
    #[serde(rename = "sourceIPs")]
    source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<ResponseStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<&'a RawValue>,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<Cow<'static, str>, String>,
}

/// The object of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
}

/// The Status of a response; a success has only a code.
#[derive(Serialize)]
struct ResponseStatus<'a> {
    metadata: EmptyListMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a api::status::StatusDetails>,
    code: u16,
}

#[derive(Serialize)]
struct EmptyListMeta {}

/// The metadata that identifies an object.
#[derive(Deserialize)]
struct ObjectWithMetadata {
    #[serde(default)]
    metadata: AuditedObjectMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AuditedObjectMetadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

impl ObjectReference {
    /// `None` for paths that name no resource.
    pub(super) fn for_target(target: &Target<'_>) -> Option<Self> {
        let Target::Resource(resource) = target else { return None };
        Some(Self {
            resource: resource.resource.to_string(),
            namespace: resource.namespace.to_string(),
            name: resource.name.to_string(),
            uid: String::new(),
            api_group: resource.group.to_string(),
            api_version: resource.version.to_string(),
            resource_version: String::new(),
            subresource: resource.subresource.to_string(),
        })
    }

    pub(super) fn lacks_name(&self) -> bool {
        self.name.is_empty()
    }

    /// Fills empty fields from the metadata of the request body.
    fn with_object_metadata(&self, object: Option<&RawValue>) -> Self {
        let mut reference = self.clone();
        let Some(ObjectWithMetadata { metadata }) = object.and_then(|object| serde_json::from_str(object.get()).ok())
        else {
            return reference;
        };
        for (known, found) in [
            (&mut reference.namespace, metadata.namespace),
            (&mut reference.name, metadata.name),
            (&mut reference.uid, metadata.uid),
            (&mut reference.resource_version, metadata.resource_version),
        ] {
            if known.is_empty() {
                *known = found;
            }
        }
        reference
    }
}

impl<'a> AuditEvent<'a> {
    pub(super) fn new(
        record: &'a AuditRecord,
        state: &'a RecordState,
        stage: Stage,
        code: Option<u16>,
        failure: Option<&'a Status>,
    ) -> Self {
        let request_object = state.request_object.as_deref();
        // The first stage has the time of receipt.
        let is_early = stage == Stage::RequestReceived;
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: state.decision.level,
            audit_id: &record.id,
            stage,
            request_uri: &record.uri,
            verb: &record.verb,
            user: state.user.as_deref().map(UserInfo::from).unwrap_or_default(),
            impersonated_user: state.impersonated.as_deref().map(UserInfo::from),
            source_ips: &record.source_ips,
            user_agent: &record.user_agent,
            object_ref: record.object_reference.as_ref().map(|object| object.with_object_metadata(request_object)),
            response_status: code.map(|code| ResponseStatus::new(code, failure)),
            request_object: request_object.filter(|_| state.decision.level >= Level::Request),
            request_received_timestamp: record.received.into(),
            stage_timestamp: if is_early { record.received } else { Timestamp::now() }.into(),
            annotations: &state.annotations,
        }
    }

    pub(super) fn to_line(&self) -> Vec<u8> {
        let mut line = api::json::to_go_json(self);
        line.push(b'\n');
        line
    }
}

impl<'a> ResponseStatus<'a> {
    fn new(code: u16, failure: Option<&'a Status>) -> Self {
        Self {
            metadata: EmptyListMeta {},
            status: failure.map(|_| "Failure"),
            message: failure.map_or("", |status| &status.message),
            reason: failure.map_or("", |status| status.reason.as_str()),
            details: failure.and_then(|status| status.details.as_deref()),
            code,
        }
    }
}
