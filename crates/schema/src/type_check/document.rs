//! The order of fields and the digits of numbers as a JSON body has them, which Go's error messages follow.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Longer bodies are reported in the order of names: every level of nesting is read once more.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024;

/// A value of a body; its children are read on demand.
#[derive(Clone, Copy)]
pub(super) struct Document<'a>(&'a RawValue);

impl<'a> Document<'a> {
    /// None for what is no JSON, and for long bodies.
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        if body.len() > DOCUMENT_BYTES_MAX {
            return None;
        }
        serde_json::from_slice(body).ok().map(Self)
    }

    /// The fields of an object in their order; nothing for other values.
    pub(super) fn fields(self) -> Vec<(String, Self)> {
        serde_json::from_str(self.0.get()).map(|Fields(fields)| fields).unwrap_or_default()
    }

    /// The items of a list; nothing for other values.
    pub(super) fn items(self) -> Vec<Self> {
        serde_json::from_str::<Vec<&RawValue>>(self.0.get()).unwrap_or_default().into_iter().map(Self).collect()
    }

    /// The text of a number.
    pub(super) fn text(self) -> &'a str {
        self.0.get()
    }
}

struct Fields<'a>(Vec<(String, Document<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            fields.push((name, Document(value)));
        }
        Ok(Fields(fields))
    }
}
