use api::GroupVersionKind;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::defaults;
use crate::groups::strategy_of;
use crate::release::Release;
use crate::types::types_of;

fn errors_of(group: &str, kind: &str, object: &Value) -> Vec<String> {
    let gates = FeatureGates::new(Release::R36);
    let mut object = object.as_object().unwrap().clone();
    let version = if kind == "HorizontalPodAutoscaler" { "v2" } else { "v1" };
    let kind_type = types_of(Release::R36).for_kind(GroupVersionKind { group, version, kind }).unwrap();
    defaults::apply_defaults(&mut object, kind_type, &gates);
    let found = validate_create(strategy_of(group, kind).unwrap(), &gates, &object);
    found.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(group: &str, kind: &str, object: &Value, expected: &Expect) {
    expected.assert_eq(&errors_of(group, kind, object).join("\n"));
}

#[track_caller]
fn check_valid(group: &str, kind: &str, object: &Value) {
    assert_eq!(errors_of(group, kind, object), Vec::<String>::new());
}

fn pod(fields: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "a", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn pod_with(container: Value) -> Value {
    let mut first = json!({"name": "a", "image": "i"});
    first.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    pod(json!({"containers": [first]}))
}

#[test]
fn data_keys_are_file_names() {
    check_valid("", "ConfigMap", &json!({"data": {"a.b_c-D": "1"}, "binaryData": {"x": ""}}));
    check(
        "",
        "ConfigMap",
        &json!({"data": {"bad key": "1", "..": "2", "x": ""}, "binaryData": {"x": ""}}),
        &expect![],
    );
    check("", "Secret", &json!({"type": "kubernetes.io/tls", "data": {"a b": "MQ=="}}), &expect![]);
}

#[test]
fn service_has_valid_type_ports_and_addresses() {
    let good = json!({"type": "NodePort", "ports": [{"port": 80, "targetPort": "web", "protocol": "TCP"}]});
    check_valid("", "Service", &json!({"spec": good}));
    let bad = json!({
        "type": "Bogus", "ports": [{"port": 0, "targetPort": "a_b", "protocol": "ICMP"}, {"port": 0}],
        "clusterIP": "1.2.3", "clusterIPs": ["1.2.3"], "externalIPs": ["127.0.0.1"],
    });
    check("", "Service", &json!({"spec": bad}), &expect![]);
}

#[test]
fn container_requests_must_not_exceed_limits() {
    let lists = |requests: Value, limits: Value| pod_with(json!({"resources": {"requests": requests, "limits": limits}}));
    let good = lists(json!({"cpu": "1", "memory": "1Gi", "a.b/c": "1"}), json!({"cpu": "1000m", "a.b/c": 1}));
    check_valid("", "Pod", &good);
    let bad = lists(
        json!({"cpu": "1", "a.b/c": "1", "memory": "-1", "x": "1"}),
        json!({"cpu": "999m", "a.b/c": "1500m", "hugepages-2Mi": "1Mi"}),
    );
    check("", "Pod", &bad, &expect![]);
    let claims = json!({"resources": {"claims": [{"name": "c"}, {"name": "x"}]}});
    check("", "Pod", &pod_with(claims), &expect![]);
}

#[test]
fn ephemeral_containers_have_no_ports_probes_or_resources() {
    let container = json!({"name": "a", "image": "i", "targetContainerName": "z", "ports": [{"containerPort": 80}],
        "lifecycle": {}, "resources": {}});
    check("", "Pod", &pod(json!({"ephemeralContainers": [container]})), &expect![]);
}

#[test]
fn mounts_refer_to_volumes_and_variables_to_sources() {
    let good = json!({
        "volumeMounts": [{"name": "v", "mountPath": "/a"}],
        "env": [{"name": "A=", "value": "x"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}],
    });
    let mut object = pod_with(good);
    object["spec"]["volumes"] = json!([{"name": "w", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "../x"}}, {"name": "x"}]);
    check("", "Pod", &object, &expect![]);
}

#[test]
fn probes_and_handlers_have_one_action() {
    let container = json!({
        "livenessProbe": {"httpGet": {"port": 0}, "tcpSocket": {"port": "Web"}, "successThreshold": 2},
        "readinessProbe": {"terminationGracePeriodSeconds": 0},
        "lifecycle": {"preStop": {"sleep": {"seconds": 31}}},
    });
    check("", "Pod", &pod_with(container), &expect![]);
}

#[test]
fn workload_selector_matches_template() {
    let with = |labels: Value, selector: Value| {
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        json!({"spec": {"selector": selector, "template": template}})
    };
    let selector = json!({"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
    check_valid("apps", "Deployment", &with(json!({"app": "a", "tier": "b"}), selector.clone()));
    check("apps", "Deployment", &with(json!({"app": "a"}), selector.clone()), &expect![]);
    check("apps", "DaemonSet", &json!({"spec": {"updateStrategy": {"type": "X"}}}), &expect![]);
    check("", "ReplicationController", &with(json!({"app": "b"}), json!({"app": "a"})), &expect![]);
    let mut set = with(json!({"app": "a", "tier": "b"}), selector);
    set["spec"]["replicas"] = (-1).into();
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["X"]}}]);
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/d"}]);
    check("apps", "StatefulSet", &set, &expect![]);
}

#[test]
fn job_has_policy_and_cron_job_schedule() {
    let template = |policy: &str| {
        let containers = json!([{"name": "c", "image": "i"}]);
        json!({"template": {"spec": {"restartPolicy": policy, "containers": containers}}})
    };
    let cron = |policy: &str, schedule: &str, zone: &str| {
        json!({"spec": {"schedule": schedule, "timeZone": zone, "jobTemplate": {"spec": template(policy)}}})
    };
    check_valid("batch", "CronJob", &cron("Never", "0 * * * *", "Europe/Berlin"));
    check("batch", "CronJob", &cron("Always", "nonsense", "Nowhere"), &expect![]);
}

#[test]
fn other_kinds_refuse_their_common_mistakes() {
    let budget = json!({"spec": {"minAvailable": 1, "maxUnavailable": "200%"}});
    check("policy", "PodDisruptionBudget", &budget, &expect![]);
    check("scheduling.k8s.io", "PriorityClass", &json!({"metadata": {"name": "system-foo"}}), &expect![]);
    let rules = json!({"rules": [{"host": "*.example.com"}, {}, {"host": "-bad-"}, {"host": "1.2.3.4"}]});
    check("networking.k8s.io", "Ingress", &json!({"spec": rules}), &expect![]);
    let policy = json!({"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}}, {}]}]}});
    check("networking.k8s.io", "NetworkPolicy", &policy, &expect![]);
    check("autoscaling", "HorizontalPodAutoscaler", &json!({"spec": {"minReplicas": 3, "maxReplicas": 2}}), &expect![]);
    let volume = json!({"spec": {"hostPath": {"path": "/"}, "nfs": {}, "persistentVolumeReclaimPolicy": "Recycle"}});
    check("", "PersistentVolume", &volume, &expect![]);
    check("", "LimitRange", &json!({"spec": {"limits": [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}}), &expect![]);
    check("", "ResourceQuota", &json!({"spec": {"hard": {"cpu": "1", "x": "1"}, "scopes": ["BestEffort"]}}), &expect![]);
    check("", "ServiceAccount", &json!({"metadata": {"finalizers": ["bad", "a/b"]}}), &expect![]);
}

#[test]
fn update_ignores_errors_of_the_stored_object() {
    let gates = FeatureGates::new(Release::R36);
    let strategy = strategy_of("", "ConfigMap").unwrap();
    let map = |key: &str| json!({"data": {"b d": "1", key: "2"}}).as_object().unwrap().clone();
    let errors = validate_values(strategy, &gates, "", [&map("x"), &map("y z")]);
    assert_eq!(errors.iter().map(|error| error.field().to_owned()).collect::<Vec<_>>(), ["data[y z]"]);
}
