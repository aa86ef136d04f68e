//! Values as JSON: what expressions of mutations construct.

use serde_json::{Map as JsonMap, Number, Value as Json};

use super::{List, Map, Value};
use crate::encoding::encode_base64;
use crate::error::EvalError;
use crate::time::duration_to_string;
use crate::types::Type;

/// How deep a value may be nested.
const DEPTH_MAX: usize = 1_000;

impl Value<'_> {
    /// The value as JSON. Bytes become base64, times and durations text; types and values of libraries have no JSON.
    pub fn to_json(&self) -> Result<Json, EvalError> {
        to_json(self, 0)
    }

    /// The type of an object that the expression constructed, e.g. `Object.spec`.
    pub fn constructed_type(&self) -> Option<String> {
        match self {
            Value::Map(map) => map.object_type().map(|object_type| object_type.to_string()),
            _ => None,
        }
    }

    /// Compares the types of constructed objects with the paths at which they stand: below a field `spec` of an `Object`
    /// only `Object.spec` fits. Returns Kubernetes' text for each that differs.
    pub fn misplaced_types(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(root) = self.constructed_type() {
            find_misplaced(self, &root, &mut found, 0);
        }
        found
    }
}

fn find_misplaced(value: &Value<'_>, path: &str, found: &mut Vec<String>, depth: usize) {
    if depth > DEPTH_MAX {
        return;
    }
    match value {
        // Parts of a document contain no constructed objects.
        Value::Map(Map::Json(..)) | Value::List(List::Json(..)) => {}
        Value::Map(map) => {
            let object_type = map.object_type();
            if let Some(Type::Object(decl)) = &object_type
                && decl.type_name() != path
            {
                found.push(format!(
                    "unexpected type name {:?}, expected {path:?}, which matches field name path from root Object type",
                    decl.type_name()
                ));
            }
            for key in map.keys() {
                let Ok(Some(item)) = map.find(&key) else { continue };
                let inner = match object_type {
                    Some(_) => format!("{path}.{key}"),
                    None => path.to_owned(),
                };
                find_misplaced(&item, &inner, found, depth + 1);
            }
        }
        Value::List(list) => {
            for item in list.iter().flatten() {
                find_misplaced(&item, path, found, depth + 1);
            }
        }
        _ => {}
    }
}

fn to_json(value: &Value<'_>, depth: usize) -> Result<Json, EvalError> {
    if depth > DEPTH_MAX {
        return Err(EvalError::new("the value is nested too deeply"));
    }
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::Uint(value) => Json::from(*value),
        Value::Double(value) => {
            let number = Number::from_f64(*value);
            Json::Number(number.ok_or_else(|| EvalError::new(format!("{value} has no JSON form")))?)
        }
        Value::String(text) => Json::from(&**text),
        Value::Bytes(bytes) => Json::from(encode_base64(bytes)),
        Value::Duration(nanos) => Json::from(duration_to_string(*nanos)),
        Value::Timestamp(time) => Json::from(time.to_rfc3339()),
        Value::List(List::Json(items, _)) => Json::Array((*items).clone()),
        Value::List(list) => {
            let mut items = Vec::with_capacity(list.len());
            for item in list.iter() {
                items.push(to_json(&item?, depth + 1)?);
            }
            Json::Array(items)
        }
        Value::Map(Map::Json(map, _)) => Json::Object((*map).clone()),
        Value::Map(map) => {
            let mut object = JsonMap::new();
            for key in map.keys() {
                let Value::String(name) = &key else {
                    let message = format!("map key {:?} is of type {}, not string", key.to_string(), key.go_type());
                    return Err(EvalError::new(message));
                };
                let item = map.find(&key)?.unwrap_or(Value::Null);
                object.insert(name.to_string(), to_json(&item, depth + 1)?);
            }
            Json::Object(object)
        }
        Value::Optional(Some(value)) => to_json(value, depth + 1)?,
        Value::Optional(None) => Json::Null,
        Value::Type(_) | Value::Opaque(_) => {
            return Err(EvalError::new(format!("a value of type {} has no JSON form", value.type_name())));
        }
    })
}
