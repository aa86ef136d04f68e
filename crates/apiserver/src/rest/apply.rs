//! Server-side apply: a patch with the fields that its manager wants, merged into the object by ownership of fields.

use api::json::JsonObject;
use api::status::{StatusCause, StatusDetails, StatusReason};
use api::{GroupVersionKind, Status};
use edge::Response;
use managedfields::{ApplyError, Conflicts, FieldManager, VersionedTypes};
use object::decode::{self, BodyEncoding, Decoded};
use object::unstructured::{metadata_mut, metadata_string};
use serde_json::Value;

use super::BufferedRequest;
use super::write::{ObjectWrite, RequestedState};
use super::{RequestContext, with_warnings};
use crate::built_in_types::{self, FieldValidation, TypeCheckFailure};
use crate::request_options::WriteOptions;

/// The reason of the causes of a conflict.
const CAUSE_FIELD_MANAGER_CONFLICT: &str = "FieldManagerConflict";

pub(super) async fn apply(
    context: RequestContext<'_>,
    request: BufferedRequest,
    options: &WriteOptions,
) -> Result<Response, Status> {
    let may_create = context.target.subresource.is_empty();
    let configuration = AppliedConfiguration::from_body(&request.into_body(), options);
    configuration.record(context);
    let write = ObjectWrite::of_apply(context, options);
    let mut warnings = Vec::new();
    let next = |current: Option<&JsonObject>| {
        if current.is_none() && !may_create {
            return Err(context.not_found());
        }
        let mut object = configuration.merge(current, &write.field_manager(), &write.types())?;
        convert_to_kind(context, &mut object)?;
        configuration.check_duplicate_keys()?;
        check_identity(context, current, &mut object)?;
        warnings = context.warnings(current, &object);
        warnings.extend(configuration.warnings());
        Ok(RequestedState::Recorded(object))
    };
    let (code, stored) = match may_create {
        true => write.update_or_create(next).await?,
        false => write.update(&[], next).await?,
    };
    Ok(with_warnings(context.object_response(code, &stored).await?, &warnings))
}

/// The body of an apply. It is merged again into the new state after a write conflict.
pub(super) struct AppliedConfiguration {
    /// An undecodable body is rejected only after the object was found, as in kube-apiserver.
    decoded: Result<Decoded<JsonObject>, Status>,
    is_forced: bool,
    validation: FieldValidation,
}

impl AppliedConfiguration {
    pub(super) fn from_body(body: &[u8], options: &WriteOptions) -> Self {
        let decoded =
            decode_configuration(body).map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")));
        Self { decoded, is_forced: options.is_forced, validation: options.field_validation }
    }

    /// Adds the configuration to the audit log.
    pub(super) fn record(&self, context: RequestContext<'_>) {
        if let Ok(decoded) = &self.decoded {
            let json = || serde_json::to_vec(&decoded.value).expect("a decoded object is valid JSON");
            context.record.set_request_object(json);
        }
    }

    /// The object with the configuration merged into it, with its managed fields. `live` is `None` if there is no object.
    pub(super) fn merge(
        &self,
        live: Option<&JsonObject>,
        manager: &FieldManager<'_>,
        types: &dyn VersionedTypes,
    ) -> Result<JsonObject, Status> {
        let configuration = &self.decoded.as_ref().map_err(Status::clone)?.value;
        let applied = managedfields::apply(live, configuration, self.is_forced, manager, types)
            .map_err(status_for_apply_error)?;
        Ok(applied.or_else(|| live.cloned()).unwrap_or_default())
    }

    /// Rejects duplicate keys if the validation is strict.
    pub(super) fn check_duplicate_keys(&self) -> Result<(), Status> {
        match &self.decoded {
            Ok(decoded) if self.validation == FieldValidation::Strict && !decoded.duplicate_fields.is_empty() => {
                let lines = decoded.duplicate_fields.join("\n  ");
                Err(Status::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
                )))
            }
            Ok(_) => Ok(()),
            Err(status) => Err(status.clone()),
        }
    }

    /// Warnings about duplicate keys.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let duplicates = self.decoded.iter().filter(|_| self.validation == FieldValidation::Warn);
        duplicates.flat_map(|decoded| decoded.duplicate_fields.iter().cloned())
    }
}

fn decode_configuration(body: &[u8]) -> Result<Decoded<JsonObject>, String> {
    // Most clients send JSON. With duplicate keys the YAML parser knows the lines that the messages name.
    let json =
        decode::decode_value(body, BodyEncoding::Json).ok().filter(|decoded| decoded.duplicate_fields.is_empty());
    let decoded = match json {
        Some(decoded) => decoded,
        None => decode::decode_value(body, BodyEncoding::Yaml)
            .map_err(|error| format!("error converting YAML to JSON: {error}"))?,
    };
    match decoded.value {
        Value::Object(value) => Ok(Decoded { value, duplicate_fields: decoded.duplicate_fields }),
        Value::Null => Ok(Decoded { value: JsonObject::new(), duplicate_fields: Vec::new() }),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Err(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type \
             map[string]interface {{}}",
            decode::go_json_type_name(&decoded.value)
        )),
    }
}

/// Reads the merged object as kube-apiserver's decoder does: values of built-in kinds in their canonical form. A custom
/// object gets defaults and keeps nulls, which validation then rejects.
fn convert_to_kind(context: RequestContext<'_>, object: &mut JsonObject) -> Result<(), Status> {
    let kind = context.resource.group_version_kind();
    let mut decoded = std::mem::take(object);
    let failed = |object: &JsonObject, reason: &str| {
        let (namespace, name) = (metadata_string(object, "namespace"), metadata_string(object, "name"));
        let GroupVersionKind { group, version, kind } = kind;
        unclassified(format!(
            "failed to convert new typed object ({namespace}/{name}; {group}/{version}, Kind={kind}) to object: {reason}"
        ))
    };
    if let Err(rejection) = decode::check_metadata_types(&mut decoded, kind) {
        return Err(failed(&decoded, &rejection.to_string()));
    }
    if let Some((live, version)) = context.resource.as_custom() {
        if let Some(schema) = live.schema(version) {
            schema.set_defaults(&mut decoded);
        }
        *object = decoded;
        return Ok(());
    }
    let decoded = Decoded { value: decoded, duplicate_fields: Vec::new() };
    let release = context.server.served_resources.release();
    let checked = built_in_types::check_body_types(decoded, None, release, kind, FieldValidation::Ignore);
    *object = checked.map_err(|TypeCheckFailure { object, reason }| failed(&object, &reason))?.object;
    Ok(())
}

/// Checks uid, namespace and name of the merged object.
fn check_identity(
    context: RequestContext<'_>,
    current: Option<&JsonObject>,
    object: &mut JsonObject,
) -> Result<(), Status> {
    let name = &*context.target.name;
    if current.is_none() {
        context.reject_terminating_definition(name)?;
        let uid = metadata_string(object, "uid");
        if !uid.is_empty() {
            let reason =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(context.target.group_resource(), name, reason));
        }
        // Only a POST rejects it.
        metadata_mut(object).remove("resourceVersion");
    }
    decode::ensure_namespace_matches(object, context.namespace())
        .and_then(|()| decode::ensure_name_matches(object, name))
        .map_err(|rejection| context.rejection_status(rejection, name))
}

fn status_for_apply_error(error: ApplyError) -> Status {
    match error {
        ApplyError::WrongType { .. } | ApplyError::ManagedFieldsNotNil => Status::bad_request(error.to_string()),
        ApplyError::InvalidConfig(_) | ApplyError::UndecodableManagedFields(_) => unclassified(error.to_string()),
        ApplyError::Conflicts(conflicts) => status_for_conflicts(&conflicts),
        ApplyError::ConversionUnavailable(error) => Status::service_unavailable(error.to_string()).with_retry_after(1),
    }
}

/// An error that kube-apiserver does not classify: 500 without a reason.
pub(super) fn unclassified(message: String) -> Status {
    Status { message, code: 500, ..Status::default() }
}

fn status_for_conflicts(conflicts: &Conflicts) -> Status {
    let causes = conflicts.causes().map(|(message, field)| StatusCause {
        reason: CAUSE_FIELD_MANAGER_CONFLICT.into(),
        message,
        field: field.to_owned(),
    });
    let details = StatusDetails { causes: causes.collect(), ..StatusDetails::default() };
    Status {
        message: conflicts.message(),
        reason: StatusReason::Conflict,
        code: 409,
        details: Some(Box::new(details)),
        ..Status::default()
    }
}
