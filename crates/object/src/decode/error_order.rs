//! Puts the errors about fields of a JSON body into the order in which Go's decoder finds them.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::json::{duplicate_field, is_duplicate};

/// The text of a strict decoding error for a field that the type of the object does not have.
fn unknown_field(path: &str) -> String {
    format!("unknown field {path:?}")
}

/// Sorts the texts of unknown and duplicate fields by their positions in a JSON body. Go skips the values of unknown
/// fields, so duplicates of and in these are dropped.
pub fn sort_field_errors(body: &[u8], errors: &mut Vec<String>) {
    if errors.len() < 2 {
        return;
    }
    let positions = errors.drain(..).map(|error| (error, None)).collect();
    let mut finder = PositionFinder { positions, keys_seen: 0, path: String::new() };
    // The body was decoded before. If it fails here, errors without a position follow those with one.
    let _ = Seed(&mut finder).deserialize(&mut serde_json::Deserializer::from_slice(body));
    let mut found: Vec<(usize, String)> = finder
        .positions
        .into_iter()
        .filter(|(error, position)| position.is_some() || !is_duplicate(error))
        .map(|(error, position)| (position.unwrap_or(usize::MAX), error))
        .collect();
    found.sort();
    errors.extend(found.into_iter().map(|(_, error)| error));
}

struct PositionFinder {
    /// The errors, each with the number of its key in the body once found.
    positions: HashMap<String, Option<usize>>,
    keys_seen: usize,
    /// Path of the value being visited, such as `spec.containers[0].name`.
    path: String,
}

impl PositionFinder {
    /// True if the error is one of those to sort.
    fn note(&mut self, error: &str) -> bool {
        let Some(position) = self.positions.get_mut(error) else { return false };
        position.get_or_insert(self.keys_seen);
        true
    }
}

struct Seed<'a>(&'a mut PositionFinder);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let here = self.0.path.len();
        for index in 0_usize.. {
            write!(self.0.path, "[{index}]").expect("writing to a string cannot fail");
            let item = items.next_element_seed(Seed(&mut *self.0))?;
            self.0.path.truncate(here);
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let here = self.0.path.len();
        let mut names = HashSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            self.0.keys_seen += 1;
            if here > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&name);
            if self.0.note(&unknown_field(&self.0.path)) {
                fields.next_value::<IgnoredAny>()?;
            } else {
                if !names.insert(name) {
                    self.0.note(&duplicate_field(&self.0.path));
                }
                fields.next_value_seed(Seed(&mut *self.0))?;
            }
            self.0.path.truncate(here);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, errors: &[&str], expected: &[&str]) {
        let mut sorted: Vec<String> = errors.iter().map(|&error| error.to_owned()).collect();
        sort_field_errors(body.as_bytes(), &mut sorted);
        assert_eq!(sorted, expected);
    }

    #[test]
    fn errors_are_in_the_order_of_the_body() {
        check(
            r#"{"z": 1, "spec": {"b": {}, "replicas": 1, "replicas": 2, "list": [{"x": 1}, {"a": 1, "x": 2}]}}"#,
            &[
                r#"duplicate field "spec.replicas""#,
                r#"unknown field "spec.b""#,
                r#"unknown field "spec.list[1].a""#,
                r#"unknown field "z""#,
            ],
            &[
                r#"unknown field "z""#,
                r#"unknown field "spec.b""#,
                r#"duplicate field "spec.replicas""#,
                r#"unknown field "spec.list[1].a""#,
            ],
        );
    }

    #[test]
    fn values_of_unknown_fields_are_skipped() {
        check(
            r#"{"spec": {"x": {"a": 1, "a": 2}, "x": {}}}"#,
            &[r#"duplicate field "spec.x.a""#, r#"duplicate field "spec.x""#, r#"unknown field "spec.x""#],
            &[r#"unknown field "spec.x""#],
        );
    }
}
