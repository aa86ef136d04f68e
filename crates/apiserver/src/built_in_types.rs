//! The type of a built-in kind, put to use: bodies are checked by it, patches merge by it, and what another release has
//! stored is kept by it.

use api::json::JsonObject;
use api::{FieldError, GroupVersionKind, Status, query};
use kinds::{
    FeatureGates, KindStrategy, Release, ServedResource, defaults, types_of, update_validation, value_validation,
};
use object::decode::Decoded;
use schema::{cannot_be_handled_message, check_types, drop_unknown_fields, normalize, strict_decoding_error};

/// What to do with fields that a kind does not have, or that come twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// Reads the `fieldValidation` parameter. Absent means to warn, as in Kubernetes.
    pub(crate) fn from_query(query: &str) -> Result<Self, Status> {
        match query::first_value(query, "fieldValidation").as_deref() {
            None | Some("" | "Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(Status::bad_request(format!(
                "fieldValidation: Unsupported value: \"{other}\": supported values: \"Ignore\", \"Strict\", \"Warn\""
            ))),
        }
    }
}

/// A body of the right types, and what the client should be warned of.
pub(crate) struct CheckedObject {
    pub(crate) object: JsonObject,
    pub(crate) warnings: Vec<String>,
}

/// Refuses a body that Go's decoder would not take: stored, it would break every list of a real server.
pub(crate) fn check_or_bad_request(
    decoded: Decoded<JsonObject>,
    release: Release,
    kind: GroupVersionKind<&str>,
    validation: FieldValidation,
) -> Result<CheckedObject, Status> {
    check_body_types(decoded, release, kind, validation)
        .map_err(|TypeCheckFailure { reason, .. }| Status::bad_request(cannot_be_handled_message(kind, &reason)))
}

/// A body that Go's decoder would not take.
pub(crate) struct TypeCheckFailure {
    pub(crate) object: JsonObject,
    pub(crate) reason: String,
}

/// The same, for who says it in other words.
pub(crate) fn check_body_types(
    decoded: Decoded<JsonObject>,
    release: Release,
    kind: GroupVersionKind<&str>,
    validation: FieldValidation,
) -> Result<CheckedObject, TypeCheckFailure> {
    let Decoded { value: mut object, duplicate_fields: mut errors } = decoded;
    let Some(struct_type) = types_of(release).for_kind(kind) else {
        return Ok(CheckedObject { object, warnings: Vec::new() });
    };
    match check_types(&object, struct_type) {
        Ok(found) => errors.extend(found),
        Err(mismatch) => return Err(TypeCheckFailure { reason: mismatch.to_string(), object }),
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

/// Gives an object what its kind says where nothing was said. It must have passed [`check_or_bad_request`].
pub(crate) fn set_defaults(object: &mut JsonObject, feature_gates: &FeatureGates, kind: GroupVersionKind<&str>) {
    if let Some(struct_type) = types_of(feature_gates.release()).for_kind(kind) {
        defaults::apply_defaults(object, struct_type, feature_gates);
    }
}

/// Gives an object the status that says nothing, if it has none: clients look into it without looking for it.
pub(crate) fn set_empty_status(object: &mut JsonObject, release: Release, kind: GroupVersionKind<&str>) {
    if object.contains_key("status") {
        return;
    }
    if let Some(status) = types_of(release).for_kind(kind).and_then(defaults::empty_status) {
        object.insert("status".to_owned(), status.into());
    }
}

/// Values that Kubernetes refuses. What is stored already may stay as it is: another server, or a former one, took it.
pub(crate) fn validate_new_values(
    strategy: &KindStrategy,
    old: Option<&JsonObject>,
    new: &JsonObject,
) -> Vec<FieldError> {
    let mut errors = value_validation::validate_values(strategy, new);
    if let Some(old) = old.filter(|_| !errors.is_empty()) {
        let before = value_validation::validate_values(strategy, old);
        errors.retain(|error| !before.contains(error));
    }
    errors
}

/// What an update through a subresource, or to the object itself, changes and must not.
///
/// Another release may have stored fewer defaults than this one knows, so before anything is refused the old state is
/// completed, as Kubernetes completes all that it reads.
pub(crate) fn validate_immutable_fields(
    [old, new]: [&JsonObject; 2],
    feature_gates: &FeatureGates,
    served: &ServedResource,
    subresource: &str,
) -> Vec<FieldError> {
    let strategy = served.kind.strategy;
    let struct_type = types_of(feature_gates.release()).for_kind(served.group_version_kind());
    let Some(struct_type) = struct_type else { return Vec::new() };
    if update_validation::validate_update(strategy, struct_type, feature_gates, subresource, [old, new]).is_empty() {
        return Vec::new();
    }
    let mut old = old.clone();
    defaults::apply_defaults(&mut old, struct_type, feature_gates);
    update_validation::validate_update(strategy, struct_type, feature_gates, subresource, [&old, new])
}

/// Drops what the kind does not have from an object that comes from a client alone. Over a stored one nothing is dropped: it
/// may have fields of a newer release.
pub(crate) fn drop_fields_unknown_to_release(object: &mut JsonObject, release: Release, kind: GroupVersionKind<&str>) {
    if let Some(struct_type) = types_of(release).for_kind(kind) {
        drop_unknown_fields(object, struct_type);
    }
}
