//! Finds the old value of a part of an object, and compares both.

use std::cell::Cell;
use std::collections::HashMap;

use api::json::JsonObject;
use schema::structural::{ListType, SchemaNode, SchemaType};
use serde_json::Value;

/// A value of an object that is not null: the object itself or a part of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'o> {
    Object(&'o JsonObject),
    /// Anything but an object or null.
    Other(&'o Value),
}

impl<'o> Part<'o> {
    pub(super) fn of(value: &'o Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Object(object) => Some(Self::Object(object)),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Some(Self::Other(value)),
        }
    }

    pub(super) fn object(self) -> Option<&'o JsonObject> {
        match self {
            Self::Object(object) => Some(object),
            Self::Other(_) => None,
        }
    }

    pub(super) fn array(self) -> Option<&'o [Value]> {
        match self {
            Self::Other(Value::Array(items)) => Some(items),
            Self::Object(_) | Self::Other(_) => None,
        }
    }
}

/// The items of the old list, by the keys of a list of type map. Lists of other types correlate no items.
pub(super) struct OldItems<'o> {
    keys: &'o [Box<str>],
    by_key: HashMap<Vec<Scalar<'o>>, &'o Value>,
}

/// The value of a key of an item.
#[derive(PartialEq, Eq, Hash)]
enum Scalar<'o> {
    Bool(bool),
    Integer(i64),
    /// The bits of a number that is no 64-bit integer.
    Double(u64),
    Text(&'o str),
}

impl<'o> Scalar<'o> {
    fn of(value: &'o Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::String(text) => Some(Self::Text(text)),
            Value::Number(number) => Some(match number.as_i64() {
                Some(integer) => Self::Integer(integer),
                None => Self::Double(number.as_f64()?.to_bits()),
            }),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

fn item_key<'o>(item: &'o Value, keys: &[Box<str>]) -> Option<Vec<Scalar<'o>>> {
    let item = item.as_object()?;
    keys.iter().map(|key| Scalar::of(item.get(&**key)?)).collect()
}

impl<'o> OldItems<'o> {
    pub(super) fn new(schema: &'o SchemaNode, old: Option<&'o [Value]>) -> Self {
        let is_map = schema.schema_type() == Some(SchemaType::Array) && schema.list_type() == Some(ListType::Map);
        let keys = if is_map { schema.list_map_keys() } else { &[] };
        let mut by_key = HashMap::new();
        if !keys.is_empty() {
            for item in old.unwrap_or_default() {
                if let Some(key) = item_key(item, keys) {
                    // Of items with the same keys the first one counts.
                    by_key.entry(key).or_insert(item);
                }
            }
        }
        Self { keys, by_key }
    }

    /// The old item with the keys of a new one.
    pub(super) fn get(&self, item: &'o Value) -> Option<&'o Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&item_key(item, self.keys)?).copied()
    }
}

/// A part of the new object with its old value.
pub(super) struct Correlated<'o> {
    new: Option<Part<'o>>,
    old: Option<Part<'o>>,
    schema: &'o SchemaNode,
    /// Whether both are equal, once it is known.
    equal: Cell<Option<bool>>,
}

impl<'o> Correlated<'o> {
    pub(super) fn new(new: Option<Part<'o>>, old: Option<Part<'o>>, schema: &'o SchemaNode) -> Self {
        Self { new, old, schema, equal: Cell::new(None) }
    }

    /// The field of both values; `None` if one lacks it or the schema does not have it.
    pub(super) fn field(&self, name: &str) -> Option<Self> {
        let (new, old) = (self.new?.object()?.get(name)?, self.old?.object()?.get(name)?);
        Some(Self::new(Part::of(new), Part::of(old), self.schema.field(name)?))
    }

    /// An item of the new list with the item of the same keys of the old list.
    pub(super) fn item(&self, item: &'o Value, old_items: &OldItems<'o>) -> Option<Self> {
        let (_, _) = (self.new?.array()?, self.old?.array()?);
        let old = Part::of(old_items.get(item)?)?;
        Some(Self::new(Part::of(item), Some(old), self.schema.items()?))
    }

    /// True if the value did not change. Objects with fields that the schema does not have count as changed.
    pub(super) fn is_unchanged(&self) -> bool {
        if let Some(equal) = self.equal.get() {
            return equal;
        }
        let equal = match (self.new, self.old) {
            (None, None) => true,
            (Some(new), Some(old)) => is_equal(new, old, self.schema),
            _ => false,
        };
        self.equal.set(Some(equal));
        equal
    }
}

fn is_equal(new: Part<'_>, old: Part<'_>, schema: &SchemaNode) -> bool {
    match (new, old) {
        (Part::Object(new), Part::Object(old)) => {
            let field_is_equal = |(name, new): (&String, &Value)| {
                let (Some(old), Some(schema)) = (old.get(name), schema.field(name)) else { return false };
                value_is_equal(new, old, schema)
            };
            new.len() == old.len() && new.iter().all(field_is_equal)
        }
        (Part::Other(Value::Array(new)), Part::Other(Value::Array(old))) => lists_are_equal(new, old, schema),
        (Part::Other(new), Part::Other(old)) => new == old,
        _ => false,
    }
}

fn value_is_equal(new: &Value, old: &Value, schema: &SchemaNode) -> bool {
    match (Part::of(new), Part::of(old)) {
        (None, None) => true,
        (Some(new), Some(old)) => is_equal(new, old, schema),
        _ => false,
    }
}

fn lists_are_equal(new: &[Value], old: &[Value], schema: &SchemaNode) -> bool {
    if new.len() != old.len() {
        return false;
    }
    if schema.list_type() != Some(ListType::Map) {
        return new == old;
    }
    let old_items = OldItems::new(schema, Some(old));
    let Some(items) = schema.items() else { return new.is_empty() };
    new.iter().all(|item| old_items.get(item).is_some_and(|old| value_is_equal(item, old, items)))
}
