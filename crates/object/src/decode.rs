//! Request bodies: JSON or YAML bytes to an object of the kind that the request is about.
//!
//! Nothing that comes out is nested deeper than [`DEPTH_MAX`], and metadata holds no field of a wrong type, so that the rest
//! of the crate can walk it without looking twice.

mod json;
mod metadata_types;
mod yaml;

use api::{GroupVersion, GroupVersionKind};
use serde_json::{Map, Value};

use crate::rejection::Rejection;
use crate::unstructured::{metadata_mut, metadata_string};

pub(crate) use metadata_types::go_json_type_name;

/// How deep a body may nest. Reading stops at 127 levels, and what we add ourselves (the managed fields of an object lie
/// three levels deeper than the fields) must fit as well.
pub const DEPTH_MAX: usize = 100;

/// How many duplicate fields are reported, as in Kubernetes.
const REPORTED_DUPLICATES_MAX: usize = 100;

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
}

/// A body as a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded<T> {
    /// What it says; of fields that come twice, the last.
    pub value: T,
    /// The fields that come twice, worded as a warning or a strict decoding error.
    pub duplicate_fields: Vec<String>,
}

/// Reads an object of a kind. Absent `kind` and `apiVersion` are filled in, as for built-in kinds.
pub fn decode_object(
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
    let Value::Object(object) = value else {
        let reason = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct",
            go_json_type_name(&value)
        );
        return Err(unrecognized_object(body, expected, &reason));
    };
    Ok(Decoded { value: expect_kind(object, body, expected)?, duplicate_fields })
}

/// Accepts an object that was read from a body: it must be of the kind, with metadata of the right types. Nor may it nest
/// deeper than [`DEPTH_MAX`], which is for the reader to see to.
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

/// Refuses a body of which it cannot even be said what it is.
pub fn unrecognized_object(body: &[u8], expected: GroupVersionKind<&str>, reason: &str) -> Rejection {
    Rejection::BadRequest(format!(
        "the object provided is unrecognized (must be of type {}): {reason} ({})",
        expected.kind,
        body_excerpt(body)
    ))
}

/// Reads any value, such as a patch. The error is a sentence without a context.
pub fn decode_value(body: &[u8], encoding: BodyEncoding) -> Result<Decoded<Value>, String> {
    match encoding {
        BodyEncoding::Json => json::parse(body),
        BodyEncoding::Yaml => yaml::parse(body),
    }
}

/// Refuses metadata of wrong types and drops its nulls, which Go reads as absent. Needed again after a patch.
pub fn check_metadata_types(
    object: &mut Map<String, Value>,
    expected: GroupVersionKind<&str>,
) -> Result<(), Rejection> {
    metadata_types::check_metadata(object).map_err(|error| {
        Rejection::BadRequest(format!(
            "{} in version {:?} cannot be handled as a {}: {error}",
            expected.kind, expected.version, expected.kind
        ))
    })
}

/// Drops fields that are null, at any depth, as typed decoding does. List items stay, since they have a place.
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

/// Refuses a namespace other than the request's; sets it when absent, removes it from a cluster-scoped object.
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

/// Refuses an update whose object has another name than the path, or none.
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

/// Refuses another kind or version; fills them in when absent.
pub(crate) fn ensure_kind_matches(
    object: &mut Map<String, Value>,
    expected: GroupVersionKind<&str>,
) -> Result<(), KindMismatch> {
    let text = |field: &str| match object.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
            Err(KindMismatch::Unrecognized(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} of \
                 type string",
                go_json_type_name(other)
            )))
        }
    };
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

/// Why an object is not of the kind it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KindMismatch {
    /// It does not say its kind in a way that can be read; the message is a part of a sentence.
    #[error("{0}")]
    Unrecognized(String),
    /// It says another one.
    #[error("{0}")]
    Other(String),
}

/// The start of a body for an error message: as it is when it looks like JSON, else in hexadecimal.
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
