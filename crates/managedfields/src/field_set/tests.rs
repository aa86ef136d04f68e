use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn set(value: &Value) -> FieldSet {
    FieldSet::from_value(value).expect("a valid set")
}

#[track_caller]
fn check(set: &FieldSet, expected: &Expect) {
    expected.assert_eq(&set.to_json());
}

#[test]
fn set_encodes_elements_in_order_of_kubernetes() {
    let set = set(&json!({
        "v:\"b\"": {}, "v:1": {}, "v:true": {}, "v:\"<a>\"": {},
        "k:{\"port\":443,\"protocol\":\"TCP\"}": {"f:port": {}, ".": {}},
        "k:{\"port\":80.0,\"protocol\":\"TCP\"}": {"f:port": {}},
        "k:{\"name\":\"x\"}": {},
        "f:b": {"f:c": {}}, "f:a": null, "i:2": {}, "x:unknown": {"f:a": {}},
    }));
    check(
        &set,
        &expect![[
            r#"{"f:a":{},"f:b":{"f:c":{}},"k:{\"name\":\"x\"}":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:port":{}},"k:{\"port\":443,\"protocol\":\"TCP\"}":{".":{},"f:port":{}},"v:1":{},"v:\"\\u003ca\\u003e\"":{},"v:\"b\"":{},"v:true":{},"i:2":{}}"#
        ]],
    );
    expect![[r#"
        .a
        [name="x"]
        [port=443,protocol="TCP"]
        [=1]
        [="<a>"]
        [="b"]
        [=true]
        [2]
        .b.c
        [port=80,protocol="TCP"].port
        [port=443,protocol="TCP"].port"#]]
    .assert_eq(&set.to_string());
}

#[test]
fn malformed_sets_are_rejected() {
    for (value, problem) in [
        (json!({"f": {}}), "parsing key as path element: key must be 2 characters long:"),
        (json!({"name": {}}), "parsing key as path element: missing colon: name"),
        (json!({"f:a": {"f:b": 1}}), "expected an object, got 1"),
        (json!({"i:x": {}}), "parsing key as path element: invalid index: i:x"),
        (json!([]), "expected an object, got []"),
    ] {
        assert_eq!(FieldSet::from_value(&value).expect_err("malformed").to_string(), problem);
        assert!(check_value(&value).is_err(), "{value}");
    }
    assert!(check_value(&json!({"k:{": {}})).is_err());
}

#[test]
fn set_operations_distinguish_members_and_children() {
    let one = set(&json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}}));
    let other = set(&json!({"f:a": {"f:b": {}}, "f:d": {"f:e": {}}}));
    check(&one.union(&other), &expect![[r#"{"f:a":{".":{},"f:b":{},"f:c":{}},"f:d":{".":{},"f:e":{}}}"#]]);
    check(&one.intersection(&other), &expect![[r#"{"f:a":{"f:b":{}}}"#]]);
    check(&one.difference(&other), &expect![[r#"{"f:a":{".":{},"f:c":{}},"f:d":{}}"#]]);
    check(&one.recursive_difference(&set(&json!({"f:a": {}}))), &expect![[r#"{"f:d":{}}"#]]);
    check(&one.difference(&set(&json!({"f:a": {}}))), &expect![[r#"{"f:a":{"f:b":{},"f:c":{}},"f:d":{}}"#]]);
    check(&one.leaves(), &expect![[r#"{"f:a":{"f:b":{},"f:c":{}},"f:d":{}}"#]]);
}

#[test]
fn raw_set_is_compared_without_decoding() {
    let raw = json!({"f:a": {".": {}, "k:{\"port\":80.0}": {"f:b": {}}}});
    for (other, intersecting, contained) in [
        (json!({"f:a": {}}), true, true),
        (json!({"f:a": {"k:{\"port\":80}": {"f:b": {}}}}), true, true),
        (json!({"f:a": {"k:{\"port\":80}": {}}}), false, false),
        (json!({"f:a": {".": {}, "f:x": {}}}), true, false),
        (json!({"f:x": {}}), false, false),
    ] {
        let other = set(&other);
        assert_eq!((intersects(&raw, &other), contains_all(&raw, &other)), (intersecting, contained), "{other:?}");
    }
}
