//! Operators on values: equality, order, arithmetic.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::Value as Json;

use crate::decl::{DeclKind, DeclType, ListKind, ObjectDecl};
use crate::error::EvalError;
use crate::number::{compare_double_int, compare_double_uint, compare_int_uint};
use crate::value::{List, Map, Text, Value, view};

type Arithmetic<'a> = Result<Value<'a>, EvalError>;

fn spend(fuel: &mut u64, work: usize) -> Result<(), EvalError> {
    match fuel.checked_sub(work as u64) {
        Some(rest) => {
            *fuel = rest;
            Ok(())
        }
        None => Err(EvalError::cost_limit()),
    }
}

/// Equality across numeric types; values of different types are not equal. `fuel` bounds the comparison of nested values.
pub(crate) fn equal(a: &Value<'_>, b: &Value<'_>, fuel: &mut u64) -> Result<bool, EvalError> {
    spend(fuel, 1)?;
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::String(a), Value::String(b)) => {
            spend(fuel, a.len() / 64)?;
            **a == **b
        }
        (Value::Bytes(a), Value::Bytes(b)) => **a == **b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Uint(_) | Value::Int(_) | Value::Double(_), Value::Uint(_) | Value::Int(_) | Value::Double(_)) => {
            numeric_order(a, b) == Some(Ordering::Equal)
        }
        (Value::List(a), Value::List(b)) => lists_equal(a, b, fuel)?,
        (Value::Map(a), Value::Map(b)) => maps_equal(a, b, fuel)?,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(a, b, fuel)?,
        (Value::Optional(a), Value::Optional(b)) => a.is_none() && b.is_none(),
        (Value::Type(a), Value::Type(b)) => crate::value::type_name(a) == crate::value::type_name(b),
        (Value::Opaque(a), Value::Opaque(b)) => a.equals(b)?,
        (Value::List(a), _) if a.decl().is_some() => return Err(EvalError::no_such_overload()),
        (Value::Map(a), _) if a.is_declared() => return Err(EvalError::no_such_overload()),
        _ => false,
    })
}

fn numeric_order(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(compare_int_uint(*a, *b)),
        (Value::Uint(a), Value::Int(b)) => Some(compare_int_uint(*b, *a).reverse()),
        (Value::Double(a), _) if a.is_nan() => None,
        (_, Value::Double(b)) if b.is_nan() => None,
        (Value::Double(a), Value::Int(b)) => Some(compare_double_int(*a, *b)),
        (Value::Int(a), Value::Double(b)) => Some(compare_double_int(*b, *a).reverse()),
        (Value::Double(a), Value::Uint(b)) => Some(compare_double_uint(*a, *b)),
        (Value::Uint(a), Value::Double(b)) => Some(compare_double_uint(*b, *a).reverse()),
        _ => None,
    }
}

fn lists_equal(a: &List<'_>, b: &List<'_>, fuel: &mut u64) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.order() {
        ListKind::Atomic => {}
        ListKind::Set => return sets_equal(a, b, fuel),
        ListKind::Map(keys) => return keyed_equal(a, b, keys, fuel),
    }
    let lenient = a.decl().is_none();
    for (a, b) in a.iter().zip(b.iter()) {
        let a = a?;
        // No value is equal to one that is not valid.
        if (b.is_err() && !lenient) || !part_equal(&a, &b?, lenient, fuel)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Equality of elements. Lists and maps that an expression made take an error for equality.
fn part_equal(a: &Value<'_>, b: &Value<'_>, lenient: bool, fuel: &mut u64) -> Result<bool, EvalError> {
    match equal(a, b, fuel) {
        Err(error) if lenient && !error.is_cost_limit() => Ok(true),
        result => result,
    }
}

/// Every element of `b` is in `a`, whatever the order.
fn sets_equal(a: &List<'_>, b: &List<'_>, fuel: &mut u64) -> Result<bool, EvalError> {
    for wanted in b.iter() {
        if !set_contains(a, &wanted?, fuel)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a set has an element. Upstream looks for the element among the values of the document, so that it finds no
/// durations and timestamps, and no whole numbers of the type `number`.
pub(crate) fn set_contains(set: &List<'_>, wanted: &Value<'_>, fuel: &mut u64) -> Result<bool, EvalError> {
    if let List::Json(items, _) = set {
        spend(fuel, items.len())?;
        return Ok(items.iter().any(|item| is_document_value(item, wanted)));
    }
    for item in set.iter() {
        if equal(&item?, wanted, fuel)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_document_value(json: &Json, value: &Value<'_>) -> bool {
    match (json, value) {
        (Json::String(json), Value::String(value)) => **json == **value,
        (Json::Bool(json), Value::Bool(value)) => json == value,
        (Json::Number(json), Value::Int(value)) => json.as_i64() == Some(*value),
        (Json::Number(json), Value::Double(value)) => json.as_i64().is_none() && json.as_f64() == Some(*value),
        _ => false,
    }
}

/// The values of an element's keys as one text.
pub(crate) fn element_key(value: &Value<'_>, keys: &[String]) -> Result<String, EvalError> {
    let Value::Map(map) = value else {
        return Err(EvalError::new("unexpected data format for element of array with x-kubernetes-list-type=map"));
    };
    let mut text = String::new();
    for key in keys {
        let name = crate::escaping::escape(key).unwrap_or(key.into());
        match map.find(&Value::String(Text::Borrowed(&name)))? {
            Some(value) => text.push_str(&format!("{}:{value}\u{0}", value.type_name())),
            None => text.push('\u{0}'),
        }
    }
    Ok(text)
}

fn keyed_equal(a: &List<'_>, b: &List<'_>, keys: &[String], fuel: &mut u64) -> Result<bool, EvalError> {
    let mut known = HashMap::new();
    for item in a.iter() {
        let item = item?;
        known.insert(element_key(&item, keys)?, item);
    }
    for item in b.iter() {
        let item = item?;
        match known.get(&element_key(&item, keys)?) {
            Some(value) if equal(value, &item, fuel)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn maps_equal(a: &Map<'_>, b: &Map<'_>, fuel: &mut u64) -> Result<bool, EvalError> {
    let messages = (a.message_type(), b.message_type());
    if a.len() != b.len() || messages.0.map(|message| &message.name) != messages.1.map(|message| &message.name) {
        return Ok(false);
    }
    if let Map::Json(a, decl) = a
        && let DeclKind::Object(object) = &decl.kind
    {
        return objects_equal(a, object, b, fuel);
    }
    let lenient = !a.is_declared();
    for key in a.keys() {
        match (a.find(&key)?, b.find(&key)?) {
            (Some(a), Some(b)) => {
                if !part_equal(&a, &b, lenient, fuel)? {
                    return Ok(false);
                }
            }
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

type JsonMap = serde_json::Map<String, Json>;

/// Compares a declared object by the names of its properties in the document.
fn objects_equal(a: &JsonMap, decl: &ObjectDecl, b: &Map<'_>, fuel: &mut u64) -> Result<bool, EvalError> {
    for (name, value) in a {
        let is_equal = match decl.property(name) {
            Some(decl) => property_equal(name, value, b, decl, fuel)?,
            // Properties that no schema has are compared as they are.
            None => match b {
                Map::Json(b, other) if matches!(other.kind, DeclKind::Object(_)) => {
                    b.get(name).is_none_or(|other| other == value)
                }
                _ => return Err(EvalError::no_such_overload()),
            },
        };
        if !is_equal {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares a property, of which the type may be unknown. Null is absent.
fn property_equal(
    name: &str,
    value: &Json,
    other: &Map<'_>,
    decl: Option<&DeclType>,
    fuel: &mut u64,
) -> Result<bool, EvalError> {
    let value = Some(value).filter(|value| !value.is_null());
    let Map::Json(other, other_decl) = other else {
        let other = other.find(&Value::String(Text::Borrowed(name)))?;
        return match (value.zip(decl), other) {
            (None, None) => Ok(true),
            (Some((value, decl)), Some(other)) => equal(&view(value, decl)?, &other, fuel),
            _ => Ok(false),
        };
    };
    let is_object = matches!(other_decl.kind, DeclKind::Object(_));
    let other = other.get(name).filter(|other| !is_object || !other.is_null());
    match (value, other, decl) {
        (None, None, _) => Ok(true),
        (Some(value), Some(other), None) => Ok(value == other),
        (Some(value), Some(other), Some(decl)) => {
            let value = view(value, decl)?;
            // No value is equal to one that is not valid.
            let other = view(other, if is_object { decl } else { other_decl });
            other.map_or(Ok(false), |other| equal(&value, &other, fuel))
        }
        _ => Ok(false),
    }
}

/// The order of two values. `Err(None)` means that the left operand has no order at all.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, Option<EvalError>> {
    Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Bytes(a), Value::Bytes(b)) => (**a).cmp(&**b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Uint(_) | Value::Int(_) | Value::Double(_), Value::Uint(_) | Value::Int(_) | Value::Double(_)) => {
            numeric_order(a, b).ok_or_else(|| Some(EvalError::new("NaN values cannot be ordered")))?
        }
        (
            Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Bool(_)
            | Value::Duration(_)
            | Value::Timestamp(_),
            _,
        ) => return Err(Some(EvalError::no_such_overload())),
        _ => return Err(None),
    })
}

fn int(value: Option<i64>) -> Arithmetic<'static> {
    value.map(Value::Int).ok_or_else(|| EvalError::new("integer overflow"))
}

fn uint(value: Option<u64>) -> Arithmetic<'static> {
    value.map(Value::Uint).ok_or_else(|| EvalError::new("unsigned integer overflow"))
}

fn duration(value: Option<i64>) -> Arithmetic<'static> {
    value.map(Value::Duration).ok_or_else(|| EvalError::new("integer overflow"))
}

fn timestamp(value: Option<crate::time::Timestamp>) -> Arithmetic<'static> {
    value.map(Value::Timestamp).ok_or_else(|| EvalError::new("timestamp overflow"))
}

/// `a + b`; lists are concatenated by the caller.
pub(crate) fn add<'a>(a: &Value<'a>, b: &Value<'a>) -> Arithmetic<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            let mut text = String::with_capacity(a.len() + b.len());
            text.push_str(a);
            text.push_str(b);
            Ok(Value::from(text))
        }
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Value::bytes([&**a, &**b].concat())),
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_add(*b)),
        (Value::Duration(d), Value::Timestamp(t)) | (Value::Timestamp(t), Value::Duration(d)) => timestamp(t.add(*d)),
        _ => Err(mismatched(a, "_+_", true)),
    }
}

pub(crate) fn subtract<'a>(a: &Value<'a>, b: &Value<'a>) -> Arithmetic<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_sub(*b)),
        (Value::Timestamp(t), Value::Duration(d)) => timestamp(d.checked_neg().and_then(|d| t.add(d))),
        (Value::Timestamp(a), Value::Timestamp(b)) => duration(a.since(*b)),
        _ => Err(mismatched(a, "_-_", false)),
    }
}

pub(crate) fn multiply<'a>(a: &Value<'a>, b: &Value<'a>) -> Arithmetic<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_mul(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_mul(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        _ => Err(mismatched(a, "_*_", false)),
    }
}

pub(crate) fn divide<'a>(a: &Value<'a>, b: &Value<'a>) -> Arithmetic<'a> {
    match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(EvalError::new("division by zero")),
        (Value::Int(a), Value::Int(b)) => int(a.checked_div(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_div(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => Err(mismatched(a, "_/_", false)),
    }
}

pub(crate) fn modulo<'a>(a: &Value<'a>, b: &Value<'a>) -> Arithmetic<'a> {
    match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(EvalError::new("modulus by zero")),
        (Value::Int(a), Value::Int(b)) => int(a.checked_rem(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_rem(*b)),
        (Value::Double(_), _) => Err(EvalError::new("no such overload: _%_")),
        _ => Err(mismatched(a, "_%_", false)),
    }
}

pub(crate) fn negate<'a>(a: &Value<'a>) -> Arithmetic<'a> {
    match a {
        Value::Int(a) => int(a.checked_neg()),
        Value::Double(a) => Ok(Value::Double(-a)),
        Value::Duration(a) => duration(a.checked_neg()),
        Value::Bool(_) => Err(EvalError::no_such_overload()),
        _ => Err(mismatched(a, "-_", false)),
    }
}

/// Operands that do not fit. The operator is named only if the left one does not have it, nor any methods.
fn mismatched(a: &Value<'_>, operator: &str, more: bool) -> EvalError {
    let number = matches!(a, Value::Int(_) | Value::Uint(_) | Value::Double(_));
    let receiver = matches!(a, Value::String(_) | Value::Duration(_) | Value::Timestamp(_));
    let other = more && matches!(a, Value::Bytes(_) | Value::List(_));
    if number || receiver || other {
        EvalError::no_such_overload()
    } else {
        EvalError::new(format!("no such overload: {operator}"))
    }
}
