//! Values as text in error messages: `no such key: a`.

use std::fmt;

use super::{List, Map, Value, type_name};
use crate::number::format_g;
use crate::time::duration_to_string;

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Uint(value) => write!(f, "{value}"),
            Value::Double(value) => f.write_str(&format_g(*value)),
            Value::String(text) => f.write_str(text),
            Value::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Value::Duration(nanos) => f.write_str(&duration_to_string(*nanos)),
            Value::Timestamp(timestamp) => f.write_str(&timestamp.to_rfc3339()),
            Value::List(list) => show_list(f, list),
            Value::Map(map) => show_map(f, map),
            Value::Optional(Some(value)) => write!(f, "optional({value})"),
            Value::Optional(None) => f.write_str("optional.none()"),
            Value::Type(value) => f.write_str(&type_name(value)),
            Value::Opaque(opaque) => f.write_str(&opaque.text()),
        }
    }
}

fn show_list(f: &mut fmt::Formatter<'_>, list: &List<'_>) -> fmt::Result {
    f.write_str("[")?;
    for (at, item) in list.iter().enumerate() {
        if at > 0 {
            f.write_str(", ")?;
        }
        match item {
            Ok(item) => write!(f, "{item}")?,
            Err(error) => write!(f, "{error}")?,
        }
    }
    f.write_str("]")
}

fn show_map(f: &mut fmt::Formatter<'_>, map: &Map<'_>) -> fmt::Result {
    f.write_str("{")?;
    for (at, key) in map.keys().iter().enumerate() {
        if at > 0 {
            f.write_str(", ")?;
        }
        match map.find(key) {
            Ok(Some(value)) => write!(f, "{key}: {value}")?,
            _ => write!(f, "{key}")?,
        }
    }
    f.write_str("}")
}
