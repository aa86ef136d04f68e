//! Types that read themselves: in protobuf a small message each, in JSON a text, a number or anything.

use api::time::{MicroTime, Time};
use jiff::Timestamp;
use serde_json::Value;

use super::message::{Failure, Reader, Room};
use super::wire::{Fault, Fields, Payload};
use crate::schema::Special;

/// The first and the last second of the years that a date of four digits can name.
const SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// Reads a value; null if there is none. `home` reads the type that has the field: a schema, if the value is one.
pub(super) fn read(special: Special, message: &[u8], home: &Reader<'_>, room: Room) -> Result<Value, Failure> {
    Ok(match special {
        Special::Quantity => quantity(message)?,
        Special::IntOrString => int_or_string(message)?,
        Special::Time => seconds(message)?,
        Special::MicroTime => microseconds(message)?,
        Special::Raw | Special::Fields | Special::Json => json(message, room)?,
        Special::Patch => Value::Null,
        Special::SchemaOrArray => {
            let inner = room.enter()?;
            schema_or_list(message, home, room, |schema| home.another(schema.bytes()?, inner))?
        }
        Special::SchemaOrStrings => schema_or_list(message, home, room, |name| Ok(name.text()?.into()))?,
        Special::SchemaOrBool => schema_or_bool(message, home, room)?,
    })
}

fn quantity(message: &[u8]) -> Result<Value, Fault> {
    let mut text = "0";
    for field in Fields::of(message) {
        if let (1, payload) = field? {
            text = payload.text()?;
        }
    }
    Ok(text.into())
}

fn int_or_string(message: &[u8]) -> Result<Value, Fault> {
    let (mut kind, mut number, mut text) = (0, 0, "");
    for field in Fields::of(message) {
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
        other => Err(Fault::NeitherIntNorString(other)),
    }
}

/// Nanoseconds are there and not read, by Kubernetes neither: an object must not differ between JSON and protobuf.
fn seconds(message: &[u8]) -> Result<Value, Fault> {
    let Some((seconds, _)) = instant(message)? else { return Ok(Value::Null) };
    Ok(Time::from(timestamp(seconds, 0)?).to_string().into())
}

fn microseconds(message: &[u8]) -> Result<Value, Fault> {
    let Some((seconds, nanoseconds)) = instant(message)? else { return Ok(Value::Null) };
    Ok(MicroTime::from(timestamp(seconds, nanoseconds)?).to_string().into())
}

/// Seconds and nanoseconds since 1970. No time at all is an empty message; 1970 has two zeros in it.
fn instant(message: &[u8]) -> Result<Option<(i64, i32)>, Fault> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    for field in Fields::of(message) {
        match field? {
            (1, payload) => seconds = payload.varint()?.cast_signed(),
            (2, payload) => nanoseconds = payload.varint()?.cast_signed() as i32,
            _ => {}
        }
    }
    Ok((!message.is_empty()).then_some((seconds, nanoseconds)))
}

fn timestamp(seconds: i64, nanoseconds: i32) -> Result<Timestamp, Fault> {
    let instant = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let timestamp = Timestamp::from_nanosecond(instant).ok();
    timestamp.filter(|timestamp| SECONDS.contains(&timestamp.as_second())).ok_or(Fault::OutOfTime(seconds))
}

/// Bytes that are JSON already.
fn json(message: &[u8], room: Room) -> Result<Value, Fault> {
    let mut raw: &[u8] = b"";
    for field in Fields::of(message) {
        if let (1, payload) = field? {
            raw = payload.bytes()?;
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let value: Value = serde_json::from_slice(raw).map_err(|error| Fault::NotJson(error.to_string()))?;
    if depth(&value) > room.levels() {
        return Err(Fault::TooDeep);
    }
    Ok(value)
}

/// Parsing has bounded it.
fn depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
    }
}

fn schema_or_list(
    message: &[u8],
    schema: &Reader<'_>,
    room: Room,
    item: impl Fn(Payload<'_>) -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    let (mut alone, mut list) = (Value::Null, Vec::new());
    for field in Fields::of(message) {
        match field? {
            (1, payload) => alone = schema.another(payload.bytes()?, room)?,
            (2, payload) => list.push(item(payload)?),
            _ => {}
        }
    }
    Ok(if list.is_empty() { alone } else { list.into() })
}

fn schema_or_bool(message: &[u8], schema: &Reader<'_>, room: Room) -> Result<Value, Failure> {
    let (mut is_allowed, mut what) = (false, None);
    for field in Fields::of(message) {
        match field? {
            (1, payload) => is_allowed = payload.varint()? != 0,
            (2, payload) => what = Some(schema.another(payload.bytes()?, room)?),
            _ => {}
        }
    }
    Ok(what.unwrap_or_else(|| is_allowed.into()))
}
