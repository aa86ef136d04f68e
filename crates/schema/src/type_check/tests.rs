use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::built_in_types;

#[track_caller]
fn check_result(release: u8, (group, version, kind): (&str, &str, &str), body: Value) -> String {
    let kind = built_in_types(release).for_kind(GroupVersionKind { group, version, kind }).unwrap();
    let Value::Object(body) = body else { panic!("a body is an object") };
    match check_types(&body, kind) {
        Ok(unknown) => unknown.join("\n"),
        Err(wrong) => wrong.to_string(),
    }
}

const DEPLOYMENT: (&str, &str, &str) = ("apps", "v1", "Deployment");
const POD: (&str, &str, &str) = ("", "v1", "Pod");

#[track_caller]
fn check_deployment(body: Value, expected: &Expect) {
    expected.assert_eq(&check_result(36, DEPLOYMENT, body));
}

#[track_caller]
fn check_pod_spec(spec: &Value, expected: &Expect) {
    expected.assert_eq(&check_result(36, POD, json!({"spec": spec})));
}

#[track_caller]
fn check_container(container: &Value, expected: &Expect) {
    check_pod_spec(&json!({"containers": [{"name": "a"}, container]}), expected);
}

#[test]
fn check_types_accepts_valid_body() {
    check_deployment(
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"a": "b"}, "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"a": "b"}},
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
                "template": {"spec": {
                    "containers": [{"name": "c", "resources": {"limits": {"cpu": "100m", "memory": 1024}}}],
                    "securityContext": null, "tolerations": [null],
                }},
            },
        }),
        &expect![""],
    );
}

#[test]
fn check_types_errors_match_go() {
    check_deployment(
        json!({"spec": {"replicas": "3"}}),
        &expect!["json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"],
    );
    check_deployment(
        json!({"spec": {"paused": 1}}),
        &expect!["json: cannot unmarshal number into Go struct field DeploymentSpec.spec.paused of type bool"],
    );
    check_deployment(
        json!({"spec": []}),
        &expect!["json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec"],
    );
    check_deployment(
        json!({"metadata": "x"}),
        &expect!["json: cannot unmarshal string into Go struct field Deployment.metadata of type v1.ObjectMeta"],
    );
    check_deployment(
        json!({"metadata": {"labels": {"a": 1}}}),
        &expect!["json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"],
    );
    check_deployment(
        json!({"metadata": {"labels": ["a"]}}),
        &expect![
            "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string"
        ],
    );
    check_deployment(
        json!({"metadata": {"ownerReferences": {"uid": "x"}}}),
        &expect![
            "json: cannot unmarshal object into Go struct field ObjectMeta.metadata.ownerReferences of type []v1.OwnerReference"
        ],
    );
    check_deployment(
        json!({"spec": {"template": {"spec": {"containers": {}}}}}),
        &expect![
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container"
        ],
    );
}

#[test]
fn check_types_errors_in_lists_match_go() {
    check_container(
        &json!("x"),
        &expect!["json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type v1.Container"],
    );
    check_container(
        &json!({"imagePullPolicy": 1}),
        &expect![
            "json: cannot unmarshal number into Go struct field Container.spec.containers.imagePullPolicy of type v1.PullPolicy"
        ],
    );
    check_container(
        &json!({"command": "sh"}),
        &expect![
            "json: cannot unmarshal string into Go struct field Container.spec.containers.command of type []string"
        ],
    );
    check_container(
        &json!({"command": ["sh", 1]}),
        &expect!["json: cannot unmarshal number into Go struct field Container.spec.containers.command of type string"],
    );
    check_container(
        &json!({"resources": {"limits": "100m"}}),
        &expect![
            "json: cannot unmarshal string into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList"
        ],
    );
    check_container(
        &json!({"securityContext": true}),
        &expect![
            "json: cannot unmarshal bool into Go struct field Container.spec.containers.securityContext of type v1.SecurityContext"
        ],
    );
    check_pod_spec(
        &json!({"volumes": [{"name": "v", "hostPath": {"path": 1}}]}),
        &expect![
            "json: cannot unmarshal number into Go struct field HostPathVolumeSource.spec.volumes.VolumeSource.hostPath.path of type string"
        ],
    );
    check_pod_spec(
        &json!({"nodeSelector": [1]}),
        &expect![
            "json: cannot unmarshal array into Go struct field PodSpec.spec.nodeSelector of type map[string]string"
        ],
    );
}

#[test]
fn check_types_rejects_out_of_range_integers() {
    check_deployment(
        json!({"spec": {"replicas": 2_147_483_648_i64}}),
        &expect![
            "json: cannot unmarshal number 2147483648 into Go struct field DeploymentSpec.spec.replicas of type int32"
        ],
    );
    check_deployment(json!({"spec": {"replicas": -2_147_483_648_i64}}), &expect![[r#""#]]);
    check_deployment(
        json!({"spec": {"replicas": 1.5}}),
        &expect!["json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"],
    );
    check_pod_spec(&json!({"activeDeadlineSeconds": 9_007_199_254_740_993_i64}), &expect![[r#""#]]);
    check_pod_spec(
        &json!({"activeDeadlineSeconds": 1e30}),
        &expect![
            "json: cannot unmarshal number 1e+30 into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64"
        ],
    );
}

#[test]
fn check_types_checks_special_types() {
    check_container(
        &json!({"resources": {"limits": {"cpu": "1 core"}}}),
        &expect!["quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"],
    );
    check_container(
        &json!({"resources": {"limits": {"cpu": true}}}),
        &expect!["quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"],
    );
    check_container(
        &json!({"ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": true}}}),
        &expect![
            "json: cannot unmarshal bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32"
        ],
    );
    check_container(
        &json!({"livenessProbe": {"httpGet": {"port": 80.5}}}),
        &expect![
            "json: cannot unmarshal number 80.5 into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32"
        ],
    );
    check_container(&json!({"livenessProbe": {"httpGet": {"port": "http"}}}), &expect![[r#""#]]);
    check_deployment(
        json!({"metadata": {"creationTimestamp": 1}}),
        &expect![
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string"
        ],
    );
    check_deployment(
        json!({"metadata": {"creationTimestamp": "today"}}),
        &expect![[r#"parsing time "today" as "2006-01-02T15:04:05Z07:00": cannot parse "today" as "2006""#]],
    );
    check_deployment(json!({"metadata": {"managedFields": [{"fieldsV1": "anything"}]}}), &expect![""]);
    let lease = |spec: Value| check_result(36, ("coordination.k8s.io", "v1", "Lease"), json!({"spec": spec}));
    expect![[
        r#"parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
    ]]
    .assert_eq(&lease(json!({"renewTime": "2024-01-01T00:00:00Z"})));
    expect![[r#""#]].assert_eq(&lease(json!({"renewTime": "2024-01-01T00:00:00.000000Z"})));
}

#[test]
fn check_types_rejects_invalid_base64() {
    let secret = |data: Value| check_result(36, ("", "v1", "Secret"), json!({"data": {"k": data}}));
    expect![[r#""#]].assert_eq(&secret(json!("aGVsbG8=")));
    expect!["illegal base64 data at input byte 3"].assert_eq(&secret(json!("not base64")));
    expect!["json: cannot unmarshal number into Go struct field Secret.data of type []uint8"]
        .assert_eq(&secret(json!(1)));
}

#[test]
fn check_types_checks_nested_json_schemas() {
    let definition = |schema: Value| {
        let versions = json!([{"name": "v1", "schema": {"openAPIV3Schema": schema}}]);
        let kind = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        check_result(36, kind, json!({"spec": {"versions": versions}}))
    };
    expect![[r#""#]].assert_eq(&definition(json!({
        "properties": {"a": {"items": {"type": "string"}, "additionalProperties": false, "default": null}},
        "dependencies": {"x": ["y"]}, "maximum": 1.5, "enum": [1, "a", {}],
    })));
    expect![[r#"unknown field "spec.versions[0].schema.openAPIV3Schema.properties.a.tpye""#]]
        .assert_eq(&definition(json!({"properties": {"a": {"tpye": "string"}}})));
    expect!["json: cannot unmarshal number into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.type of type string"].assert_eq(&definition(json!({"properties": {"a": {"type": 1}}})));
    expect!["json: cannot unmarshal number into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.properties.type of type string"].assert_eq(&definition(json!({"items": {"properties": {"a": {"type": 1}}}})));
    expect![[r#""#]].assert_eq(&definition(json!({"items": {"tpye": "dropped silently"}})));
    expect!["json: cannot unmarshal number into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items of type v1.JSONSchemaProps"].assert_eq(&definition(json!({"items": [1]})));
    expect!["boolean or JSON schema expected"].assert_eq(&definition(json!({"additionalProperties": "no"})));
}

#[test]
fn check_types_names_unknown_fields_with_path() {
    check_deployment(
        json!({"foo": 1, "spec": {"bar": null, "template": {"spec": {"containers": [{}, {"baz": {"inner": 1}}]}}}}),
        &expect![[r#"
            unknown field "foo"
            unknown field "spec.bar"
            unknown field "spec.template.spec.containers[1].baz""#]],
    );
    // Field names are case-sensitive.
    check_deployment(json!({"spec": {"Replicas": 1}}), &expect![[r#"unknown field "spec.Replicas""#]]);
    // A map has no unknown keys, and raw JSON is not checked.
    check_deployment(json!({"metadata": {"annotations": {"any": "thing"}}}), &expect![""]);
}

#[test]
fn check_types_reports_newer_fields_in_older_release() {
    let body = json!({"spec": {"containers": [{"name": "a", "restartPolicyRules": []}]}});
    expect![[r#"unknown field "spec.containers[0].restartPolicyRules""#]].assert_eq(&check_result(
        33,
        POD,
        body.clone(),
    ));
    expect![""].assert_eq(&check_result(34, POD, body));
}

#[test]
fn check_types_limits_reported_unknown_fields() {
    let body: Map<String, Value> = (0..150).map(|number| (format!("f{number}"), Value::Null)).collect();
    assert_eq!(check_result(36, POD, Value::Object(body)).lines().count(), 100);
}

#[test]
fn strict_decoding_error_matches_kubernetes() {
    let kind = GroupVersionKind { group: "apps", version: "v1", kind: "Deployment" };
    let errors = ["unknown field \"spec.a\"".to_owned(), "duplicate field \"spec.b\"".to_owned()];
    let strict = strict_decoding_error(&errors).unwrap();
    expect![[r#"Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "spec.a", duplicate field "spec.b""#]].assert_eq(&cannot_be_handled_message(kind, &strict));
    assert_eq!(strict_decoding_error(&[]), None);
}

/// What is reported of a pod's spec as it stands in a body.
#[track_caller]
fn check_pod_document(spec: &str, expected: &Expect) {
    let source = format!(r#"{{"kind": "Pod", "spec": {spec}}}"#);
    let kind = built_in_types(36).for_kind(GroupVersionKind { group: "", version: "v1", kind: "Pod" }).unwrap();
    let Ok(Value::Object(body)) = serde_json::from_str(&source) else { panic!("the body is JSON: {source}") };
    let found = check_types_of_document(&body, source.as_bytes(), kind);
    expected.assert_eq(&found.map_or_else(|error| error.to_string(), |unknown| unknown.join(", ")));
}

#[test]
fn order_of_document_decides_what_is_reported() {
    check_pod_document(
        r#"{"priority": "x", "hostname": 1}"#,
        &expect!["json: cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32"],
    );
    check_pod_document(
        r#"{"zz": 1, "containers": [{"b": 1, "a": 1}], "aa": 1}"#,
        &expect![[
            r#"unknown field "spec.zz", unknown field "spec.containers[0].b", unknown field "spec.containers[0].a", unknown field "spec.aa""#
        ]],
    );
}

#[test]
fn value_with_decoder_of_its_own_is_reported_first() {
    check_pod_document(
        r#"{"hostname": 1, "overhead": {"cpu": "x"}}"#,
        &expect!["quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"],
    );
}

#[test]
fn numbers_are_reported_as_written() {
    check_pod_document(
        r#"{"priority": 1e3}"#,
        &expect!["json: cannot unmarshal number 1e3 into Go struct field PodSpec.spec.priority of type int32"],
    );
    check_pod_document(r#"{"priority": -0.0}"#, &expect![""]);
    check_pod_document(r#"{"priority": -0}"#, &expect![""]);
}

#[test]
fn bytes_may_be_a_list_of_numbers() {
    let secret = |value: Value| check_result(36, ("", "v1", "Secret"), json!({"data": {"a": value}}));
    expect![""].assert_eq(&secret(json!([1, 255, null])));
    expect!["json: cannot unmarshal number 256 into Go struct field Secret.data of type uint8"]
        .assert_eq(&secret(json!([256])));
    expect!["json: cannot unmarshal string into Go struct field Secret.data of type uint8"]
        .assert_eq(&secret(json!(["x"])));
}
