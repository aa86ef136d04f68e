//! JSON to a value, with a limit on depth and a note of fields that come twice.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{DEPTH_MAX, DUPLICATES_MAX, Decoded};

pub(super) fn parse(body: &[u8]) -> Result<Decoded<Value>, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let mut seen = Seen { path: String::new(), duplicates: Vec::new() };
    let value = Node { seen: &mut seen, depth: 0 }.deserialize(&mut deserializer).map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())?;
    Ok(Decoded { value, duplicates: seen.duplicates })
}

struct Seen {
    /// Where we are, such as `spec.containers[0].name`.
    path: String,
    duplicates: Vec<String>,
}

struct Node<'a> {
    seen: &'a mut Seen,
    depth: usize,
}

impl Node<'_> {
    fn deeper<E: Error>(&self) -> Result<usize, E> {
        if self.depth == DEPTH_MAX { Err(E::custom("exceeded max depth")) } else { Ok(self.depth + 1) }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
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

    /// What does not fit a signed integer is a float, as in Go.
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
        let depth = self.deeper()?;
        let mut list = Vec::new();
        let here = self.seen.path.len();
        loop {
            write!(self.seen.path, "[{}]", list.len()).expect("writing to a string cannot fail");
            let item = items.next_element_seed(Node { seen: &mut *self.seen, depth })?;
            self.seen.path.truncate(here);
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut map = Map::new();
        let here = self.seen.path.len();
        while let Some(name) = fields.next_key::<String>()? {
            if here > 0 {
                self.seen.path.push('.');
            }
            self.seen.path.push_str(&name);
            let value = fields.next_value_seed(Node { seen: &mut *self.seen, depth })?;
            if map.insert(name, value).is_some() && self.seen.duplicates.len() < DUPLICATES_MAX {
                self.seen.duplicates.push(format!("duplicate field {:?}", self.seen.path));
            }
            self.seen.path.truncate(here);
        }
        Ok(Value::Object(map))
    }
}
