//! The columns of each kind, one object at a time.

use api::metadata::ListMeta;
use expect_test::expect;
use object::table::build_table;
use serde_json::{Value, json};

use super::{check, options};

#[test]
fn service_and_endpoints_columns() {
    let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 443, "nodePort": 30443, "protocol": "TCP"}]);
    check(
        "",
        "Service",
        json!({"spec": {"type": "ClusterIP", "clusterIPs": ["10.96.0.1"], "ports": ports, "selector": {"app": "web"}}}),
        &expect![[
            r#"Name: "a", Type: "ClusterIP", Cluster-IP: "10.96.0.1", External-IP: "<none>", Port(s): "80/TCP,443:30443/TCP", Age: "10d", | Selector: "app=web""#
        ]],
    );
    let external = |service: Value| {
        let table = build_table([service.as_object().unwrap()], &ListMeta::default(), &options("", "Service"));
        table["rows"][0]["cells"][3].as_str().unwrap().to_owned()
    };
    let balanced = json!({"loadBalancer": {"ingress": [{"hostname": "lb.example"}, {"ip": "1.2.3.4"}]}});
    assert_eq!(external(json!({"spec": {"type": "LoadBalancer"}})), "<pending>");
    assert_eq!(external(json!({"spec": {"type": "LoadBalancer"}, "status": balanced})), "1.2.3.4,lb.example");
    assert_eq!(
        external(json!({"spec": {"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]}, "status": balanced})),
        "1.2.3.4,lb.example,9.9.9.9"
    );
    assert_eq!(external(json!({"spec": {"type": "ExternalName", "externalName": "db.example"}})), "db.example");
    assert_eq!(external(json!({"spec": {"type": "NodePort", "externalIPs": ["9.9.9.9"]}})), "9.9.9.9");
    assert_eq!(external(json!({})), "<unknown>");

    check(
        "",
        "Endpoints",
        json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}, {"port": 443}]}]}),
        &expect![[r#"Name: "a", Endpoints: "10.0.0.1:80,[fd00::1]:80,10.0.0.1:443 + 1 more...", Age: "10d""#]],
    );
    check(
        "",
        "Endpoints",
        json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}),
        &expect![[r#"Name: "a", Endpoints: "10.0.0.1", Age: "10d""#]],
    );
    check("", "Endpoints", json!({}), &expect![[r#"Name: "a", Endpoints: "<none>", Age: "10d""#]]);
    check(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "x"}, {}],
               "endpoints": [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3", "10.0.0.4"]}]}),
        &expect![[
            r#"Name: "a", AddressType: "IPv4", Ports: "80,x,*", Endpoints: "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...", Age: "10d""#
        ]],
    );
}

#[test]
fn networking_columns() {
    let rules = json!([{"host": "a.example"}, {}, {"host": "b.example"}, {"host": "c.example"}, {"host": "d.example"}]);
    check(
        "networking.k8s.io",
        "Ingress",
        json!({"spec": {"ingressClassName": "nginx", "rules": rules, "tls": [{}]}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}),
        &expect![[
            r#"Name: "a", Class: "nginx", Hosts: "a.example,b.example,c.example + 2 more...", Address: "1.2.3.4", Ports: "80, 443", Age: "10d""#
        ]],
    );
    check(
        "networking.k8s.io",
        "Ingress",
        json!({}),
        &expect![[r#"Name: "a", Class: "<none>", Hosts: "*", Address: "", Ports: "80", Age: "10d""#]],
    );
    check(
        "networking.k8s.io",
        "IngressClass",
        json!({"metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
               "spec": {"controller": "example.com/x", "parameters": {"apiGroup": "g", "kind": "K", "name": "n"}}}),
        &expect![[r#"Name: "a (default)", Controller: "example.com/x", Parameters: "K.g/n", Age: "10d""#]],
    );
    check(
        "networking.k8s.io",
        "NetworkPolicy",
        json!({"spec": {"podSelector": {}}}),
        &expect![[r#"Name: "a", Pod-Selector: "<none>", Age: "10d""#]],
    );
    check(
        "networking.k8s.io",
        "ServiceCIDR",
        json!({"spec": {"cidrs": ["10.96.0.0/16", "fd00::/112"]}}),
        &expect![[r#"Name: "a", CIDRs: "10.96.0.0/16,fd00::/112", Age: "10d""#]],
    );
    check(
        "networking.k8s.io",
        "IPAddress",
        json!({"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}}}),
        &expect![[r#"Name: "a", ParentRef: "services/default/kubernetes""#]],
    );
}

#[test]
fn node_and_namespace_columns() {
    check(
        "",
        "Node",
        json!({
            "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "old"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kubeletVersion": "v1.36.0", "kernelVersion": "6.1", "architecture": "arm64"}},
        }),
        &expect![[
            r#"Name: "a", Status: "Ready,SchedulingDisabled", Roles: "control-plane,old,worker", Age: "10d", Version: "v1.36.0", | Internal-IP: "10.0.0.1", | External-IP: "<none>", | OS-Image: "<unknown>", | Kernel-Version: "6.1 (arm64)", | Container-Runtime: "<unknown>""#
        ]],
    );
    check(
        "",
        "Node",
        json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
        &expect![[
            r#"Name: "a", Status: "NotReady", Roles: "<none>", Age: "10d", Version: "", | Internal-IP: "<none>", | External-IP: "<none>", | OS-Image: "<unknown>", | Kernel-Version: "<unknown>", | Container-Runtime: "<unknown>""#
        ]],
    );
    check(
        "",
        "Namespace",
        json!({"status": {"phase": "Active"}}),
        &expect![[r#"Name: "a", Status: "Active", Age: "10d""#]],
    );
}

#[test]
fn secret_config_map_and_quota_columns() {
    check(
        "",
        "Secret",
        json!({"type": "Opaque", "data": {"a": "", "b": ""}}),
        &expect![[r#"Name: "a", Type: "Opaque", Data: 2, Age: "10d""#]],
    );
    check(
        "",
        "ConfigMap",
        json!({"data": {"a": ""}, "binaryData": {"b": ""}}),
        &expect![[r#"Name: "a", Data: 2, Age: "10d""#]],
    );
    check("", "ServiceAccount", json!({}), &expect![[r#"Name: "a", Age: "10d""#]]);
    check(
        "",
        "ResourceQuota",
        json!({"status": {"hard": {"cpu": "2", "limits.cpu": "4", "pods": "10"}, "used": {"cpu": "1", "pods": "3"}}}),
        &expect![[r#"Name: "a", Request: "cpu: 1/2, pods: 3/10", Limit: "limits.cpu: 0/4", Age: "10d""#]],
    );
}

#[test]
fn event_columns_of_both_groups() {
    let core = json!({
        "type": "Warning", "reason": "Failed", "message": " it failed\n", "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{x}"},
        "source": {"component": "kubelet", "host": "node-1"}, "firstTimestamp": "2026-01-10T23:00:00Z", "lastTimestamp": "2026-01-10T23:59:00Z", "count": 5,
    });
    check(
        "",
        "Event",
        core,
        &expect![[
            r#"Last Seen: "60s", Type: "Warning", Reason: "Failed", Object: "pod/p", | Subobject: "spec.containers{x}", | Source: "kubelet, node-1", Message: "it failed", | First Seen: "60m", | Count: 5, | Name: "a""#
        ]],
    );
    let series = json!({
        "type": "Normal", "reason": "Done", "note": "it is done", "regarding": {"kind": "Job"}, "reportingController": "c", "reportingInstance": "c-1",
        "eventTime": "2026-01-10T22:00:00.000001Z", "series": {"count": 3, "lastObservedTime": "2026-01-10T23:59:50.000001Z"},
    });
    check(
        "events.k8s.io",
        "Event",
        series,
        &expect![[
            r#"Last Seen: "9s", Type: "Normal", Reason: "Done", Object: "job", | Subobject: "", | Source: "c, c-1", Message: "it is done", | First Seen: "119m", | Count: 3, | Name: "a""#
        ]],
    );
    check(
        "",
        "Event",
        json!({}),
        &expect![[
            r#"Last Seen: "<unknown>", Type: "", Reason: "", Object: "", | Subobject: "", | Source: "", Message: "", | First Seen: "<unknown>", | Count: 1, | Name: "a""#
        ]],
    );
}

#[test]
fn volume_and_claim_columns() {
    check(
        "",
        "PersistentVolume",
        json!({"spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
                        "claimRef": {"namespace": "n", "name": "c"}, "storageClassName": "fast", "volumeMode": "Filesystem"}, "status": {"phase": "Bound"}}),
        &expect![[
            r#"Name: "a", Capacity: "5Gi", Access Modes: "RWO,RWX", Reclaim Policy: "Retain", Status: "Bound", Claim: "n/c", StorageClass: "fast", VolumeAttributesClass: "<unset>", Reason: "", Age: "10d", | VolumeMode: "Filesystem""#
        ]],
    );
    check(
        "",
        "PersistentVolumeClaim",
        json!({"metadata": {"deletionTimestamp": "2026-01-10T00:00:00Z"}, "spec": {"volumeName": "v", "storageClassName": "fast"},
               "status": {"phase": "Bound", "capacity": {"storage": "5Gi"}, "accessModes": ["ReadOnlyMany"]}}),
        &expect![[
            r#"Name: "a", Status: "Terminating", Volume: "v", Capacity: "5Gi", Access Modes: "ROX", StorageClass: "fast", VolumeAttributesClass: "<unset>", Age: "10d", | VolumeMode: "<unset>""#
        ]],
    );
    check(
        "",
        "PersistentVolumeClaim",
        json!({"status": {"phase": "Pending", "capacity": {"storage": "1"}}}),
        &expect![[
            r#"Name: "a", Status: "Pending", Volume: "", Capacity: "", Access Modes: "", StorageClass: "", VolumeAttributesClass: "<unset>", Age: "10d", | VolumeMode: "<unset>""#
        ]],
    );
}

#[test]
fn storage_and_device_columns() {
    check(
        "storage.k8s.io",
        "StorageClass",
        json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p", "allowVolumeExpansion": true}),
        &expect![[
            r#"Name: "a (default)", Provisioner: "p", ReclaimPolicy: "Delete", VolumeBindingMode: "Immediate", AllowVolumeExpansion: true, Age: "10d""#
        ]],
    );
    check(
        "storage.k8s.io",
        "VolumeAttachment",
        json!({"spec": {"attacher": "x", "nodeName": "n", "source": {"persistentVolumeName": "v"}}, "status": {"attached": true}}),
        &expect![[r#"Name: "a", Attacher: "x", PV: "v", Node: "n", Attached: true, Age: "10d""#]],
    );
    check(
        "storage.k8s.io",
        "CSIDriver",
        json!({"spec": {"tokenRequests": [{"audience": "a"}, {"audience": "b"}]}}),
        &expect![[
            r#"Name: "a", AttachRequired: true, PodInfoOnMount: false, StorageCapacity: false, TokenRequests: "a,b", RequiresRepublish: false, Modes: "<none>", Age: "10d""#
        ]],
    );
    check(
        "storage.k8s.io",
        "CSINode",
        json!({"spec": {"drivers": [{}, {}]}}),
        &expect![[r#"Name: "a", Drivers: 2, Age: "10d""#]],
    );
    check(
        "storage.k8s.io",
        "CSIStorageCapacity",
        json!({"storageClassName": "fast"}),
        &expect![[r#"Name: "a", StorageClassName: "fast", Capacity: "<unset>""#]],
    );
    check(
        "storage.k8s.io",
        "VolumeAttributesClass",
        json!({"driverName": "d"}),
        &expect![[r#"Name: "a", DriverName: "d", Age: "10d""#]],
    );
    check(
        "resource.k8s.io",
        "ResourceClaim",
        json!({"status": {"allocation": {}, "reservedFor": [{}]}}),
        &expect![[r#"Name: "a", State: "allocated,reserved", Age: "10d""#]],
    );
    check(
        "resource.k8s.io",
        "ResourceSlice",
        json!({"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}}),
        &expect![[r#"Name: "a", Node: "n", Driver: "d", Pool: "p", Age: "10d""#]],
    );
}

#[test]
fn lease_rbac_and_scheduling_columns() {
    check(
        "coordination.k8s.io",
        "Lease",
        json!({"spec": {"holderIdentity": "me"}}),
        &expect![[r#"Name: "a", Holder: "me", Age: "10d""#]],
    );
    check(
        "coordination.k8s.io",
        "LeaseCandidate",
        json!({"spec": {"leaseName": "l", "binaryVersion": "1.36", "emulationVersion": "1.35"}}),
        &expect![[r#"Name: "a", LeaseName: "l", BinaryVersion: "1.36", EmulationVersion: "1.35", Age: "10d""#]],
    );
    check(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        json!({"roleRef": {"kind": "ClusterRole", "name": "admin"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"},
               {"kind": "ServiceAccount", "namespace": "n", "name": "s"}, {"kind": "User", "name": "v"}]}),
        &expect![[
            r#"Name: "a", Role: "ClusterRole/admin", Age: "10d", | Users: "u, v", | Groups: "g", | ServiceAccounts: "n/s""#
        ]],
    );
    check(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        json!({"spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600}, "status": {"certificate": "x", "conditions": [{"type": "Approved"}]}}),
        &expect![[
            r#"Name: "a", Age: "10d", SignerName: "s", Requestor: "u", RequestedDuration: "60m", Condition: "Approved,Issued""#
        ]],
    );
    check(
        "scheduling.k8s.io",
        "PriorityClass",
        json!({"value": 1000, "preemptionPolicy": "Never"}),
        &expect![[r#"Name: "a", Value: 1000, Global-Default: false, Age: "10d", PreemptionPolicy: "Never""#]],
    );
    check(
        "node.k8s.io",
        "RuntimeClass",
        json!({"handler": "runc"}),
        &expect![[r#"Name: "a", Handler: "runc", Age: "10d""#]],
    );
}

#[test]
fn storage_version_and_api_service_columns() {
    let servers: Vec<Value> =
        (1..=4).map(|at| json!({"apiServerID": format!("s{at}"), "encodingVersion": "v1"})).collect();
    check(
        "internal.apiserver.k8s.io",
        "StorageVersion",
        json!({"status": {"commonEncodingVersion": "v1", "storageVersions": servers}}),
        &expect![[
            r#"Name: "a", CommonEncodingVersion: "v1", StorageVersions: "s1=v1,s2=v1,s3=v1 + 1 more...", Age: "10d""#
        ]],
    );
    check(
        "internal.apiserver.k8s.io",
        "StorageVersion",
        json!({}),
        &expect![[r#"Name: "a", CommonEncodingVersion: "<unset>", StorageVersions: "<unset>", Age: "10d""#]],
    );
    check(
        "storagemigration.k8s.io",
        "StorageVersionMigration",
        json!({"spec": {"resource": {"group": "apps", "resource": "deployments"}},
               "status": {"conditions": [{"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}]}}),
        &expect![[r#"Name: "a", Resource: "deployments.apps", Status: "Succeeded""#]],
    );
    check(
        "apiregistration.k8s.io",
        "APIService",
        json!({"status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local"}]}}),
        &expect![[r#"Name: "a", Service: "Local", Available: "True", Age: "10d""#]],
    );
    check(
        "apiregistration.k8s.io",
        "APIService",
        json!({"spec": {"service": {"namespace": "n", "name": "s"}}, "status": {"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]}}),
        &expect![[r#"Name: "a", Service: "n/s", Available: "False (MissingEndpoints)", Age: "10d""#]],
    );
}

#[test]
fn admission_and_flow_control_columns() {
    check(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        json!({"webhooks": [{}]}),
        &expect![[r#"Name: "a", Webhooks: 1, Age: "10d""#]],
    );
    check(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        json!({"spec": {"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}}),
        &expect![[r#"Name: "a", Validations: 1, ParamKind: "v1/ConfigMap", Age: "10d""#]],
    );
    check(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        json!({"spec": {"policyName": "p", "paramRef": {"name": "x"}}}),
        &expect![[r#"Name: "a", PolicyName: "p", ParamRef: "*/x", Age: "10d""#]],
    );
    check(
        "flowcontrol.apiserver.k8s.io",
        "FlowSchema",
        json!({"spec": {"priorityLevelConfiguration": {"name": "system"}, "matchingPrecedence": 100, "distinguisherMethod": {"type": "ByUser"}},
               "status": {"conditions": [{"type": "Dangling", "status": "False"}]}}),
        &expect![[
            r#"Name: "a", PriorityLevel: "system", MatchingPrecedence: 100, DistinguisherMethod: "ByUser", Age: "10d", MissingPL: "False""#
        ]],
    );
    check(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 30, "limitResponse": {"queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}}}}),
        &expect![[
            r#"Name: "a", Type: "Limited", NominalConcurrencyShares: 30, Queues: 64, HandSize: 6, QueueLengthLimit: 50, Age: "10d""#
        ]],
    );
    check(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        json!({"spec": {"type": "Exempt"}}),
        &expect![[
            r#"Name: "a", Type: "Exempt", NominalConcurrencyShares: "<none>", Queues: "<none>", HandSize: "<none>", QueueLengthLimit: "<none>", Age: "10d""#
        ]],
    );
}
