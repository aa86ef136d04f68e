use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().expect("test value is an object").clone()
}

fn stored() -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"replicas": 1},
        "status": {"ready": 1},
    })
}

#[track_caller]
fn check_create(rules: KindRules, body: &Value, expected: &Expect) {
    let mut object = object(body);
    let stamp = CreateContext { now: "2026-02-03T04:05:06Z".parse().unwrap(), uid: "fresh", random: 0x1234_5678_9abc };
    prepare_create(&mut object, &rules, &stamp);
    expected.assert_eq(&Value::Object(object).to_string());
}

type Prepare = fn(&Map<String, Value>, &mut Map<String, Value>, &KindRules) -> Result<(), Rejection>;

#[track_caller]
fn check(prepare: Prepare, rules: KindRules, old: &Value, new: &Value, expected: &Expect) {
    let mut new = object(new);
    let shown = match prepare(&object(old), &mut new, &rules) {
        Ok(()) => Value::Object(new).to_string(),
        Err(rejection) => format!("{rejection:?}"),
    };
    expected.assert_eq(&shown);
}

#[test]
fn create_sets_server_fields() {
    check_create(
        KindRules::NAMESPACED,
        &json!({"metadata": {"name": "a", "uid": "x", "creationTimestamp": "2000-01-01T00:00:00Z", "generation": 9,
            "deletionTimestamp": "2000-01-01T00:00:00Z", "deletionGracePeriodSeconds": 1, "selfLink": "/", "resourceVersion": "0"},
            "spec": {}, "status": {"ready": 1}}),
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-02-03T04:05:06Z","generation":1,"name":"a","uid":"fresh"},"spec":{}}"#
        ]],
    );
    check_create(
        KindRules::NO_STATUS,
        &json!({"data": {}, "status": "kept"}),
        &expect![[
            r#"{"data":{},"metadata":{"creationTimestamp":"2026-02-03T04:05:06Z","uid":"fresh"},"status":"kept"}"#
        ]],
    );
}

#[test]
fn create_rejects_resource_version() {
    let check = |version: &str| reject_resource_version(&object(&json!({"metadata": {"resourceVersion": version}})));
    assert_eq!((check(""), check("0")), (Ok(()), Ok(())));
    let expected = "resourceVersion should not be set on objects to be created";
    assert_eq!(check("7"), Err(Rejection::Unclassified(expected.to_owned())));
}

#[test]
fn create_generates_name_only_if_absent() {
    check_create(
        KindRules::NO_STATUS,
        &json!({"metadata": {"generateName": "web-"}}),
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-02-03T04:05:06Z","generateName":"web-","name":"web-fxtgm","uid":"fresh"}}"#
        ]],
    );
    check_create(
        KindRules::NO_STATUS,
        &json!({"metadata": {"generateName": "web-", "name": "a"}}),
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-02-03T04:05:06Z","generateName":"web-","name":"a","uid":"fresh"}}"#
        ]],
    );
}

#[test]
fn generated_names_fit_dns_label() {
    let name = generate_name(&"x".repeat(100), u64::MAX);
    assert_eq!(name.len(), 63);
    assert!(name[58..].bytes().all(|byte| GENERATED_ALPHABET.contains(&byte)), "{name}");
    assert_eq!(generate_name("a-", 0), "a-bbbbb");
    assert_ne!(generate_name("a-", 1), generate_name("a-", 2));
    assert_eq!(generate_name(&"é".repeat(40), 0).len(), 63);
}

#[test]
fn update_keeps_server_fields_and_status() {
    check(
        prepare_update,
        KindRules::NAMESPACED,
        &stored(),
        &json!({"metadata": {"name": "a", "labels": {"l": "v"}, "generation": 99, "creationTimestamp": "2000-01-01T00:00:00Z"},
                "spec": {"replicas": 1}, "status": {"ready": 9}}),
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":3,"labels":{"l":"v"},"name":"a","resourceVersion":"7","uid":"u"},"spec":{"replicas":1},"status":{"ready":1}}"#
        ]],
    );
}

#[test]
fn update_increments_generation_on_spec_change() {
    let changed = json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}});
    check(
        prepare_update,
        KindRules::NAMESPACED,
        &stored(),
        &changed,
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":4,"name":"a","resourceVersion":"7","uid":"u"},"spec":{"replicas":2},"status":{"ready":1}}"#
        ]],
    );
    check(
        prepare_update,
        KindRules::NO_STATUS,
        &stored(),
        &changed,
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":3,"name":"a","resourceVersion":"7","uid":"u"},"spec":{"replicas":2}}"#
        ]],
    );
    let annotated = json!({"metadata": {"name": "a", "annotations": {"a": "b"}}, "spec": {"replicas": 1}});
    let rules = KindRules { generation: GenerationRule::CountedWithAnnotations, ..KindRules::NAMESPACED };
    check(
        prepare_update,
        rules,
        &stored(),
        &annotated,
        &expect![[
            r#"{"metadata":{"annotations":{"a":"b"},"creationTimestamp":"2026-01-01T00:00:00Z","generation":4,"name":"a","resourceVersion":"7","uid":"u"},"spec":{"replicas":1},"status":{"ready":1}}"#
        ]],
    );
    check(
        prepare_update,
        KindRules::NAMESPACED,
        &stored(),
        &annotated,
        &expect![[
            r#"{"metadata":{"annotations":{"a":"b"},"creationTimestamp":"2026-01-01T00:00:00Z","generation":3,"name":"a","resourceVersion":"7","uid":"u"},"spec":{"replicas":1},"status":{"ready":1}}"#
        ]],
    );
    // Without a status subresource, `status` is an ordinary field.
    let status = json!({"metadata": {"name": "a"}, "spec": {"replicas": 1}, "status": {"ready": 2}});
    let rules = KindRules { status: StatusSubresource::None, ..KindRules::NAMESPACED };
    check(
        prepare_update,
        rules,
        &stored(),
        &status,
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":4,"name":"a","resourceVersion":"7","uid":"u"},"spec":{"replicas":1},"status":{"ready":2}}"#
        ]],
    );
}

#[test]
fn update_keeps_deletion_timestamp() {
    let mut old = stored();
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z".into();
    old["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    check(
        prepare_update,
        KindRules::NO_STATUS,
        &old,
        &json!({"metadata": {"name": "a"}}),
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":30,"deletionTimestamp":"2026-01-01T00:00:30Z","generation":3,"name":"a","resourceVersion":"7","uid":"u"}}"#
        ]],
    );
}

#[test]
fn update_checks_uid_and_resource_version() {
    let with = |metadata: Value| json!({ "metadata": metadata });
    for (rules, metadata) in [
        (KindRules::NO_STATUS, json!({"resourceVersion": "7"})),
        (KindRules::NO_STATUS, json!({"uid": "u"})),
        (KindRules::NO_STATUS, json!({"resourceVersion": "0"})),
        (KindRules::CUSTOM, json!({"resourceVersion": "7"})),
    ] {
        assert_eq!(prepare_update(&object(&stored()), &mut object(&with(metadata)), &rules), Ok(()));
    }
    check(
        prepare_update,
        KindRules::NO_STATUS,
        &stored(),
        &with(json!({"resourceVersion": "6"})),
        &expect![[
            r#"Conflict { subject: Resource, reason: "the object has been modified; please apply your changes to the latest version and try again" }"#
        ]],
    );
    check(
        prepare_update,
        KindRules::NO_STATUS,
        &stored(),
        &with(json!({"resourceVersion": "8"})),
        &expect![[
            r#"Conflict { subject: Resource, reason: "the object has been modified; please apply your changes to the latest version and try again" }"#
        ]],
    );
    check(
        prepare_update,
        KindRules::NO_STATUS,
        &stored(),
        &with(json!({"resourceVersion": "x"})),
        &expect![[r#"Unclassified("strconv.ParseUint: parsing \"x\": invalid syntax")"#]],
    );
    // The uid is the precondition of a PUT only; validation rejects a patch that changes it.
    assert_eq!(
        ensure_uid_matches(&object(&stored()), &object(&with(json!({"uid": "v"})))).unwrap_err().to_string(),
        "Precondition failed: UID in precondition: v, UID in object meta: u"
    );
    let mut patched = object(&with(json!({"uid": "v"})));
    assert_eq!(prepare_update(&object(&stored()), &mut patched, &KindRules::NO_STATUS), Ok(()));
    assert_eq!(patched["metadata"]["uid"], "v");
    check(
        prepare_update,
        KindRules::CUSTOM,
        &stored(),
        &with(json!({})),
        &expect![[
            r#"Invalid { subject: Resource, errors: [FieldError { kind: Invalid, field: "metadata.resourceVersion", value: Some(Number(0)), shown: None, detail: "must be specified for an update" }] }"#
        ]],
    );
    check(
        prepare_status_update,
        KindRules::CUSTOM,
        &stored(),
        &with(json!({"resourceVersion": "6"})),
        &expect![[
            r#"Conflict { subject: Resource, reason: "the object has been modified; please apply your changes to the latest version and try again" }"#
        ]],
    );
}

#[test]
fn status_update_changes_only_status() {
    let new = json!({
        "metadata": {"name": "a", "resourceVersion": "7", "labels": {"l": "v"}, "managedFields": [{"manager": "m"}]},
        "spec": {"replicas": 5},
        "status": {"ready": 2},
    });
    check(
        prepare_status_update,
        KindRules::CUSTOM,
        &stored(),
        &new,
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":3,"managedFields":[{"manager":"m"}],"name":"a","namespace":"n","resourceVersion":"7","uid":"u"},"spec":{"replicas":1},"status":{"ready":2}}"#
        ]],
    );
    check(
        prepare_status_update,
        KindRules::NAMESPACED,
        &stored(),
        &new,
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":3,"labels":{"l":"v"},"managedFields":[{"manager":"m"}],"name":"a","resourceVersion":"7","uid":"u"},"spec":{"replicas":1},"status":{"ready":2}}"#
        ]],
    );
    let without = json!({"metadata": {"resourceVersion": "7"}});
    check(
        prepare_status_update,
        KindRules::CUSTOM,
        &stored(),
        &without,
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":3,"name":"a","namespace":"n","resourceVersion":"7","uid":"u"},"spec":{"replicas":1}}"#
        ]],
    );
}

#[test]
fn is_no_op_detects_unchanged_objects() {
    let entry = |time: &str, manager: &str| json!([{"manager": manager, "time": time}]);
    let with = |name: &str, value: Value| {
        let mut object = object(&stored());
        metadata_mut(&mut object).insert(name.to_owned(), value);
        object
    };
    let old = with("managedFields", entry("2026-01-01T00:00:00Z", "m"));
    assert!(is_no_op(&old, &old));
    assert!(is_no_op(&old, &with("managedFields", entry("2026-01-02T00:00:00Z", "m"))));
    assert!(!is_no_op(&old, &with("managedFields", entry("2026-01-01T00:00:00Z", "other"))));
    assert!(is_no_op(&object(&stored()), &with("managedFields", json!([]))));
    assert!(is_no_op(&object(&stored()), &with("resourceVersion", json!("8"))));
    assert!(!is_no_op(&object(&stored()), &with("labels", json!({"a": "b"}))));
    assert!(!is_no_op(&with("labels", json!({"a": "b"})), &object(&stored())));
    let mut without_spec = object(&stored());
    without_spec.remove("spec");
    assert!(!is_no_op(&object(&stored()), &without_spec));
    assert!(!is_no_op(&without_spec, &object(&stored())));
}

#[test]
fn dedup_owner_references_removes_duplicates_with_warning() {
    let reference = |uid: &str| json!({"uid": uid, "name": "o"});
    let mut twice = object(&json!({"metadata": {"ownerReferences": [reference("a"), reference("b"), reference("a")]}}));
    let warning = dedup_owner_references(&mut twice).unwrap();
    assert!(warning.ends_with("duplicate UID(s) observed: a"), "{warning}");
    assert_eq!(get(&twice, &["metadata", "ownerReferences"]), Some(&json!([reference("a"), reference("b")])));
    assert_eq!(dedup_owner_references(&mut twice), None);
    assert_eq!(dedup_owner_references(&mut object(&json!({}))), None);
}
