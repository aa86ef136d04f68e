//! Whether a body has the types of its kind, in the words of Kubernetes' decoder.
//!
//! A body of wrong types must never be stored, whatever the request says: a server that reads it into Go's types could not
//! even list the kind any more. Unknown fields are another matter: they are named, and the request says whether that is an
//! error, a warning or nothing.
//!
//! Of several wrong types the first by name is reported, where Go reports the first in the body.

mod base64;
mod time;

use std::fmt::Write as _;

use api::GroupVersionKind;
use serde_json::{Map, Number, Value};

use super::quantity::Quantity;
use super::{Form, Shape, Special, Struct};

/// How many unknown fields are named, as in Kubernetes.
const UNKNOWN_MAX: usize = 100;

/// Why Go's decoder would not take a body. Kubernetes answers 400 with it, behind [`cannot_be_handled`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongType(String);

/// Refuses a body with a wrong type; else names the fields that the type does not have, each as a warning or a part of a
/// [`strict_error`]: `unknown field "spec.foo"`.
pub fn check(body: &Map<String, Value>, kind: Struct) -> Result<Vec<String>, WrongType> {
    let mut walk = Walk { kind, fields: Vec::new(), path: String::new(), unknown: Vec::new(), is_opaque: false };
    walk.fields(body, kind)?;
    Ok(walk.unknown)
}

/// What `fieldValidation=Strict` says to unknown and duplicate fields. `None` if there are none.
pub fn strict_error(faults: &[String]) -> Option<String> {
    (!faults.is_empty()).then(|| format!("strict decoding error: {}", faults.join(", ")))
}

/// How the message of a 400 begins, if a body was recognized as its kind and could not be read.
pub fn cannot_be_handled(kind: GroupVersionKind<&str>, reason: &str) -> String {
    format!("{} in version {:?} cannot be handled as a {}: {reason}", kind.kind, kind.version, kind.kind)
}

/// Where in the body we are.
struct Walk {
    /// The innermost type whose field we are in; Go names it in every message.
    kind: Struct,
    /// The names of fields on the way, without indices and keys.
    fields: Vec<&'static str>,
    /// The same with them: `spec.containers[0].name`.
    path: String,
    unknown: Vec<String>,
    /// Inside of a type that reads itself: messages stay at its field, and unknown fields are dropped silently.
    is_opaque: bool,
}

impl Walk {
    fn fields(&mut self, object: &Map<String, Value>, kind: Struct) -> Result<(), WrongType> {
        for (name, value) in object {
            let Some(field) = kind.field(name) else {
                self.note_unknown(name);
                continue;
            };
            if self.is_opaque {
                self.value(value, field.shape())?;
                continue;
            }
            let (outer, length) = (self.kind, self.path.len());
            self.kind = kind;
            self.fields.push(field.name());
            self.descend(name);
            self.value(value, field.shape())?;
            self.path.truncate(length);
            self.fields.pop();
            self.kind = outer;
        }
        Ok(())
    }

    /// Null is no value, for every type.
    fn value(&mut self, value: &Value, shape: Shape) -> Result<(), WrongType> {
        match (shape.form(), value) {
            (_, Value::Null)
            | (Form::Text, Value::String(_))
            | (Form::Bool, Value::Bool(_))
            | (Form::Double, Value::Number(_)) => Ok(()),
            (Form::Int32, Value::Number(number)) => self.integer(number, fits_int32(number), "int32"),
            (Form::Int64, Value::Number(number)) => self.integer(number, number.is_i64(), "int64"),
            (Form::Bytes, Value::String(text)) => base64::check(text).map_err(WrongType),
            (Form::Special(special), _) => self.special(value, special),
            (Form::List(items), Value::Array(list)) => self.list(list, items),
            (Form::Map(values), Value::Object(map)) => self.map(map, values),
            (Form::Struct(inner), Value::Object(object)) => self.fields(object, inner),
            _ => Err(self.mismatch(go_kind(value), &shape.go_name())),
        }
    }

    fn list(&mut self, list: &[Value], items: Shape) -> Result<(), WrongType> {
        let length = self.path.len();
        for (index, item) in list.iter().enumerate() {
            write!(self.path, "[{index}]").expect("writing to a string cannot fail");
            self.value(item, items)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn map(&mut self, map: &Map<String, Value>, values: Shape) -> Result<(), WrongType> {
        let length = self.path.len();
        for (key, value) in map {
            self.descend(key);
            self.value(value, values)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn integer(&self, number: &Number, fits: bool, expected: &str) -> Result<(), WrongType> {
        if fits { Ok(()) } else { Err(self.mismatch(&format!("number {number}"), expected)) }
    }

    fn special(&mut self, value: &Value, special: Special) -> Result<(), WrongType> {
        match (special, value) {
            (Special::Raw | Special::Fields | Special::Json | Special::Patch, _)
            | (Special::IntOrString, Value::String(_)) => Ok(()),
            (Special::Quantity, _) => Quantity::of(value).map(drop).map_err(|error| WrongType(error.to_string())),
            (Special::Time, Value::String(text)) => time::check(text, time::SECONDS).map_err(WrongType),
            (Special::MicroTime, Value::String(text)) => time::check(text, time::MICROSECONDS).map_err(WrongType),
            (Special::Time | Special::MicroTime, _) => Err(self.mismatch(go_kind(value), "string")),
            (Special::IntOrString, Value::Number(number)) => self.integer(number, fits_int32(number), "int32"),
            (Special::IntOrString, _) => Err(self.mismatch(go_kind(value), "int32")),
            (Special::SchemaOrBool, Value::Bool(_)) => Ok(()),
            (Special::SchemaOrBool, Value::Object(_))
            | (Special::SchemaOrArray | Special::SchemaOrStrings, Value::Object(_) | Value::Array(_)) => {
                self.schema(value, special)
            }
            (Special::SchemaOrBool, _) => Err(WrongType("boolean or JSON schema expected".to_owned())),
            // Go reads anything else as nothing at all.
            (Special::SchemaOrArray | Special::SchemaOrStrings, _) => Ok(()),
        }
    }

    /// A schema inside of a schema, which is always a field of one.
    fn schema(&mut self, value: &Value, special: Special) -> Result<(), WrongType> {
        let (was_opaque, schema) = (self.is_opaque, self.kind);
        self.is_opaque = true;
        match value {
            Value::Object(object) => self.fields(object, schema)?,
            Value::Array(items) => {
                for item in items {
                    match (special, item) {
                        (_, Value::Null) | (Special::SchemaOrStrings, Value::String(_)) => {}
                        (Special::SchemaOrArray, Value::Object(object)) => self.fields(object, schema)?,
                        (Special::SchemaOrArray, _) => {
                            return Err(self.mismatch(go_kind(item), "v1.JSONSchemaProps"));
                        }
                        _ => return Err(self.mismatch(go_kind(item), "string")),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        self.is_opaque = was_opaque;
        Ok(())
    }

    fn mismatch(&self, found: &str, expected: &str) -> WrongType {
        WrongType(format!(
            "json: cannot unmarshal {found} into Go struct field {}.{} of type {expected}",
            self.kind.name(),
            self.fields.join(".")
        ))
    }

    fn note_unknown(&mut self, name: &str) {
        if self.is_opaque || self.unknown.len() == UNKNOWN_MAX {
            return;
        }
        let length = self.path.len();
        self.descend(name);
        self.unknown.push(format!("unknown field {:?}", self.path));
        self.path.truncate(length);
    }

    fn descend(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

fn fits_int32(number: &Number) -> bool {
    number.as_i64().is_some_and(|integer| i32::try_from(integer).is_ok())
}

/// What Go's decoder calls a value.
fn go_kind(value: &Value) -> &'static str {
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
