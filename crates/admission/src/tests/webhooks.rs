//! Reviews of webhooks, their answers and failures.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{Case, Fixture, object};
use crate::{Answers, CallFailure, Interruption, Operation, WebhookSet};

const BOTH: &[&str] = &["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];

pub(super) fn configuration(name: &str, webhooks: &[Value]) -> Value {
    let webhooks: Vec<Value> = webhooks
        .iter()
        .map(|webhook| {
            let mut full = object(json!({
                "clientConfig": {"url": "https://localhost:1/x"},
                "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }));
            full.extend(object(webhook.clone()));
            Value::Object(full)
        })
        .collect();
    json!({"metadata": {"name": name}, "webhooks": webhooks})
}

pub(super) fn server(mutating: &[Value], validating: &[Value]) -> Fixture {
    let states = |values: &[Value]| {
        let state = |(at, value): (usize, &Value)| {
            let value = object(value.clone());
            ((vec![], at as u64), move || Some(value))
        };
        values.iter().enumerate().map(state).collect::<Vec<_>>()
    };
    let webhooks = WebhookSet::default().update(states(mutating), states(validating), k8s_cel::Release(36));
    Fixture { webhooks, ..Fixture::with_plugins(BOTH) }
}

fn config_map() -> Case {
    let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
    Case { object: Some(value), ..Case::new(Operation::Create, "", "configmaps", "ConfigMap") }
}

fn allow() -> Value {
    respond(json!({"allowed": true}))
}

fn respond(response: Value) -> Value {
    let mut full = object(json!({"uid": "uid-1"}));
    full.extend(object(response));
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": full})
}

fn patch(operations: Value) -> Value {
    let patch = BASE64_STANDARD.encode(operations.to_string());
    respond(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

#[test]
fn review_has_keys_in_order_of_kubernetes() {
    let fixture = server(&[], &[configuration("c", &[json!({"name": "w.x.y"})])]);
    fixture.run(&config_map(), &|_, _| Ok(allow())).0.unwrap();
    expect![[r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"uid-1","kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},"requestKind":{"group":"","version":"v1","kind":"ConfigMap"},"requestResource":{"group":"","version":"v1","resource":"configmaps"},"name":"a","namespace":"n","operation":"CREATE","userInfo":{"username":"alice"},"object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}},"oldObject":null,"dryRun":false,"options":{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}}}"#]].assert_eq(&fixture.bodies.borrow()[0]);
}

#[test]
fn patches_apply_in_order_of_configuration_names() {
    let fixture = server(
        &[configuration("b", &[json!({"name": "second.x.y"})]), configuration("a", &[json!({"name": "first.x.y"})])],
        &[],
    );
    let (result, notes) = fixture.run(&config_map(), &|name, body| {
        let seen = body["request"]["object"]["data"]["seen"].as_str().unwrap_or_default();
        let value = format!("{seen}{name};");
        Ok(patch(json!([{"op": "add", "path": "/data", "value": {"seen": value}}])))
    });
    assert_eq!(result.unwrap().unwrap()["data"]["seen"], "first.x.y;second.x.y;");
    expect![[r#"
        {
            "mutation.webhook.admission.k8s.io/round_0_index_0": "{\"configuration\":\"a\",\"webhook\":\"first.x.y\",\"mutated\":true}",
            "mutation.webhook.admission.k8s.io/round_0_index_1": "{\"configuration\":\"b\",\"webhook\":\"second.x.y\",\"mutated\":true}",
            "patch.webhook.admission.k8s.io/round_0_index_0": "{\"configuration\":\"a\",\"patch\":[{\"op\":\"add\",\"path\":\"/data\",\"value\":{\"seen\":\"first.x.y;\"}}],\"patchType\":\"JSONPatch\",\"webhook\":\"first.x.y\"}",
            "patch.webhook.admission.k8s.io/round_0_index_1": "{\"configuration\":\"b\",\"patch\":[{\"op\":\"add\",\"path\":\"/data\",\"value\":{\"seen\":\"first.x.y;second.x.y;\"}}],\"patchType\":\"JSONPatch\",\"webhook\":\"second.x.y\"}",
        }
    "#]]
    .assert_debug_eq(notes.annotations());
}

#[test]
fn earlier_webhook_runs_again_after_later_change() {
    let names = |fixture: &Fixture| {
        let calls = fixture.calls.borrow();
        calls.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(" ")
    };
    let hook = |name: &str, policy: &str| json!({"name": name, "reinvocationPolicy": policy});
    for (first, second, expected) in [
        ("IfNeeded", "IfNeeded", "first second first"),
        ("Never", "IfNeeded", "first second"),
        ("IfNeeded", "Never", "first second first"),
    ] {
        let hooks = configuration("a", &[hook("first", first), hook("second", second)]);
        let fixture = server(&[hooks], &[]);
        let (result, _) = fixture.run(&config_map(), &|name, _| {
            let change = patch(json!([{"op": "add", "path": "/data", "value": {}}]));
            Ok(if name == "second" { change } else { allow() })
        });
        result.unwrap();
        assert_eq!(names(&fixture), expected, "{first} {second}");
    }
    // The change of the only webhook does not make it run again.
    let fixture = server(&[configuration("a", &[hook("only", "IfNeeded")])], &[]);
    fixture.run(&config_map(), &|_, _| Ok(patch(json!([{"op": "add", "path": "/x", "value": 1}])))).0.unwrap();
    assert_eq!(names(&fixture), "only");
}

#[test]
fn selectors_match_labels_as_earlier_webhooks_left_them() {
    let hook = |name: &str, labels: Value| json!({"name": name, "objectSelector": {"matchLabels": labels}});
    let hooks = [
        hook("before", json!({"added": "x"})),
        hook("changes", json!({"removed": "x"})),
        hook("removed", json!({"removed": "x"})),
        hook("added", json!({"added": "x"})),
        hook("other", json!({"added": "y"})),
    ];
    let fixture = server(&[configuration("a", &hooks)], &[]);
    let mut case = config_map();
    case.object.as_mut().unwrap()["metadata"]["labels"] = json!({"removed": "x"});
    let (result, _) = fixture.run(&case, &|name, _| {
        let change = patch(json!([{"op": "replace", "path": "/metadata/labels", "value": {"added": "x"}}]));
        Ok(if name == "changes" { change } else { allow() })
    });
    result.unwrap();
    let called: Vec<String> = fixture.calls.take().into_iter().map(|(name, _)| name).collect();
    assert_eq!(called, ["changes", "added"]);
}

#[test]
fn webhook_is_called_again_only_if_it_would_be_sent_something_else() {
    let hook = |changed: Value| {
        let mut hook = object(json!({"name": "w.x.y"}));
        hook.extend(object(changed));
        server(&[], &[configuration("c", &[Value::Object(hook)])])
    };
    let calls = |fixture: &Fixture, case: &Case, answers: &Answers| {
        let mut calls = Vec::new();
        let chain = fixture.chain();
        fixture.with_write(case, answers, |mut write, context| match chain.validate(&mut write, context) {
            Ok(()) => {}
            Err(Interruption::CallsNeeded(needed)) => calls = needed,
            Err(Interruption::Refused(status)) => panic!("{status:?}"),
        });
        calls
    };
    let mut answers = Answers::default();
    for call in calls(&hook(json!({})), &config_map(), &answers) {
        answers.add(&call, "uid-1", Ok(allow().to_string().as_bytes()));
    }
    let mut other = config_map();
    other.object.as_mut().unwrap()["data"] = json!({});
    for (changed, case, expected) in [
        (json!({}), config_map(), 0),
        (json!({"failurePolicy": "Ignore", "objectSelector": {}, "matchPolicy": "Exact"}), config_map(), 0),
        (json!({"clientConfig": {"url": "https://localhost:2/x"}}), config_map(), 1),
        (json!({"clientConfig": {"url": "https://localhost:1/x", "caBundle": "eA=="}}), config_map(), 1),
        (json!({"timeoutSeconds": 3}), config_map(), 1),
        (json!({"admissionReviewVersions": ["v1beta1"]}), config_map(), 1),
        (json!({}), other, 1),
    ] {
        assert_eq!(calls(&hook(changed.clone()), &case, &answers).len(), expected, "{changed}");
    }
}

/// Checks the response to the client under both failure policies.
fn check_failure(mutating: bool, response: Result<Value, CallFailure>, fail: &Expect, ignore: &Expect) {
    for (policy, expected) in [("Fail", fail), ("Ignore", ignore)] {
        let hooks = [configuration("c", &[json!({"name": "w.x.y", "failurePolicy": policy})])];
        let fixture = if mutating { server(&hooks, &[]) } else { server(&[], &hooks) };
        let (result, _) = fixture.run(&config_map(), &|_, _| response.clone());
        let shown = match result {
            Ok(_) => "admitted".to_owned(),
            Err(status) => format!("{} {} {}", status.code, status.reason.as_str(), status.message),
        };
        expected.assert_eq(&shown);
    }
}

#[test]
fn failures_follow_policy_with_texts_of_kubernetes() {
    let admitted = expect!["admitted"];
    let mutating = |response: Value, fail: &Expect| check_failure(true, Ok(response), fail, &admitted);
    let refused = CallFailure::not_called("Post \"https://localhost:1/x?timeout=10s\": connection refused", 503);
    check_failure(
        true,
        Err(refused.clone()),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": failed to call webhook: Post "https://localhost:1/x?timeout=10s": connection refused"#
        ]],
        &admitted,
    );
    check_failure(
        false,
        Err(refused),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": failed to call webhook: Post "https://localhost:1/x?timeout=10s": connection refused"#
        ]],
        &admitted,
    );
    mutating(
        json!({}),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": received invalid webhook response: webhook response was absent"#
        ]],
    );
    mutating(
        json!({"response": {"uid": "other"}}),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": received invalid webhook response: expected response.uid="uid-1", got "other""#
        ]],
    );
    mutating(
        json!({"response": {"uid": "uid-1", "allowed": true}}),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="#
        ]],
    );
    mutating(
        respond(json!({"allowed": true, "patch": "W10="})),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": received invalid webhook response: webhook returned response.patch but not response.patchType"#
        ]],
    );
    mutating(
        respond(json!({"allowed": true, "patchType": "JSONPatch"})),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": received invalid webhook response: webhook returned response.patchType but not response.patch"#
        ]],
    );
    mutating(
        respond(json!({"allowed": true, "patchType": "JSONPatch", "patch": "e30="})),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type jsonpatch.Patch"#
        ]],
    );
    let operations = BASE64_STANDARD.encode(r#"[{"op":"add","path":"/x","value":1}]"#);
    mutating(
        respond(json!({"allowed": true, "patchType": "Merge", "patch": operations})),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": unsupported patch type "Merge""#
        ]],
    );
}

#[test]
fn validating_webhook_may_not_patch() {
    let admitted = expect!["admitted"];
    let validating = |response: Value, fail: &Expect| check_failure(false, Ok(response), fail, &admitted);
    validating(
        respond(json!({"allowed": true, "patch": "W10="})),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": received invalid webhook response: validating webhook may not return response.patch"#
        ]],
    );
    validating(
        respond(json!({"allowed": true, "patchType": "JSONPatch"})),
        &expect![[
            r#"500 InternalError Internal error occurred: failed calling webhook "w.x.y": received invalid webhook response: validating webhook may not return response.patchType"#
        ]],
    );
}

#[test]
fn denials_and_broken_patches_ignore_policy() {
    let check =
        |mutating, response: Value, expected: &Expect| check_failure(mutating, Ok(response), expected, expected);
    check(
        true,
        respond(json!({})),
        &expect![[r#"400  admission webhook "w.x.y" denied the request without explanation"#]],
    );
    check(
        false,
        respond(json!({"status": {"message": "no", "code": 409, "reason": "Conflict"}})),
        &expect![[r#"409 Conflict admission webhook "w.x.y" denied the request: no"#]],
    );
    check(
        false,
        respond(json!({"status": {"reason": "Because", "code": 200, "status": "Success"}})),
        &expect![[r#"400 Because admission webhook "w.x.y" denied the request: Because"#]],
    );
    check(
        true,
        patch(json!([{"op": "remove", "path": "/missing"}])),
        &expect![
            "500 InternalError Internal error occurred: error in remove for path: '/missing': Unable to remove nonexistent key: missing: missing value"
        ],
    );
    check(
        true,
        patch(json!([{"op": "add", "path": "/broken", "value": 1}])),
        &expect!["500 InternalError Internal error occurred: json: broken"],
    );
}

#[test]
fn webhook_with_unknown_review_versions_fails_by_policy() {
    let hook = json!({"name": "w.x.y", "admissionReviewVersions": ["v9"]});
    let fixture = server(&[], &[configuration("c", &[hook])]);
    let (result, _) = fixture.run(&config_map(), &|_, _| Ok(allow()));
    expect![[r#"Internal error occurred: failed calling webhook "w.x.y": could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"#]].assert_eq(&result.unwrap_err().message);
}

#[test]
fn patch_of_deleted_object_is_refused() {
    let fixture = server(&[configuration("c", &[json!({"name": "w.x.y", "failurePolicy": "Ignore"})])], &[]);
    let old = config_map().object;
    let case = Case { operation: Operation::Delete, object: None, old_object: old, ..config_map() };
    let (result, _) = fixture.run(&case, &|_, _| Ok(patch(json!([{"op": "add", "path": "/x", "value": 1}]))));
    expect![[r#"Internal error occurred: admission webhook "w.x.y" attempted to modify the object, which is not supported for this operation"#]].assert_eq(&result.unwrap_err().message);
    let body = fixture.calls.borrow()[0].1.clone();
    assert_eq!(
        (&body["request"]["object"], &body["request"]["oldObject"]["kind"]),
        (&Value::Null, &json!("ConfigMap"))
    );
}

#[test]
fn dry_run_reaches_only_webhooks_without_side_effects() {
    for (side_effects, expected) in [
        (json!("None"), "ok"),
        (json!("NoneOnDryRun"), "ok"),
        (json!("Some"), "400 admission webhook \"w.x.y\" does not support dry run"),
        (json!("Unknown"), "400 admission webhook \"w.x.y\" does not support dry run"),
        (Value::Null, "500 Internal error occurred: failed calling webhook \"w.x.y\": Webhook SideEffects is nil"),
    ] {
        let fixture = server(&[], &[configuration("c", &[json!({"name": "w.x.y", "sideEffects": side_effects})])]);
        let case = Case { is_dry_run: true, ..config_map() };
        let shown = match fixture
            .run(&case, &|_, body| Ok(if body["request"]["dryRun"] == true { allow() } else { json!({}) }))
            .0
        {
            Ok(_) => "ok".to_owned(),
            Err(status) => format!("{} {}", status.code, status.message),
        };
        assert_eq!(shown, expected);
    }
}

#[test]
fn warnings_and_annotations_count_whatever_the_verdict() {
    let hooks = [configuration("c", &[json!({"name": "a.x.y"}), json!({"name": "b.x.y"})])];
    let fixture = server(&[], &hooks);
    let (result, notes) = fixture.run(&config_map(), &|name, _| {
        Ok(respond(json!({
            "allowed": name != "a.x.y",
            "warnings": [format!("from {name}"), "shared"],
            "auditAnnotations": {"key": name, "not a key": "x"},
        })))
    });
    assert_eq!(result.unwrap_err().message, "admission webhook \"a.x.y\" denied the request without explanation");
    assert_eq!(notes.warnings(), ["from a.x.y", "shared", "from b.x.y"]);
    expect![[r#"{"a.x.y/key": "a.x.y", "b.x.y/key": "b.x.y"}"#]].assert_eq(&format!("{:?}", notes.annotations()));
}

#[test]
fn v1beta1_answer_needs_neither_kind_nor_uid() {
    let hook = json!({"name": "w.x.y", "admissionReviewVersions": ["v2", "v1beta1", "v1"]});
    let fixture = server(&[configuration("c", &[hook])], &[]);
    let operations = BASE64_STANDARD.encode(r#"[{"op":"add","path":"/data","value":{}}]"#);
    let (result, _) = fixture.run(&config_map(), &|_, body| {
        assert_eq!(body["apiVersion"], "admission.k8s.io/v1beta1");
        Ok(json!({"response": {"allowed": true, "patch": operations}}))
    });
    assert_eq!(result.unwrap().unwrap()["data"], json!({}));
}

#[test]
fn unchanged_configurations_are_not_compiled_again() {
    let read = std::cell::RefCell::new(Vec::new());
    let states = |states: &[(&'static str, u64)]| {
        let state = |&(name, revision): &(&'static str, u64)| {
            let read = &read;
            let read_configuration = move || {
                read.borrow_mut().push(name);
                Some(object(configuration(name, &[json!({"name": format!("{name}.x.y")})])))
            };
            ((name.into(), revision), read_configuration)
        };
        states.iter().map(state).collect::<Vec<_>>()
    };
    let release = k8s_cel::Release(36);
    let set = WebhookSet::default().update(states(&[("a", 1), ("b", 2)]), Vec::new(), release);
    let set = set.update(states(&[("a", 1), ("b", 3), ("c", 4)]), Vec::new(), release);
    assert_eq!(*read.borrow(), ["a", "b", "b", "c"]);
    let called = |webhooks: WebhookSet| {
        let fixture = Fixture { webhooks, ..Fixture::with_plugins(BOTH) };
        fixture.run(&config_map(), &|_, _| Ok(allow())).0.unwrap();
        fixture.calls.take().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let later = set.update(states(&[("c", 4)]), Vec::new(), release);
    assert_eq!(called(set), ["a.x.y", "b.x.y", "c.x.y"]);
    assert_eq!(called(later), ["c.x.y"]);
}
