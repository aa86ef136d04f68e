use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::arbitrary;

const POD: GroupVersionKind<&str> = GroupVersionKind { group: "", version: "v1", kind: "Pod" };

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().expect("test value is an object").clone()
}

fn json_patch(document: &Value, patch: &Value) -> Result<Value, Rejection> {
    JsonPatch::parse(patch.to_string().as_bytes())?.value.apply(&object(document))
}

/// Applies one operation.
#[track_caller]
fn check(document: &Value, operation: &Value, expected: &Expect) {
    let shown = match json_patch(document, &json!([operation])) {
        Ok(value) => value.to_string(),
        Err(rejection) => format!("{rejection:?}"),
    };
    expected.assert_eq(&shown);
}

fn merge_patch(document: &Value, patch: &Value) -> Value {
    MergePatch::parse(patch.to_string().as_bytes()).unwrap().value.apply(&object(document))
}

#[test]
fn json_patch_add_inserts_field_or_item() {
    check(
        &json!({"a": 1}),
        &json!({"op": "add", "path": "/b", "value": {"c": []}}),
        &expect![[r#"{"a":1,"b":{"c":[]}}"#]],
    );
    check(&json!({"a": 1}), &json!({"op": "add", "path": "/a", "value": 2}), &expect![[r#"{"a":2}"#]]);
    check(&json!({"a": [1, 3]}), &json!({"op": "add", "path": "/a/1", "value": 2}), &expect![[r#"{"a":[1,2,3]}"#]]);
    check(&json!({"a": [1]}), &json!({"op": "add", "path": "/a/-", "value": [2]}), &expect![[r#"{"a":[1,[2]]}"#]]);
    check(&json!({"a": [1]}), &json!({"op": "add", "path": "/a/1", "value": 2}), &expect![[r#"{"a":[1,2]}"#]]);
    check(&json!({"a": [1, 2]}), &json!({"op": "add", "path": "/a/-1", "value": 3}), &expect![[r#"{"a":[1,2,3]}"#]]);
    check(
        &json!({"a": {}}),
        &json!({"op": "add", "path": "/a/x~1y~0z", "value": 1}),
        &expect![[r#"{"a":{"x/y~z":1}}"#]],
    );
    check(&json!({"a": {}}), &json!({"op": "add", "path": "/a/", "value": 1}), &expect![[r#"{"a":{"":1}}"#]]);
    check(&json!({"a": {}}), &json!({"op": "add", "path": "/a/b"}), &expect![[r#"{"a":{"b":null}}"#]]);
}

#[test]
fn json_patch_add_rejects_missing_parent() {
    check(
        &json!({"a": 1}),
        &json!({"op": "add", "path": "/b/c", "value": 1}),
        &expect![[r#"Unprocessable("add operation does not apply: doc is missing path: \"/b/c\": missing value")"#]],
    );
    check(
        &json!({"a": 1}),
        &json!({"op": "add", "path": "/a/c", "value": 1}),
        &expect![[r#"Unprocessable("add operation does not apply: doc is missing path: \"/a/c\": missing value")"#]],
    );
    check(
        &json!({"a": [1]}),
        &json!({"op": "add", "path": "/a/3", "value": 1}),
        &expect![[
            r#"Unprocessable("error in add for path: '/a/3': Unable to access invalid index: 3: invalid index referenced")"#
        ]],
    );
    check(
        &json!({"a": [1]}),
        &json!({"op": "add", "path": "/a/-4", "value": 1}),
        &expect![[
            r#"Unprocessable("error in add for path: '/a/-4': Unable to access invalid index: -4: invalid index referenced")"#
        ]],
    );
    check(
        &json!({"a": [1]}),
        &json!({"op": "add", "path": "/a/x", "value": 1}),
        &expect![[r#"Unprocessable("error in add for path: '/a/x': value was not a proper array index: 'x'")"#]],
    );
    check(
        &json!({"a": [{}]}),
        &json!({"op": "add", "path": "/a/7/b", "value": 1}),
        &expect![[r#"Unprocessable("add operation does not apply: doc is missing path: \"/a/7/b\": missing value")"#]],
    );
    check(
        &json!({}),
        &json!({"op": "add", "path": "", "value": {}}),
        &expect![[r#"Unprocessable("add operation does not apply: doc is missing path: \"\": missing value")"#]],
    );
    check(
        &json!({}),
        &json!({"op": "add", "path": "a", "value": {}}),
        &expect![[r#"Unprocessable("add operation does not apply: doc is missing path: \"a\": missing value")"#]],
    );
    check(
        &json!({}),
        &json!({"op": "add", "value": {}}),
        &expect![[r#"Unprocessable("add operation failed to decode path: missing value")"#]],
    );
}

#[test]
fn json_patch_remove_rejects_missing_value() {
    check(&json!({"a": 1, "b": 2}), &json!({"op": "remove", "path": "/a"}), &expect![[r#"{"b":2}"#]]);
    check(&json!({"a": [1, 2]}), &json!({"op": "remove", "path": "/a/0"}), &expect![[r#"{"a":[2]}"#]]);
    check(&json!({"a": [1, 2]}), &json!({"op": "remove", "path": "/a/-1"}), &expect![[r#"{"a":[1]}"#]]);
    check(
        &json!({"a": 1}),
        &json!({"op": "remove", "path": "/b"}),
        &expect![[
            r#"Unprocessable("error in remove for path: '/b': Unable to remove nonexistent key: b: missing value")"#
        ]],
    );
    check(
        &json!({"a": [1]}),
        &json!({"op": "remove", "path": "/a/1"}),
        &expect![[
            r#"Unprocessable("error in remove for path: '/a/1': Unable to access invalid index: 1: invalid index referenced")"#
        ]],
    );
    check(
        &json!({"a": 1}),
        &json!({"op": "remove", "path": "/b/c"}),
        &expect![[r#"Unprocessable("remove operation does not apply: doc is missing path: \"/b/c\": missing value")"#]],
    );
}

#[test]
fn json_patch_replace_may_add_field_but_not_item() {
    check(&json!({"a": 1}), &json!({"op": "replace", "path": "/a", "value": 2}), &expect![[r#"{"a":2}"#]]);
    check(&json!({"a": 1}), &json!({"op": "replace", "path": "/b", "value": 2}), &expect![[r#"{"a":1,"b":2}"#]]);
    check(&json!({"a": [1, 2]}), &json!({"op": "replace", "path": "/a/1", "value": 3}), &expect![[r#"{"a":[1,3]}"#]]);
    check(
        &json!({"a": [1]}),
        &json!({"op": "replace", "path": "/a/1", "value": 3}),
        &expect![[
            r#"Unprocessable("error in replace for path: '/a/1': Unable to access invalid index: 1: invalid index referenced")"#
        ]],
    );
    check(&json!({"a": [1]}), &json!({"op": "replace", "path": "", "value": [4]}), &expect!["[4]"]);
}

#[test]
fn json_patch_move_and_copy() {
    check(
        &json!({"a": {"b": 1}, "c": {}}),
        &json!({"op": "move", "from": "/a/b", "path": "/c/d"}),
        &expect![[r#"{"a":{},"c":{"d":1}}"#]],
    );
    check(
        &json!({"a": [1, 2, 3]}),
        &json!({"op": "move", "from": "/a/0", "path": "/a/2"}),
        &expect![[r#"{"a":[2,3,1]}"#]],
    );
    check(
        &json!({"a": {"b": 1}}),
        &json!({"op": "move", "from": "/a", "path": "/a/b/c"}),
        &expect![[r#"Unprocessable("move operation does not apply: doc is missing path: \"/a/b/c\": missing value")"#]],
    );
    check(
        &json!({"a": 1}),
        &json!({"op": "move", "from": "/b", "path": "/c"}),
        &expect![[
            r#"Unprocessable("error in move for path: '/b': Unable to remove nonexistent key: b: missing value")"#
        ]],
    );
    check(
        &json!({"a": 1}),
        &json!({"op": "move", "path": "/c"}),
        &expect![[r#"Unprocessable("move operation failed to decode from: missing value")"#]],
    );
    check(
        &json!({"a": {"b": 1}}),
        &json!({"op": "copy", "from": "/a", "path": "/c"}),
        &expect![[r#"{"a":{"b":1},"c":{"b":1}}"#]],
    );
    check(
        &json!({"a": [{"b": 1}]}),
        &json!({"op": "copy", "from": "/a/0", "path": "/a/0/b"}),
        &expect![[r#"{"a":[{"b":{"b":1}}]}"#]],
    );
    check(
        &json!({"a": [1]}),
        &json!({"op": "copy", "from": "/a/5", "path": "/b"}),
        &expect![[
            r#"Unprocessable("error in copy for path: '/a/5': Unable to access invalid index: 5: invalid index referenced")"#
        ]],
    );
}

#[test]
fn json_patch_test_compares_values() {
    let document = json!({"a": {"b": [1, "x", null]}, "n": null});
    for (path, value) in [
        ("/a", json!({"b": [1, "x", null]})),
        ("/a/b/1", json!("x")),
        ("/a/b/-1", json!(null)),
        ("/n", json!(null)),
        ("/missing", json!(null)),
        ("", document.clone()),
    ] {
        let operation = json!([{"op": "test", "path": path, "value": value}]);
        assert_eq!(json_patch(&document, &operation), Ok(document.clone()), "{path}");
    }
    check(
        &document,
        &json!({"op": "test", "path": "/a/b/0", "value": "1"}),
        &expect![[r#"Unprocessable("testing value /a/b/0 failed: test failed")"#]],
    );
    check(
        &document,
        &json!({"op": "test", "path": "/a/b/0", "value": 1.5}),
        &expect![[r#"Unprocessable("testing value /a/b/0 failed: test failed")"#]],
    );
    check(
        &document,
        &json!({"op": "test", "path": "/x/y", "value": null}),
        &expect![[r#"Unprocessable("test operation does not apply: doc is missing path: \"/x/y\": missing value")"#]],
    );
    check(
        &document,
        &json!({"op": "test", "path": "/a/b/9", "value": 1}),
        &expect![[
            r#"Unprocessable("error in test for path: '/a/b/9': Unable to access invalid index: 9: invalid index referenced")"#
        ]],
    );
    check(
        &document,
        &json!({"op": "test", "path": "/a"}),
        &expect![[r#"Unprocessable("testing value /a failed: test failed")"#]],
    );
}

#[test]
fn json_patch_applies_operations_in_order() {
    let patch = json!([
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 2},
        {"op": "add", "path": "/metadata", "value": {}},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "test", "path": "/spec/replicas", "value": 2},
    ]);
    let patched = json_patch(&json!({"spec": {"replicas": 1}}), &patch).unwrap();
    assert_eq!(patched, json!({"spec": {"replicas": 2}, "metadata": {"labels": {"a": "b"}}}));
}

#[test]
fn json_patch_parse_rejects_malformed_patches() {
    let parse = |body: &str| JsonPatch::parse(body.as_bytes()).map(|decoded| decoded.duplicate_fields);
    let refused = |body: &str| parse(body).unwrap_err().to_string();
    assert_eq!(
        refused("{}"),
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
    );
    assert_eq!(
        refused("[1]"),
        "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"
    );
    assert_eq!(
        refused(r#"[{"op":1}]"#),
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
    );
    assert_eq!(refused("["), "error decoding patch: unexpected end of JSON input");
    assert_eq!(parse(r#"[{"op":"test","op":"add"}]"#).unwrap(), [r#"json patch duplicate field "[0].op""#]);
    check(
        &json!({}),
        &json!({"op": "frobnicate", "path": "/a"}),
        &expect![[r#"Unprocessable("Unexpected kind: frobnicate")"#]],
    );
    check(&json!({}), &json!({"path": "/a"}), &expect![[r#"Unprocessable("Unexpected kind: unknown")"#]]);
    let many = json!(vec![json!({"op": "test", "path": "/a", "value": null}); 10_001]);
    assert_eq!(
        json_patch(&json!({}), &many).unwrap_err(),
        Rejection::TooLarge("The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned())
    );
}

#[test]
fn json_patch_limits_copies_depth_and_work() {
    let long = json!({"a": "x".repeat(1024 * 1024)});
    let copies: Vec<Value> = (0..5).map(|at| json!({"op": "copy", "from": "/a", "path": format!("/{at}")})).collect();
    let rejection = json_patch(&long, &json!(copies)).unwrap_err();
    assert!(
        matches!(&rejection, Rejection::Unprocessable(reason) if reason.contains("exceeding the limit")),
        "{rejection:?}"
    );

    // Each copy of an object into itself doubles the depth.
    let mut patch = vec![json!({"op": "add", "path": "/a", "value": {"a": {}}})];
    for tokens in [3, 5, 9, 17, 33, 65, 129] {
        patch.push(json!({"op": "copy", "from": "/a", "path": "/a".repeat(tokens)}));
    }
    assert_eq!(
        json_patch(&json!({}), &json!(patch)).unwrap_err(),
        Rejection::Unprocessable("exceeded max depth".to_owned())
    );

    let list = json!({"a": vec![0; 20_000]});
    let shifts = json!(vec![json!({"op": "add", "path": "/a/0", "value": 0}); 10_000]);
    let rejection = json_patch(&list, &shifts).unwrap_err();
    assert_eq!(rejection, Rejection::Unprocessable("the patch is too much work".to_owned()));
}

/// Cases of RFC 7396, appendix A, with objects as target and patch.
#[test]
fn merge_patch_follows_rfc_7396() {
    for (document, patch, expected) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        // Kubernetes differs from the RFC.
        (json!({}), json!({"a": [{"b": null}, null]}), json!({"a": [{}, null]})),
    ] {
        assert_eq!(merge_patch(&document, &patch), expected, "{document} {patch}");
    }
}

#[test]
fn merge_patch_parse_rejects_non_objects() {
    let refused = |body: &str| MergePatch::parse(body.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        refused("[]"),
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
    );
    assert_eq!(refused("null"), "Invalid JSON Patch");
    assert_eq!(refused("{"), "error decoding patch: unexpected end of JSON input");
}

#[test]
fn expect_kind_rejects_patched_kind_or_metadata() {
    let accepted = expect_kind(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": null}}), POD).unwrap();
    assert_eq!(Value::Object(accepted), json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}));
    for (patched, expected) in [
        (json!([]), r#"patch: Invalid value: "[]": the result is not an object"#),
        (
            json!({"kind": "Node"}),
            r#"patch: Invalid value: "{\"kind\":\"Node\"}": Node in version "v1" cannot be handled as a Pod: no kind "Node" is registered for version "v1""#,
        ),
        (
            json!({"metadata": 1}),
            r#"patch: Invalid value: "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":1}": Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field Pod.metadata of type v1.ObjectMeta"#,
        ),
    ] {
        let rejection = expect_kind(patched, POD).unwrap_err();
        assert_eq!(rejection.to_string(), expected);
        assert!(matches!(rejection, Rejection::Invalid { subject: RejectionSubject::Patch, .. }));
    }
}

fn has_null_field(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().any(|field| field.is_null() || has_null_field(field)),
        Value::Array(items) => items.iter().any(has_null_field),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The minimal merge patch from one object to another. The target must not have null fields.
fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to {
        match (from.get(name), value) {
            (Some(before), _) if before == value => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(name.clone(), Value::Object(difference(before, after)));
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    patch
}

proptest! {
    #[test]
    fn merge_patch_is_idempotent(document in arbitrary::object(), patch in arbitrary::object()) {
        let patch = MergePatch(patch);
        let once = patch.apply(&document);
        prop_assert_eq!(patch.apply(once.as_object().unwrap()), once);
    }

    #[test]
    fn empty_merge_patch_changes_nothing(document in arbitrary::object()) {
        prop_assert_eq!(MergePatch(Map::new()).apply(&document), Value::Object(document));
    }

    #[test]
    fn merge_patch_of_difference_yields_target(from in arbitrary::object(), to in arbitrary::object()) {
        prop_assume!(!has_null_field(&Value::Object(to.clone())));
        prop_assert_eq!(MergePatch(difference(&from, &to)).apply(&from), Value::Object(to));
    }

    #[test]
    fn json_patch_never_panics(
        document in arbitrary::object(),
        operations in prop::collection::vec(
            ("add|remove|replace|move|copy|test|x", "(/([a-d]|-?[0-9]|-|~1)){0,3}", "(/([a-d]|[0-9])){0,3}", arbitrary::value()),
            0..6,
        ),
    ) {
        let operations: Vec<Value> = operations
            .into_iter()
            .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
            .collect();
        let patch = JsonPatch::parse(json!(operations).to_string().as_bytes()).unwrap().value;
        let _ = patch.apply(&document);
    }

    #[test]
    fn json_patch_add_test_remove_round_trips(document in arbitrary::object(), name in "[e-h]", value in arbitrary::value()) {
        let path = format!("/{name}");
        let patch = json!([
            {"op": "add", "path": path, "value": value},
            {"op": "test", "path": path, "value": value},
            {"op": "remove", "path": path},
        ]);
        let document = Value::Object(document);
        prop_assert_eq!(json_patch(&document, &patch), Ok(document));
    }
}
