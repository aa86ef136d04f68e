//! A nullable JSON string, borrowed from the input where it has no escapes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A JSON string, or `null`, which is empty as in Go. A plain `Cow` would be copied inside lists.
#[derive(Default)]
pub(super) struct NullableStr<'a>(Cow<'a, str>);

impl Deref for NullableStr<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for NullableStr<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NullableStrVisitor)
    }
}

struct NullableStrVisitor;

impl<'de> Visitor<'de> for NullableStrVisitor {
    type Value = NullableStr<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<NullableStr<'de>, E> {
        Ok(NullableStr(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NullableStr<'de>, E> {
        Ok(NullableStr(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E: Error>(self) -> Result<NullableStr<'de>, E> {
        Ok(NullableStr::default())
    }
}
