//! The form of objects of built-in kinds in Go.
//!
//! Kubernetes judges built-in objects as Go values: structs by value are always there, slices without `omitempty` are null,
//! and most empty values are absent. Our objects are JSON, where all these are absent. [`zip_fields`] shows a JSON object
//! as Go has it; [`go_form`] makes such an object.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use api::json::JsonObject;
use schema::{SpecialType, StructField, StructType, TypeForm, ValueType, ZeroEncoding};
use serde_json::{Map, Value};

use super::atom::{Handled, List, MapOf, Type};
use super::items::{element_of_item, first_positions};
use crate::ObjectType;
use crate::field_set::PathElement;

/// How the objects of a comparison are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Objects of built-in types as Go has them.
    Go,
    /// Every object as it is.
    Exact,
}

impl Form {
    /// The form of stored objects.
    pub(crate) fn of(object_type: ObjectType<'_>) -> Self {
        match object_type {
            ObjectType::BuiltIn(_) => Self::Go,
            ObjectType::Custom { .. } | ObjectType::Deduced => Self::Exact,
        }
    }
}

static NULL: Value = Value::Null;
static FALSE: Value = Value::Bool(false);
static EMPTY_TEXT: Value = Value::String(String::new());
static ZERO: LazyLock<Value> = LazyLock::new(|| 0.into());
static ZERO_QUANTITY: LazyLock<Value> = LazyLock::new(|| "0".into());
static EMPTY_OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// The value of a field in Go's form; `None` if Go omits it.
pub(crate) fn field_value<'v>(field: StructField<'_>, value: Option<&'v Value>) -> Option<&'v Value> {
    match field.zero_encoding() {
        ZeroEncoding::Omitted => value.filter(|value| !is_omitted(field, value)),
        ZeroEncoding::Null => Some(value.unwrap_or(&NULL)),
        ZeroEncoding::Zero => match value {
            None | Some(Value::Null) => Some(zero(field.value_type())),
            Some(value) => Some(value),
        },
    }
}

fn is_omitted(field: StructField<'_>, value: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    if field.is_pointer() {
        return false;
    }
    match (field.value_type().form(), value) {
        (TypeForm::Text | TypeForm::Bytes, Value::String(text)) => text.is_empty(),
        (TypeForm::Bool, Value::Bool(value)) => !value,
        (TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double, Value::Number(number)) => number.as_f64() == Some(0.0),
        (TypeForm::List(_), Value::Array(items)) => items.is_empty(),
        (TypeForm::Map(_), Value::Object(map)) => map.is_empty(),
        _ => false,
    }
}

fn zero(value_type: ValueType<'_>) -> &'static Value {
    match value_type.form() {
        TypeForm::Text => &EMPTY_TEXT,
        TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double => &ZERO,
        TypeForm::Bool => &FALSE,
        TypeForm::Struct(_) => &EMPTY_OBJECT,
        TypeForm::Special(SpecialType::Quantity) => &ZERO_QUANTITY,
        TypeForm::Special(SpecialType::IntOrString) => &ZERO,
        TypeForm::Bytes | TypeForm::List(_) | TypeForm::Map(_) | TypeForm::Special(_) => &NULL,
    }
}

/// Calls `visit` with the fields of two objects in Go's form that at least one of them has, by name. Fields that the type
/// does not have are left out: a newer release knows them.
pub(crate) fn zip_fields<'t, 'v>(
    kind: StructType<'t>,
    (left, right): (Option<&'v JsonObject>, Option<&'v JsonObject>),
    mut visit: impl FnMut(&'t str, Type<'t>, Option<&'v Value>, Option<&'v Value>),
) {
    let mut left_fields = left.map(|left| left.iter().peekable());
    let mut right_fields = right.map(|right| right.iter().peekable());
    for field in kind.fields() {
        let find = |fields: &mut Option<std::iter::Peekable<serde_json::map::Iter<'v>>>| {
            let fields = fields.as_mut()?;
            while fields.next_if(|(name, _)| name.as_str() < field.name()).is_some() {}
            let value = fields.next_if(|(name, _)| name.as_str() == field.name()).map(|(_, value)| value);
            field_value(field, value)
        };
        let (one, other) = (find(&mut left_fields), find(&mut right_fields));
        if one.is_some() || other.is_some() {
            visit(field.name(), Type::of_field(field), one, other);
        }
    }
}

/// True if an object has no fields in Go's form.
pub(crate) fn is_empty_object(kind: StructType<'_>, object: &JsonObject) -> bool {
    let mut is_empty = true;
    zip_fields(kind, (Some(object), None), |_, _, _, _| is_empty = false);
    is_empty
}

/// The object in Go's form. Fields that the type does not have are kept.
pub(crate) fn go_form(kind: StructType<'_>, object: &JsonObject) -> JsonObject {
    let mut result = JsonObject::new();
    for (name, value) in object {
        match kind.field(name) {
            None => {
                result.insert(name.clone(), value.clone());
            }
            Some(field) => {
                if let Some(value) = field_value(field, Some(value)) {
                    result.insert(name.clone(), go_value(value, field.value_type()));
                }
            }
        }
    }
    for field in kind.fields().filter(|field| field.zero_encoding() != ZeroEncoding::Omitted) {
        if !result.contains_key(field.name())
            && let Some(value) = field_value(field, None)
        {
            result.insert(field.name().to_owned(), go_value(value, field.value_type()));
        }
    }
    result
}

fn go_value(value: &Value, value_type: ValueType<'_>) -> Value {
    match (value_type.form(), value) {
        (TypeForm::Struct(inner), Value::Object(object)) => Value::Object(go_form(inner, object)),
        (TypeForm::List(items), Value::Array(list)) => list.iter().map(|item| go_value(item, items)).collect(),
        (TypeForm::Map(values), Value::Object(map)) => {
            Value::Object(map.iter().map(|(name, value)| (name.clone(), go_value(value, values))).collect())
        }
        _ => value.clone(),
    }
}

/// Removes the zero values that [`go_form`] supplied and that neither source has.
pub(crate) fn drop_supplied(result: &mut JsonObject, object_type: Type<'_>, sources: [Option<&JsonObject>; 2]) {
    if let Handled::Map(map) = object_type.atom().first() {
        drop_in_object(result, map, sources);
    }
}

fn drop_in_object(object: &mut JsonObject, map: MapOf<'_>, sources: [Option<&JsonObject>; 2]) {
    let kind = map.struct_type();
    object.retain(|name, value| {
        let sources = sources.map(|source| source?.get(name));
        if let Some(inside) = map.child(name) {
            drop_in_value(value, inside, sources);
        }
        let field = kind.and_then(|kind| kind.field(name));
        let is_zero = field.is_some_and(|field| {
            field.zero_encoding() != ZeroEncoding::Omitted && (value.is_null() || zero(field.value_type()) == value)
        });
        !is_zero || sources.iter().any(Option::is_some)
    });
}

fn drop_in_value(value: &mut Value, value_type: Type<'_>, sources: [Option<&Value>; 2]) {
    match (value_type.handled(value), value) {
        (Handled::Map(map), Value::Object(object)) => {
            drop_in_object(object, map, sources.map(|source| source.and_then(Value::as_object)));
        }
        (Handled::List(list), Value::Array(items)) => {
            let lists = sources.map(|source| Some(SourceItems::new(list, source.and_then(Value::as_array)?)));
            for (position, item) in items.iter_mut().enumerate() {
                let sources = lists.each_ref().map(|items| items.as_ref()?.find(item, position));
                drop_in_value(item, list.items, sources);
            }
        }
        _ => {}
    }
}

/// The items of a source, where those of the result are looked up.
struct SourceItems<'t, 'v> {
    list: List<'t>,
    items: &'v [Value],
    /// Made for the first item that is at another position than in the source.
    positions: OnceCell<BTreeMap<PathElement, usize>>,
}

impl<'t, 'v> SourceItems<'t, 'v> {
    fn new(list: List<'t>, items: &'v [Value]) -> Self {
        Self { list, items, positions: OnceCell::new() }
    }

    /// The item that became this item of the result, mostly at the same position.
    fn find(&self, item: &Value, position: usize) -> Option<&'v Value> {
        let guess = self.items.get(position);
        if self.list.is_atomic() {
            return guess;
        }
        let element = element_of_item(self.list, item).ok()?;
        let is_same = |other: &&Value| element_of_item(self.list, other).is_ok_and(|other| other == element);
        let positions = || self.positions.get_or_init(|| first_positions(self.list, self.items));
        guess.filter(is_same).or_else(|| self.items.get(*positions().get(&element)?))
    }
}
