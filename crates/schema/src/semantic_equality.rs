//! Semantic equality of values as in Kubernetes, which compares decoded Go values instead of JSON.
//!
//! An absent field equals one with the zero value of its type, unless the field is a pointer in Go. Empty lists and maps
//! always equal absent ones.

use serde_json::{Map, Value};

use crate::quantity::Quantity;
use crate::{SpecialType, StructField, StructType, TypeForm, ValueType, ZeroEncoding};

/// True if two values of a field are semantically equal; `None` is an absent field.
pub fn is_field_equal(field: StructField<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
    let given = |value: Option<&Value>| value.is_some_and(|value| !is_semantically_empty(field, value));
    match (old, new) {
        (Some(old), Some(new)) if given(Some(old)) && given(Some(new)) => is_value_equal(field.value_type(), old, new),
        _ => given(old) == given(new),
    }
}

/// True if two objects of a type are semantically equal.
pub fn is_object_equal(kind: StructType<'_>, old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let names = old.keys().chain(new.keys());
    names.into_iter().all(|name| match kind.field(name) {
        Some(field) => is_field_equal(field, old.get(name), new.get(name)),
        None => old.get(name) == new.get(name),
    })
}

/// True if a value is semantically equal to its absence.
pub fn is_semantically_empty(field: StructField<'_>, value: &Value) -> bool {
    match (value, field.value_type().form()) {
        (Value::Null, _) => true,
        (Value::Array(items), _) => items.is_empty(),
        (Value::Object(map), TypeForm::Map(_)) => map.is_empty(),
        (_, _) if field.is_pointer() => false,
        // Go always encodes an object that is no pointer.
        (Value::Object(_), TypeForm::Struct(_)) if field.zero_encoding() != ZeroEncoding::Zero => false,
        (Value::Object(object), TypeForm::Struct(inner)) => object
            .iter()
            .all(|(name, value)| inner.field(name).is_some_and(|field| is_semantically_empty(field, value))),
        (Value::Object(_), _) => false,
        (Value::Bool(value), _) => !value,
        (Value::Number(number), _) => number.as_f64() == Some(0.0),
        (Value::String(text), _) => text.is_empty(),
    }
}

fn is_value_equal(shape: ValueType<'_>, old: &Value, new: &Value) -> bool {
    match (shape.form(), old, new) {
        (TypeForm::Struct(inner), Value::Object(old), Value::Object(new)) => is_object_equal(inner, old, new),
        (TypeForm::List(items), Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_value_equal(items, old, new))
        }
        (TypeForm::Map(values), Value::Object(old), Value::Object(new)) => {
            let is_in_new =
                |(name, old): (&String, &Value)| new.get(name).is_some_and(|new| is_value_equal(values, old, new));
            old.len() == new.len() && old.iter().all(is_in_new)
        }
        (TypeForm::Special(SpecialType::Quantity), _, _) => {
            match (Quantity::from_value(old), Quantity::from_value(new)) {
                (Ok(old), Ok(new)) => old.into_string() == new.into_string(),
                _ => old == new,
            }
        }
        _ => old == new,
    }
}

#[cfg(test)]
mod tests {
    use api::GroupVersionKind;
    use serde_json::json;

    use super::*;
    use crate::built_in_types;

    #[track_caller]
    fn check(old: &Value, new: &Value, expected: bool) {
        let kind = GroupVersionKind { group: "", version: "v1", kind: "Pod" };
        let spec = built_in_types(36).for_kind(kind).and_then(|pod| pod.field("spec")).unwrap();
        assert_eq!(is_field_equal(spec, Some(old), Some(new)), expected, "{old} and {new}");
        assert_eq!(is_field_equal(spec, Some(new), Some(old)), expected, "{new} and {old}");
    }

    #[test]
    fn absent_and_zero_values_are_equal() {
        check(&json!({}), &json!({"hostNetwork": false, "nodeName": "", "volumes": [], "nodeSelector": {}}), true);
        check(&json!({}), &json!({"containers": null, "hostPID": true}), false);
        let container = |fields: Value| json!({"containers": [fields]});
        check(
            &container(json!({"name": "a"})),
            &container(json!({"name": "a", "resources": {}, "stdin": false})),
            true,
        );
        check(&container(json!({"name": "a"})), &container(json!({"name": "b"})), false);
        let limits = |cpu: Value| container(json!({"name": "a", "resources": {"limits": {"cpu": cpu}}}));
        check(&limits(json!("1")), &limits(json!("1000m")), true);
        check(&limits(json!("1")), &limits(json!(1)), true);
        check(&limits(json!("1")), &limits(json!("2")), false);
        check(&limits(json!("1")), &container(json!({"name": "a", "resources": {"limits": {}}})), false);
    }

    #[test]
    fn zero_pointer_values_differ_from_absent() {
        check(&json!({}), &json!({"activeDeadlineSeconds": 0}), false);
        check(&json!({}), &json!({"enableServiceLinks": false}), false);
        check(&json!({}), &json!({"securityContext": {"runAsUser": 0}}), false);
        check(&json!({"securityContext": {}}), &json!({"securityContext": {"sysctls": []}}), true);
        check(&json!({}), &json!({"securityContext": {}}), false);
        let term = |term: Value| json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
        check(&term(json!({"topologyKey": "a"})), &term(json!({"topologyKey": "a", "namespaceSelector": {}})), false);
    }

    #[test]
    fn unknown_fields_are_compared_literally() {
        check(&json!({"fromTheFuture": 1}), &json!({"fromTheFuture": 1}), true);
        check(&json!({"fromTheFuture": 0}), &json!({}), false);
    }
}
