//! Arbitrary JSON for property tests.

use proptest::prelude::*;
use serde_json::Value;

/// Small JSON values with few distinct field names, so that two generated values overlap.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5_i64..5).prop_map(Value::from),
        "[ a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Any JSON object.
pub(crate) fn object() -> impl Strategy<Value = serde_json::Map<String, Value>> {
    prop::collection::btree_map("[a-d]", value(), 0..4).prop_map(|map| map.into_iter().collect())
}
