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
    fn a_removed_part_takes_its_unknown_fields_along() {
        check(&json!({"spec": {"future": 1}}), &json!({}), &json!({}));
    }
}
