//! Objects of every kind of finding: fields, values and versions that some releases have and others do not.

use serde_json::{Value, json};

/// A resource with one object for each version that the object is written differently for; the newest first.
pub(super) struct TestObject {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    /// Versions in which `body` is valid.
    pub(super) versions: &'static [&'static str],
    /// Without metadata.
    pub(super) body: Value,
}

const ANY: &[&str] = &["v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"];

fn object(group: &'static str, resource: &'static str, kind: &'static str, body: Value) -> TestObject {
    TestObject { group, resource, kind, name: "sample", versions: ANY, body }
}

fn pod_spec() -> Value {
    let container = json!({"name": "c", "image": "i", "restartPolicy": "Never", "lifecycle": {"stopSignal": "SIGUSR1"},
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]});
    json!({"containers": [container], "os": {"name": "linux"},
           "securityContext": {"seLinuxChangePolicy": "Recursive"}})
}

fn plain_pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

/// Everything that a server is asked to store; what its release does not serve or refuses is left out.
pub(super) fn test_objects(certificate: &str) -> Vec<TestObject> {
    let mut objects = core_objects();
    objects.extend(device_objects());
    objects.extend(control_plane_objects(certificate));
    objects
}

fn core_objects() -> Vec<TestObject> {
    let mut named = plain_pod_spec();
    named["hostnameOverride"] = json!("h");
    let mut compared = plain_pod_spec();
    compared["tolerations"] = json!([{"key": "k", "operator": "Lt", "value": "5", "effect": "NoSchedule"}]);
    let mut from_file = plain_pod_spec();
    from_file["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    from_file["containers"][0]["env"] =
        json!([{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}]);
    let mut tolerant = json!({"metadata": {"labels": {"app": "a"}}, "spec": plain_pod_spec()});
    tolerant["spec"]["tolerations"] = compared["tolerations"].clone();
    let service = json!({"clusterIP": "None", "ports": [{"port": 80}], "trafficDistribution": "PreferSameNode"});
    let autoscaler = json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "behavior": {"scaleUp": {"tolerance": "0.1"}}});
    let driver = json!({"nodeAllocatableUpdatePeriodSeconds": 30, "attachRequired": true, "preventPodSchedulingIfMissing": true});
    vec![
        object("", "pods", "Pod", json!({"spec": pod_spec()})),
        TestObject { name: "named", ..object("", "pods", "Pod", json!({"spec": named})) },
        TestObject { name: "compared", ..object("", "pods", "Pod", json!({"spec": compared})) },
        TestObject { name: "from-file", ..object("", "pods", "Pod", json!({"spec": from_file})) },
        object("", "services", "Service", json!({"spec": service})),
        object("", "configmaps", "ConfigMap", json!({"data": {"a": "b"}})),
        object(
            "apps",
            "deployments",
            "Deployment",
            json!({"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": tolerant}}),
        ),
        TestObject {
            versions: &["v2"],
            ..object("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler", json!({"spec": autoscaler}))
        },
        object("storage.k8s.io", "csidrivers", "CSIDriver", json!({"spec": driver})),
        object(
            "storage.k8s.io",
            "volumeattributesclasses",
            "VolumeAttributesClass",
            json!({"driverName": "d", "parameters": {"a": "b"}}),
        ),
    ]
}

fn device_objects() -> Vec<TestObject> {
    let claims = |versions, request: Value| TestObject {
        versions,
        ..object(
            "resource.k8s.io",
            "resourceclaims",
            "ResourceClaim",
            json!({"spec": {"devices": {"requests": [request]}}}),
        )
    };
    let taint = json!({"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "effect": "NoSchedule"}});
    vec![
        object(
            "resource.k8s.io",
            "deviceclasses",
            "DeviceClass",
            json!({"spec": {"selectors": [{"cel": {"expression": "true"}}]}}),
        ),
        claims(&["v1", "v1beta2"], json!({"name": "r", "exactly": {"deviceClassName": "c"}})),
        claims(&["v1beta1", "v1alpha3"], json!({"name": "r", "deviceClassName": "c"})),
        object("resource.k8s.io", "devicetaintrules", "DeviceTaintRule", json!({"spec": taint})),
    ]
}

fn control_plane_objects(certificate: &str) -> Vec<TestObject> {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["DELETE"]});
    let policy = json!({"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}]});
    let candidate = json!({"leaseName": "l", "binaryVersion": "1.33.0", "emulationVersion": "1.33.0",
        "strategy": "OldestEmulationVersion"});
    let workloads = |versions, spec: Value| TestObject {
        versions,
        ..object("scheduling.k8s.io", "workloads", "Workload", json!({"spec": spec}))
    };
    vec![
        object(
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicies",
            "MutatingAdmissionPolicy",
            json!({"spec": policy}),
        ),
        object(
            "certificates.k8s.io",
            "clustertrustbundles",
            "ClusterTrustBundle",
            json!({"spec": {"trustBundle": certificate}}),
        ),
        object("coordination.k8s.io", "leasecandidates", "LeaseCandidate", json!({"spec": candidate})),
        object(
            "storagemigration.k8s.io",
            "storageversionmigrations",
            "StorageVersionMigration",
            json!({"spec": {"resource": {"group": "", "resource": "configmaps", "version": "v1"}}}),
        ),
        workloads(&["v1alpha1"], json!({"podGroups": [{"name": "g", "policy": {"basic": {}}}]})),
        workloads(
            &["v1beta1", "v1alpha3", "v1alpha2"],
            json!({"podGroupTemplates": [{"name": "g", "schedulingPolicy": {"basic": {}}}]}),
        ),
    ]
}
