//! Persistent volumes, claims and classes.

use super::*;

#[test]
fn storage_class_fields_are_immutable() {
    let class = |provisioner: &str, mode: &str| json!({"provisioner": provisioner, "volumeBindingMode": mode});
    check_releases(
        "storage.k8s.io/v1 StorageClass",
        &class("a", "Immediate"),
        &class("b", "WaitForFirstConsumer"),
        &expect![[r#"
            1.31:
            provisioner: Forbidden: updates to provisioner are forbidden.
            volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable
            1.36:
            provisioner: Invalid value: "b": field is immutable
            volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable
        "#]],
    );
    check(
        "storage.k8s.io/v1 StorageClass",
        &json!({"provisioner": "a", "parameters": {"a": "b"}}),
        &json!({"provisioner": "a"}),
        &expect![[r#"
            parameters: Invalid value: null: field is immutable
        "#]],
    );
    check(
        "storage.k8s.io/v1 VolumeAttributesClass",
        &json!({"driverName": "a", "parameters": {"a": "b"}}),
        &json!({"driverName": "b", "parameters": {"a": "c"}}),
        &expect![[r#"
            driverName: Forbidden: updates to driverName are forbidden.
            parameters: Forbidden: updates to parameters are forbidden.
        "#]],
    );
    check(
        "storage.k8s.io/v1 CSIDriver",
        &json!({"spec": {"attachRequired": true}}),
        &json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}}),
        &expect![[r#"
            spec.attachedRequired: Invalid value: false: field is immutable
            spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable
        "#]],
    );
}

#[test]
fn csi_node_drivers_are_immutable() {
    let node = |drivers: Value| json!({"spec": {"drivers": drivers}});
    let driver =
        |name: &str, id: &str, count: u32| json!({"name": name, "nodeID": id, "allocatable": {"count": count}});
    let old = node(json!([driver("a", "1", 5), driver("b", "1", 5)]));
    check_allowed("storage.k8s.io/v1 CSINode", &old, &node(json!([driver("a", "1", 5), driver("c", "2", 5)])));
    check_releases(
        "storage.k8s.io/v1 CSINode",
        &old,
        &node(json!([driver("a", "1", 6)])),
        &expect![[r#"
            1.31:
            spec.drivers: Invalid value: {"Name":"a","NodeID":"1","TopologyKeys":null,"Allocatable":{"Count":6}}: field is immutable
            1.35:
        "#]],
    );
    check(
        "storage.k8s.io/v1 CSINode",
        &old,
        &node(json!([driver("a", "2", 5)])),
        &expect![[r#"
            spec.drivers: Invalid value: {"Name":"a","NodeID":"2","TopologyKeys":null,"Allocatable":null}: field is immutable
        "#]],
    );
}

#[test]
fn bound_claim_allows_only_storage_request_changes() {
    let what = "v1 PersistentVolumeClaim";
    let claim = |size: &str, phase: &str, fields: &[(&str, Value)]| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
        for (name, value) in fields {
            spec[name] = value.clone();
        }
        json!({"metadata": {"name": "a"}, "spec": spec, "status": {"phase": phase}})
    };
    check_allowed(what, &claim("1Gi", "Bound", &[]), &claim("2Gi", "Bound", &[]));
    check_allowed(what, &claim("1Gi", "Pending", &[]), &claim("1Gi", "Pending", &[("volumeName", json!("v"))]));
    check_allowed(what, &claim("1Gi", "Pending", &[]), &claim("1Gi", "Pending", &[("storageClassName", json!("c"))]));
    check(
        what,
        &claim("1Gi", "Pending", &[("volumeName", json!("v"))]),
        &claim("2Gi", "Pending", &[("volumeName", json!("w")), ("volumeMode", json!("Block"))]),
        &expect![[r#"
            spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims
            @@ -6,12 +6,12 @@
              "Resources": {
               "Limits": null,
               "Requests": {
            -   "storage": "1Gi"
            -  }
            - },
            - "VolumeName": "v",
            - "StorageClassName": null,
            - "VolumeMode": "Filesystem",
            +   "storage": "2Gi"
            +  }
            + },
            + "VolumeName": "w",
            + "StorageClassName": null,
            + "VolumeMode": "Block",
              "DataSource": null,
              "DataSourceRef": null,
              "VolumeAttributesClassName": null

            volumeMode: Invalid value: "Block": field is immutable
        "#]],
    );
    let mut annotated = claim("1Gi", "Bound", &[]);
    annotated["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "c"});
    check_allowed(what, &annotated, &claim("1Gi", "Bound", &[("storageClassName", json!("c"))]));
    check(
        what,
        &annotated,
        &claim("1Gi", "Bound", &[]),
        &expect![[r#"
            metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: "": field is immutable
        "#]],
    );
}

#[test]
fn persistent_volume_source_is_immutable() {
    let what = "v1 PersistentVolume";
    let volume = |path: &str, fields: &[(&str, Value)]| {
        let mut spec = json!({"capacity": {"storage": "1Gi"}, "hostPath": {"path": path}});
        for (name, value) in fields {
            spec[name] = value.clone();
        }
        json!({"spec": spec})
    };
    let larger = volume("/a", &[("capacity", json!({"storage": "2Gi"})), ("storageClassName", json!("b"))]);
    check_allowed(what, &volume("/a", &[]), &larger);
    check(
        what,
        &volume("/a", &[]),
        &volume("/b", &[]),
        &expect![[r#"
            spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation
            @@ -2,7 +2,7 @@
              "GCEPersistentDisk": null,
              "AWSElasticBlockStore": null,
              "HostPath": {
            -  "Path": "/a",
            +  "Path": "/b",
               "Type": ""
              },
              "Glusterfs": null,

        "#]],
    );
    let affinity = |key: &str| {
        let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["x"]}]});
        volume("/a", &[("nodeAffinity", json!({"required": {"nodeSelectorTerms": [term]}}))])
    };
    check_allowed(what, &volume("/a", &[]), &affinity("zone"));
    let (beta, stable) = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
    check_allowed(what, &affinity(beta), &affinity(stable));
    let refused = update_errors(R36, "", what, [&affinity(stable), &affinity(beta)]);
    assert!(refused.ends_with(": field is immutable, except for updating from beta label to GA\n"), "{refused}");
    assert_eq!(update_errors(R36, "MutablePVNodeAffinity=true", what, [&affinity(stable), &affinity(beta)]), "");
}
