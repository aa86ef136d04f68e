//! Validation of a whole JSON text without building a value.
//!
//! When serde skips a field that a struct lacks, it checks neither strings, numbers nor depth; this type checks all of
//! them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Deserializes from any text that parses as a `serde_json::Value`, and discards the content.
pub(super) struct ValidJson;

impl<'de> Deserialize<'de> for ValidJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValidJsonVisitor)
    }
}

struct ValidJsonVisitor;

impl<'de> Visitor<'de> for ValidJsonVisitor {
    type Value = ValidJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ValidJson, A::Error> {
        while items.next_element::<ValidJson>()?.is_some() {}
        Ok(ValidJson)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<ValidJson, A::Error> {
        while fields.next_entry::<ValidJson, ValidJson>()?.is_some() {}
        Ok(ValidJson)
    }
}
