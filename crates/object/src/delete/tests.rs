use api::FieldError;
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::decode::Encoding;

const NOW: &str = "2026-01-01T00:01:00Z";

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().expect("a test writes objects").clone()
}

#[track_caller]
fn check(rules: KindRules, metadata: &Value, rest: &Value, query: &str, expected: &Expect) {
    let mut object = object(rest);
    object.insert("metadata".to_owned(), metadata.clone());
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let options = DeleteOptions::read(b"", Encoding::Json, pairs).unwrap();
    let shown = match decide(&object, &options, &rules, NOW.parse().unwrap()) {
        Ok(Deletion::Remove(object)) => format!("remove {}", object["metadata"]),
        Ok(Deletion::Mark(object)) => format!("mark {}", object["metadata"]),
        Ok(Deletion::Pending) => "pending".to_owned(),
        Err(refusal) => format!("{refusal:?}"),
    };
    expected.assert_eq(&shown);
}

#[track_caller]
fn plain(metadata: &Value, query: &str, expected: &Expect) {
    check(KindRules::PLAIN, metadata, &json!({}), query, expected);
}

const POD: KindRules = KindRules { grace: Grace::Pod, ..KindRules::NAMESPACED };

#[track_caller]
fn running_pod(metadata: &Value, query: &str, expected: &Expect) {
    let rest = json!({"spec": {"nodeName": "a", "terminationGracePeriodSeconds": 20}, "status": {"phase": "Running"}});
    check(POD, metadata, &rest, query, expected);
}

#[test]
fn an_object_that_nothing_keeps_goes_at_once() {
    plain(&json!({"name": "a", "generation": 1}), "", &expect![[r#"remove {"generation":1,"name":"a"}"#]]);
    plain(&json!({"name": "a"}), "gracePeriodSeconds=30", &expect![[r#"remove {"name":"a"}"#]]);
    plain(&json!({"name": "a"}), "propagationPolicy=Background", &expect![[r#"remove {"name":"a"}"#]]);
}

#[test]
fn finalizers_keep_an_object() {
    plain(
        &json!({"finalizers": ["x"], "generation": 1}),
        "",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["x"],"generation":2}"#
        ]],
    );
    plain(
        &json!({"finalizers": ["x"]}),
        "gracePeriodSeconds=30",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["x"]}"#
        ]],
    );
}

#[test]
fn a_marked_object_is_marked_the_same_again() {
    let marked = json!({"finalizers": ["x"], "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z",
                        "deletionGracePeriodSeconds": 0});
    plain(
        &marked,
        "",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x"],"generation":2}"#
        ]],
    );
    // As after a crash between the removal of the last finalizer and that of the object.
    let emptied =
        json!({"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    plain(
        &emptied,
        "",
        &expect![[
            r#"remove {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:00:00Z","generation":2}"#
        ]],
    );
}

#[test]
fn the_propagation_policy_puts_a_finalizer() {
    plain(
        &json!({}),
        "propagationPolicy=Orphan",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["orphan"]}"#
        ]],
    );
    plain(
        &json!({}),
        "propagationPolicy=Foreground",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["foregroundDeletion"]}"#
        ]],
    );
    plain(
        &json!({}),
        "orphanDependents=true",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["orphan"]}"#
        ]],
    );
    plain(&json!({}), "orphanDependents=false", &expect!["remove {}"]);
    plain(
        &json!({"finalizers": ["orphan", "x"]}),
        "propagationPolicy=Foreground",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["x","foregroundDeletion"]}"#
        ]],
    );
    plain(&json!({"finalizers": ["orphan"]}), "propagationPolicy=Background", &expect!["remove {}"]);
    plain(
        &json!({"finalizers": ["x", "foregroundDeletion", "y"]}),
        "",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","finalizers":["x","foregroundDeletion","y"]}"#
        ]],
    );
}

#[test]
fn the_kind_decides_about_dependents_when_nobody_does() {
    let orphaning = KindRules { dependents: Dependents::Orphan, ..KindRules::PLAIN };
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
    let event = KindRules { dependents: Dependents::Ignore, ..KindRules::PLAIN };
    check(event, &json!({}), &json!({}), "propagationPolicy=Orphan", &expect!["remove {}"]);
}

#[test]
fn a_running_pod_has_grace() {
    running_pod(
        &json!({"generation": 1}),
        "",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":20,"deletionTimestamp":"2026-01-01T00:01:20Z","generation":2}"#
        ]],
    );
    running_pod(
        &json!({}),
        "gracePeriodSeconds=5",
        &expect![[r#"mark {"deletionGracePeriodSeconds":5,"deletionTimestamp":"2026-01-01T00:01:05Z"}"#]],
    );
    running_pod(
        &json!({}),
        "gracePeriodSeconds=-7",
        &expect![[r#"mark {"deletionGracePeriodSeconds":1,"deletionTimestamp":"2026-01-01T00:01:01Z"}"#]],
    );
    running_pod(
        &json!({}),
        "gracePeriodSeconds=0",
        &expect![[r#"remove {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z"}"#]],
    );
    running_pod(
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
    running_pod(
        &json!({}),
        &format!("gracePeriodSeconds={}", i64::MAX),
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":9223372036854775807,"deletionTimestamp":"9999-12-30T22:00:00Z"}"#
        ]],
    );
}

#[test]
fn a_pod_that_no_node_runs_has_none() {
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
fn grace_is_only_shortened() {
    let marked =
        |deadline: &str| json!({"deletionTimestamp": deadline, "deletionGracePeriodSeconds": 30, "generation": 2});
    running_pod(&marked("2026-01-01T00:01:20Z"), "", &expect!["pending"]);
    running_pod(&marked("2026-01-01T00:01:20Z"), "gracePeriodSeconds=30", &expect!["pending"]);
    running_pod(
        &marked("2026-01-01T00:01:20Z"),
        "gracePeriodSeconds=15",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":15,"deletionTimestamp":"2026-01-01T00:01:05Z","generation":2}"#
        ]],
    );
    running_pod(
        &marked("2026-01-01T00:01:20Z"),
        "gracePeriodSeconds=5",
        &expect![[
            r#"mark {"deletionGracePeriodSeconds":1,"deletionTimestamp":"2026-01-01T00:01:00Z","generation":2}"#
        ]],
    );
    running_pod(
        &marked("2026-01-01T00:01:20Z"),
        "gracePeriodSeconds=0",
        &expect![[
            r#"remove {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:01:00Z","generation":2}"#
        ]],
    );
    let over = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    running_pod(
        &over,
        "gracePeriodSeconds=9",
        &expect![[r#"remove {"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-01T00:00:00Z"}"#]],
    );
}

#[test]
fn preconditions_are_checked() {
    let metadata = json!({"uid": "u", "resourceVersion": "7"});
    plain(&metadata, "uid=u&resourceVersion=7", &expect![[r#"remove {"resourceVersion":"7","uid":"u"}"#]]);
    plain(
        &metadata,
        "uid=v",
        &expect![[
            r#"Conflict { subject: Kind, reason: "the UID in the precondition (v) does not match the UID in record (u). The object might have been deleted and then recreated" }"#
        ]],
    );
    plain(
        &metadata,
        "resourceVersion=8",
        &expect![[
            r#"Conflict { subject: Kind, reason: "the ResourceVersion in the precondition (8) does not match the ResourceVersion in record (7). The object might have been modified" }"#
        ]],
    );
}

#[test]
fn the_write_that_empties_the_finalizers_removes_a_marked_object() {
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
    let shown = match DeleteOptions::read(body.as_bytes(), Encoding::Json, query.iter().copied()) {
        Ok(options) => format!("{options:?}"),
        Err(Refusal::Invalid { subject, errors }) => format!("{subject:?} {}", FieldError::aggregate(&errors).unwrap()),
        Err(refusal) => format!("{refusal:?}"),
    };
    expected.assert_eq(&shown);
}

#[test]
fn options_come_from_the_body_or_else_the_query() {
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
fn options_are_checked() {
    check_options("{", &[], &expect![[r#"BadRequest("EOF while parsing an object at line 1 column 1")"#]]);
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
