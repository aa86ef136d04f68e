use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::groups::strategy_of;

#[track_caller]
fn check(group: &str, kind: &str, object: &Value, expected: &Expect) {
    let strategy = strategy_of(group, kind).unwrap();
    let found: Vec<_> =
        validate_values(strategy, object.as_object().unwrap()).iter().map(ToString::to_string).collect();
    expected.assert_eq(&found.join("\n"));
}

#[test]
fn validate_values_rejects_invalid_data_keys() {
    check("", "ConfigMap", &json!({"data": {"a.b_c-D": "1"}, "binaryData": {"x": ""}}), &expect![""]);
    check(
        "",
        "ConfigMap",
        &json!({"data": {"bad key": "1", "..": "2"}}),
        &expect![[r#"
            data[..]: Invalid value: "..": must not be '..'
            data[bad key]: Invalid value: "bad key": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#]],
    );
    check(
        "",
        "Secret",
        &json!({"data": {"a b": "MQ=="}}),
        &expect![[r#"
        data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#]],
    );
}

#[test]
fn validate_values_rejects_invalid_service_type_and_ports() {
    let good = json!({"type": "NodePort", "ports": [{"port": 80, "targetPort": "web", "protocol": "TCP"}]});
    check("", "Service", &json!({"spec": good}), &expect![""]);
    let bad = json!({"type": "Bogus", "ports": [{"port": 0, "targetPort": 0, "protocol": "ICMP"}]});
    check(
        "",
        "Service",
        &json!({"spec": bad}),
        &expect![[r#"
            spec.type: Unsupported value: "Bogus": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"
            spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
            spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive
            spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP""#]],
    );
}

#[test]
fn container_requests_must_not_exceed_limits() {
    let pod = |resources: Value| json!({"spec": {"containers": [{"name": "a", "resources": resources}], "resourceClaims": [{"name": "c"}]}});
    let lists = |requests: Value, limits: Value| pod(json!({"requests": requests, "limits": limits}));
    let good = lists(json!({"cpu": "1", "memory": "1Gi", "a.b/c": "1"}), json!({"cpu": "1000m", "a.b/c": 1}));
    check("", "Pod", &good, &expect![""]);
    check(
        "",
        "Pod",
        &lists(json!({"cpu": "1", "a.b/c": "1", "memory": "-1"}), json!({"cpu": "999m", "a.b/c": "2"})),
        &expect![[r#"
            spec.containers[0].resources.requests: Invalid value: "1": must be equal to a.b/c limit of 2
            spec.containers[0].resources.requests: Invalid value: "1": must be less than or equal to cpu limit of 999m
            spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0"#]],
    );
    check(
        "",
        "Pod",
        &pod(json!({"claims": [{"name": "c"}, {"name": "x"}]})),
        &expect![[
            r#"spec.containers[0].resources.claims[1]: Not found: "x": must be one of the names in pod.spec.resourceClaims: c"#
        ]],
    );
    let whole = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}, "claims": [{"name": "c"}]});
    check(
        "",
        "Pod",
        &json!({"spec": {"containers": [], "resources": whole}}),
        &expect![[r#"
        spec.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1
        spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level"#]],
    );
}

#[test]
fn ephemeral_containers_have_no_ports_probes_or_resources() {
    let pod = |container: Value| json!({"spec": {"containers": [{"name": "a", "image": "i"}], "ephemeralContainers": [container]}});
    check(
        "",
        "Pod",
        &pod(json!({"name": "e", "targetContainerName": "a", "resources": {}, "ports": []})),
        &expect![""],
    );
    check(
        "",
        "Pod",
        &pod(json!({"name": "a", "targetContainerName": "z", "lifecycle": {}, "ports": [{"containerPort": 80}]})),
        &expect![[r#"
            spec.ephemeralContainers[0].name: Duplicate value: "a"
            spec.ephemeralContainers[0].targetContainerName: Not found: "z"
            spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container
            spec.ephemeralContainers[0].lifecycle: Forbidden: cannot be set for an Ephemeral Container"#]],
    );
}

#[test]
fn validate_values_rejects_selector_mismatch() {
    let with = |labels: Value, selector: Value| {
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c"}]}});
        json!({"spec": {"selector": selector, "template": template}})
    };
    let selector = json!({"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
    check("apps", "Deployment", &with(json!({"app": "a", "tier": "b"}), selector.clone()), &expect![""]);
    check("apps", "Deployment", &json!({}), &expect![""]);
    check(
        "apps",
        "Deployment",
        &with(json!({"app": "a"}), selector),
        &expect![[r#"
            spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`"#]],
    );
    check(
        "",
        "ReplicationController",
        &with(json!({"app": "b"}), json!({"app": "a"})),
        &expect![[r#"
            spec.template.metadata.labels: Invalid value: {"app":"b"}: `selector` does not match template `labels`"#]],
    );
    let twice = json!([{"name": "c", "ports": [{"containerPort": 99999}]}, {"name": "c"}, {"name": "C"}]);
    check(
        "apps",
        "StatefulSet",
        &json!({"spec": {"replicas": -1, "template": {"spec": {"restartPolicy": "Never", "containers": twice}}}}),
        &expect![[r#"
            spec.replicas: Invalid value: -1: must be greater than or equal to 0
            spec.template.spec.containers[0].ports[0].containerPort: Invalid value: 99999: must be between 1 and 65535, inclusive
            spec.template.spec.containers[1].name: Duplicate value: "c"
            spec.template.spec.containers[2].name: Invalid value: "C": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#]],
    );
}

#[test]
fn validate_values_rejects_invalid_job_policy_and_schedule() {
    let template = |policy: &str| json!({"template": {"spec": {"restartPolicy": policy}}});
    check("batch", "Job", &json!({"spec": template("Never")}), &expect![""]);
    check(
        "batch",
        "Job",
        &json!({"spec": template("Always")}),
        &expect![[r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#]],
    );
    check(
        "batch",
        "CronJob",
        &json!({"spec": {"schedule": "nonsense", "jobTemplate": {"spec": template("Always")}}}),
        &expect![[r#"
            spec.schedule: Invalid value: "nonsense": expected exactly 5 fields, found 1: [nonsense]
            spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#]],
    );
}

#[test]
fn validate_values_rejects_budget_class_and_host_mistakes() {
    check(
        "policy",
        "PodDisruptionBudget",
        &json!({"spec": {"minAvailable": 1, "maxUnavailable": 1}}),
        &expect![[r#"
            spec: Invalid value: {"maxUnavailable":1,"minAvailable":1}: minAvailable and maxUnavailable cannot be both set"#]],
    );
    check(
        "scheduling.k8s.io",
        "PriorityClass",
        &json!({"metadata": {"name": "system-foo"}}),
        &expect![
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-foo is not a known system priority class"
        ],
    );
    let rules = json!({"rules": [{"host": "*.example.com"}, {}, {"host": "-bad-"}]});
    check(
        "networking.k8s.io",
        "Ingress",
        &json!({"spec": rules}),
        &expect![[r#"
            spec.rules[2].host: Invalid value: "-bad-": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
}
