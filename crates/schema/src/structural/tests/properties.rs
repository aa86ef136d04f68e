//! Properties that hold for any schema and any object.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::StructuralSchema;

/// Values made of few names and texts, so that schemas and objects meet.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c.:@/-]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d]|metadata|kind|spec", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_schema() -> impl Strategy<Value = Value> {
    let keyword = prop_oneof![
        prop::sample::select(vec!["object", "array", "string", "integer", "number", "boolean"])
            .prop_map(|name| ("type", json!(name))),
        any_json().prop_map(|value| ("default", value)),
        any_json().prop_map(|value| ("enum", json!([value]))),
        any::<bool>().prop_map(|flag| ("nullable", flag.into())),
        any::<bool>().prop_map(|flag| ("x-kubernetes-embedded-resource", flag.into())),
        Just(("x-kubernetes-preserve-unknown-fields", json!(true))),
        prop::sample::select(vec!["set", "map", "atomic"]).prop_map(|name| ("x-kubernetes-list-type", json!(name))),
        Just(("x-kubernetes-list-map-keys", json!(["a"]))),
        prop::sample::select(vec!["uri", "email", "duration", "date-time", "hostname", "cidr", "mac", "rgbcolor"])
            .prop_map(|name| ("format", json!(name))),
        "[a-c(+*]{0,4}".prop_map(|pattern| ("pattern", json!(pattern))),
        (-3_i64..3).prop_map(|limit| ("maxLength", json!(limit))),
        any::<f64>().prop_map(|limit| ("multipleOf", json!(limit))),
    ];
    let object = |keywords: Vec<(&'static str, Value)>| -> Value {
        Value::Object(keywords.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let leaf = prop::collection::vec(keyword.clone(), 0..4).prop_map(object);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let below = prop_oneof![
            inner.clone().prop_map(|schema| ("items", schema)),
            inner.clone().prop_map(|schema| ("additionalProperties", schema)),
            inner.clone().prop_map(|schema| ("not", schema)),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|schemas| ("oneOf", schemas.into())),
            prop::collection::btree_map("[a-d]|metadata|kind|spec", inner, 0..4)
                .prop_map(|map| ("properties", Value::Object(map.into_iter().collect()))),
        ];
        (prop::collection::vec(keyword.clone(), 0..3), prop::collection::vec(below, 0..4)).prop_map(
            move |(mut keywords, below)| {
                keywords.extend(below);
                object(keywords)
            },
        )
    })
}

fn any_object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("[a-d]|metadata|kind|spec", any_json(), 0..5).prop_map(|map| map.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pruning_and_defaulting_are_idempotent(schema in any_schema(), object in any_object()) {
        let Ok(schema) = StructuralSchema::from_json(&schema) else { return Ok(()) };
        let mut pruned = object.clone();
        schema.prune(&mut pruned, false);
        let once = pruned.clone();
        prop_assert!(schema.prune(&mut pruned, true).is_empty());
        prop_assert_eq!(&pruned, &once);
        let mut defaulted = object;
        schema.set_defaults(&mut defaulted);
        let once = defaulted.clone();
        schema.set_defaults(&mut defaulted);
        prop_assert_eq!(defaulted, once);
    }

    #[test]
    fn unchanged_objects_of_known_fields_pass_an_update(schema in any_schema(), object in any_object()) {
        let Ok(schema) = StructuralSchema::from_json(&schema) else { return Ok(()) };
        let value = Value::Object(object);
        let new = schema.validate(&value, None, 36);
        let updated = schema.validate(&value, Some(&value), 36);
        prop_assert!(updated.iter().all(|error| new.contains(error)), "{updated:?} of {new:?}");
    }

    #[test]
    fn any_json_is_no_reason_to_panic(schema in any_json(), object in any_object(), old in any_json()) {
        super::replay::outcome(&json!({"schema": schema, "object": object, "old": old}));
    }

    #[test]
    fn any_schema_is_no_reason_to_panic(schema in any_schema(), object in any_object(), old in any_json()) {
        super::replay::outcome(&json!({"schema": schema, "object": object, "old": old}));
    }
}
