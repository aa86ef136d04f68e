mod workloads;

use api::GroupVersionKind;
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::release::Release;
use crate::types::types_of;
use schema::type_check;
use workloads::workload;

fn with_defaults(release: Release, flags: &str, body: Value) -> Value {
    let gates = FeatureGates::parse(release, flags).unwrap();
    let (Some(api_version), Some(kind)) = (body["apiVersion"].as_str(), body["kind"].as_str()) else {
        panic!("no kind in {body}")
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = types_of(release).for_kind(GroupVersionKind { group, version, kind }).unwrap();
    let Value::Object(mut body) = body else { panic!("a body is an object") };
    apply_defaults(&mut body, kind, &gates);
    let once = body.clone();
    apply_defaults(&mut body, kind, &gates);
    assert_eq!(body, once, "what is complete changed again");
    assert_eq!(type_check::check_types(&body, kind), Ok(Vec::new()), "a default has a wrong type");
    Value::Object(body)
}

/// Defaults added to a body in 1.36 without flags, one field per line.
#[track_caller]
fn check_added(body: &Value, expected: &Expect) {
    expected.assert_eq(&added_fields("", body, &with_defaults(Release::R36, "", body.clone())));
}

fn added_fields(path: &str, before: &Value, after: &Value) -> String {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => after
            .iter()
            .map(|(name, value)| match before.get(name) {
                Some(old) => added_fields(&format!("{path}.{name}"), old, value),
                None => format!("{path}.{name} {value}\n"),
            })
            .collect(),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let pairs = before.iter().zip(after).enumerate();
            pairs.map(|(index, (old, new))| added_fields(&format!("{path}[{index}]"), old, new)).collect()
        }
        _ if before == after => String::new(),
        _ => format!("{path} {before} -> {after}\n"),
    }
}

fn pod(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": spec})
}

#[test]
fn apply_defaults_to_pod() {
    check_added(
        &pod(&json!({"containers": [{"name": "a", "image": "web:1"}]})),
        &expect![[r#"
            .metadata {}
            .spec.containers[0].imagePullPolicy "IfNotPresent"
            .spec.containers[0].resources {}
            .spec.containers[0].terminationMessagePath "/dev/termination-log"
            .spec.containers[0].terminationMessagePolicy "File"
            .spec.dnsPolicy "ClusterFirst"
            .spec.enableServiceLinks true
            .spec.restartPolicy "Always"
            .spec.schedulerName "default-scheduler"
            .spec.securityContext {}
            .spec.terminationGracePeriodSeconds 30
        "#]],
    );
}

#[test]
fn apply_defaults_to_container_fields() {
    check_added(
        &pod(
            &json!({"hostNetwork": true, "serviceAccount": "robot", "terminationGracePeriodSeconds": -5, "containers": [{
                "name": "a", "image": "web", "imagePullPolicy": "",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
                "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 0, "timeoutSeconds": 7},
                "readinessProbe": {"grpc": {"port": 9}},
            }]}),
        ),
        &expect![[r#"
            .metadata {}
            .spec.containers[0].env[0].valueFrom.fieldRef.apiVersion "v1"
            .spec.containers[0].imagePullPolicy "" -> "Always"
            .spec.containers[0].livenessProbe.failureThreshold 3
            .spec.containers[0].livenessProbe.httpGet.path "/"
            .spec.containers[0].livenessProbe.httpGet.scheme "HTTP"
            .spec.containers[0].livenessProbe.periodSeconds 0 -> 10
            .spec.containers[0].livenessProbe.successThreshold 1
            .spec.containers[0].ports[0].hostPort 80
            .spec.containers[0].ports[0].protocol "TCP"
            .spec.containers[0].readinessProbe.failureThreshold 3
            .spec.containers[0].readinessProbe.grpc.service ""
            .spec.containers[0].readinessProbe.periodSeconds 10
            .spec.containers[0].readinessProbe.successThreshold 1
            .spec.containers[0].readinessProbe.timeoutSeconds 1
            .spec.containers[0].resources.requests.memory "1Gi"
            .spec.containers[0].terminationMessagePath "/dev/termination-log"
            .spec.containers[0].terminationMessagePolicy "File"
            .spec.dnsPolicy "ClusterFirst"
            .spec.enableServiceLinks true
            .spec.restartPolicy "Always"
            .spec.schedulerName "default-scheduler"
            .spec.securityContext {}
            .spec.serviceAccountName "robot"
            .spec.terminationGracePeriodSeconds -5 -> 1
        "#]],
    );
}

#[test]
fn apply_defaults_to_volume_sources() {
    check_added(
        &pod(&json!({"containers": [], "volumes": [
            {"name": "a"},
            {"name": "b", "secret": {"secretName": "s"}},
            {"name": "c", "hostPath": {"path": "/x"}},
            {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {"name": "e", "image": {"reference": "models"}},
            {"name": "f", "rbd": {"monitors": ["m"], "image": "i"}},
            {"name": "g", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        ]})),
        &expect![[r#"
            .metadata {}
            .spec.dnsPolicy "ClusterFirst"
            .spec.enableServiceLinks true
            .spec.restartPolicy "Always"
            .spec.schedulerName "default-scheduler"
            .spec.securityContext {}
            .spec.terminationGracePeriodSeconds 30
            .spec.volumes[0].emptyDir {}
            .spec.volumes[1].secret.defaultMode 420
            .spec.volumes[2].hostPath.type ""
            .spec.volumes[3].projected.defaultMode 420
            .spec.volumes[3].projected.sources[0].serviceAccountToken.expirationSeconds 3600
            .spec.volumes[4].image.pullPolicy "Always"
            .spec.volumes[5].rbd.keyring "/etc/ceph/keyring"
            .spec.volumes[5].rbd.pool "rbd"
            .spec.volumes[5].rbd.user "admin"
            .spec.volumes[6].ephemeral.volumeClaimTemplate.metadata {}
            .spec.volumes[6].ephemeral.volumeClaimTemplate.spec.resources {}
            .spec.volumes[6].ephemeral.volumeClaimTemplate.spec.volumeMode "Filesystem"
        "#]],
    );
}

#[test]
fn pod_status_defaults_sync_pod_ip_and_pod_ips() {
    let status = |status: Value| {
        let body = json!({"apiVersion": "v1", "kind": "Pod", "status": status});
        with_defaults(Release::R36, "", body)["status"].to_string()
    };
    expect![[r#"{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}"#]].assert_eq(&status(json!({"podIP": "10.0.0.1"})));
    expect![[r#"{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"::1"}]}"#]]
        .assert_eq(&status(json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}]})));
    expect![[r#"{"podIP":"10.0.0.2","podIPs":[{"ip":"10.0.0.2"}]}"#]]
        .assert_eq(&status(json!({"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.1"}]})));
}

#[test]
fn apply_defaults_to_services() {
    let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "spec": spec});
    check_added(
        &service(json!({"ports": [{"port": 80}, {"port": 1, "targetPort": "http", "protocol": "UDP"}]})),
        &expect![[r#"
            .metadata {}
            .spec.internalTrafficPolicy "Cluster"
            .spec.ports[0].protocol "TCP"
            .spec.ports[0].targetPort 80
            .spec.sessionAffinity "None"
            .spec.type "ClusterIP"
        "#]],
    );
    check_added(
        &service(json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"})),
        &expect![[r#"
            .metadata {}
            .spec.allocateLoadBalancerNodePorts true
            .spec.externalTrafficPolicy "Cluster"
            .spec.internalTrafficPolicy "Cluster"
            .spec.sessionAffinityConfig {"clientIP":{"timeoutSeconds":10800}}
        "#]],
    );
    check_added(
        &service(json!({"type": "ExternalName"})),
        &expect![[r#"
            .metadata {}
            .spec.sessionAffinity "None"
        "#]],
    );
    check_added(
        &service(json!({"externalIPs": ["192.0.2.1"]})),
        &expect![[r#"
            .metadata {}
            .spec.externalTrafficPolicy "Cluster"
            .spec.internalTrafficPolicy "Cluster"
            .spec.sessionAffinity "None"
            .spec.type "ClusterIP"
        "#]],
    );
}

#[test]
fn apply_defaults_sets_initial_phase() {
    let of = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": {}});
    check_added(
        &of("Namespace"),
        &expect![[r#"
        .metadata.labels {"kubernetes.io/metadata.name":"x"}
        .status {"phase":"Active"}
    "#]],
    );
    check_added(
        &of("PersistentVolume"),
        &expect![[r#"
        .spec.persistentVolumeReclaimPolicy "Retain"
        .spec.volumeMode "Filesystem"
        .status {"phase":"Pending"}
    "#]],
    );
    check_added(
        &of("PersistentVolumeClaim"),
        &expect![[r#"
            .spec.resources {}
            .spec.volumeMode "Filesystem"
            .status {"phase":"Pending"}
        "#]],
    );
}

#[test]
fn apply_defaults_to_rbac() {
    check_added(
        &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}, {"kind": "Group", "name": "g"}]}),
        &expect![[r#"
            .metadata {}
            .roleRef.apiGroup "rbac.authorization.k8s.io"
            .subjects[0].apiGroup "rbac.authorization.k8s.io"
            .subjects[2].apiGroup "rbac.authorization.k8s.io"
        "#]],
    );
    let named =
        |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
    check_added(
        &named("rbac.authorization.k8s.io/v1", "Role"),
        &expect![[r#"
        .rules null
    "#]],
    );
    check_added(&named("v1", "ServiceAccount"), &expect![""]);
    // Its spec is not a pointer in Go.
    check_added(
        &named("coordination.k8s.io/v1", "Lease"),
        &expect![[r#"
        .spec {}
    "#]],
    );
}

#[test]
fn apply_defaults_to_other_kinds() {
    check_added(
        &json!({"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": [
            {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}, {"type": "Pod", "max": {"cpu": "2"}},
        ]}}),
        &expect![[r#"
            .metadata {}
            .spec.limits[0].default {"cpu":"2"}
            .spec.limits[0].defaultRequest {"cpu":"2","memory":"1Mi"}
        "#]],
    );
    check_added(
        &json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"egress": [{"ports": [{}]}]}}),
        &expect![[r#"
            .metadata {}
            .spec.egress[0].ports[0].protocol "TCP"
            .spec.podSelector {}
            .spec.policyTypes ["Ingress","Egress"]
        "#]],
    );
    check_added(
        &json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": {"behavior": {"scaleUp": {"policies": []}}}}),
        &expect![[r#"
            .metadata {}
            .spec.behavior.scaleDown {"policies":[{"periodSeconds":15,"type":"Percent","value":100}],"selectPolicy":"Max"}
            .spec.behavior.scaleUp.selectPolicy "Max"
            .spec.behavior.scaleUp.stabilizationWindowSeconds 0
            .spec.maxReplicas 0
            .spec.metrics [{"resource":{"name":"cpu","target":{"averageUtilization":80,"type":"Utilization"}},"type":"Resource"}]
            .spec.minReplicas 1
            .spec.scaleTargetRef {"kind":"","name":""}
        "#]],
    );
    check_added(
        &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {"names": {"kind": "Widget"}, "versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]}}),
        &expect![[r#"
            .metadata {}
            .spec.conversion {"strategy":"None"}
            .spec.group ""
            .spec.names.listKind "WidgetList"
            .spec.names.plural ""
            .spec.names.singular "widget"
            .spec.scope ""
            .spec.versions[0].served false
            .spec.versions[1].served false
            .status {"acceptedNames":{"kind":"","plural":""},"conditions":null,"storedVersions":["v2"]}
        "#]],
    );
    check_added(
        &json!({"apiVersion": "v1", "kind": "ReplicationController", "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
        &expect![[r#"
            .metadata {"labels":{"a":"b"}}
            .spec.replicas 1
            .spec.selector {"a":"b"}
            .spec.template.spec {"containers":null,"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}
        "#]],
    );
}

#[test]
fn feature_gates_control_new_defaults() {
    let rolling = |release, flags| {
        let spec = with_defaults(release, flags, workload("StatefulSet", &json!({})));
        spec["spec"]["updateStrategy"]["rollingUpdate"].to_string()
    };
    assert_eq!(rolling(Release::R36, ""), r#"{"partition":0}"#);
    assert_eq!(rolling(Release::R37, ""), r#"{"maxUnavailable":1,"partition":0}"#);
    assert_eq!(rolling(Release::R36, "MaxUnavailableStatefulSet=true"), r#"{"maxUnavailable":1,"partition":0}"#);
    let replacement = |release, flags| {
        with_defaults(release, flags, workload("Job", &json!({})))["spec"]["podReplacementPolicy"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(replacement(Release::R31, "JobPodReplacementPolicy=false"), None);
    assert_eq!(replacement(Release::R37, "").as_deref(), Some("TerminatingOrFailed"));
}

#[test]
fn field_defaults_are_sorted_and_name_existing_fields() {
    assert!(field_defaults::FIELD_DEFAULTS.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
    let packages: Vec<_> = Release::ALL.into_iter().flat_map(|release| types_of(release).all()).collect();
    for (package, name, rows) in field_defaults::FIELD_DEFAULTS {
        let homes: Vec<_> = packages
            .iter()
            .filter(|home| home.name() == *name && home.package().ends_with(&format!(".{package}")))
            .collect();
        assert!(!homes.is_empty(), "{package} {name} is in no release");
        for row in *rows {
            let with = homes.iter().find(|home| home.field(row.field).is_some());
            let home = with.unwrap_or_else(|| panic!("{package} {name} has no field {}", row.field));
            let body = Map::from_iter([(row.field.to_owned(), row.value())]);
            assert_eq!(type_check::check_types(&body, **home), Ok(Vec::new()), "{package} {name}");
        }
    }
}

#[test]
fn amounts_of_resources_are_rounded_up_to_thousandths() {
    let claim = |amount: &str| {
        let spec = json!({"resources": {"requests": {"storage": amount}}});
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec});
        with_defaults(Release::R36, "", claim)["spec"]["resources"]["requests"]["storage"].clone()
    };
    assert_eq!(["500u", "1m", "2Gi"].map(claim), ["1m", "1m", "2Gi"]);
}
