use api::GroupVersionKind;
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::built_in_types;

fn pod() -> StructType<'static> {
    built_in_types(36).for_kind(GroupVersionKind { group: "", version: "v1", kind: "Pod" }).unwrap()
}

#[track_caller]
fn check(body: Value, act: fn(&mut Map<String, Value>, StructType<'_>), expected: &Expect) {
    let Value::Object(mut body) = body else { panic!("a body is an object") };
    act(&mut body, pod());
    expected.assert_eq(&Value::Object(body).to_string());
}

#[test]
fn normalize_canonicalizes_quantities_and_times() {
    check(
        json!({
            "metadata": {"creationTimestamp": "2024-01-01T02:00:00.5+02:00"},
            "spec": {"containers": [{"resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}], "overhead": {"cpu": 2}},
        }),
        normalize,
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2024-01-01T00:00:00Z"},"spec":{"containers":[{"resources":{"limits":{"cpu":"500m","memory":"1Gi"}}}],"overhead":{"cpu":"2"}}}"#
        ]],
    );
}

#[test]
fn normalize_removes_or_zeroes_nulls() {
    check(
        json!({
            "metadata": null,
            "spec": {"containers": [null, {"name": null, "command": ["a", null]}], "nodeSelector": {"a": null}},
            "unknown": null,
        }),
        normalize,
        &expect![[r#"{"spec":{"containers":[{},{"command":["a",""]}],"nodeSelector":{"a":""}},"unknown":null}"#]],
    );
}

#[test]
fn only_drop_unknown_fields_removes_unknown_fields() {
    let body = json!({"a": 1, "spec": {"b": 2, "containers": [{"c": 3, "name": "x"}], "nodeSelector": {"d": "4"}}});
    check(
        body.clone(),
        normalize,
        &expect![[r#"{"a":1,"spec":{"b":2,"containers":[{"c":3,"name":"x"}],"nodeSelector":{"d":"4"}}}"#]],
    );
    check(body, drop_unknown_fields, &expect![[r#"{"spec":{"containers":[{"name":"x"}],"nodeSelector":{"d":"4"}}}"#]]);
}
