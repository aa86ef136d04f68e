//! From JSON with a declared type to a value, without copying.

use std::sync::Arc;

use serde_json::{Map as JsonMap, Number, Value as Json};

use super::{Blob, List, Map, Text, Value};
use crate::decl::{DeclKind, DeclType};
use crate::encoding::{corrupt_base64_at, decode_base64};
use crate::error::EvalError;
use crate::time::{parse_date, parse_date_time, parse_format_duration};

static DYNAMIC: DeclType = DeclType { kind: DeclKind::Dyn, max_elements: 0, min_serialized_size: 1, nullable: true };

/// The declaration of values of which nothing is known.
pub(crate) fn dynamic() -> &'static DeclType {
    &DYNAMIC
}

/// Views a JSON value as its declared type says.
pub(crate) fn view<'a>(json: &'a Json, decl: &'a DeclType) -> Result<Value<'a>, EvalError> {
    match (&decl.kind, json) {
        (DeclKind::String, Json::String(text)) => Ok(Value::String(Text::Borrowed(text))),
        (DeclKind::Dyn | DeclKind::Named(_), _) => Ok(untyped(json)),
        (_, Json::Null) if decl.nullable => Ok(Value::Null),
        (_, Json::Null) => Err(EvalError::new("invalid data, got null for schema with nullable=false")),
        (DeclKind::Object(_), Json::Object(map)) => Ok(Value::Map(Map::Json(map, decl))),
        (DeclKind::Map { .. }, Json::Object(map)) => Ok(Value::Map(Map::Json(map, decl))),
        (DeclKind::List { .. }, Json::Array(items)) => Ok(Value::List(List::Json(items, decl))),
        (DeclKind::Int, Json::Number(number)) if number.is_i64() => Ok(Value::Int(number.as_i64().unwrap_or(0))),
        (DeclKind::Uint, Json::Number(number)) if number.is_u64() => Ok(Value::Uint(number.as_u64().unwrap_or(0))),
        (DeclKind::Double, Json::Number(number)) => Ok(Value::Double(number.as_f64().unwrap_or(0.0))),
        (DeclKind::Bool, Json::Bool(value)) => Ok(Value::Bool(*value)),
        (DeclKind::IntOrString, Json::String(text)) => Ok(Value::String(Text::Borrowed(text))),
        (DeclKind::IntOrString, Json::Number(number)) if number.is_i64() => Ok(numeric(number)),
        // Inside an optional variable upstream sees the plain document: no escaped names, no list types.
        (DeclKind::Optional(_), Json::Object(_) | Json::Array(_)) => view(json, &PLAIN).map(Value::some),
        (DeclKind::Optional(inner), _) => view(json, inner).map(Value::some).map_err(|error| {
            EvalError::new(format!("unsupported conversion to ref.Val: (*errors.errorString){error}"))
        }),
        (_, Json::String(text)) => formatted(&decl.kind, text),
        _ => Err(mismatch(&decl.kind, json)),
    }
}

/// Views an object of a document as its declared type says.
pub(crate) fn view_object<'a>(map: &'a JsonMap<String, Json>, decl: &'a DeclType) -> Result<Value<'a>, EvalError> {
    match &decl.kind {
        DeclKind::Object(_) | DeclKind::Map { .. } => Ok(Value::Map(Map::Json(map, decl))),
        DeclKind::Dyn | DeclKind::Named(_) => Ok(Value::Map(Map::Json(map, &DYNAMIC))),
        DeclKind::Optional(_) => Ok(Value::some(Value::Map(Map::Json(map, &DYNAMIC)))),
        kind => Err(mismatch(kind, &Json::Object(JsonMap::new()))),
    }
}

impl DeclType {
    /// A JSON value as this type says.
    pub fn view<'a>(&'a self, json: &'a Json) -> Result<Value<'a>, EvalError> {
        view(json, self)
    }

    /// A JSON object as this type says.
    pub fn view_object<'a>(&'a self, map: &'a JsonMap<String, Json>) -> Result<Value<'a>, EvalError> {
        view_object(map, self)
    }
}

static PLAIN: DeclType = DeclType::plain();

fn formatted<'a>(kind: &DeclKind, text: &str) -> Result<Value<'a>, EvalError> {
    let invalid = |what: &str| EvalError::new(format!("Invalid {what} {text}"));
    match kind {
        DeclKind::Duration => parse_format_duration(text)
            .map(Value::Duration)
            .ok_or_else(|| EvalError::new(format!("Invalid duration {text}: unable to parse {text} as duration"))),
        DeclKind::Date => parse_date(text).map(Value::Timestamp).ok_or_else(|| invalid("date formatted string")),
        DeclKind::DateTime => {
            parse_date_time(text).map(Value::Timestamp).ok_or_else(|| invalid("date-time formatted string"))
        }
        DeclKind::Bytes => match decode_base64(text) {
            Some(bytes) => Ok(Value::Bytes(Blob::Shared(Arc::from(bytes)))),
            None => {
                let at = corrupt_base64_at(text);
                Err(EvalError::new(format!(
                    "Invalid byte formatted string {text}: illegal base64 data at input byte {at}"
                )))
            }
        },
        _ => Err(mismatch(kind, &Json::String(String::new()))),
    }
}

fn mismatch(kind: &DeclKind, json: &Json) -> EvalError {
    let got = match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    };
    EvalError::new(match kind {
        DeclKind::Object(_) | DeclKind::Map { .. } => {
            "invalid data, expected a map for the provided schema with type=object".to_owned()
        }
        DeclKind::List { .. } => "invalid data, expected an array for the provided schema with type=array".to_owned(),
        DeclKind::IntOrString => {
            "invalid data, expected XIntOrString value to be either a string or integer".to_owned()
        }
        DeclKind::Int | DeclKind::Uint => format!("invalid data, expected int, got {got}"),
        DeclKind::Double => format!("invalid data, expected float, got {got}"),
        DeclKind::Bool => format!("invalid data, expected bool, got {got}"),
        _ => format!("invalid data, expected string, got {got}"),
    })
}

fn untyped(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => numeric(number),
        Json::String(text) => Value::String(Text::Borrowed(text)),
        Json::Array(items) => Value::List(List::Json(items, &DYNAMIC)),
        Json::Object(map) => Value::Map(Map::Json(map, &DYNAMIC)),
    }
}

fn numeric<'a>(number: &Number) -> Value<'a> {
    match number.as_i64() {
        Some(value) => Value::Int(value),
        None => Value::Double(number.as_f64().unwrap_or(0.0)),
    }
}
