//! Types with a custom JSON encoding: in protobuf a small message each, in JSON a string, a number or any value.

use api::time::{MicroTime, Time};
use jiff::Timestamp;
use serde_json::Value;

use super::message::{DepthBudget, MessageError, MessageReader};
use super::wire::{Payload, WireError, WireFields};
use crate::SpecialType;

/// Seconds since 1970 of the years 0 to 9999.
const SECONDS_RANGE: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// Decodes a value; null if absent. `owner_reader` decodes the type that has the field: the schema type for nested
/// schemas.
pub(super) fn read_special<'t>(
    special: SpecialType,
    message: &[u8],
    owner_reader: &MessageReader<'_, 't>,
    room: DepthBudget,
) -> Result<Value, MessageError<'t>> {
    Ok(match special {
        SpecialType::Quantity => read_quantity(message)?,
        SpecialType::IntOrString => read_int_or_string(message)?,
        SpecialType::Time => read_time(message)?,
        SpecialType::MicroTime => read_micro_time(message)?,
        SpecialType::Raw | SpecialType::Fields | SpecialType::Json => read_raw_json(message, room)?,
        SpecialType::Patch => Value::Null,
        SpecialType::SchemaOrArray => {
            let inner = room.descend()?;
            read_schema_or_list(message, owner_reader, room, |schema| {
                owner_reader.read_same_type(schema.bytes()?, inner)
            })?
        }
        SpecialType::SchemaOrStrings => {
            read_schema_or_list(message, owner_reader, room, |name| Ok(name.text()?.into()))?
        }
        SpecialType::SchemaOrBool => read_schema_or_bool(message, owner_reader, room)?,
    })
}

fn read_quantity(message: &[u8]) -> Result<Value, WireError> {
    let mut text = "0";
    for field in WireFields::new(message) {
        if let (1, payload) = field? {
            text = payload.text()?;
        }
    }
    Ok(text.into())
}

fn read_int_or_string(message: &[u8]) -> Result<Value, WireError> {
    let (mut kind, mut number, mut text) = (0, 0, "");
    for field in WireFields::new(message) {
        match field? {
            (1, payload) => kind = payload.varint()?.cast_signed(),
            (2, payload) => number = payload.varint()?.cast_signed() as i32,
            (3, payload) => text = payload.text()?,
            _ => {}
        }
    }
    match kind {
        0 => Ok(number.into()),
        1 => Ok(text.into()),
        other => Err(WireError::NeitherIntNorString(other)),
    }
}

/// Ignores nanoseconds, like Kubernetes, so that an object is the same in JSON and protobuf.
fn read_time(message: &[u8]) -> Result<Value, WireError> {
    let Some((seconds, _)) = read_seconds_and_nanoseconds(message)? else { return Ok(Value::Null) };
    Ok(Time::from(timestamp(seconds, 0)?).to_string().into())
}

fn read_micro_time(message: &[u8]) -> Result<Value, WireError> {
    let Some((seconds, nanoseconds)) = read_seconds_and_nanoseconds(message)? else { return Ok(Value::Null) };
    Ok(MicroTime::from(timestamp(seconds, nanoseconds)?).to_string().into())
}

/// Seconds and nanoseconds since 1970. An absent time is an empty message; 1970 itself is encoded as two zeros.
fn read_seconds_and_nanoseconds(message: &[u8]) -> Result<Option<(i64, i32)>, WireError> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    for field in WireFields::new(message) {
        match field? {
            (1, payload) => seconds = payload.varint()?.cast_signed(),
            (2, payload) => nanoseconds = payload.varint()?.cast_signed() as i32,
            _ => {}
        }
    }
    Ok((!message.is_empty()).then_some((seconds, nanoseconds)))
}

fn timestamp(seconds: i64, nanoseconds: i32) -> Result<Timestamp, WireError> {
    let instant = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let timestamp = Timestamp::from_nanosecond(instant).ok();
    timestamp
        .filter(|timestamp| SECONDS_RANGE.contains(&timestamp.as_second()))
        .ok_or(WireError::TimeOutOfRange(seconds))
}

/// Decodes a message that contains JSON text.
fn read_raw_json(message: &[u8], room: DepthBudget) -> Result<Value, WireError> {
    let mut raw: &[u8] = b"";
    for field in WireFields::new(message) {
        if let (1, payload) = field? {
            raw = payload.bytes()?;
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let value: Value = serde_json::from_slice(raw).map_err(|error| WireError::NotJson(error.to_string()))?;
    if nesting_depth(&value) > room.levels() {
        return Err(WireError::TooDeep);
    }
    Ok(value)
}

/// Recursion is bounded by the depth limit of the JSON parser.
fn nesting_depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(nesting_depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(nesting_depth).max().unwrap_or(0),
    }
}

fn read_schema_or_list<'t>(
    message: &[u8],
    schema: &MessageReader<'_, 't>,
    room: DepthBudget,
    item: impl Fn(Payload<'_>) -> Result<Value, MessageError<'t>>,
) -> Result<Value, MessageError<'t>> {
    let (mut alone, mut list) = (Value::Null, Vec::new());
    for field in WireFields::new(message) {
        match field? {
            (1, payload) => alone = schema.read_same_type(payload.bytes()?, room)?,
            (2, payload) => list.push(item(payload)?),
            _ => {}
        }
    }
    Ok(if list.is_empty() { alone } else { list.into() })
}

fn read_schema_or_bool<'t>(
    message: &[u8],
    schema: &MessageReader<'_, 't>,
    room: DepthBudget,
) -> Result<Value, MessageError<'t>> {
    let (mut is_allowed, mut what) = (false, None);
    for field in WireFields::new(message) {
        match field? {
            (1, payload) => is_allowed = payload.varint()? != 0,
            (2, payload) => what = Some(schema.read_same_type(payload.bytes()?, room)?),
            _ => {}
        }
    }
    Ok(what.unwrap_or_else(|| is_allowed.into()))
}
