//! Keeping what another release has stored.
//!
//! A client of this release reads an object, drops the fields it does not know and writes the rest back. Those fields are not
//! deleted by that: who does not know a field cannot mean to remove it.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::schema::Known;

/// Carries over the fields of `old` that the schema does not have and that `new` does not mention. Where the schema ends, at
/// free-form objects and at lists without a merge key, `new` is taken as it is.
pub fn keep_fields(old: &Map<String, Value>, new: &mut Map<String, Value>, known: Known<'_>) {
    if !known.is_typed() {
        return;
    }
    for (name, before) in old {
        let Some((field, inside)) = known.field(name) else {
            new.entry(name.clone()).or_insert_with(|| before.clone());
            continue;
        };
        match (before, new.get_mut(name)) {
            (Value::Object(before), Some(Value::Object(after))) => keep_fields(before, after, inside),
            (Value::Array(before), Some(Value::Array(after))) => {
                if let Some(key) = field.merge_key {
                    keep_in_items(before, after, key, inside);
                }
            }
            _ => {}
        }
    }
}

/// Drops the fields of `new` that the schema does not have, unless `old` has them: nobody but this client speaks of them. Items
/// of lists are compared by their merge key or, without one, by their position.
pub fn drop_fields(old: Option<&Map<String, Value>>, new: &mut Map<String, Value>, known: Known<'_>) {
    if !known.is_typed() {
        return;
    }
    let before = |name: &str| old.and_then(|old| old.get(name));
    new.retain(|name, _| known.field(name).is_some() || before(name).is_some());
    for (name, after) in new {
        let Some((field, inside)) = known.field(name) else { continue };
        match after {
            Value::Object(after) => drop_fields(before(name).and_then(Value::as_object), after, inside),
            Value::Array(after) => {
                let old = before(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                drop_in_items(old, after, field.merge_key, inside);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

fn drop_in_items(old: &[Value], new: &mut [Value], key: Option<&str>, known: Known<'_>) {
    if !known.is_typed() {
        return;
    }
    let by_key: HashMap<String, &Value> = match key {
        Some(key) => old.iter().filter_map(|item| Some((item.get(key)?.to_string(), item))).collect(),
        None => HashMap::new(),
    };
    for (at, item) in new.iter_mut().enumerate() {
        let before = match key {
            Some(key) => item.get(key).and_then(|value| by_key.get(&value.to_string()).copied()),
            None => old.get(at),
        };
        if let Value::Object(after) = item {
            drop_fields(before.and_then(Value::as_object), after, known);
        }
    }
}

fn keep_in_items(old: &[Value], new: &mut [Value], key: &str, known: Known<'_>) {
    let identify = |item: &Value| item.get(key).map(Value::to_string);
    let by_key: HashMap<String, &Value> = old.iter().filter_map(|item| Some((identify(item)?, item))).collect();
    for item in new {
        let before = identify(item).and_then(|id| by_key.get(&id).copied());
        if let (Some(Value::Object(before)), Value::Object(after)) = (before, item) {
            keep_fields(before, after, known);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::tests::{POD, TinySchema};

    #[track_caller]
    fn check(old: &Value, new: &Value, expected: &Value) {
        let mut kept = new.as_object().unwrap().clone();
        keep_fields(old.as_object().unwrap(), &mut kept, Known::new(&TinySchema, POD));
        assert_eq!(&Value::Object(kept), expected);
    }

    #[test]
    fn unknown_fields_stay_and_known_ones_go() {
        check(
            &json!({"future": 1, "spec": {"nodeName": "a", "future": {"x": 1}}, "metadata": {"labels": {"a": "b"}}}),
            &json!({"spec": {}, "metadata": {"labels": {}}}),
            &json!({"future": 1, "spec": {"future": {"x": 1}}, "metadata": {"labels": {}}}),
        );
    }

    #[test]
    fn what_the_client_says_of_an_unknown_field_counts() {
        check(&json!({"future": 1}), &json!({"future": null}), &json!({"future": null}));
        check(&json!({"future": {"a": 1}}), &json!({"future": {"b": 2}}), &json!({"future": {"b": 2}}));
    }

    #[test]
    fn items_are_matched_by_their_key() {
        check(
            &json!({"spec": {"containers": [{"name": "a", "future": 1}, {"name": "b", "future": 2}]}}),
            &json!({"spec": {"containers": [{"name": "b", "image": "x"}, {"name": "c"}, {}]}}),
            &json!({"spec": {"containers": [{"name": "b", "image": "x", "future": 2}, {"name": "c"}, {}]}}),
        );
        // Without a key nobody can say which item is which.
        check(
            &json!({"spec": {"tolerations": [{"key": "a", "future": 1}]}}),
            &json!({"spec": {"tolerations": [{"key": "a"}]}}),
            &json!({"spec": {"tolerations": [{"key": "a"}]}}),
        );
    }

    #[test]
    fn fields_that_nobody_has_are_dropped_and_stored_ones_are_not() {
        let check = |old: Value, new: Value, expected: Value| {
            let mut left = new.as_object().unwrap().clone();
            drop_fields(old.as_object(), &mut left, Known::new(&TinySchema, POD));
            assert_eq!(Value::Object(left), expected);
        };
        check(
            json!({"future": 1, "spec": {"nodeName": "a"}}),
            json!({"future": 2, "typo": 1, "spec": {"nodeName": "a", "typo": 1}, "metadata": {"labels": {"x": "y"}}}),
            json!({"future": 2, "spec": {"nodeName": "a"}, "metadata": {"labels": {"x": "y"}}}),
        );
        check(
            json!({"spec": {"containers": [{"name": "a", "future": 1}]}}),
            json!({"spec": {"containers": [{"name": "b", "future": 1}, {"name": "a", "future": 1, "typo": 1}]}}),
            json!({"spec": {"containers": [{"name": "b"}, {"name": "a", "future": 1}]}}),
        );
        check(
            json!({"spec": {"tolerations": [{"key": "a", "future": 1}]}}),
            json!({"spec": {"tolerations": [{"key": "a", "future": 1}, {"key": "b", "future": 1}]}}),
            json!({"spec": {"tolerations": [{"key": "a", "future": 1}, {"key": "b"}]}}),
        );
    }

    #[test]
    fn a_removed_part_takes_its_unknown_fields_along() {
        check(&json!({"spec": {"future": 1}}), &json!({}), &json!({}));
    }
}
