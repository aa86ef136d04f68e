//! Type conversions: `int(x)`, `string(x)`, `timestamp(x)` and so on.

use std::sync::Arc;

use crate::error::EvalError;
use crate::function::Function;
use crate::library::Opaque;
use crate::number::{double_to_int, double_to_uint, format_g, parse_float, parse_int, parse_uint};
use crate::time::{Timestamp, duration_to_string, parse_duration, parse_rfc3339};
use crate::value::{Blob, Text, Value};

type Converted<'a> = Result<Value<'a>, EvalError>;

/// Converts a value to the type that the function names.
pub(crate) fn convert<'a>(function: Function, value: Value<'a>) -> Converted<'a> {
    let converted = match function {
        Function::ToDyn => return Ok(value),
        Function::TypeOf => return Ok(Value::Type(value.runtime_type())),
        Function::ToBool => to_bool(&value),
        Function::ToBytes => to_bytes(&value),
        Function::ToDouble => to_double(&value),
        Function::ToDuration => to_duration(&value),
        Function::ToInt => to_int(&value),
        Function::ToString => to_string(&value),
        Function::ToTimestamp => to_timestamp(&value),
        Function::ToUint => to_uint(&value),
        _ => None,
    };
    match converted {
        Some(result) => result,
        None => Err(EvalError::new(format!("no such overload: {}({})", function.name(), value.type_name()))),
    }
}

fn failed(value: &Value<'_>, target: &str) -> EvalError {
    EvalError::new(format!("type conversion error from '{}' to '{target}'", value.type_name()))
}

fn to_bool<'a>(value: &Value<'a>) -> Option<Converted<'a>> {
    Some(match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(failed(value, "bool")),
        },
        _ => return None,
    })
}

fn to_bytes<'a>(value: &Value<'a>) -> Option<Converted<'a>> {
    Some(match value {
        Value::Bytes(_) => Ok(value.clone()),
        Value::String(Text::Borrowed(text)) => Ok(Value::Bytes(Blob::Borrowed(text.as_bytes()))),
        Value::String(Text::Shared(text)) => Ok(Value::Bytes(Blob::Shared(Arc::from(text.as_bytes())))),
        _ => return None,
    })
}

fn to_double<'a>(value: &Value<'a>) -> Option<Converted<'a>> {
    Some(match value {
        Value::Double(_) => Ok(value.clone()),
        Value::Int(number) => Ok(Value::Double(*number as f64)),
        Value::Uint(number) => Ok(Value::Double(*number as f64)),
        Value::String(text) => parse_float(text).map(Value::Double).ok_or_else(|| failed(value, "double")),
        _ => return None,
    })
}

fn to_duration<'a>(value: &Value<'a>) -> Option<Converted<'a>> {
    const NAME: &str = "google.protobuf.Duration";
    Some(match value {
        Value::Duration(_) => Ok(value.clone()),
        Value::String(text) => parse_duration(text).map(Value::Duration).ok_or_else(|| failed(value, NAME)),
        Value::Int(_) => Err(failed(value, NAME)),
        _ => return None,
    })
}

fn to_int<'a>(value: &Value<'a>) -> Option<Converted<'a>> {
    let overflow = || EvalError::new("integer overflow");
    Some(match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(number) => i64::try_from(*number).map(Value::Int).map_err(|_| overflow()),
        Value::Double(number) => double_to_int(*number).map(Value::Int).ok_or_else(overflow),
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        Value::Timestamp(timestamp) => Ok(Value::Int(timestamp.seconds)),
        Value::String(text) => parse_int(text).map(Value::Int).ok_or_else(|| failed(value, "int")),
        _ => return None,
    })
}

fn to_uint<'a>(value: &Value<'a>) -> Option<Converted<'a>> {
    let overflow = || EvalError::new("unsigned integer overflow");
    Some(match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(number) => u64::try_from(*number).map(Value::Uint).map_err(|_| overflow()),
        Value::Double(number) => double_to_uint(*number).map(Value::Uint).ok_or_else(overflow),
        Value::String(text) => parse_uint(text).map(Value::Uint).ok_or_else(|| failed(value, "uint")),
        _ => return None,
    })
}

fn to_timestamp<'a>(value: &Value<'a>) -> Option<Converted<'a>> {
    Some(match value {
        Value::Timestamp(_) => Ok(value.clone()),
        Value::Int(seconds) => {
            Timestamp::new(*seconds, 0).map(Value::Timestamp).ok_or_else(|| EvalError::new("timestamp overflow"))
        }
        Value::String(text) => {
            parse_rfc3339(text).map(Value::Timestamp).ok_or_else(|| failed(value, "google.protobuf.Timestamp"))
        }
        _ => return None,
    })
}

fn to_string<'a>(value: &Value<'a>) -> Option<Converted<'a>> {
    Some(Ok(match value {
        Value::String(_) => value.clone(),
        Value::Bool(value) => Value::from(if *value { "true" } else { "false" }),
        Value::Int(number) => Value::from(number.to_string()),
        Value::Uint(number) => Value::from(number.to_string()),
        Value::Double(number) => Value::from(format_g(*number)),
        Value::Duration(nanos) => Value::from(duration_to_string(*nanos)),
        Value::Timestamp(timestamp) => Value::from(timestamp.to_rfc3339()),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::from(text.to_owned()),
            Err(_) => return Some(Err(EvalError::new("invalid UTF-8 in bytes, cannot convert to string"))),
        },
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Ip(_) | Opaque::Cidr(_) => Value::from(opaque.text()),
            _ => return None,
        },
        _ => return None,
    }))
}
