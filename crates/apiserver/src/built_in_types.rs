//! Checks, defaults and validates objects by the Go types of their built-in kinds.

use api::json::JsonObject;
use api::{FieldError, GroupVersionKind, Status, query};
use kinds::{FeatureGates, Release, defaults, gated_fields, types_of, update_validation};
use object::decode::{self, Decoded};
use schema::{
    cannot_be_handled_message, check_types, check_types_of_document, drop_unknown_fields, normalize,
    strict_decoding_error,
};

use crate::resource::Resource;

/// `fieldValidation`: how unknown and duplicate fields are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// Parses the query parameter. The default is `Warn`, as in kube-apiserver.
    pub(crate) fn from_query(query: &str) -> Result<Self, FieldError> {
        match query::first_value(query, "fieldValidation").as_deref() {
            None | Some("" | "Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(FieldError::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"])),
        }
    }
}

/// A body that passed the type check, and warnings for the client.
pub(crate) struct CheckedObject {
    pub(crate) object: JsonObject,
    pub(crate) warnings: Vec<String>,
}

/// Words the failure of a type check as kube-apiserver's 400.
pub(crate) fn or_bad_request(
    checked: Result<CheckedObject, TypeCheckFailure>,
    kind: GroupVersionKind<&str>,
) -> Result<CheckedObject, Status> {
    checked.map_err(|TypeCheckFailure { reason, .. }| Status::bad_request(cannot_be_handled_message(kind, &reason)))
}

/// A body that kube-apiserver could not decode, and the reason.
pub(crate) struct TypeCheckFailure {
    pub(crate) object: JsonObject,
    pub(crate) reason: String,
}

/// Rejects a body that kube-apiserver's decoder would not accept: once stored, it would break every list of a
/// kube-apiserver on the same storage. Strict validation also rejects unknown and duplicate fields. `source` is the JSON
/// that was decoded; its order decides which of several errors is reported, and in which order.
pub(crate) fn check_body_types(
    decoded: Decoded<JsonObject>,
    source: Option<&[u8]>,
    release: Release,
    kind: GroupVersionKind<&str>,
    validation: FieldValidation,
) -> Result<CheckedObject, TypeCheckFailure> {
    let Decoded { value: mut object, duplicate_fields: mut errors } = decoded;
    let Some(struct_type) = types_of(release).for_kind(kind) else {
        return Ok(CheckedObject { object, warnings: Vec::new() });
    };
    let checked = match source {
        Some(source) => check_types_of_document(&object, source, struct_type),
        None => check_types(&object, struct_type),
    };
    match checked {
        Ok(found) => errors.extend(found),
        Err(mismatch) => return Err(TypeCheckFailure { reason: mismatch.to_string(), object }),
    }
    if let Some(source) = source {
        decode::sort_field_errors(source, &mut errors);
    }
    if validation == FieldValidation::Strict
        && let Some(reason) = strict_decoding_error(&errors)
    {
        return Err(TypeCheckFailure { object, reason });
    }
    normalize(&mut object, struct_type);
    let warnings = if validation == FieldValidation::Ignore { Vec::new() } else { errors };
    Ok(CheckedObject { object, warnings })
}

/// Like [`check_body_types`] for an object of a custom resource, which is pruned and defaulted too.
pub(crate) fn check_custom_body(
    decoded: Decoded<JsonObject>,
    resource: &Resource,
    validation: FieldValidation,
) -> Result<CheckedObject, TypeCheckFailure> {
    let Decoded { value: mut object, duplicate_fields: mut errors } = decoded;
    let Some((live, version)) = resource.as_custom() else {
        return Ok(CheckedObject { object, warnings: Vec::new() });
    };
    // What a strict error shows of a patched object.
    let complete = (validation == FieldValidation::Strict).then(|| object.clone());
    // Like in kube-apiserver, no schema applies to an object of another kind, which validation rejects.
    if object.get("kind").is_some_and(|kind| kind == resource.group_version_kind().kind) {
        match live.decode_request(&mut object, version) {
            Ok(unknown) => errors.extend(unknown.iter().map(|path| format!("unknown field {path:?}"))),
            Err(error) => return Err(TypeCheckFailure { reason: error.to_string(), object }),
        }
    }
    if let Err(error) = decode::check_metadata_types(&mut object, resource.group_version_kind()) {
        return Err(TypeCheckFailure { reason: error.to_string(), object });
    }
    if let Some(complete) = complete
        && let Some(reason) = strict_decoding_error(&errors)
    {
        return Err(TypeCheckFailure { object: complete, reason });
    }
    let warnings = if validation == FieldValidation::Ignore { Vec::new() } else { errors };
    Ok(CheckedObject { object, warnings })
}

/// Sets the defaults of absent fields. The object must have passed [`check_body_types`].
pub(crate) fn set_defaults(object: &mut JsonObject, feature_gates: &FeatureGates, kind: GroupVersionKind<&str>) {
    if let Some(struct_type) = types_of(feature_gates.release()).for_kind(kind) {
        defaults::apply_defaults(object, struct_type, feature_gates);
    }
}

/// Drops the fields of disabled feature gates, unless the stored object has fields of the gate.
pub(crate) fn drop_disabled_fields(
    old: Option<&JsonObject>,
    new: &mut JsonObject,
    feature_gates: &FeatureGates,
    kind: GroupVersionKind<&str>,
) {
    if let Some(struct_type) = types_of(feature_gates.release()).for_kind(kind) {
        gated_fields::drop_disabled_fields(old, new, struct_type, feature_gates);
    }
}

/// Adds the empty status of the kind to an object without one, as kube-apiserver encodes it. Clients rely on its
/// presence.
pub(crate) fn set_empty_status(object: &mut JsonObject, release: Release, kind: GroupVersionKind<&str>) {
    if object.contains_key("status") {
        return;
    }
    if let Some(status) = types_of(release).for_kind(kind).and_then(defaults::empty_status) {
        object.insert("status".to_owned(), status.into());
    }
}

/// Validates that an update to the object or a subresource changes no immutable field.
///
/// An older release may have stored fewer defaults, so errors count only if they persist after the old state is
/// defaulted, as kube-apiserver defaults every object that it reads.
pub(crate) fn validate_immutable_fields(
    [old, new]: [&JsonObject; 2],
    feature_gates: &FeatureGates,
    resource: &Resource,
    subresource: &str,
) -> Vec<FieldError> {
    let strategy = resource.strategy();
    let struct_type = types_of(feature_gates.release()).for_kind(resource.group_version_kind());
    let Some(struct_type) = struct_type else { return Vec::new() };
    if update_validation::validate_update(strategy, struct_type, feature_gates, subresource, [old, new]).is_empty() {
        return Vec::new();
    }
    let mut old = old.clone();
    defaults::apply_defaults(&mut old, struct_type, feature_gates);
    update_validation::validate_update(strategy, struct_type, feature_gates, subresource, [&old, new])
}

/// Drops fields that the kind does not have from a new object. Stored objects must not be passed: they may have fields
/// of a newer release.
pub(crate) fn drop_fields_unknown_to_release(object: &mut JsonObject, release: Release, kind: GroupVersionKind<&str>) {
    if let Some(struct_type) = types_of(release).for_kind(kind) {
        drop_unknown_fields(object, struct_type);
    }
}
