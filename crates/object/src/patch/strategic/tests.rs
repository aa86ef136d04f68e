use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::arbitrary;
use crate::test_schema::pod;

fn apply(object: &Value, patch: &Value) -> Result<Value, Rejection> {
    let patch = StrategicPatch::parse(patch.to_string().as_bytes())?.value;
    patch.apply(object.as_object().unwrap(), pod())
}

#[track_caller]
fn check(object: &Value, patch: &Value, expected: &Value) {
    assert_eq!(apply(object, patch).as_ref(), Ok(expected));
}

/// Applies a patch to `spec` and compares the result.
macro_rules! spec {
    ($before:expr, $patch:expr, $expected:expr $(,)?) => {
        check(&json!({"spec": $before}), &json!({"spec": $patch}), &json!({"spec": $expected}))
    };
}

/// Applies a patch to the metadata and compares the remaining finalizers.
macro_rules! finalizers {
    ($before:expr, $patch:expr, $expected:expr $(,)?) => {
        check(
            &json!({"metadata": {"finalizers": $before}}),
            &json!({"metadata": $patch}),
            &json!({"metadata": {"finalizers": $expected}}),
        )
    };
}

#[track_caller]
fn check_rejected(object: &Value, patch: &Value, expected: &Expect) {
    expected.assert_eq(&format!("{:?}", apply(object, patch).unwrap_err()));
}

#[test]
fn strategic_patch_merges_objects_and_removes_nulls() {
    check(
        &json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeName": "x"}}),
        &json!({"metadata": {"labels": {"a": null, "c": "3"}}, "spec": {"nodeName": "y"}, "kind": "Pod"}),
        &json!({"metadata": {"labels": {"b": "2", "c": "3"}}, "spec": {"nodeName": "y"}, "kind": "Pod"}),
    );
    check(
        &json!({}),
        &json!({"metadata": {"labels": {"a": null, "b": "1"}}}),
        &json!({"metadata": {"labels": {"b": "1"}}}),
    );
    check(&json!({"spec": 1}), &json!({"spec": {"nodeName": "y"}}), &json!({"spec": {"nodeName": "y"}}));
    check(&json!({"spec": {"nodeName": "y"}}), &json!({"spec": null}), &json!({}));
}

#[test]
fn strategic_patch_merges_object_lists_by_key() {
    spec!(
        json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
        json!({"containers": [{"name": "b", "image": "2"}]}),
        json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}),
    );
    spec!(
        json!({"containers": [{"name": "a"}]}),
        json!({"containers": [{"name": "c", "image": null, "args": ["x"]}]}),
        json!({"containers": [{"name": "c", "args": ["x"]}, {"name": "a"}]}),
    );
    spec!(
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 80}], "env": [{"name": "X", "value": "1"}]}]}),
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}], "env": [{"name": "X", "value": null}, {"name": "Y"}]}]}),
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}], "env": [{"name": "X"}, {"name": "Y"}]}]}),
    );
    check(
        &json!({"metadata": {"ownerReferences": [{"uid": "u", "name": "a"}]}}),
        &json!({"metadata": {"ownerReferences": [{"uid": "u", "name": "b"}]}}),
        &json!({"metadata": {"ownerReferences": [{"uid": "u", "name": "b"}]}}),
    );
    spec!(
        json!({}),
        json!({"containers": [{"name": "a", "env": [{"$patch": "delete", "name": "X"}]}]}),
        json!({"containers": [{"name": "a", "env": []}]}),
    );
    spec!(json!({"containers": []}), json!({"containers": []}), json!({"containers": []}));
}

#[test]
fn strategic_patch_replaces_atomic_lists() {
    spec!(
        json!({"tolerations": [{"key": "a"}, {"key": "b"}]}),
        json!({"tolerations": [{"key": "c"}]}),
        json!({"tolerations": [{"key": "c"}]}),
    );
    spec!(
        json!({"containers": [{"name": "a", "args": ["1", "2"]}]}),
        json!({"containers": [{"name": "a", "args": ["3"]}]}),
        json!({"containers": [{"name": "a", "args": ["3"]}]}),
    );
}

#[test]
fn strategic_patch_merges_fields_unknown_to_schema() {
    spec!(
        json!({"future": {"a": {"x": 1}, "list": [1, 2]}}),
        json!({"future": {"a": {"y": 2}, "list": [3]}}),
        json!({"future": {"a": {"x": 1, "y": 2}, "list": [3]}}),
    );
}

#[test]
fn strategic_patch_replace_strategy_replaces_objects() {
    spec!(json!({"selector": {"a": "1"}}), json!({"selector": {"b": "2"}}), json!({"selector": {"b": "2"}}));
}

#[test]
fn patch_directive_deletes_and_replaces() {
    spec!(
        json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "a", "image": "again"}]}),
        json!({"containers": [{"name": "a", "$patch": "delete"}]}),
        json!({"containers": [{"name": "b"}]}),
    );
    spec!(
        json!({"containers": [{"name": "a"}, {"name": "b"}]}),
        json!({"containers": [{"name": "c", "image": null}, {"$patch": "replace"}]}),
        json!({"containers": [{"name": "c"}]}),
    );
    spec!(
        json!({"strategy": {"type": "R", "rollingUpdate": {}}}),
        json!({"strategy": {"$patch": "replace", "type": "X"}}),
        json!({"strategy": {"type": "X"}}),
    );
    spec!(json!({"strategy": {"type": "R"}}), json!({"strategy": {"$patch": "delete"}}), json!({"strategy": {}}));
    spec!(json!({}), json!({"strategy": {"$patch": "delete"}}), json!({}));
}

#[test]
fn strategic_patch_rejects_unknown_directives() {
    let object = json!({"spec": {"containers": [{"name": "a"}], "strategy": {}}});
    check_rejected(
        &object,
        &json!({"spec": {"strategy": {"$patch": "merge"}}}),
        &expect![[r#"Unclassified("unknown patch type: merge in map: {\"$patch\":\"merge\"}")"#]],
    );
    check_rejected(
        &object,
        &json!({"spec": {"containers": [{"$patch": "merge", "name": "a"}]}}),
        &expect![[r#"Unclassified("merging lists cannot yet be specified in the patch")"#]],
    );
    check_rejected(
        &object,
        &json!({"spec": {"containers": [{"$patch": 1, "name": "a"}]}}),
        &expect![[r#"Unclassified("unknown patch type: 1 in map: {\"$patch\":1,\"name\":\"a\"}")"#]],
    );
    check_rejected(
        &object,
        &json!({"spec": {"containers": [{"$patch": "delete"}]}}),
        &expect![[r#"Unclassified("map: {\"$patch\":\"delete\"} does not contain declared merge key: name")"#]],
    );
}

#[test]
fn strategic_patch_merges_scalar_lists_by_value() {
    finalizers!(json!(["a", "b"]), json!({"finalizers": ["c"]}), json!(["c", "a", "b"]));
    finalizers!(json!(["a", "b"]), json!({"finalizers": ["b", "c"]}), json!(["a", "b", "c"]));
    finalizers!(json!(["a", "b"]), json!({"$deleteFromPrimitiveList/finalizers": ["a", "x"]}), json!(["b"]));
    finalizers!(
        json!(["a", "b"]),
        json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"], "$setElementOrder/finalizers": ["b", "c"]}),
        json!(["b", "c"]),
    );
    let before = json!({"metadata": {}});
    check(&before, &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}), &before);
}

#[test]
fn set_element_order_orders_list_items() {
    let named = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Value>();
    // The server-only item `s`, between two items of the patch, stays after `a`.
    spec!(
        json!({"containers": named(&["a", "s", "b"])}),
        json!({"$setElementOrder/containers": named(&["b", "a"])}),
        json!({"containers": named(&["s", "b", "a"])}),
    );
    spec!(
        json!({"containers": named(&["a", "s", "b"])}),
        json!({"$setElementOrder/containers": named(&["a", "b", "c"]), "containers": named(&["c"])}),
        json!({"containers": named(&["a", "s", "b", "c"])}),
    );
    spec!(
        json!({"containers": named(&["a", "b"])}),
        json!({"$setElementOrder/containers": named(&["c", "b"]), "containers": [{"name": "c"}, {"name": "a", "$patch": "delete"}]}),
        json!({"containers": named(&["c", "b"])}),
    );
    spec!(
        json!({}),
        json!({"$setElementOrder/containers": named(&["b", "a"]), "containers": named(&["b", "a"])}),
        json!({"containers": named(&["b", "a"])}),
    );
    spec!(json!({}), json!({"$setElementOrder/containers": named(&["a"])}), json!({}));
    finalizers!(json!(["a", "s", "b"]), json!({"$setElementOrder/finalizers": ["b", "a"]}), json!(["s", "b", "a"]));
    check(
        &json!({"metadata": {}}),
        &json!({"metadata": {"$setElementOrder/finalizers": ["b", "a"], "finalizers": ["b", "a"]}}),
        &json!({"metadata": {"finalizers": ["b", "a"]}}),
    );
}

#[test]
fn set_element_order_must_match_patch() {
    let object = json!({"spec": {"containers": [{"name": "a"}]}});
    check_rejected(
        &object,
        &json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a"}, {"name": "b"}]}}),
        &expect![[r#"Unclassified("The order in patch list doesn't match $setElementOrder list")"#]],
    );
    check_rejected(
        &object,
        &json!({"spec": {"$setElementOrder/containers": "a"}}),
        &expect![[r#"BadRequest("invalid patch format of setElementOrder list")"#]],
    );
    check_rejected(
        &object,
        &json!({"spec": {"$setElementOrder": []}}),
        &expect![[r#"BadRequest("invalid patch format of setElementOrder list")"#]],
    );
    check_rejected(
        &object,
        &json!({"spec": {"$setElementOrder/containers": [{}]}}),
        &expect![[r#"Unclassified("map: {} does not contain declared merge key: name")"#]],
    );
    check_rejected(
        &object,
        &json!({"spec": {"$deleteFromPrimitiveList/x": 1}}),
        &expect![[r#"BadRequest("invalid patch format of primitive list")"#]],
    );
    check_rejected(
        &object,
        &json!({"spec": {"$deleteFromPrimitiveList": []}}),
        &expect![[r#"BadRequest("invalid patch format of primitive list")"#]],
    );
}

#[test]
fn retain_keys_removes_other_fields() {
    spec!(
        json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}),
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": "/x"}]}),
        json!({"volumes": [{"name": "v", "hostPath": "/x"}]}),
    );
    spec!(
        json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}}),
        json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate", "rollingUpdate": null}}),
        json!({"strategy": {"type": "Recreate"}}),
    );
    let object = json!({"spec": {"strategy": {"type": "x"}}});
    check_rejected(
        &object,
        &json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}}),
        &expect![[r#"BadRequest("invalid patch format of retainKeys")"#]],
    );
    check_rejected(
        &object,
        &json!({"spec": {"strategy": {"$retainKeys": "type"}}}),
        &expect![[r#"BadRequest("invalid patch format of retainKeys")"#]],
    );
}

#[test]
fn strategic_patch_rejects_unmergeable_lists() {
    let object = json!({"spec": {"containers": [{"name": "a"}]}, "metadata": {"finalizers": ["a"]}});
    check_rejected(
        &object,
        &json!({"spec": {"containers": [{"image": "x"}]}}),
        &expect![[r#"Unclassified("map: {\"image\":\"x\"} does not contain declared merge key: name")"#]],
    );
    check_rejected(
        &object,
        &json!({"spec": {"containers": ["a"]}}),
        &expect![[r#"Unclassified("list element types are not identical")"#]],
    );
    check_rejected(
        &object,
        &json!({"metadata": {"finalizers": [["a"]]}}),
        &expect![[r#"Unprocessable("lists of lists are not supported")"#]],
    );
    check_rejected(
        &object,
        &json!({"metadata": {"finalizers": [null]}}),
        &expect![[r#"Unclassified("list element types are not identical")"#]],
    );
    check_rejected(
        &json!({"metadata": {"finalizers": [{}]}}),
        &json!({"metadata": {"finalizers": [{}]}}),
        &expect![[r#"Unclassified("cannot merge lists without merge key for slice")"#]],
    );
}

#[test]
fn strategic_patch_merges_long_lists_in_linear_time() {
    let many = |from: usize| (from..from + 20_000).map(|at| json!({"name": format!("c{at}")})).collect::<Vec<_>>();
    let merged =
        apply(&json!({"spec": {"containers": many(0)}}), &json!({"spec": {"containers": many(10_000)}})).unwrap();
    assert_eq!(merged["spec"]["containers"].as_array().unwrap().len(), 30_000);
}

/// Random patches with field names of the schema and directives.
fn patch() -> impl Strategy<Value = Map<String, Value>> {
    let field = prop::sample::select(vec![
        "spec",
        "metadata",
        "containers",
        "finalizers",
        "name",
        "env",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$setElementOrder/finalizers",
        "$deleteFromPrimitiveList/finalizers",
    ]);
    let leaf = prop_oneof![
        Just(json!("delete")),
        Just(json!("replace")),
        Just(json!("a")),
        Just(json!(null)),
        arbitrary::value()
    ];
    let value = leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    });
    prop::collection::btree_map(prop::sample::select(vec!["spec".to_owned(), "metadata".to_owned()]), value, 0..3)
        .prop_map(|map| map.into_iter().collect())
}

proptest! {
    #[test]
    fn strategic_patch_never_panics(object in patch(), patch in patch()) {
        let _ = StrategicPatch(patch).apply(&object, pod());
    }

    #[test]
    fn empty_strategic_patch_changes_nothing(object in arbitrary::object()) {
        let patched = StrategicPatch(Map::new()).apply(&object, pod());
        prop_assert_eq!(patched, Ok(Value::Object(object)));
    }

    #[test]
    fn strategic_patch_without_lists_equals_merge_patch(object in arbitrary::object(), patch in arbitrary::object()) {
        let merged = crate::patch::MergePatch(patch.clone()).apply(&object);
        prop_assert_eq!(StrategicPatch(patch).apply(&object, pod()), Ok(merged));
    }
}
