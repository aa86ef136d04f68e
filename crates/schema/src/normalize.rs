//! Normalization of values as by Go's decoding and encoding.
//!
//! Decoding into Go's types and encoding again has visible effects: nulls and most zero values are dropped, times are in
//! UTC, quantities are canonical. Unknown fields are dropped too, but a stored object must keep them; so that is a separate function for
//! callers.

use api::time::{MicroTime, Time};
use serde_json::{Map, Value};

use crate::quantity::Quantity;
use crate::type_check::{bytes_of_numbers, pad_hour};
use crate::{SpecialType, StructField, StructType, TypeForm, ValueType};

/// Normalizes known fields; unknown fields stay unchanged. The body must have passed [`crate::check_types`]; values of
/// wrong types stay unchanged.
pub fn normalize(body: &mut Map<String, Value>, kind: StructType<'_>) {
    body.retain(|name, value| match kind.field(name) {
        Some(field) => !value.is_null() && !is_omitted_zero(value, field),
        None => true,
    });
    for (name, value) in body {
        if let Some(field) = kind.field(name) {
            normalize_value(value, field.value_type());
        }
    }
}

/// True if Go does not encode the value: it is zero, and the field is omitted then. Empty lists and maps that are not
/// required count as absent: a kube-apiserver loses them in storage, where protobuf cannot tell the two apart.
fn is_omitted_zero(value: &Value, field: StructField<'_>) -> bool {
    let is_zero = match (value, field.value_type().form()) {
        (Value::String(text), TypeForm::Text | TypeForm::Bytes) => text.is_empty(),
        (Value::Bool(value), TypeForm::Bool) => !value,
        (Value::Number(number), TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double) => number.as_f64() == Some(0.0),
        (Value::Array(items), TypeForm::List(_) | TypeForm::Bytes) => return items.is_empty() && !field.is_required(),
        (Value::Object(fields), TypeForm::Map(_)) => return fields.is_empty() && !field.is_required(),
        _ => false,
    };
    is_zero && !field.is_written_when_zero()
}

/// Drops the fields that the type does not have, at any depth.
///
/// For an object that is made from a request. A stored object may have fields of a newer release, which an older server
/// must not lose.
pub fn drop_unknown_fields(body: &mut Map<String, Value>, kind: StructType<'_>) {
    body.retain(|name, value| {
        let Some(field) = kind.field(name) else { return false };
        drop_unknown_in_value(value, field.value_type());
        true
    });
}

fn normalize_value(value: &mut Value, shape: ValueType<'_>) {
    match (shape.form(), &mut *value) {
        (TypeForm::Struct(inner), Value::Object(object)) => normalize(object, inner),
        (TypeForm::List(items), Value::Array(list)) => list.iter_mut().for_each(|item| normalize_item(item, items)),
        (TypeForm::Map(values), Value::Object(map)) => map.values_mut().for_each(|value| normalize_item(value, values)),
        (TypeForm::Special(special), _) => normalize_special(value, special, shape.owner),
        // `-0`
        (TypeForm::Int32 | TypeForm::Int64, Value::Number(number)) if !number.is_i64() => *value = 0.into(),
        (TypeForm::Bytes, Value::Array(items)) => *value = bytes_of_numbers(items).into(),
        _ => {}
    }
}

/// Replaces null in a list or a map by the zero value of its type, because an item cannot be dropped.
fn normalize_item(item: &mut Value, shape: ValueType<'_>) {
    if item.is_null() {
        *item = match shape.form() {
            TypeForm::Text | TypeForm::Bytes => "".into(),
            TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double => 0.into(),
            TypeForm::Bool => false.into(),
            TypeForm::Struct(_) => Map::new().into(),
            TypeForm::Special(SpecialType::Quantity) => "0".into(),
            TypeForm::Special(_) | TypeForm::List(_) | TypeForm::Map(_) => Value::Null,
        };
    } else {
        normalize_value(item, shape);
    }
}

/// `home` is the type that has the field.
fn normalize_special(value: &mut Value, special: SpecialType, home: StructType<'_>) {
    match (special, &mut *value) {
        (SpecialType::Quantity, _) => {
            if let Ok(quantity) = Quantity::from_value(value) {
                *value = quantity.into_string().into();
            }
        }
        (SpecialType::Time, Value::String(text)) => {
            if let Ok(time) = pad_hour(text).parse::<Time>() {
                *text = time.to_string();
            }
        }
        (SpecialType::MicroTime, Value::String(text)) => {
            if let Ok(time) = pad_hour(text).parse::<MicroTime>() {
                *text = time.to_string();
            }
        }
        _ => for_each_schema(value, special, |schema| normalize(schema, home)),
    }
}

fn drop_unknown_in_value(value: &mut Value, shape: ValueType<'_>) {
    match (shape.form(), &mut *value) {
        (TypeForm::Struct(inner), Value::Object(object)) => drop_unknown_fields(object, inner),
        (TypeForm::List(items), Value::Array(list)) => {
            list.iter_mut().for_each(|item| drop_unknown_in_value(item, items))
        }
        (TypeForm::Map(values), Value::Object(map)) => {
            map.values_mut().for_each(|value| drop_unknown_in_value(value, values));
        }
        (TypeForm::Special(special), _) => {
            for_each_schema(value, special, |schema| drop_unknown_fields(schema, shape.owner))
        }
        _ => {}
    }
}

/// The schemas in a field of a schema.
fn for_each_schema(value: &mut Value, special: SpecialType, act: impl Fn(&mut Map<String, Value>)) {
    match special {
        SpecialType::SchemaOrArray | SpecialType::SchemaOrBool | SpecialType::SchemaOrStrings => match value {
            Value::Object(schema) => act(schema),
            Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(act),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        },
        SpecialType::Quantity
        | SpecialType::IntOrString
        | SpecialType::Time
        | SpecialType::MicroTime
        | SpecialType::Raw
        | SpecialType::Fields
        | SpecialType::Json
        | SpecialType::Patch => {}
    }
}

#[cfg(test)]
mod tests;
