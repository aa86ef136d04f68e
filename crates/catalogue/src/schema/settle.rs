//! Values as Kubernetes writes them after it has read them.
//!
//! Reading into Go's types and writing again changes a few things that a client can see: nulls go, times are in UTC,
//! quantities become canonical. Unknown fields go too, unless the object is already stored with them: that is for the
//! caller to know, so it is a function of its own.

use api::time::{MicroTime, Time};
use serde_json::{Map, Value};

use super::quantity::Quantity;
use super::{Form, Shape, Special, Struct};

/// Settles the fields that the type has; others stay as they are. The body must have passed [`super::check()`]: what has a
/// wrong type stays as it is.
pub fn settle(body: &mut Map<String, Value>, kind: Struct) {
    body.retain(|name, value| !value.is_null() || kind.field(name).is_none());
    for (name, value) in body {
        if let Some(field) = kind.field(name) {
            settle_value(value, field.shape());
        }
    }
}

/// Drops the fields that the type does not have, at any depth.
///
/// For an object that is made from a request. A stored object may have fields of a newer release, which an older server
/// must not lose.
pub fn drop_unknown(body: &mut Map<String, Value>, kind: Struct) {
    body.retain(|name, value| {
        let Some(field) = kind.field(name) else { return false };
        drop_unknown_within(value, field.shape());
        true
    });
}

fn settle_value(value: &mut Value, shape: Shape) {
    match (shape.form(), &mut *value) {
        (Form::Struct(inner), Value::Object(object)) => settle(object, inner),
        (Form::List(items), Value::Array(list)) => list.iter_mut().for_each(|item| settle_item(item, items)),
        (Form::Map(values), Value::Object(map)) => map.values_mut().for_each(|value| settle_item(value, values)),
        (Form::Special(special), _) => settle_special(value, special, shape.home),
        _ => {}
    }
}

/// An item has a place, so null cannot go: it becomes the type's empty value.
fn settle_item(item: &mut Value, shape: Shape) {
    if item.is_null() {
        *item = match shape.form() {
            Form::Text => "".into(),
            Form::Int32 | Form::Int64 | Form::Double => 0.into(),
            Form::Bool => false.into(),
            Form::Struct(_) => Map::new().into(),
            Form::Special(Special::Quantity) => "0".into(),
            Form::Special(_) | Form::Bytes | Form::List(_) | Form::Map(_) => Value::Null,
        };
    } else {
        settle_value(item, shape);
    }
}

/// `home` is the type that has the field.
fn settle_special(value: &mut Value, special: Special, home: Struct) {
    match (special, &mut *value) {
        (Special::Quantity, _) => {
            if let Ok(quantity) = Quantity::of(value) {
                *value = quantity.into_text().into();
            }
        }
        (Special::Time, Value::String(text)) => {
            if let Ok(time) = text.parse::<Time>() {
                *text = time.to_string();
            }
        }
        (Special::MicroTime, Value::String(text)) => {
            if let Ok(time) = text.parse::<MicroTime>() {
                *text = time.to_string();
            }
        }
        _ => for_each_schema(value, special, |schema| settle(schema, home)),
    }
}

fn drop_unknown_within(value: &mut Value, shape: Shape) {
    match (shape.form(), &mut *value) {
        (Form::Struct(inner), Value::Object(object)) => drop_unknown(object, inner),
        (Form::List(items), Value::Array(list)) => list.iter_mut().for_each(|item| drop_unknown_within(item, items)),
        (Form::Map(values), Value::Object(map)) => {
            map.values_mut().for_each(|value| drop_unknown_within(value, values));
        }
        (Form::Special(special), _) => for_each_schema(value, special, |schema| drop_unknown(schema, shape.home)),
        _ => {}
    }
}

/// The schemas in a field of a schema.
fn for_each_schema(value: &mut Value, special: Special, act: impl Fn(&mut Map<String, Value>)) {
    match special {
        Special::SchemaOrArray | Special::SchemaOrBool | Special::SchemaOrStrings => match value {
            Value::Object(schema) => act(schema),
            Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(act),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        },
        Special::Quantity
        | Special::IntOrString
        | Special::Time
        | Special::MicroTime
        | Special::Raw
        | Special::Fields
        | Special::Json
        | Special::Patch => {}
    }
}

#[cfg(test)]
mod tests;
