//! Preserves fields of other releases on update.
//!
//! A client of this release drops unknown fields when it decodes an object and writes the rest back. The update must
//! not delete these fields, because the client did not remove them on purpose.

use std::collections::HashMap;

use serde_json::{Map, Value};

use schema::SchemaCursor;

/// Copies fields of `old` that are neither in the schema nor in `new`. Free-form objects and lists without a merge key
/// are taken from `new` unchanged.
pub fn keep_unknown_fields(old: &Map<String, Value>, new: &mut Map<String, Value>, schema: SchemaCursor<'_>) {
    if !schema.is_typed() {
        return;
    }
    for (name, before) in old {
        let Some((field, inside)) = schema.field(name) else {
            new.entry(name.clone()).or_insert_with(|| before.clone());
            continue;
        };
        match (before, new.get_mut(name)) {
            (Value::Object(before), Some(Value::Object(after))) => keep_unknown_fields(before, after, inside),
            (Value::Array(before), Some(Value::Array(after))) => {
                if let Some(key) = field.merge_key {
                    keep_in_items(before, after, key, inside);
                }
            }
            _ => {}
        }
    }
}

/// Drops fields of `new` that are neither in the schema nor in `old`. List items are matched by merge key or, without
/// one, by position.
pub fn drop_unknown_fields(old: Option<&Map<String, Value>>, new: &mut Map<String, Value>, schema: SchemaCursor<'_>) {
    if !schema.is_typed() {
        return;
    }
    let before = |name: &str| old.and_then(|old| old.get(name));
    new.retain(|name, _| schema.field(name).is_some() || before(name).is_some());
    for (name, after) in new {
        let Some((field, inside)) = schema.field(name) else { continue };
        match after {
            Value::Object(after) => drop_unknown_fields(before(name).and_then(Value::as_object), after, inside),
            Value::Array(after) => {
                let old = before(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                drop_in_items(old, after, field.merge_key, inside);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

fn drop_in_items(old: &[Value], new: &mut [Value], key: Option<&str>, item_schema: SchemaCursor<'_>) {
    if !item_schema.is_typed() {
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
            drop_unknown_fields(before.and_then(Value::as_object), after, item_schema);
        }
    }
}

fn keep_in_items(old: &[Value], new: &mut [Value], key: &str, item_schema: SchemaCursor<'_>) {
    let identify = |item: &Value| item.get(key).map(Value::to_string);
    let by_key: HashMap<String, &Value> = old.iter().filter_map(|item| Some((identify(item)?, item))).collect();
    for item in new {
        let before = identify(item).and_then(|id| by_key.get(&id).copied());
        if let (Some(Value::Object(before)), Value::Object(after)) = (before, item) {
            keep_unknown_fields(before, after, item_schema);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_schema::pod;

    #[track_caller]
    fn check(old: &Value, new: &Value, expected: &Value) {
        let mut kept = new.as_object().unwrap().clone();
        keep_unknown_fields(old.as_object().unwrap(), &mut kept, pod());
        assert_eq!(&Value::Object(kept), expected);
    }

    #[test]
    fn keep_unknown_fields_keeps_only_fields_outside_schema() {
        check(
            &json!({"future": 1, "spec": {"nodeName": "a", "future": {"x": 1}}, "metadata": {"labels": {"a": "b"}}}),
            &json!({"spec": {}, "metadata": {"labels": {}}}),
            &json!({"future": 1, "spec": {"future": {"x": 1}}, "metadata": {"labels": {}}}),
        );
    }

    #[test]
    fn keep_unknown_fields_respects_client_value() {
        check(&json!({"future": 1}), &json!({"future": null}), &json!({"future": null}));
        check(&json!({"future": {"a": 1}}), &json!({"future": {"b": 2}}), &json!({"future": {"b": 2}}));
    }

    #[test]
    fn keep_unknown_fields_matches_items_by_merge_key() {
        check(
            &json!({"spec": {"containers": [{"name": "a", "future": 1}, {"name": "b", "future": 2}]}}),
            &json!({"spec": {"containers": [{"name": "b", "image": "x"}, {"name": "c"}, {}]}}),
            &json!({"spec": {"containers": [{"name": "b", "image": "x", "future": 2}, {"name": "c"}, {}]}}),
        );
        // Without a merge key, items of the two states cannot be matched.
        check(
            &json!({"spec": {"tolerations": [{"key": "a", "future": 1}]}}),
            &json!({"spec": {"tolerations": [{"key": "a"}]}}),
            &json!({"spec": {"tolerations": [{"key": "a"}]}}),
        );
    }

    #[test]
    fn drop_unknown_fields_keeps_stored_fields() {
        let check = |old: Value, new: Value, expected: Value| {
            let mut left = new.as_object().unwrap().clone();
            drop_unknown_fields(old.as_object(), &mut left, pod());
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
    fn removed_object_drops_its_unknown_fields() {
        check(&json!({"spec": {"future": 1}}), &json!({}), &json!({}));
    }
}
