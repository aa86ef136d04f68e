//! Pods.

use super::*;

fn pod(fields: &[(&str, Value)]) -> Value {
    let mut spec = json!({"containers": [{"name": "a", "image": "b"}]});
    for (name, value) in fields {
        spec[name] = value.clone();
    }
    json!({"spec": spec})
}

/// Errors in 1.36, without the diff.
#[track_caller]
fn check_pod(old: &[(&str, Value)], new: &[(&str, Value)], expected: &Expect) {
    let said = update_errors(R36, "", "v1 Pod", [&pod(old), &pod(new)]);
    let lines = said.lines().take_while(|line| !line.starts_with("@@"));
    expected.assert_eq(&lines.map(|line| format!("{line}\n")).collect::<String>());
}

#[test]
fn pod_update_allows_mutable_fields() {
    let containers = |image: &str| ("containers", json!([{"name": "a", "image": image}]));
    let toleration = |seconds: u32| json!({"key": "k", "operator": "Exists", "tolerationSeconds": seconds});
    let old = [containers("b"), ("tolerations", json!([toleration(1)])), ("activeDeadlineSeconds", json!(10))];
    let new = [
        containers("c"),
        ("tolerations", json!([{"key": "other"}, toleration(2)])),
        ("activeDeadlineSeconds", json!(9)),
    ];
    check_allowed("v1 Pod", &pod(&old), &pod(&new));
    check_allowed("v1 Pod", &pod(&[]), &pod(&[("activeDeadlineSeconds", json!(9))]));
    let grace = |seconds: i32| pod(&[("terminationGracePeriodSeconds", json!(seconds))]);
    check_allowed("v1 Pod", &grace(-1), &grace(1));
}

#[test]
fn pod_update_ignores_explicit_zero_values() {
    let explicit = [("hostNetwork", json!(false)), ("volumes", json!([])), ("nodeSelector", json!({}))];
    check_allowed("v1 Pod", &pod(&explicit), &pod(&[]));
}

#[test]
fn pod_update_rejects_other_changes_with_diff() {
    check(
        "v1 Pod",
        &pod(&[]),
        &pod(&[("nodeName", json!("n"))]),
        &expect![[r#"
            spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)
            @@ -42,7 +42,7 @@
              "NodeSelector": null,
              "ServiceAccountName": "",
              "AutomountServiceAccountToken": null,
            - "NodeName": "",
            + "NodeName": "n",
              "SecurityContext": {
               "HostNetwork": false,
               "HostPID": false,

        "#]],
    );
    check_pod(
        &[],
        &[("containers", json!([{"name": "a", "image": " b"}, {"name": "c"}]))],
        &expect![[r#"
            spec.containers: Forbidden: pod updates may not add or remove containers
        "#]],
    );
    check_pod(
        &[],
        &[("containers", json!([{"name": "a", "image": "b ", "imagePullPolicy": "Always"}]))],
        &expect![[r#"
            spec.containers[0].image: Invalid value: "b ": must not have leading or trailing whitespace
        "#]],
    );
}

#[test]
fn pod_active_deadline_can_only_shrink() {
    let deadline = |seconds: i64| [("activeDeadlineSeconds", json!(seconds))];
    check_pod(
        &deadline(1),
        &deadline(2),
        &expect![[r#"
            spec.activeDeadlineSeconds: Invalid value: 2: must be less than or equal to previous value
        "#]],
    );
    check_pod(
        &deadline(1),
        &[],
        &expect![[r#"
            spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value
        "#]],
    );
    check_pod(
        &deadline(1),
        &deadline(-2),
        &expect![[r#"
            spec.activeDeadlineSeconds: Invalid value: -2: must be between 0 and 2147483647, inclusive
        "#]],
    );
}

#[test]
fn pod_tolerations_only_grow_and_scheduling_gates_only_shrink() {
    check_pod(
        &[("tolerations", json!([{"key": "k"}])), ("schedulingGates", json!([{"name": "g"}]))],
        &[("tolerations", json!([{"key": "l"}])), ("schedulingGates", json!([{"name": "h"}]))],
        &expect![[r#"
            spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds
            spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'h'
        "#]],
    );
}

#[test]
fn scheduling_gated_pod_may_narrow_node_selection() {
    let gate = ("schedulingGates", json!([{"name": "g"}]));
    let term = |keys: &[&str]| {
        let requirements: Vec<_> = keys.iter().map(|key| json!({"key": key, "operator": "Exists"})).collect();
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": requirements}]});
        ("affinity", json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}))
    };
    let selector = |keys: &[&str]| {
        let pairs: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), json!("1"))).collect();
        ("nodeSelector", Value::Object(pairs))
    };
    let narrow = [gate.clone(), selector(&["a", "b"]), term(&["a", "b"])];
    check_allowed("v1 Pod", &pod(&[gate.clone(), selector(&["a"]), term(&["a"])]), &pod(&narrow));
    check_allowed("v1 Pod", &pod(std::slice::from_ref(&gate)), &pod(&[term(&["a"])]));
    check_pod(
        &narrow,
        &[gate, selector(&["a"]), term(&["b"])],
        &expect![[r#"
            spec.nodeSelector: Invalid value: {"a":"1"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)
            spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: {"matchExpressions":[{"key":"b","operator":"Exists"}]}: only additions are allowed (no mutations or deletions)
        "#]],
    );
    let refused = update_errors(R36, "", "v1 Pod", [&pod(&[]), &pod(&[selector(&["a"])])]);
    assert!(refused.starts_with("spec: Forbidden: pod updates may not change fields"), "{refused}");
}

#[test]
fn pod_resources_are_mutable_only_before_resize_subresource() {
    let cpu =
        |cpu: &str| pod(&[("containers", json!([{"name": "a", "image": "b", "resources": {"limits": {"cpu": cpu}}}]))]);
    let gate = "InPlacePodVerticalScaling=true";
    assert_eq!(update_errors(R31, gate, "v1 Pod", [&cpu("1"), &cpu("2")]), "");
    for (release, flags) in [(R31, ""), (R32, gate), (R36, "")] {
        let refused = update_errors(release, flags, "v1 Pod", [&cpu("1"), &cpu("2")]);
        assert!(refused.starts_with("spec: Forbidden: pod updates may not change fields"), "{release}: {refused}");
        assert!(!refused.contains("for CPU/memory only"), "{release}: {refused}");
    }
    let other = pod(&[("nodeName", json!("n"))]);
    assert!(
        update_errors(R31, gate, "v1 Pod", [&pod(&[]), &other])
            .contains(",`spec.containers[*].resources` (for CPU/memory only)\n")
    );
}
