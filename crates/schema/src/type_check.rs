//! Type check of a body against its kind, with the messages of Kubernetes' decoder.
//!
//! A body with wrong types must never be stored, regardless of `fieldValidation`: a server that decodes it into Go's
//! types could no longer list the kind. Unknown fields are returned instead; `fieldValidation` decides whether they are
//! errors, warnings or ignored.
//!
//! Of several wrong types the first in the body is reported, if the body is given, else the first by field name.

mod base64;
mod document;
mod embedded;
mod time;

use std::fmt::Write as _;

use api::GroupVersionKind;
use serde_json::{Map, Number, Value};

use document::Document;

pub(crate) use base64::bytes_of_numbers;
pub use time::canonical_time;
pub(crate) use time::pad_hour;

use crate::quantity::Quantity;
use crate::{SpecialType, StructType, TypeForm, ValueType};

/// The limit of reported unknown fields, as in Kubernetes.
const REPORTED_UNKNOWN_FIELDS_MAX: usize = 100;

/// Why Go's decoder rejects a body; the reason in [`cannot_be_handled_message`] of a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeMismatchError(String);

/// Rejects a body with a wrong type; else returns the unknown fields as texts such as `unknown field "spec.foo"`, for
/// warnings or a [`strict_decoding_error`].
pub fn check_types(body: &Map<String, Value>, kind: StructType<'_>) -> Result<Vec<String>, TypeMismatchError> {
    let unknown = unknown_field_paths(body, kind)?;
    Ok(unknown.into_iter().map(|path| format!("unknown field {path:?}")).collect())
}

/// Like [`check_types`] for an object as decoded from a JSON body, whose order of fields decides what is reported, as in Go.
pub fn check_types_of_document(
    body: &Map<String, Value>,
    source: &[u8],
    kind: StructType<'_>,
) -> Result<Vec<String>, TypeMismatchError> {
    let checked = check_types(body, kind);
    if checked.as_ref().is_ok_and(|unknown| unknown.len() < 2) {
        return checked;
    }
    let Some(document) = Document::parse(source) else { return checked };
    let mut walk = TypeChecker { document: Some(document), ..TypeChecker::new(kind) };
    walk.check_fields(body, kind)?;
    walk.first_mismatch.map_or(Ok(()), Err)?;
    Ok(walk.unknown.into_iter().map(|path| format!("unknown field {path:?}")).collect())
}

/// Like [`check_types`], but returns the paths of the unknown fields.
pub(crate) fn unknown_field_paths(
    body: &Map<String, Value>,
    kind: StructType<'_>,
) -> Result<Vec<String>, TypeMismatchError> {
    let mut walk = TypeChecker::new(kind);
    walk.check_fields(body, kind)?;
    Ok(walk.unknown)
}

/// Message of `fieldValidation=Strict` for unknown and duplicate fields. `None` if there are none.
pub fn strict_decoding_error(errors: &[String]) -> Option<String> {
    (!errors.is_empty()).then(|| format!("strict decoding error: {}", errors.join(", ")))
}

/// Message of a 400 for a body of a known kind that cannot be decoded.
pub fn cannot_be_handled_message(kind: GroupVersionKind<&str>, reason: &str) -> String {
    format!("{} in version {:?} cannot be handled as a {}: {reason}", kind.kind, kind.version, kind.kind)
}

/// The position in the body, and the unknown fields so far.
struct TypeChecker<'t> {
    /// The innermost enclosing struct type; Go names it in every message.
    kind: StructType<'t>,
    /// Path of field names, without indices and map keys.
    fields: Vec<&'t str>,
    /// Path with indices and map keys: `spec.containers[0].name`.
    path: String,
    unknown: Vec<String>,
    /// Inside of a type with custom decoding: messages name the struct outside, and unknown fields are dropped silently.
    is_opaque: bool,
    /// The value at hand in the body. Without it the check ends at the first mismatch.
    document: Option<Document<'t>>,
    /// Reported unless a type with custom decoding fails, which ends Go's decoding at once.
    first_mismatch: Option<TypeMismatchError>,
}

impl<'t> TypeChecker<'t> {
    fn new(kind: StructType<'t>) -> Self {
        Self {
            kind,
            fields: Vec::new(),
            path: String::new(),
            unknown: Vec::new(),
            is_opaque: false,
            document: None,
            first_mismatch: None,
        }
    }

    fn check_fields(&mut self, object: &Map<String, Value>, kind: StructType<'t>) -> Result<(), TypeMismatchError> {
        let Some(document) = self.document else {
            return object.iter().try_for_each(|(name, value)| self.check_field(name, value, kind));
        };
        for (name, document) in document.fields() {
            let Some(value) = object.get(&name) else { continue };
            self.document = Some(document);
            self.check_field(&name, value, kind)?;
        }
        self.document = Some(document);
        Ok(())
    }

    fn check_field(&mut self, name: &str, value: &Value, kind: StructType<'t>) -> Result<(), TypeMismatchError> {
        let Some(field) = kind.field(name) else {
            self.record_unknown_field(name);
            return Ok(());
        };
        if self.is_opaque {
            self.fields.push(field.name());
            self.check_value(value, field.value_type())?;
            self.fields.pop();
            return Ok(());
        }
        let (outer, length) = (self.kind, self.path.len());
        self.kind = kind;
        let depth = self.fields.len();
        self.fields.extend(embedded::embedded_struct(kind.name(), field.name()));
        self.fields.push(field.name());
        self.push_path(name);
        self.check_value(value, field.value_type())?;
        self.path.truncate(length);
        self.fields.truncate(depth);
        self.kind = outer;
        Ok(())
    }

    /// Null is valid for every type and means absent.
    fn check_value(&mut self, value: &Value, shape: ValueType<'t>) -> Result<(), TypeMismatchError> {
        match (shape.form(), value) {
            (_, Value::Null)
            | (TypeForm::Text, Value::String(_))
            | (TypeForm::Bool, Value::Bool(_))
            | (TypeForm::Double, Value::Number(_)) => Ok(()),
            (TypeForm::Int32, Value::Number(number)) => self.check_integer(number, fits_int32(number), "int32"),
            (TypeForm::Int64, Value::Number(number)) => self.check_integer(number, number.is_i64(), "int64"),
            (TypeForm::Bytes, Value::String(text)) => {
                base64::check(text).map_err(TypeMismatchError).or_else(|error| self.report(error))
            }
            (TypeForm::Bytes, Value::Array(items)) => self.check_bytes(items),
            (TypeForm::Special(special), _) => self.check_special(value, special),
            (TypeForm::List(items), Value::Array(list)) => self.check_list(list, items),
            (TypeForm::Map(values), Value::Object(map)) => self.check_map(map, values),
            (TypeForm::Struct(inner), Value::Object(object)) => self.check_fields(object, inner),
            _ => self.report(self.mismatch(go_json_type_name(value), &shape.go_type_name())),
        }
    }

    fn check_list(&mut self, list: &[Value], items: ValueType<'t>) -> Result<(), TypeMismatchError> {
        let (length, document) = (self.path.len(), self.document);
        let documents = document.map(Document::items).unwrap_or_default();
        for (index, item) in list.iter().enumerate() {
            write!(self.path, "[{index}]").expect("writing to a string cannot fail");
            self.document = documents.get(index).copied();
            self.check_value(item, items)?;
            self.path.truncate(length);
        }
        self.document = document;
        Ok(())
    }

    fn check_map(&mut self, map: &Map<String, Value>, values: ValueType<'t>) -> Result<(), TypeMismatchError> {
        let Some(document) = self.document else {
            return map.iter().try_for_each(|(key, value)| self.check_entry(key, value, values));
        };
        for (key, document) in document.fields() {
            let Some(value) = map.get(&key) else { continue };
            self.document = Some(document);
            self.check_entry(&key, value, values)?;
        }
        self.document = Some(document);
        Ok(())
    }

    fn check_entry(&mut self, key: &str, value: &Value, values: ValueType<'t>) -> Result<(), TypeMismatchError> {
        let length = self.path.len();
        self.push_path(key);
        self.check_value(value, values)?;
        self.path.truncate(length);
        Ok(())
    }

    fn check_integer(&mut self, number: &Number, fits: bool, expected: &str) -> Result<(), TypeMismatchError> {
        // `-0` is an integer for Go, and a float here.
        let is_zero = number.as_f64() == Some(0.0) && self.document.is_none_or(|document| document.text() == "-0");
        if fits || is_zero {
            return Ok(());
        }
        self.report(self.number_mismatch(number, expected))
    }

    fn number_mismatch(&self, number: &Number, expected: &str) -> TypeMismatchError {
        let text = self.document.map_or_else(|| number.to_string(), |document| document.text().to_owned());
        self.mismatch(&format!("number {text}"), expected)
    }

    /// A list of numbers is bytes too.
    fn check_bytes(&mut self, items: &[Value]) -> Result<(), TypeMismatchError> {
        let is_byte =
            |item: &&Value| item.is_null() || item.as_u64().is_some_and(|number| u8::try_from(number).is_ok());
        match items.iter().find(|item| !is_byte(item)) {
            None => Ok(()),
            Some(Value::Number(number)) => self.report(self.mismatch(&format!("number {number}"), "uint8")),
            Some(other) => self.report(self.mismatch(go_json_type_name(other), "uint8")),
        }
    }

    /// Ends the check, or remembers the mismatch while the order of the body decides.
    fn report(&mut self, mismatch: TypeMismatchError) -> Result<(), TypeMismatchError> {
        if self.document.is_none() {
            return Err(mismatch);
        }
        self.first_mismatch.get_or_insert(mismatch);
        Ok(())
    }

    fn check_special(&mut self, value: &Value, special: SpecialType) -> Result<(), TypeMismatchError> {
        match (special, value) {
            (SpecialType::Raw | SpecialType::Fields | SpecialType::Json | SpecialType::Patch, _)
            | (SpecialType::IntOrString, Value::String(_)) => Ok(()),
            (SpecialType::Quantity, _) => {
                Quantity::from_value(value).map(drop).map_err(|error| TypeMismatchError(error.to_string()))
            }
            (SpecialType::Time, Value::String(text)) => time::check(text, time::SECONDS).map_err(TypeMismatchError),
            (SpecialType::MicroTime, Value::String(text)) => {
                time::check(text, time::MICROSECONDS).map_err(TypeMismatchError)
            }
            (SpecialType::Time | SpecialType::MicroTime, _) => Err(self.mismatch(go_json_type_name(value), "string")),
            (SpecialType::IntOrString, Value::Number(number)) if fits_int32(number) => Ok(()),
            (SpecialType::IntOrString, Value::Number(number)) => Err(self.number_mismatch(number, "int32")),
            (SpecialType::IntOrString, _) => Err(self.mismatch(go_json_type_name(value), "int32")),
            (SpecialType::SchemaOrBool, Value::Bool(_)) => Ok(()),
            (SpecialType::SchemaOrBool, Value::Object(_))
            | (SpecialType::SchemaOrArray | SpecialType::SchemaOrStrings, Value::Object(_) | Value::Array(_)) => {
                self.check_nested_schema(value, special)
            }
            (SpecialType::SchemaOrBool, _) => Err(TypeMismatchError("boolean or JSON schema expected".to_owned())),
            // Go decodes anything else as absent.
            (SpecialType::SchemaOrArray | SpecialType::SchemaOrStrings, _) => Ok(()),
        }
    }

    /// A schema inside of a schema, which is always a field of one.
    fn check_nested_schema(&mut self, value: &Value, special: SpecialType) -> Result<(), TypeMismatchError> {
        let (was_opaque, schema, document) = (self.is_opaque, self.kind, self.document.take());
        self.is_opaque = true;
        match value {
            Value::Object(object) => self.check_fields(object, schema)?,
            Value::Array(items) => {
                for item in items {
                    match (special, item) {
                        (_, Value::Null) | (SpecialType::SchemaOrStrings, Value::String(_)) => {}
                        (SpecialType::SchemaOrArray, Value::Object(object)) => self.check_fields(object, schema)?,
                        (SpecialType::SchemaOrArray, _) => {
                            return Err(self.mismatch(go_json_type_name(item), "v1.JSONSchemaProps"));
                        }
                        _ => return Err(self.mismatch(go_json_type_name(item), "string")),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        (self.is_opaque, self.document) = (was_opaque, document);
        Ok(())
    }

    fn mismatch(&self, found: &str, expected: &str) -> TypeMismatchError {
        TypeMismatchError(format!(
            "json: cannot unmarshal {found} into Go struct field {}.{} of type {expected}",
            self.kind.name(),
            self.fields.join(".")
        ))
    }

    fn record_unknown_field(&mut self, name: &str) {
        if self.is_opaque || self.unknown.len() == REPORTED_UNKNOWN_FIELDS_MAX {
            return;
        }
        let length = self.path.len();
        self.push_path(name);
        self.unknown.push(self.path.clone());
        self.path.truncate(length);
    }

    fn push_path(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

fn fits_int32(number: &Number) -> bool {
    number.as_i64().is_some_and(|integer| i32::try_from(integer).is_ok())
}

/// The name of a JSON type in Go's decoder.
fn go_json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
