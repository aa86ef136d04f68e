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

fn pod(fields: &Value) -> Value {
    let mut spec = json!({"containers": [{"name": "a", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn pod_with(container: &Value) -> Value {
    let mut first = json!({"name": "a", "image": "i"});
    first.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    pod(&json!({"containers": [first]}))
}

#[test]
fn data_keys_are_file_names() {
    check_valid("", "ConfigMap", &json!({"data": {"a.b_c-D": "1"}, "binaryData": {"x": ""}}));
    check(
        "",
        "ConfigMap",
        &json!({"data": {"bad key": "1", "..": "2", "x": ""}, "binaryData": {"x": ""}}),
        &expect![[r#"
        data[..]: Invalid value: "..": must not be '..'
        data[bad key]: Invalid value: "bad key": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
        data[x]: Invalid value: "x": duplicate of key present in binaryData"#]],
    );
    check(
        "",
        "Secret",
        &json!({"type": "kubernetes.io/tls", "data": {"a b": "MQ=="}}),
        &expect![[r#"
        data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
        data[tls.crt]: Required value
        data[tls.key]: Required value"#]],
    );
}

#[test]
fn service_has_valid_type_ports_and_addresses() {
    let good = json!({"type": "NodePort", "ports": [{"port": 80, "targetPort": "web", "protocol": "TCP"}]});
    check_valid("", "Service", &json!({"spec": good}));
    let bad = json!({
        "type": "Bogus", "ports": [{"port": 0, "targetPort": "a_b", "protocol": "ICMP"}, {"port": 0}],
        "clusterIP": "1.2.3", "clusterIPs": ["1.2.3"], "externalIPs": ["127.0.0.1"],
    });
    check(
        "",
        "Service",
        &json!({"spec": bad}),
        &expect![[r#"
        spec.ports[0].name: Required value
        spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
        spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"
        spec.ports[0].targetPort: Invalid value: "a_b": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)
        spec.ports[1].name: Required value
        spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive
        spec.ports[1].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive
        spec.clusterIPs[0]: Invalid value: "1.2.3": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
        spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
        spec.type: Unsupported value: "Bogus": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#]],
    );
}

#[test]
fn container_requests_must_not_exceed_limits() {
    let lists =
        |requests: Value, limits: Value| pod_with(&json!({"resources": {"requests": requests, "limits": limits}}));
    let good = lists(json!({"cpu": "1", "memory": "1Gi", "a.b/c": "1"}), json!({"cpu": "1000m", "a.b/c": 1}));
    check_valid("", "Pod", &good);
    let bad = lists(
        json!({"cpu": "1", "a.b/c": "1", "memory": "-1", "x": "1"}),
        json!({"cpu": "999m", "a.b/c": "1500m", "hugepages-2Mi": "1Mi"}),
    );
    check(
        "",
        "Pod",
        &bad,
        &expect![[r#"
        spec.containers[0].resources.limits[a.b/c]: Invalid value: "1500m": must be an integer
        spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "1Mi": 1Mi is not positive integer multiple of hugepages-2Mi
        spec.containers[0].resources.requests: Invalid value: "1": must be equal to a.b/c limit of 1500m
        spec.containers[0].resources.requests: Invalid value: "1": must be less than or equal to cpu limit of 999m
        spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "1Mi": 1Mi is not positive integer multiple of hugepages-2Mi
        spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0
        spec.containers[0].resources.requests[x]: Invalid value: "x": must be a standard resource type or fully qualified
        spec.containers[0].resources.requests[x]: Invalid value: "x": must be a standard resource for containers"#]],
    );
    let claims = json!({"resources": {"claims": [{"name": "c"}, {"name": "x"}]}});
    check(
        "",
        "Pod",
        &pod_with(&claims),
        &expect![[r#"
        spec.containers[0].resources.claims[0]: Not found: "c": must be one of the names in pod.spec.resourceClaims which is empty
        spec.containers[0].resources.claims[1]: Not found: "x": must be one of the names in pod.spec.resourceClaims which is empty"#]],
    );
}

#[test]
fn ephemeral_containers_have_no_ports_probes_or_resources() {
    let container = json!({"name": "a", "image": "i", "targetContainerName": "z", "ports": [{"containerPort": 80}],
        "lifecycle": {}, "resources": {}});
    check(
        "",
        "Pod",
        &pod(&json!({"ephemeralContainers": [container]})),
        &expect![[r#"
        spec.ephemeralContainers[0].name: Duplicate value: "a"
        spec.ephemeralContainers[0].targetContainerName: Not found: "z"
        spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container
        spec.ephemeralContainers[0].lifecycle: Forbidden: cannot be set for an Ephemeral Container
        spec.ephemeralContainers: Forbidden: cannot be set on create"#]],
    );
}

#[test]
fn mounts_refer_to_volumes_and_variables_to_sources() {
    let good = json!({
        "volumeMounts": [{"name": "v", "mountPath": "/a"}],
        "env": [{"name": "A=", "value": "x"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}],
    });
    let mut object = pod_with(&good);
    object["spec"]["volumes"] =
        json!([{"name": "w", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "../x"}}, {"name": "x"}]);
    check(
        "",
        "Pod",
        &object,
        &expect![[r#"
        spec.volumes[1].hostPath.path: Invalid value: "../x": must not contain '..'
        spec.volumes[1].name: Duplicate value: "w"
        spec.containers[0].env[0].name: Invalid value: "A=": a valid environment variable name must consist only of printable ASCII characters other than '='
        spec.containers[0].volumeMounts[0].name: Not found: "v""#]],
    );
}

#[test]
fn probes_and_handlers_have_one_action() {
    let container = json!({
        "livenessProbe": {"httpGet": {"port": 0}, "tcpSocket": {"port": "Web"}, "successThreshold": 2},
        "readinessProbe": {"terminationGracePeriodSeconds": 0},
        "lifecycle": {"preStop": {"sleep": {"seconds": 31}}},
    });
    check(
        "",
        "Pod",
        &pod_with(&container),
        &expect![[r#"
        spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)
        spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive
        spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type
        spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1
        spec.containers[0].readinessProbe: Required value: must specify a handler type
        spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0
        spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 0: must not be set for readinessProbes"#]],
    );
}

#[test]
fn workload_selector_matches_template() {
    let with = |labels: Value, selector: Value| {
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        json!({"spec": {"selector": selector, "template": template}})
    };
    let selector = json!({"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
    check_valid("apps", "Deployment", &with(json!({"app": "a", "tier": "b"}), selector.clone()));
    check(
        "apps",
        "Deployment",
        &with(json!({"app": "a"}), selector.clone()),
        &expect![[
            r#"spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`"#
        ]],
    );
    check(
        "apps",
        "DaemonSet",
        &json!({"spec": {"updateStrategy": {"type": "X"}}}),
        &expect![[r#"
        spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`
        spec.template.spec.containers: Required value
        spec.updateStrategy: Unsupported value: {"Type":"X","RollingUpdate":null}: supported values: "RollingUpdate", "OnDelete""#]],
    );
    check(
        "",
        "ReplicationController",
        &with(json!({"app": "b"}), json!({"app": "a"})),
        &expect![[
            r#"spec.template.metadata.labels: Invalid value: {"app":"b"}: `selector` does not match template `labels`"#
        ]],
    );
    let mut set = with(json!({"app": "a", "tier": "b"}), selector);
    set["spec"]["replicas"] = (-1).into();
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["X"]}}]);
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/d"}]);
    check(
        "apps",
        "StatefulSet",
        &set,
        &expect![[r#"
        spec.replicas: Invalid value: -1: must be greater than or equal to 0
        spec.volumeClaimTemplates[0].spec.accessModes: Unsupported value: "X": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"
        spec.volumeClaimTemplates[0].spec.resources[storage]: Required value"#]],
    );
}

#[test]
fn job_has_policy_and_cron_job_schedule() {
    let template = |policy: &str| {
        let containers = json!([{"name": "c", "image": "i"}]);
        json!({"template": {"spec": {"restartPolicy": policy, "containers": containers}}})
    };
    let cron = |policy: &str, schedule: &str, zone: &str| json!({"spec": {"schedule": schedule, "timeZone": zone, "jobTemplate": {"spec": template(policy)}}});
    check_valid("batch", "CronJob", &cron("Never", "0 * * * *", "Europe/Berlin"));
    check(
        "batch",
        "CronJob",
        &cron("Always", "nonsense", "Nowhere"),
        &expect![[r#"
        spec.schedule: Invalid value: "nonsense": expected exactly 5 fields, found 1: [nonsense]
        spec.timeZone: Invalid value: "Nowhere": unknown time zone Nowhere
        spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#]],
    );
}

#[test]
fn other_kinds_refuse_their_common_mistakes() {
    let budget = json!({"spec": {"minAvailable": 1, "maxUnavailable": "200%"}});
    check(
        "policy",
        "PodDisruptionBudget",
        &budget,
        &expect![[r#"
            spec: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":"200%","UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set
            spec.maxUnavailable: Invalid value: "200%": must not be greater than 100%"#]],
    );
    check(
        "scheduling.k8s.io",
        "PriorityClass",
        &json!({"metadata": {"name": "system-foo"}}),
        &expect![
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-foo is not a known system priority class"
        ],
    );
    let rules = json!({"rules": [{"host": "*.example.com"}, {}, {"host": "-bad-"}, {"host": "1.2.3.4"}]});
    check(
        "networking.k8s.io",
        "Ingress",
        &json!({"spec": rules}),
        &expect![[r#"
        spec.rules[2].host: Invalid value: "-bad-": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.rules[3].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address"#]],
    );
    let policy =
        json!({"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}}, {}]}]}});
    check(
        "networking.k8s.io",
        "NetworkPolicy",
        &policy,
        &expect![[r#"
        spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "11.0.0.0/9": must be a strict subset of `cidr`
        spec.ingress[0].from[1]: Required value: must specify a peer"#]],
    );
    check(
        "autoscaling",
        "HorizontalPodAutoscaler",
        &json!({"spec": {"minReplicas": 3, "maxReplicas": 2}}),
        &expect![[r#"
        spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`
        spec.scaleTargetRef.kind: Required value
        spec.scaleTargetRef.name: Required value
        spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group"#]],
    );
}

#[test]
fn storage_and_quota_kinds_refuse_their_common_mistakes() {
    let volume = json!({"spec": {"hostPath": {"path": "/"}, "nfs": {}, "persistentVolumeReclaimPolicy": "Recycle"}});
    check(
        "",
        "PersistentVolume",
        &volume,
        &expect![[r#"
        spec.accessModes: Required value
        spec.capacity: Required value
        spec.capacity: Unsupported value: null: supported values: "storage"
        spec.nfs: Forbidden: may not specify more than 1 volume type
        spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"#]],
    );
    check(
        "",
        "LimitRange",
        &json!({"spec": {"limits": [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}}),
        &expect![[r#"spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1"#]],
    );
    check(
        "",
        "ResourceQuota",
        &json!({"spec": {"hard": {"cpu": "1", "x": "1"}, "scopes": ["BestEffort"]}}),
        &expect![[r#"
            spec.hard[x]: Invalid value: "x": must be a standard resource type or fully qualified
            spec.hard[x]: Invalid value: "x": must be a standard resource for quota
            spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource"#]],
    );
    check(
        "",
        "ServiceAccount",
        &json!({"metadata": {"finalizers": ["bad", "a/b"]}}),
        &expect![[
            r#"metadata.finalizers[0]: Invalid value: "bad": name is neither a standard finalizer name nor is it fully qualified"#
        ]],
    );
}

#[test]
fn update_ignores_errors_of_the_stored_object() {
    let gates = FeatureGates::new(Release::R36);
    let strategy = strategy_of("", "ConfigMap").unwrap();
    let map = |key: &str| json!({"data": {"b d": "1", key: "2"}}).as_object().unwrap().clone();
    let errors = validate_values(strategy, &gates, "", [&map("x"), &map("y z")]);
    assert_eq!(errors.iter().map(|error| error.field().to_owned()).collect::<Vec<_>>(), ["data[y z]"]);
}

#[test]
fn devices_share_counters_and_have_both_kinds_of_binding_conditions() {
    let slice = |fields: Value| {
        let mut spec =
            json!({"driver": "d.example.com", "allNodes": true, "pool": {"name": "p", "resourceSliceCount": 1}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"metadata": {"name": "s"}, "spec": spec})
    };
    let counters = json!({"memory": {"value": "1Gi"}});
    check(
        "resource.k8s.io",
        "ResourceSlice",
        &slice(json!({"sharedCounters": [{"name": "a", "counters": counters}, {"name": "a"}, {"counters": counters}]})),
        &expect![[r#"
            spec.sharedCounters[1].counters: Required value
            spec.sharedCounters[2].name: Required value
            spec.sharedCounters[1]: Duplicate value: "a""#]],
    );
    let device = json!({
        "name": "d", "bindingConditions": ["x", "x"], "attributes": {"a-b": {"ints": []}},
        "capacity": {"c": {"value": "5", "requestPolicy": {"default": "1", "validRange": {"min": "2", "step": "2"}}}},
        "allowMultipleAllocations": true,
    });
    check(
        "resource.k8s.io",
        "ResourceSlice",
        &slice(json!({"devices": [device, {"name": "d"}]})),
        &expect![[r#"
        spec.devices[0].attributes: Invalid value: "a-b": a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')
        spec.devices[0].attributes[a-b].ints: Invalid value: []: must not be empty if specified
        spec.devices[0].capacity[c].requestPolicy.validRange.min: Invalid value: "1": default is less than min: 2
        spec.devices[0].capacity[c].requestPolicy.validRange.step: Invalid value: "1": value is not a multiple of a given step (2) from (2)
        spec.devices[0].bindingConditions[1]: Duplicate value: "x"
        spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions
        spec.devices[1]: Duplicate value: "d""#]],
    );
}

#[test]
fn node_declares_features_in_order() {
    let features = json!(["B/a", "A", "a", "A/1"]);
    check(
        "",
        "Node",
        &json!({"status": {"declaredFeatures": features}}),
        &expect![[r#"
        status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically
        status.declaredFeatures[2]: Invalid value: "a": invalid feature name "a": must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes
        status.declaredFeatures[3]: Invalid value: "A/1": list must be sorted alphabetically
        status.declaredFeatures[3]: Invalid value: "A/1": invalid feature name "A/1": must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"#]],
    );
}

#[test]
fn messages_show_values_in_the_order_of_go_structs() {
    let strategy = json!({"type": "x", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}});
    let deployment = json!({"spec": {"strategy": strategy}});
    let shown = errors_of("apps", "Deployment", &deployment).into_iter().find(|error| error.contains("strategy"));
    expect![[r#"spec.strategy: Unsupported value: {"Type":"x","RollingUpdate":{"MaxUnavailable":1,"MaxSurge":"25%"}}: supported values: "Recreate", "RollingUpdate""#]].assert_eq(&shown.unwrap_or_default());
}

#[test]
fn amounts_beyond_all_numbers_are_whole() {
    check_valid("", "ResourceQuota", &json!({"spec": {"hard": {"pods": "1e400"}}}));
}
