//! Decodes request bodies from JSON or YAML into an object of the requested kind.
//!
//! Decoded objects nest no deeper than [`DEPTH_MAX`], and their metadata fields have the right types; the rest of the
//! crate relies on both.

mod error_order;
mod go_syntax;
mod json;
mod metadata_types;
mod yaml;

use api::{GroupVersion, GroupVersionKind};
use serde_json::{Map, Value};

use crate::rejection::Rejection;
use crate::unstructured::{metadata_mut, metadata_string};

pub use error_order::sort_field_errors;
pub use metadata_types::go_json_type_name;
pub use yaml::read_numbers_as_yaml;

/// Maximum nesting depth of a body. The JSON parser allows 127 levels, and the levels that the server adds must fit
/// too: managed fields nest three levels deeper than the fields they describe.
pub const DEPTH_MAX: usize = 100;

/// Limit of reported duplicate fields, as in Kubernetes.
const REPORTED_DUPLICATES_MAX: usize = 100;

/// Encoding of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
}

/// A decoded body and its duplicate fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded<T> {
    /// The decoded value; for duplicate fields the last one.
    pub value: T,
    /// Duplicate fields, as texts for a warning or a strict decoding error.
    pub duplicate_fields: Vec<String>,
}

/// Decodes an object of the expected kind. Absent `kind` and `apiVersion` are filled in, as for built-in kinds.
pub fn decode_object(
    body: &[u8],
    encoding: BodyEncoding,
    expected: GroupVersionKind<&str>,
) -> Result<Decoded<Map<String, Value>>, Rejection> {
    let Decoded { value, duplicate_fields } = decode_untyped_object(body, encoding, expected)?;
    Ok(Decoded { value: expect_kind(value, body, expected)?, duplicate_fields })
}

/// Decodes an object of any kind. Neither its kind nor the types of its metadata are checked.
pub fn decode_untyped_object(
    body: &[u8],
    encoding: BodyEncoding,
    expected: GroupVersionKind<&str>,
) -> Result<Decoded<Map<String, Value>>, Rejection> {
    let Decoded { value, duplicate_fields } = decode_value(body, encoding).map_err(|error| {
        let reason = match encoding {
            BodyEncoding::Json => format!("couldn't get version/kind; json parse error: {error}"),
            BodyEncoding::Yaml => error,
        };
        unrecognized_object(body, expected, &reason)
    })?;
    // Go reads null as an object without fields.
    let value = if value.is_null() { Map::new().into() } else { value };
    let Value::Object(object) = value else {
        let reason = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go_json_type_name(&value)
        );
        return Err(unrecognized_object(body, expected, &reason));
    };
    Ok(Decoded { value: object, duplicate_fields })
}

/// Checks that a decoded object is of the expected kind and that its metadata has the right types. The caller must have
/// limited the depth to [`DEPTH_MAX`].
pub fn expect_kind(
    mut object: Map<String, Value>,
    body: &[u8],
    expected: GroupVersionKind<&str>,
) -> Result<Map<String, Value>, Rejection> {
    ensure_kind_matches(&mut object, expected).map_err(|mismatch| match mismatch {
        KindMismatch::Unrecognized(reason) => unrecognized_object(body, expected, &reason),
        KindMismatch::Other(message) => Rejection::BadRequest(message),
    })?;
    check_metadata_types(&mut object, expected)?;
    Ok(object)
}

/// The rejection of a body whose kind or version cannot be determined.
pub fn unrecognized_object(body: &[u8], expected: GroupVersionKind<&str>, reason: &str) -> Rejection {
    Rejection::BadRequest(format!(
        "the object provided is unrecognized (must be of type {}): {reason} ({})",
        expected.kind,
        body_excerpt(body)
    ))
}

/// Decodes any value, such as a patch. The error lacks context such as the expected kind; callers add it.
pub fn decode_value(body: &[u8], encoding: BodyEncoding) -> Result<Decoded<Value>, String> {
    match encoding {
        BodyEncoding::Json => json::parse(body),
        BodyEncoding::Yaml => yaml::parse(body),
    }
}

/// Rejects metadata fields of wrong types and drops null ones, which Go reads as absent. Call it again after a patch.
pub fn check_metadata_types(
    object: &mut Map<String, Value>,
    expected: GroupVersionKind<&str>,
) -> Result<(), Rejection> {
    metadata_types::check_metadata(object, expected.kind).map_err(|error| {
        Rejection::BadRequest(format!(
            "{} in version {:?} cannot be handled as a {}: {error}",
            expected.kind, expected.version, expected.kind
        ))
    })
}

/// Drops null fields at any depth, as Go's typed decoding does. Null list items stay, because dropping them shifts the
/// others.
pub fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Rejects a namespace other than the request's; sets an absent one, and removes it from a cluster-scoped object.
///
/// `namespace` is empty for cluster-scoped objects.
pub fn ensure_namespace_matches(object: &mut Map<String, Value>, namespace: &str) -> Result<(), Rejection> {
    let own = metadata_string(object, "namespace");
    if own == namespace && !own.is_empty() {
        return Ok(());
    }
    if !own.is_empty() && !namespace.is_empty() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Rejection::BadRequest(message.to_owned()));
    }
    if namespace.is_empty() {
        metadata_mut(object).remove("namespace");
    } else {
        metadata_mut(object).insert("namespace".to_owned(), namespace.into());
    }
    Ok(())
}

/// Rejects an update whose object has no name or a name other than the one in the URL.
pub fn ensure_name_matches(object: &Map<String, Value>, name: &str) -> Result<(), Rejection> {
    let own = metadata_string(object, "name");
    if own.is_empty() {
        return Err(Rejection::BadRequest(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if own != name {
        let message = format!("the name of the object ({own}) does not match the name on the URL ({name})");
        return Err(Rejection::BadRequest(message));
    }
    Ok(())
}

/// `kind` or `apiVersion` of an object, empty if it has none; the error is for [`unrecognized_object`].
pub fn type_meta_text<'o>(object: &'o Map<String, Value>, field: &str) -> Result<&'o str, String> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} of \
             type string",
            go_json_type_name(other)
        )),
    }
}

/// Rejects another kind or version; fills in absent ones.
pub(crate) fn ensure_kind_matches(
    object: &mut Map<String, Value>,
    expected: GroupVersionKind<&str>,
) -> Result<(), KindMismatch> {
    let text = |field: &str| type_meta_text(object, field).map_err(KindMismatch::Unrecognized);
    let expected_version = GroupVersion { group: expected.group, version: expected.version };
    let own =
        GroupVersion::parse(text("apiVersion")?).map_err(|error| KindMismatch::Unrecognized(error.to_string()))?;
    let own = if own.version.is_empty() && (own.group.is_empty() || own.group == expected_version.group) {
        expected_version
    } else {
        own
    };
    let kind = match text("kind")? {
        "" => expected.kind,
        kind => kind,
    };
    if kind != expected.kind {
        return Err(KindMismatch::Other(format!(
            "{kind} in version {:?} cannot be handled as a {}: no kind {kind:?} is registered for version {:?}",
            own.version,
            expected.kind,
            own.to_string()
        )));
    }
    if own != expected_version {
        return Err(KindMismatch::Other(format!(
            "the API version in the data ({own}) does not match the expected API version ({expected_version})"
        )));
    }
    object.insert("kind".to_owned(), expected.kind.into());
    object.insert("apiVersion".to_owned(), expected_version.to_string().into());
    Ok(())
}

/// Why an object is not of the expected kind.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KindMismatch {
    /// `kind` or `apiVersion` is malformed; the message goes into [`unrecognized_object`].
    #[error("{0}")]
    Unrecognized(String),
    /// The object has another kind or version; the message is complete.
    #[error("{0}")]
    Other(String),
}

/// The first bytes of a body for an error message: as text if it starts with a brace, else in hexadecimal.
fn body_excerpt(body: &[u8]) -> String {
    const LENGTH_MAX: usize = 30;
    let start = &body[..body.len().min(LENGTH_MAX)];
    let shown = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > LENGTH_MAX { format!("{shown} ...") } else { shown }
}

#[cfg(test)]
mod tests;
