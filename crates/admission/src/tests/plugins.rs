//! Verdicts and changes of built-in plugins.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{Case, Fixture, Objects};
use crate::Operation;

fn pod(spec: Value) -> Value {
    json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": spec})
}

fn check(fixture: &Fixture, case: &Case, expected: &Expect) {
    let shown = match fixture.admit(case) {
        Ok(mut object) => {
            object.as_object_mut().unwrap().remove("kind");
            object.to_string()
        }
        Err(message) => message,
    };
    expected.assert_eq(&shown);
}

fn with_objects(plugins: &'static [&'static str], objects: &[(&str, Value)]) -> Fixture {
    let objects = objects.iter().fold(Objects::default(), |all, (resource, value)| all.with(resource, value.clone()));
    Fixture { objects, ..Fixture::with_plugins(plugins) }
}

#[test]
fn namespace_lifecycle_protects_namespaces() {
    let fixture = with_objects(
        &["NamespaceLifecycle"],
        &[
            ("namespaces", json!({"metadata": {"name": "n"}})),
            ("namespaces", json!({"metadata": {"name": "gone"}, "status": {"phase": "Terminating"}})),
        ],
    );
    assert!(fixture.admit(&Case::create_pod(pod(json!({})))).is_ok());
    let in_namespace = |name: &str| Case::create_pod(json!({"metadata": {"generateName": "p-", "namespace": name}}));
    check(
        &fixture,
        &in_namespace("gone"),
        &expect![[
            r#"403 pods "p-" is forbidden: unable to create new content in namespace gone because it is being terminated"#
        ]],
    );
    check(&fixture, &in_namespace("missing"), &expect![[r#"404 namespaces "missing" not found"#]]);
    let update = Case { operation: Operation::Update, ..in_namespace("gone") };
    assert!(fixture.admit(&update).is_ok(), "updates in a terminating namespace go on");
    let namespace = |name: &str| Case {
        old_object: Some(json!({"metadata": {"name": name}})),
        ..Case::new(Operation::Delete, "", "namespaces", "Namespace")
    };
    check(
        &fixture,
        &namespace("kube-system"),
        &expect![[r#"403 namespaces "kube-system" is forbidden: this namespace may not be deleted"#]],
    );
    assert!(fixture.admit(&namespace("n")).is_ok());
}

#[test]
fn service_account_is_set_and_its_token_mounted() {
    let account = json!({"metadata": {"name": "default", "namespace": "n"}, "imagePullSecrets": [{"name": "s"}]});
    let fixture = with_objects(&["ServiceAccount"], &[("serviceaccounts", account)]);
    let containers = json!([{"name": "c"}, {"name": "d", "volumeMounts": [{"name": "v", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}]);
    check(
        &fixture,
        &Case::create_pod(pod(json!({"containers": containers}))),
        &expect![[
            r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"name":"c","volumeMounts":[{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"kube-api-access-kbbbb","readOnly":true}]},{"name":"d","volumeMounts":[{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"v"}]}],"imagePullSecrets":[{"name":"s"}],"serviceAccount":"default","serviceAccountName":"default","volumes":[{"name":"kube-api-access-kbbbb","projected":{"defaultMode":420,"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"items":[{"key":"ca.crt","path":"ca.crt"}],"name":"kube-root-ca.crt"}},{"downwardAPI":{"items":[{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"},"path":"namespace"}]}}]}}]}}"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(
            json!({"automountServiceAccountToken": false, "containers": [{"name": "c"}], "imagePullSecrets": [{"name": "own"}]}),
        )),
        &expect![[
            r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c"}],"imagePullSecrets":[{"name":"own"}],"serviceAccount":"default","serviceAccountName":"default"}}"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"serviceAccountName": "other"}))),
        &expect![[
            r#"403 pods "p" is forbidden: error looking up service account n/other: serviceaccount "other" not found"#
        ]],
    );
    let mut mirror = pod(json!({"containers": []}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    check(
        &fixture,
        &Case::create_pod(mirror.clone()),
        &expect![[
            r#"{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"},"name":"p","namespace":"n"},"spec":{"containers":[]}}"#
        ]],
    );
    mirror["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
    check(
        &fixture,
        &Case::create_pod(mirror),
        &expect![[r#"403 pods "p" is forbidden: a mirror pod may not reference secrets"#]],
    );
}

#[test]
fn service_account_limits_secrets_by_annotation() {
    let account = json!({"metadata": {"name": "default", "namespace": "n", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "automountServiceAccountToken": false, "secrets": [{"name": "listed"}]});
    let fixture = with_objects(&["ServiceAccount"], &[("serviceaccounts", account)]);
    let environment = |secret: &str| json!({"containers": [{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": secret}}}]}]});
    assert!(fixture.admit(&Case::create_pod(pod(environment("listed")))).is_ok());
    check(
        &fixture,
        &Case::create_pod(pod(environment("other"))),
        &expect![[
            r#"403 pods "p" is forbidden: container c with envVar E referencing secret.secretName="other" is not allowed because service account default does not reference that secret"#
        ]],
    );
    let volume = json!({"containers": [], "volumes": [{"name": "v", "secret": {"secretName": "other"}}]});
    check(
        &fixture,
        &Case::create_pod(pod(volume)),
        &expect![[
            r#"403 pods "p" is forbidden: volume with secret.secretName="other" is not allowed because service account default does not reference that secret"#
        ]],
    );
    let ephemeral = json!({"serviceAccountName": "default", "ephemeralContainers": [{"name": "e", "envFrom": [{"secretRef": {"name": "other"}}]}]});
    let case =
        Case { operation: Operation::Update, subresource: "ephemeralcontainers", ..Case::create_pod(pod(ephemeral)) };
    check(
        &fixture,
        &case,
        &expect![[
            r#"403 pods "p" is forbidden: ephemeral container e with envFrom referencing secret.secretName="other" is not allowed because service account default does not reference that secret"#
        ]],
    );
}

#[test]
fn limit_ranger_sets_defaults_and_checks_bounds() {
    let limits = json!({"metadata": {"name": "l", "namespace": "n"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}, "max": {"cpu": "2"},
            "min": {"cpu": "100m"}, "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "Pod", "max": {"cpu": "3"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}},
    ]}});
    let fixture = with_objects(&["LimitRanger"], &[("limitranges", limits)]);
    check(
        &fixture,
        &Case::create_pod(pod(json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}))),
        &expect![[
            r#"{"metadata":{"annotations":{"kubernetes.io/limit-ranger":"LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c; cpu request for init container i; cpu, memory limit for init container i"},"name":"p","namespace":"n"},"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m"}}}],"initContainers":[{"name":"i","resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m"}}}]}}"#
        ]],
    );
    let resources = |requests: &str, limits: &str| {
        pod(
            json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": requests}, "limits": {"cpu": limits}}}]}),
        )
    };
    check(
        &fixture,
        &Case::create_pod(resources("50m", "3")),
        &expect![[
            r#"403 pods "p" is forbidden: [minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per Container is 2, but limit is 3, cpu max limit to request ratio per Container is 4, but provided ratio is 60.000000]"#
        ]],
    );
    let pair = json!({"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}}});
    check(
        &fixture,
        &Case::create_pod(pod(json!({"containers": [pair, pair, pair]}))),
        &expect![[r#"403 pods "p" is forbidden: maximum cpu usage per Pod is 3, but limit is 4500m"#]],
    );
    let claim = |size: Value| Case {
        object: Some(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"resources": {"requests": size}}})),
        ..Case::new(Operation::Create, "", "persistentvolumeclaims", "PersistentVolumeClaim")
    };
    check(
        &fixture,
        &claim(json!({"storage": "3Gi"})),
        &expect![[
            r#"403 persistentvolumeclaims "p" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"#
        ]],
    );
    check(
        &fixture,
        &claim(json!({"storage": "1Mi"})),
        &expect![[
            r#"403 persistentvolumeclaims "p" is forbidden: minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"#
        ]],
    );
    check(
        &fixture,
        &claim(json!({})),
        &expect![[
            r#"403 persistentvolumeclaims "p" is forbidden: [minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified, maximum storage usage per PersistentVolumeClaim is 2Gi.  No request is specified]"#
        ]],
    );
    let update = Case { operation: Operation::Update, ..Case::create_pod(resources("50m", "3")) };
    assert!(fixture.admit(&update).is_ok(), "updates of pods are not limited");
    assert!(fixture.admit(&Case { subresource: "resize", ..update }).is_err());
}

#[test]
fn priority_is_resolved_from_class() {
    let class = |name: &str, value: i64, default: bool| {
        (
            "priorityclasses",
            json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": "Never"}),
        )
    };
    let fixture =
        with_objects(&["Priority"], &[class("high", 100, false), class("low", 5, true), class("mid", 7, true)]);
    check(
        &fixture,
        &Case::create_pod(pod(json!({}))),
        &expect![[
            r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"preemptionPolicy":"Never","priority":5,"priorityClassName":"low"}}"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"priorityClassName": "high"}))),
        &expect![[
            r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"preemptionPolicy":"Never","priority":100,"priorityClassName":"high"}}"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"priorityClassName": "none"}))),
        &expect![[r#"403 pods "p" is forbidden: no PriorityClass with name none was found"#]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"priorityClassName": "high", "priority": 5}))),
        &expect![[
            r#"403 pods "p" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 100 from the given PriorityClass name"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"preemptionPolicy": "PreemptLowerPriority"}))),
        &expect![[
            r#"403 pods "p" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; priority admission controller computed Never from the given PriorityClass name"#
        ]],
    );
    check(
        &Fixture::with_plugins(&["Priority"]),
        &Case::create_pod(pod(json!({}))),
        &expect![[
            r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"preemptionPolicy":"PreemptLowerPriority","priority":0}}"#
        ]],
    );
    let old = pod(json!({"priority": 3, "preemptionPolicy": "Never"}));
    let update = Case { operation: Operation::Update, old_object: Some(old), ..Case::create_pod(pod(json!({}))) };
    check(
        &fixture,
        &update,
        &expect![[r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"preemptionPolicy":"Never","priority":3}}"#]],
    );
    let other = Case {
        object: Some(json!({"metadata": {"name": "other"}, "globalDefault": true})),
        ..Case::new(Operation::Create, "scheduling.k8s.io", "priorityclasses", "PriorityClass")
    };
    check(
        &fixture,
        &other,
        &expect![[
            r#"403 priorityclasses.scheduling.k8s.io "other" is forbidden: PriorityClass low is already marked as default. Only one default can exist"#
        ]],
    );
}

#[test]
fn tolerations_are_added_unless_given() {
    let fixture = Fixture::with_plugins(&["DefaultTolerationSeconds"]);
    check(
        &fixture,
        &Case::create_pod(pod(json!({}))),
        &expect![[
            r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}]}}"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}))),
        &expect![[
            r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists"},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}]}}"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"tolerations": [{"operator": "Exists"}]}))),
        &expect![[r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"tolerations":[{"operator":"Exists"}]}}"#]],
    );
}

#[test]
fn storage_plugins_set_class_and_finalizer_and_check_growth() {
    let class = |name: &str, time: &str, annotation: &str| {
        let metadata = json!({"name": name, "creationTimestamp": time, "annotations": {annotation: "true"}});
        ("storageclasses", json!({"metadata": metadata, "allowVolumeExpansion": name == "new"}))
    };
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let classes = [
        class("old", "2020-01-01T00:00:00Z", DEFAULT),
        class("new", "2021-01-01T00:00:00Z", "storageclass.beta.kubernetes.io/is-default-class"),
        class("other", "2022-01-01T00:00:00Z", "x"),
    ];
    let fixture =
        with_objects(&["DefaultStorageClass", "StorageObjectInUseProtection", "PersistentVolumeClaimResize"], &classes);
    let claim = |class: Value, size: &str, phase: &str| {
        let mut claim = json!({"metadata": {"name": "c", "namespace": "n"}, "status": {"phase": phase},
            "spec": {"resources": {"requests": {"storage": size}}}});
        if !class.is_null() {
            claim["spec"]["storageClassName"] = class;
        }
        claim
    };
    let create = |object| Case {
        object: Some(object),
        ..Case::new(Operation::Create, "", "persistentvolumeclaims", "PersistentVolumeClaim")
    };
    check(
        &fixture,
        &create(claim(Value::Null, "1Gi", "Pending")),
        &expect![[
            r#"{"metadata":{"finalizers":["kubernetes.io/pvc-protection"],"name":"c","namespace":"n"},"spec":{"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"new"},"status":{"phase":"Pending"}}"#
        ]],
    );
    check(
        &fixture,
        &create(claim(json!(""), "1Gi", "Pending")),
        &expect![[
            r#"{"metadata":{"finalizers":["kubernetes.io/pvc-protection"],"name":"c","namespace":"n"},"spec":{"resources":{"requests":{"storage":"1Gi"}},"storageClassName":""},"status":{"phase":"Pending"}}"#
        ]],
    );
    let update = |class: &str, phase: &str| Case {
        operation: Operation::Update,
        old_object: Some(claim(json!(class), "1Gi", phase)),
        ..create(claim(json!(class), "2Gi", phase))
    };
    assert!(fixture.admit(&update("new", "Bound")).is_ok());
    check(
        &fixture,
        &update("new", "Pending"),
        &expect![[
            r#"403 persistentvolumeclaims "c" is forbidden: Only bound persistent volume claims can be expanded"#
        ]],
    );
    check(
        &fixture,
        &update("old", "Bound"),
        &expect![[
            r#"403 persistentvolumeclaims "c" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"#
        ]],
    );
}

#[test]
fn runtime_class_sets_overhead_and_scheduling() {
    let class = json!({"metadata": {"name": "r"}, "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {
        "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}});
    let fixture = with_objects(&["RuntimeClass"], &[("runtimeclasses", class)]);
    check(
        &fixture,
        &Case::create_pod(pod(
            json!({"runtimeClassName": "r", "tolerations": [{"key": "k", "operator": "Equal", "value": "v"}]}),
        )),
        &expect![[
            r#"{"metadata":{"name":"p","namespace":"n"},"spec":{"nodeSelector":{"a":"b"},"overhead":{"cpu":"1"},"runtimeClassName":"r","tolerations":[{"key":"k","operator":"Exists"}]}}"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"runtimeClassName": "r", "overhead": {"cpu": "2"}}))),
        &expect![[
            r#"403 pods "p" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"runtimeClassName": "r", "nodeSelector": {"a": "c"}}))),
        &expect![[
            r#"403 pods "p" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"runtimeClassName": "x"}))),
        &expect![[r#"403 pods "p" is forbidden: pod rejected: RuntimeClass "x" not found"#]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"overhead": {"cpu": "2"}}))),
        &expect![[
            r#"403 pods "p" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"#
        ]],
    );
}

#[test]
fn nodes_are_tainted_and_their_topology_copied() {
    let labels = json!({"topology.kubernetes.io/zone": "z", "other": "x"});
    let node = json!({"metadata": {"name": "node", "labels": labels}});
    let fixture = with_objects(&["TaintNodesByCondition", "PodTopologyLabels"], &[("nodes", node)]);
    let new =
        Case { object: Some(json!({"metadata": {"name": "m"}})), ..Case::new(Operation::Create, "", "nodes", "Node") };
    check(
        &fixture,
        &new,
        &expect![[
            r#"{"metadata":{"name":"m"},"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready"}]}}"#
        ]],
    );
    check(
        &fixture,
        &Case::create_pod(pod(json!({"nodeName": "node"}))),
        &expect![[
            r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":"z"},"name":"p","namespace":"n"},"spec":{"nodeName":"node"}}"#
        ]],
    );
    let binding = json!({"metadata": {"name": "p", "namespace": "n"}, "target": {"kind": "Node", "name": "node"}});
    check(
        &fixture,
        &Case { subresource: "binding", ..Case::create_pod(binding) },
        &expect![[
            r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":"z"},"name":"p","namespace":"n"},"target":{"kind":"Node","name":"node"}}"#
        ]],
    );
    let older = Fixture { release: kinds::Release::R34, ..fixture };
    let unchanged = pod(json!({"nodeName": "node"}));
    assert_eq!(older.admit(&Case::create_pod(unchanged.clone())), Ok(unchanged), "the gate is off in 1.34");
}

#[test]
fn certificate_plugins_require_permission_on_signer() {
    let plugins: &[&str] = &["CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction"];
    let mut fixture = Fixture::with_plugins(plugins);
    let request = json!({"metadata": {"name": "r"}, "spec": {"signerName": "x.y/z"}});
    let mut signed = request.clone();
    signed["status"] = json!({"certificate": "YQ=="});
    let update = |subresource, object: &Value| Case {
        subresource,
        object: Some(object.clone()),
        old_object: Some(request.clone()),
        ..Case::new(Operation::Update, "certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest")
    };
    check(
        &fixture,
        &update("approval", &request),
        &expect![[
            r#"403 certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to approve requests with signerName "x.y/z""#
        ]],
    );
    check(
        &fixture,
        &update("status", &signed),
        &expect![[
            r#"403 certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to sign requests with signerName "x.y/z""#
        ]],
    );
    assert!(fixture.admit(&update("status", &request)).is_ok(), "nothing is signed");
    fixture.verbs = &["approve", "sign"];
    assert!(fixture.admit(&update("approval", &request)).is_ok());
    assert!(fixture.admit(&update("status", &signed)).is_ok());
    let client = json!({"metadata": {"name": "r"}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "request": "YQ=="}});
    let create = Case { operation: Operation::Create, subresource: "", ..update("", &client) };
    check(
        &fixture,
        &create,
        &expect![[
            r#"403 certificatesigningrequests.certificates.k8s.io "r" is forbidden: failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"#
        ]],
    );
}

#[test]
fn ingress_without_class_gets_default() {
    let class =
        json!({"metadata": {"name": "c", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}});
    let fixture = with_objects(&["DefaultIngressClass"], &[("ingressclasses", class)]);
    let ingress = |annotations: Value| Case {
        object: Some(json!({"metadata": {"name": "i", "namespace": "n", "annotations": annotations}})),
        ..Case::new(Operation::Create, "networking.k8s.io", "ingresses", "Ingress")
    };
    check(
        &fixture,
        &ingress(json!({})),
        &expect![[r#"{"metadata":{"annotations":{},"name":"i","namespace":"n"},"spec":{"ingressClassName":"c"}}"#]],
    );
    check(
        &fixture,
        &ingress(json!({"kubernetes.io/ingress.class": "x"})),
        &expect![[r#"{"metadata":{"annotations":{"kubernetes.io/ingress.class":"x"},"name":"i","namespace":"n"}}"#]],
    );
}
