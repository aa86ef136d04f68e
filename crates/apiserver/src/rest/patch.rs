//! Patch: JSON patch, merge patch and strategic merge patch.

use api::json::JsonObject;
use api::{GroupVersionKind, Status};
use edge::Response;
use object::Rejection;
use object::decode::{self, Decoded};
use object::patch::{self, JsonPatch, MergePatch, StrategicPatch};
use schema::SchemaCursor;
use serde_json::Value;

use super::BufferedRequest;
use super::write::{ObjectWrite, RequestedState};
use super::{RequestContext, apply, with_warnings};
use crate::built_in_types::{self, CheckedObject, FieldValidation, TypeCheckFailure};
use crate::request_options::{APPLY_PATCH, WriteOptions, content_type};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const ACCEPTED_MEDIA_TYPES: [&str; 4] = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH];
/// A strategic merge patch needs the types of a built-in kind.
const ACCEPTED_FOR_CUSTOM_RESOURCES: [&str; 3] = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH];

pub(super) async fn patch(context: RequestContext<'_>, request: BufferedRequest) -> Result<Response, Status> {
    context.check_path_names()?;
    check_media_type(context, &request)?;
    let options = WriteOptions::from_request(&request)?;
    if content_type(&request) == APPLY_PATCH {
        return apply::apply(context, request, &options).await;
    }
    let patch_request = PatchRequest::from_request(context, request, &options)?;
    let kind = context.resource.group_version_kind();
    let mut warnings = Vec::new();
    let next = |current: Option<&JsonObject>| {
        let checked = patch_request.apply(current.ok_or_else(|| context.not_found())?, kind, context)?;
        context.execution.set_body_warnings(&checked.warnings);
        let name = &*context.target.name;
        decode::ensure_name_matches(&checked.object, name)
            .map_err(|rejection| context.rejection_status(rejection, name))?;
        warnings = context.warnings(current, &checked.object);
        warnings.extend(checked.warnings);
        Ok(RequestedState::Sent(checked.object))
    };
    let (code, stored) = ObjectWrite::new(context, &options).update(&[], next).await?;
    Ok(with_warnings(context.object_response(code, &stored).await?, &warnings))
}

/// Rejects a body that is no patch that the resource accepts. Precedes the check of the options.
pub(super) fn check_media_type(context: RequestContext<'_>, request: &BufferedRequest) -> Result<(), Status> {
    let accepted: &[&str] = match context.resource.as_custom() {
        Some(_) => &ACCEPTED_FOR_CUSTOM_RESOURCES,
        None => &ACCEPTED_MEDIA_TYPES,
    };
    if accepted.contains(&content_type(request)) { Ok(()) } else { Err(Status::unsupported_media_type(accepted)) }
}

/// A parsed patch and its field validation. Applied again to the new state after a write conflict.
pub(super) struct PatchRequest {
    patch: ParsedPatch,
    duplicate_fields: Vec<String>,
    validation: FieldValidation,
}

impl PatchRequest {
    pub(super) fn from_request(
        context: RequestContext<'_>,
        request: BufferedRequest,
        options: &WriteOptions,
    ) -> Result<Self, Status> {
        let media_type = content_type(&request).to_owned();
        let validation = options.field_validation;
        let body = request.into_body();
        context.record.set_request_object(|| body.to_vec());
        let parsed = ParsedPatch::parse(&media_type, &body);
        let Decoded { value: patch, duplicate_fields } =
            parsed.map_err(|rejection| context.rejection_status(rejection, &context.target.name))?;
        Ok(Self { patch, duplicate_fields, validation })
    }

    /// Applies the patch to an object and checks the result against the type of its kind.
    pub(super) fn apply(
        &self,
        current: &JsonObject,
        kind: GroupVersionKind<&str>,
        context: RequestContext<'_>,
    ) -> Result<CheckedObject, Status> {
        let is_custom = context.resource.as_custom().is_some() && kind == context.resource.group_version_kind();
        let patched = match self.patch.apply(current, context.schema_of(kind)) {
            // The kind of a custom object is validated later.
            Ok(Value::Object(patched)) if is_custom => Ok(patched),
            Ok(patched) => patch::expect_kind(patched, kind),
            Err(rejection) => Err(rejection),
        };
        let reject = |rejection| context.rejection_status(rejection, &context.target.name);
        let value = patched.map_err(reject)?;
        let decoded = Decoded { value, duplicate_fields: self.duplicate_fields.clone() };
        let checked = if is_custom {
            built_in_types::check_custom_body(decoded, context.resource, self.validation)
        } else {
            let release = context.server.served_resources.release();
            built_in_types::check_body_types(decoded, None, release, kind, self.validation)
        };
        checked.map_err(|TypeCheckFailure { object, reason }| reject(patch::invalid_result(&object.into(), reason)))
    }
}

enum ParsedPatch {
    Json(JsonPatch),
    Merge(MergePatch),
    Strategic(StrategicPatch),
}

impl ParsedPatch {
    fn parse(media_type: &str, body: &[u8]) -> Result<Decoded<Self>, Rejection> {
        fn map<T>(decoded: Decoded<T>, wrap: impl FnOnce(T) -> ParsedPatch) -> Decoded<ParsedPatch> {
            Decoded { value: wrap(decoded.value), duplicate_fields: decoded.duplicate_fields }
        }
        match media_type {
            JSON_PATCH => JsonPatch::parse(body).map(|decoded| map(decoded, Self::Json)),
            MERGE_PATCH => MergePatch::parse(body).map(|decoded| map(decoded, Self::Merge)),
            _ => StrategicPatch::parse(body).map(|decoded| map(decoded, Self::Strategic)),
        }
    }

    fn apply(&self, object: &JsonObject, schema: Option<SchemaCursor<'_>>) -> Result<Value, Rejection> {
        match self {
            Self::Json(patch) => patch.apply(object),
            Self::Merge(patch) => Ok(patch.apply(object)),
            Self::Strategic(patch) => match schema {
                Some(known) => patch.apply(object, known),
                None => Err(Rejection::Unclassified("the kind has no schema for a strategic merge patch".to_owned())),
            },
        }
    }
}
