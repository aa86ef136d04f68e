//! JSON parser with a depth limit that records duplicate fields.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::go_syntax::syntax_error;
use super::{DEPTH_MAX, Decoded, REPORTED_DUPLICATES_MAX};

pub(super) fn parse(body: &[u8]) -> Result<Decoded<Value>, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let mut seen = DuplicateTracker { path: String::new(), duplicates: Vec::new() };
    let parsed = ValueSeed { tracker: &mut seen, depth: 0 }.deserialize(&mut deserializer);
    let parsed = parsed.and_then(|value| deserializer.end().map(|()| value));
    let value = parsed.map_err(|error| syntax_error(body).unwrap_or_else(|| error.to_string()))?;
    Ok(Decoded { value, duplicate_fields: seen.duplicates })
}

const DUPLICATE: &str = "duplicate field";

/// The text of a strict decoding error for a field that an object has twice.
pub(super) fn duplicate_field(path: &str) -> String {
    format!("{DUPLICATE} {path:?}")
}

/// True for the text of [`duplicate_field`].
pub(super) fn is_duplicate(error: &str) -> bool {
    error.starts_with(DUPLICATE)
}

struct DuplicateTracker {
    /// Path of the value being parsed, such as `spec.containers[0].name`.
    path: String,
    duplicates: Vec<String>,
}

struct ValueSeed<'a> {
    tracker: &'a mut DuplicateTracker,
    depth: usize,
}

impl ValueSeed<'_> {
    fn child_depth<E: Error>(&self) -> Result<usize, E> {
        if self.depth == DEPTH_MAX { Err(E::custom("exceeded max depth")) } else { Ok(self.depth + 1) }
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    /// Integers above `i64::MAX` become floats, as in Go.
    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(|_| (value as f64).into(), Value::from))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let depth = self.child_depth()?;
        let mut list = Vec::new();
        let here = self.tracker.path.len();
        loop {
            write!(self.tracker.path, "[{}]", list.len()).expect("writing to a string cannot fail");
            let item = items.next_element_seed(ValueSeed { tracker: &mut *self.tracker, depth })?;
            self.tracker.path.truncate(here);
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let depth = self.child_depth()?;
        let mut map = Map::new();
        let here = self.tracker.path.len();
        while let Some(name) = fields.next_key::<String>()? {
            if here > 0 {
                self.tracker.path.push('.');
            }
            self.tracker.path.push_str(&name);
            let value = fields.next_value_seed(ValueSeed { tracker: &mut *self.tracker, depth })?;
            if map.insert(name, value).is_some() && self.tracker.duplicates.len() < REPORTED_DUPLICATES_MAX {
                self.tracker.duplicates.push(duplicate_field(&self.tracker.path));
            }
            self.tracker.path.truncate(here);
        }
        Ok(Value::Object(map))
    }
}
