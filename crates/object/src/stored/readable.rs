//! Whether all of a JSON text can be read as a value.
//!
//! Passing over a field, as serde does with those that a struct lacks, checks neither its strings, its numbers nor its depth.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Read from a text that could also be read as a `serde_json::Value`; keeps nothing of it.
pub(super) struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadableVisitor)
    }
}

struct ReadableVisitor;

impl<'de> Visitor<'de> for ReadableVisitor {
    type Value = Readable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Readable, E> {
        Ok(Readable)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Readable, E> {
        Ok(Readable)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Readable, E> {
        Ok(Readable)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Readable, E> {
        Ok(Readable)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Readable, E> {
        Ok(Readable)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Readable, E> {
        Ok(Readable)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Readable, A::Error> {
        while items.next_element::<Readable>()?.is_some() {}
        Ok(Readable)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Readable, A::Error> {
        while fields.next_entry::<Readable, Readable>()?.is_some() {}
        Ok(Readable)
    }
}
