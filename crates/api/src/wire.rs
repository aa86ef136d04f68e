//! Deserialization helpers for Go's JSON semantics: `null` means absent, and an array is never an object.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Deserializes a value from a JSON object.
pub fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice::<Object<T>>(json).map(|Object(value)| value)
}

/// Deserializes `null` as the default, like an absent field.
pub fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Deserializes an object; `null` is the default.
pub fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(optional_object(deserializer)?.unwrap_or_default())
}

/// Deserializes an object; `null` is `None`.
pub fn optional_object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|Object(value)| value))
}

/// Deserializes a list of objects; `null` is empty.
pub fn objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Option::<Vec<Object<T>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(list.into_iter().map(|Object(value)| value).collect())
}

/// Accepts only a JSON object: serde alone would also read a struct from an array.
pub struct Object<T>(pub T);

impl<T> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    struct Outer {
        #[serde(default, deserialize_with = "object")]
        one: Inner,
        #[serde(default, deserialize_with = "optional_object")]
        maybe: Option<Inner>,
        #[serde(default, deserialize_with = "objects")]
        many: Vec<Inner>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    struct Inner {
        #[serde(default, deserialize_with = "null_is_default")]
        text: String,
    }

    #[test]
    fn null_is_absence() {
        for json in ["{}", r#"{"one":null,"maybe":null,"many":null}"#, r#"{"one":{"text":null}}"#] {
            assert_eq!(read::<Outer>(json.as_bytes()).unwrap(), Outer::default(), "{json}");
        }
        let one = read::<Outer>(br#"{"one":{"text":"a"},"maybe":{},"many":[{"text":"b"}]}"#).unwrap();
        assert_eq!((one.one.text.as_str(), one.maybe.is_some(), one.many.len()), ("a", true, 1));
    }

    #[test]
    fn an_array_is_no_object() {
        for json in ["[]", r#"[["a"]]"#, r#"{"one":["a"]}"#, r#"{"maybe":["a"]}"#, r#"{"many":[["a"]]}"#, "1", ""] {
            assert!(read::<Outer>(json.as_bytes()).is_err(), "{json}");
        }
    }
}
