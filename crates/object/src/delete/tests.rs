use api::FieldError;
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::decode::BodyEncoding;

const NOW: &str = "2026-01-01T00:01:00Z";

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().expect("test value is an object").clone()
}

#[track_caller]
fn check(rules: KindRules, metadata: &Value, rest: &Value, query: &str, expected: &Expect) {
    let mut object = object(rest);
    object.insert("metadata".to_owned(), metadata.clone());
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let options = DeleteOptions::parse(b"", BodyEncoding::Json, pairs).unwrap();
    let shown = match decide_deletion(&object, &options, &rules, NOW.parse().unwrap()) {
        Ok(DeleteOutcome::Remove(object)) => format!("remove {}", object["metadata"]),
        Ok(DeleteOutcome::Mark(object)) => format!("mark {}", object["metadata"]),
        Ok(DeleteOutcome::Pending) => "pending".to_owned(),
        Err(rejection) => format!("{rejection:?}"),
    };
    expected.assert_eq(&shown);
}

#[track_caller]
fn check_without_status(metadata: &Value, query: &str, expected: &Expect) {
    check(KindRules::NO_STATUS, metadata, &json!({}), query, expected);
}

const POD: KindRules = KindRules { grace_period: GracePeriodRule::Graceful(grace_seconds), ..KindRules::NAMESPACED };

/// Pods: the requested grace period or the pod's own while it runs on a node.
fn grace_seconds(pod: &Map<String, Value>, requested: Option<i64>) -> i64 {
    let is_over = matches!(unstructured::text(pod, &["status", "phase"]), "Failed" | "Succeeded");
    if unstructured::text(pod, &["spec", "nodeName"]).is_empty() || is_over {
        return 0;
    }
    let own = unstructured::integer(pod, &["spec", "terminationGracePeriodSeconds"]).unwrap_or(30);
    match requested.unwrap_or(own) {
        ..0 => 1,
        seconds => seconds,
    }
}

#[track_caller]
fn check_running_pod(metadata: &Value, query: &str, expected: &Expect) {
    let rest = json!({"spec": {"nodeName": "a", "terminationGracePeriodSeconds": 20}, "status": {"phase": "Running"}});
    check(POD, metadata, &rest, query, expected);
}

#[test]
fn object_without_finalizers_is_removed_immediately() {
    check_without_status(
        &json!({"name": "a", "generation": 1}),
        "",
        &expect![[r#"remove {"generation":1,"name":"a"}"#]],
    );
    check_without_status(&json!({"name": "a"}), "gracePeriodSeconds=30", &expect![[r#"remove {"name":"a"}"#]]);
    check_without_status(&json!({"name": "a"}), "propagationPolicy=Background", &expect![[r#"remove {"name":"a"}"#]]);
}

#[test]
fn object_with_finalizers_is_marked_for_deletion() {
    check_without_status(
        &json!({"finalizers": ["x"], "generation": 1}),
        "",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["x"],"generation":2}"#
        ]],
    );
    check_without_status(
        &json!({"finalizers": ["x"]}),
        "gracePeriodSeconds=30",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["x"]}"#
        ]],
    );
}

#[test]
fn deleting_a_marked_object_changes_nothing() {
    let marked = json!({"finalizers": ["x"], "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z",
                        "deletionGracePeriodSeconds": 0});
    check_without_status(
        &marked,
        "",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x"],"generation":2}"#
        ]],
    );
    // State after a crash between the removal of the last finalizer and the removal of the object.
    let emptied =
        json!({"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    check_without_status(
        &emptied,
        "",
        &expect![[
            r#"remove {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:00:00Z","generation":2}"#
        ]],
    );
}

#[test]
fn propagation_policy_sets_finalizer() {
    check_without_status(
        &json!({}),
        "propagationPolicy=Orphan",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["orphan"]}"#
        ]],
    );
    check_without_status(
        &json!({}),
        "propagationPolicy=Foreground",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["foregroundDeletion"]}"#
        ]],
    );
    check_without_status(
        &json!({}),
        "orphanDependents=true",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["orphan"]}"#
        ]],
    );
    check_without_status(&json!({}), "orphanDependents=false", &expect!["remove {}"]);
    check_without_status(
        &json!({"finalizers": ["orphan", "x"]}),
        "propagationPolicy=Foreground",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["x","foregroundDeletion"]}"#
        ]],
    );
    check_without_status(&json!({"finalizers": ["orphan"]}), "propagationPolicy=Background", &expect!["remove {}"]);
    check_without_status(
        &json!({"finalizers": ["x", "foregroundDeletion", "y"]}),
        "",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["x","foregroundDeletion","y"]}"#
        ]],
    );
}

#[test]
fn kind_default_decides_propagation() {
    let orphaning = KindRules { garbage_collection: GarbageCollectionPolicy::OrphanDependents, ..KindRules::NO_STATUS };
    check(
        orphaning,
        &json!({}),
        &json!({}),
        "",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["orphan"]}"#
        ]],
    );
    check(orphaning, &json!({}), &json!({}), "propagationPolicy=Background", &expect!["remove {}"]);
    check(
        orphaning,
        &json!({"finalizers": ["foregroundDeletion"]}),
        &json!({}),
        "",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["foregroundDeletion"]}"#
        ]],
    );
    let event = KindRules { garbage_collection: GarbageCollectionPolicy::Unsupported, ..KindRules::NO_STATUS };
    check(event, &json!({}), &json!({}), "propagationPolicy=Orphan", &expect!["remove {}"]);
}

#[test]
fn running_pod_gets_grace_period() {
    check_running_pod(
        &json!({"generation": 1}),
        "",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":20,"deletionTimestamp":"2026-01-01T00:01:20Z","generation":2}"#
        ]],
    );
    check_running_pod(
        &json!({}),
        "gracePeriodSeconds=5",
        &expect![[r#"mark {"deletionGracePeriodSeconds":5,"deletionTimestamp":"2026-01-01T00:01:05Z"}"#]],
    );
    check_running_pod(
        &json!({}),
        "gracePeriodSeconds=-7",
        &expect![[r#"mark {"deletionGracePeriodSeconds":1,"deletionTimestamp":"2026-01-01T00:01:01Z"}"#]],
    );
    check_running_pod(
        &json!({}),
        "gracePeriodSeconds=0",
        &expect![[r#"remove {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z"}"#]],
    );
    check_running_pod(
        &json!({"finalizers": ["x"]}),
        "gracePeriodSeconds=0",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["x"]}"#
        ]],
    );
    check(
        POD,
        &json!({}),
        &json!({"spec": {"nodeName": "a"}}),
        "",
        &expect![[r#"mark {"deletionGracePeriodSeconds":30,"deletionTimestamp":"2026-01-01T00:01:30Z"}"#]],
    );
    check_running_pod(
        &json!({}),
        &format!("gracePeriodSeconds={}", i64::MAX),
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":9223372036854775807,"deletionTimestamp":"9999-12-30T22:00:00Z"}"#
        ]],
    );
}

#[test]
fn unscheduled_or_finished_pod_is_removed_immediately() {
    check(
        POD,
        &json!({}),
        &json!({"spec": {"terminationGracePeriodSeconds": 20}}),
        "",
        &expect![[r#"remove {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z"}"#]],
    );
    for phase in ["Succeeded", "Failed"] {
        let rest = json!({"spec": {"nodeName": "a"}, "status": {"phase": phase}});
        check(
            POD,
            &json!({}),
            &rest,
            "gracePeriodSeconds=9",
            &expect![[r#"remove {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z"}"#]],
        );
    }
}

#[test]
fn grace_period_can_only_be_shortened() {
    let marked =
        |deadline: &str| json!({"deletionTimestamp": deadline, "deletionGracePeriodSeconds": 30, "generation": 2});
    check_running_pod(&marked("2026-01-01T00:01:20Z"), "", &expect!["pending"]);
    check_running_pod(&marked("2026-01-01T00:01:20Z"), "gracePeriodSeconds=30", &expect!["pending"]);
    check_running_pod(
        &marked("2026-01-01T00:01:20Z"),
        "gracePeriodSeconds=15",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":15,"deletionTimestamp":"2026-01-01T00:01:05Z","generation":2}"#
        ]],
    );
    check_running_pod(
        &marked("2026-01-01T00:01:20Z"),
        "gracePeriodSeconds=5",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":1,"deletionTimestamp":"2026-01-01T00:01:00Z","generation":2}"#
        ]],
    );
    check_running_pod(
        &marked("2026-01-01T00:01:20Z"),
        "gracePeriodSeconds=0",
        &expect![[
            r#"remove {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","generation":2}"#
        ]],
    );
    let over = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    check_running_pod(
        &over,
        "gracePeriodSeconds=9",
        &expect![[r#"remove {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:00:00Z"}"#]],
    );
}

#[test]
fn delete_with_failed_precondition_conflicts() {
    let metadata = json!({"uid": "u", "resourceVersion": "7"});
    check_without_status(
        &metadata,
        "uid=u&resourceVersion=7",
        &expect![[r#"remove {"resourceVersion":"7","uid":"u"}"#]],
    );
    check_without_status(
        &metadata,
        "uid=v",
        &expect![[
            r#"Conflict { subject: Kind, reason: "the UID in the precondition (v) does not match the UID in record (u). The object might have been deleted and then recreated" }"#
        ]],
    );
    check_without_status(
        &metadata,
        "resourceVersion=8",
        &expect![[
            r#"Conflict { subject: Kind, reason: "the ResourceVersion in the precondition (8) does not match the ResourceVersion in record (7). The object might have been modified" }"#
        ]],
    );
}

#[test]
fn update_removing_last_finalizer_removes_marked_object() {
    let with = |metadata: Value| object(&json!({ "metadata": metadata }));
    let marked = with(json!({"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0, "finalizers": ["x"]}));
    let graceful = with(json!({"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 5, "finalizers": ["x"]}));
    let emptied = with(json!({"deletionTimestamp": NOW, "finalizers": []}));
    assert!(is_removed_by_update(&marked, &emptied));
    assert!(!is_removed_by_update(&marked, &marked));
    assert!(!is_removed_by_update(&graceful, &emptied));
    assert!(!is_removed_by_update(&with(json!({"finalizers": ["x"]})), &emptied));
}

#[track_caller]
fn check_options(body: &str, query: &[(&str, &str)], expected: &Expect) {
    let shown = match DeleteOptions::parse(body.as_bytes(), BodyEncoding::Json, query.iter().copied()) {
        Ok(options) => format!("{options:?}"),
        Err(Rejection::Invalid { subject, errors }) => {
            format!("{subject:?} {}", FieldError::aggregate(&errors).unwrap())
        }
        Err(rejection) => format!("{rejection:?}"),
    };
    expected.assert_eq(&shown);
}

#[test]
fn delete_options_come_from_body_or_query() {
    check_options(
        r#"{"kind":"DeleteOptions","apiVersion":"apps/v1","gracePeriodSeconds":5,"preconditions":{"uid":"u","resourceVersion":null},
            "propagationPolicy":"Orphan","dryRun":["All"],"unknown":1}"#,
        &[("gracePeriodSeconds", "9")],
        &expect![[
            r#"DeleteOptions { grace_period_seconds: Some(5), uid: Some("u"), resource_version: None, orphan_dependents: None, propagation_policy: Some(Orphan), is_dry_run: true }"#
        ]],
    );
    check_options(
        "",
        &[
            ("gracePeriodSeconds", "9"),
            ("gracePeriodSeconds", "x"),
            ("orphanDependents", "0"),
            ("dryRun", "All"),
            ("uid", ""),
            ("resourceVersion", "7"),
            ("pretty", "true"),
        ],
        &expect![[
            r#"DeleteOptions { grace_period_seconds: Some(9), uid: None, resource_version: Some("7"), orphan_dependents: Some(false), propagation_policy: None, is_dry_run: true }"#
        ]],
    );
    check_options(
        "",
        &[],
        &expect![
            "DeleteOptions { grace_period_seconds: None, uid: None, resource_version: None, orphan_dependents: None, propagation_policy: None, is_dry_run: false }"
        ],
    );
}

#[test]
fn delete_options_reject_invalid_values() {
    check_options("{", &[], &expect![[r#"BadRequest("unexpected end of JSON input")"#]]);
    check_options("[]", &[], &expect![[r#"BadRequest("decoded object cannot be converted to DeleteOptions")"#]]);
    check_options(
        r#"{"kind":"Pod"}"#,
        &[],
        &expect![[r#"BadRequest("decoded object cannot be converted to DeleteOptions")"#]],
    );
    check_options(
        r#"{"gracePeriodSeconds":"5"}"#,
        &[],
        &expect![[r#"BadRequest("invalid type: string \"5\", expected i64")"#]],
    );
    check_options(
        "",
        &[("gracePeriodSeconds", "soon")],
        &expect![[r#"BadRequest("strconv.ParseInt: parsing \"soon\": invalid syntax")"#]],
    );
    check_options(
        "",
        &[("propagationPolicy", ""), ("orphanDependents", "true"), ("dryRun", "All"), ("dryRun", "Some")],
        &expect![[
            r#"Options("DeleteOptions") [propagationPolicy: Invalid value: "": orphanDependents and deletionPropagation cannot be both set, propagationPolicy: Unsupported value: "": supported values: "Foreground", "Background", "Orphan", "nil", dryRun: Unsupported value: ["All","Some"]: supported values: "All"]"#
        ]],
    );
}
