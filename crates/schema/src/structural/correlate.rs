//! Which old value a new one corresponds to, and whether both are equal.
//!
//! Fields correspond by name, and items of a list of type `map` by key. Other items do not correspond.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::node::{ListType, SchemaNode, SchemaType};

/// The items of an old list of type `map`, by key.
pub(super) struct OldItems<'v, 's> {
    keys: &'s [Box<str>],
    items: HashMap<String, &'v Value>,
}

impl<'v, 's> OldItems<'v, 's> {
    /// `None` if items of the list do not correspond to old ones.
    pub(super) fn new(old: &'v Value, schema: &'s SchemaNode) -> Option<Self> {
        if schema.list_type() != Some(ListType::Map) {
            return None;
        }
        let old = old.as_array()?;
        let keys = schema.list_map_keys();
        let mut items = HashMap::with_capacity(old.len());
        if schema.schema_type() == Some(SchemaType::Array) && !keys.is_empty() {
            for item in old {
                if let Some(key) = item.as_object().and_then(|object| composite_key(object, keys)) {
                    items.entry(key).or_insert(item);
                }
            }
        }
        Some(Self { keys, items })
    }

    /// The old item with the keys of a new one.
    pub(super) fn get(&self, item: &Value) -> Option<&'v Value> {
        self.items.get(&composite_key(item.as_object()?, self.keys)?).copied()
    }
}

/// The values of the keys; `None` if one is absent or no scalar.
fn composite_key(object: &Map<String, Value>, keys: &[Box<str>]) -> Option<String> {
    let mut composite = String::new();
    for key in keys {
        let _ = match object.get(&**key)? {
            Value::Bool(value) => write!(composite, "\0b{value}"),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => write!(composite, "\0i{integer}"),
                // Go compares several keys with six decimals.
                (None, Some(float)) if keys.len() > 1 => write!(composite, "\0f{float:.6}"),
                (None, _) => write!(composite, "\0f{number}"),
            },
            Value::String(text) => write!(composite, "\0s{text:?}"),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
    }
    Some(composite)
}

/// Whether a value equals the old one. A field without a schema makes objects unequal, as in Kubernetes.
pub(super) fn is_correlated_equal(new: &Value, old: &Value, schema: &SchemaNode) -> bool {
    match (new, old) {
        (Value::Array(new), Value::Array(old_items)) => {
            if new.len() != old_items.len() {
                return false;
            }
            match (OldItems::new(old, schema), schema.items()) {
                (None, _) => new == old_items,
                (Some(_), None) => new.is_empty(),
                (Some(old), Some(items)) => {
                    new.iter().all(|item| old.get(item).is_some_and(|old| is_correlated_equal(item, old, items)))
                }
            }
        }
        (Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                && new.iter().all(|(name, value)| match (old.get(name), schema.field(name)) {
                    (Some(old), Some(field)) => is_correlated_equal(value, old, field),
                    _ => false,
                })
        }
        (new, old) => new == old,
    }
}
