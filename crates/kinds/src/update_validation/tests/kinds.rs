//! Kinds other than pods and storage.

use super::*;

fn selected(label: &str) -> Value {
    let template =
        json!({"metadata": {"labels": {"app": label}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    json!({"spec": {"selector": {"matchLabels": {"app": label}}, "template": template}})
}

#[test]
fn workload_selector_is_immutable() {
    for kind in ["Deployment", "DaemonSet", "ReplicaSet"] {
        check_releases(
            &format!("apps/v1 {kind}"),
            &selected("a"),
            &selected("b"),
            &expect![[r#"
                1.31:
                spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable
            "#]],
        );
    }
    let mut scaled = selected("a");
    scaled["spec"]["replicas"] = json!(3);
    scaled["spec"]["template"]["spec"]["containers"][0]["image"] = json!("c");
    check_allowed("apps/v1 Deployment", &selected("a"), &scaled);
}

#[test]
fn stateful_set_allows_only_listed_spec_changes() {
    let what = "apps/v1 StatefulSet";
    let set = |fields: &[(&str, Value)]| {
        let mut set = selected("a");
        set["spec"]["serviceName"] = json!("s");
        for (name, value) in fields {
            set["spec"][name] = value.clone();
        }
        set
    };
    check_allowed(what, &set(&[]), &set(&[("replicas", json!(5)), ("minReadySeconds", json!(1))]));
    check_releases(
        what,
        &set(&[]),
        &set(&[("serviceName", json!("t"))]),
        &expect![[r#"
            1.31:
            spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden
            1.33:
            spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden
            1.37:
            spec.serviceName: Invalid value: "t": field is immutable
        "#]],
    );
    check_releases(
        what,
        &set(&[]),
        &set(&[("revisionHistoryLimit", json!(3))]),
        &expect![[r#"
            1.31:
            spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden
            1.33:
        "#]],
    );
}

fn job(fields: &[(&str, Value)]) -> Value {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "b"}], "restartPolicy": "Never"}});
    let mut job = json!({"spec": {"template": template}});
    for (name, value) in fields {
        *job.pointer_mut("/spec").unwrap().as_object_mut().unwrap().entry(*name).or_insert(Value::Null) = value.clone();
    }
    job
}

#[test]
fn job_template_and_completions_are_immutable() {
    let what = "batch/v1 Job";
    let wider = [("completions", json!(1)), ("parallelism", json!(2)), ("suspend", json!(true))];
    check_allowed(what, &job(&[]), &job(&wider));
    let mut other = job(&[]);
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("c");
    let refused = update_errors(R36, "", what, [&job(&[]), &other]);
    assert!(refused.starts_with("spec.template: Invalid value: {"), "{refused}");
    assert!(refused.ends_with("}: field is immutable\n"), "{refused}");
    check(
        what,
        &job(&[("completions", json!(2)), ("backoffLimitPerIndex", json!(1))]),
        &job(&[("completions", json!(3)), ("completionMode", json!("Indexed"))]),
        &expect![[r#"
            spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism
            spec.completionMode: Invalid value: "Indexed": field is immutable
            spec.backoffLimitPerIndex: Invalid value: null: field is immutable
        "#]],
    );
    check(
        what,
        &job(&[("completions", json!(2))]),
        &job(&[("completions", json!(3))]),
        &expect![[r#"
            spec.completions: Invalid value: 3: field is immutable
        "#]],
    );
    let indexed = |count: u32| {
        job(&[("completionMode", json!("Indexed")), ("completions", json!(count)), ("parallelism", json!(count))])
    };
    check_allowed(what, &indexed(2), &indexed(3));
}

#[test]
fn suspended_job_allows_scheduling_and_resource_changes() {
    let what = "batch/v1 Job";
    let suspended = job(&[("suspend", json!(true))]);
    let mut moved = suspended.clone();
    moved["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    moved["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {}});
    check_allowed(what, &suspended, &moved);
    let mut started = suspended.clone();
    started["status"] = json!({"startTime": "2024-01-01T00:00:00Z"});
    assert!(update_errors(R36, "", what, [&started, &moved]).ends_with("field is immutable\n"));
    started["status"]["conditions"] =
        json!([{"type": "Suspended", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}]);
    assert!(update_errors(R34, "", what, [&started, &moved]).ends_with("field is immutable\n"));
    assert_eq!(update_errors(R36, "", what, [&started, &moved]), "");
    let mut resized = suspended.clone();
    resized["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "2"}});
    assert_eq!(update_errors(R36, "", what, [&suspended, &resized]), "");
    let refused = update_errors(R36, "MutablePodResourcesForSuspendedJobs=false", what, [&suspended, &resized]);
    assert!(refused.starts_with("spec.template: Invalid value: "), "{refused}");
    resized["spec"]["template"]["spec"]["containers"][0]["image"] = json!("c");
    let refused = update_errors(R36, "", what, [&suspended, &resized]);
    assert!(refused.starts_with("spec.template.spec: Invalid value: "), "{refused}");
}

#[test]
fn service_cluster_ips_are_immutable() {
    let what = "v1 Service";
    let service = |addresses: Value, fields: &[(&str, Value)]| {
        let mut spec = json!({"ports": [{"port": 80}], "clusterIPs": addresses});
        for (name, value) in fields {
            spec[name] = value.clone();
        }
        json!({"spec": spec})
    };
    check_allowed(what, &service(json!([]), &[]), &service(json!(["10.0.0.1"]), &[]));
    check_allowed(what, &service(json!(["10.0.0.1"]), &[]), &service(json!([]), &[("type", json!("ExternalName"))]));
    check(
        what,
        &service(json!(["10.0.0.1"]), &[]),
        &service(json!(["10.0.0.2"]), &[]),
        &expect![[r#"
            spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set
        "#]],
    );
    check(
        what,
        &service(json!(["10.0.0.1"]), &[]),
        &service(json!([]), &[]),
        &expect![[r#"
            spec.clusterIPs[0]: Invalid value: []: primary clusterIP can not be unset
        "#]],
    );
    check(
        what,
        &service(json!(["10.0.0.1", "fd00::1"]), &[("ipFamilies", json!(["IPv4", "IPv6"]))]),
        &service(json!(["10.0.0.1"]), &[("ipFamilies", json!(["IPv6"]))]),
        &expect![[r#"
            spec.ipFamilyPolicy: Invalid value: null: must be set to 'SingleStack' when releasing the secondary clusterIP
            spec.ipFamilies[0]: Invalid value: ["IPv6"]: may not change once set
            spec.ipFamilyPolicy: Invalid value: null: must be set to 'SingleStack' when releasing the secondary ipFamily
        "#]],
    );
    check(
        what,
        &service(json!(["10.0.0.1"]), &[("clusterIP", json!("10.0.0.1"))]),
        &service(json!(["10.0.0.1"]), &[("clusterIP", json!("10.0.0.2"))]),
        &expect![[r#"
            spec.clusterIPs: Invalid value: ["10.0.0.1"]: first value must match `clusterIP`
        "#]],
    );
    let balancer = |class: &str, port: u32| {
        let kind = [
            ("type", json!("LoadBalancer")),
            ("loadBalancerClass", json!(class)),
            ("externalTrafficPolicy", json!("Local")),
            ("healthCheckNodePort", json!(port)),
        ];
        service(json!(["10.0.0.1"]), &kind)
    };
    check(
        what,
        &balancer("a", 1),
        &balancer("b", 2),
        &expect![[r#"
            spec.loadBalancerClass: Invalid value: "b": may not change once set
            spec.healthCheckNodePort: Forbidden: field is immutable
        "#]],
    );
}

#[test]
fn role_binding_role_ref_is_immutable() {
    let binding =
        |name: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}});
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        check_releases(
            &format!("rbac.authorization.k8s.io/v1 {kind}"),
            &binding("view"),
            &binding("edit"),
            &expect![[r#"
                1.31:
                roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"edit"}: cannot change roleRef
                1.37:
                roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"edit"}: field is immutable
            "#]],
        );
    }
}

#[test]
fn node_pod_cidrs_and_provider_id_are_immutable() {
    let node = |provider: &str, ranges: Value| json!({"spec": {"providerID": provider, "podCIDRs": ranges}});
    check_allowed("v1 Node", &node("", json!([])), &node("a", json!(["10.0.0.0/24"])));
    check_releases(
        "v1 Node",
        &node("a", json!(["10.0.0.0/24"])),
        &node("b", json!(["10.0.1.0/24"])),
        &expect![[r#"
            1.31:
            spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid
            spec.providerID: Forbidden: node updates may not change providerID except from "" to valid
            1.37:
            spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid
            spec.providerID: Invalid value: null: field cannot be modified once set
        "#]],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "most of it is expected output")]
fn other_immutable_fields_reject_changes() {
    let rows = [
        ("v1 Secret", json!({"type": "a"}), json!({"type": "b"})),
        ("v1 ResourceQuota", json!({"spec": {"scopes": ["NotBestEffort"]}}), json!({"spec": {}})),
        (
            "apps/v1 ControllerRevision",
            json!({"revision": 1, "data": {"a": 1}}),
            json!({"revision": 2, "data": {"a": 2}}),
        ),
        ("scheduling.k8s.io/v1 PriorityClass", json!({"value": 1}), json!({"value": 2, "preemptionPolicy": "Never"})),
        ("node.k8s.io/v1 RuntimeClass", json!({"handler": "a"}), json!({"handler": "b"})),
        (
            "networking.k8s.io/v1 IngressClass",
            json!({"spec": {"controller": "a", "parameters": {"kind": "a", "name": "b"}}}),
            json!({"spec": {"controller": "b"}}),
        ),
        (
            "discovery.k8s.io/v1 EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": []}),
            json!({"addressType": "IPv6", "endpoints": [{"addresses": ["a"]}]}),
        ),
        ("events.k8s.io/v1 Event", json!({"eventTime": null, "note": "a"}), json!({"eventTime": null, "note": "b"})),
        ("resource.k8s.io/v1 ResourceSlice", slice("a", "p"), slice("b", "q")),
        ("networking.k8s.io/v1 ServiceCIDR", ranges(&["10.0.0.0/8"]), ranges(&["11.0.0.0/8"])),
        ("networking.k8s.io/v1 ServiceCIDR", ranges(&["10.0.0.0/8"]), ranges(&[])),
        ("apiextensions.k8s.io/v1 CustomResourceDefinition", definition("A", "True"), definition("B", "True")),
        ("apiextensions.k8s.io/v1 CustomResourceDefinition", definition("A", "False"), definition("B", "False")),
    ];
    let lines: Vec<_> =
        rows.iter().map(|(what, old, new)| format!("{what}\n{}", update_errors(R36, "", what, [old, new]))).collect();
    expect![[r#"
        v1 Secret
        type: Invalid value: "b": field is immutable
        v1 ResourceQuota
        spec.scopes: Invalid value: null: field is immutable
        apps/v1 ControllerRevision
        data: Invalid value: {"a":2}: field is immutable
        scheduling.k8s.io/v1 PriorityClass
        value: Forbidden: may not be changed in an update.
        preemptionPolicy: Invalid value: "Never": field is immutable
        node.k8s.io/v1 RuntimeClass
        handler: Invalid value: "b": field is immutable
        networking.k8s.io/v1 IngressClass
        spec.controller: Invalid value: "b": field is immutable
        discovery.k8s.io/v1 EndpointSlice
        addressType: Invalid value: "IPv6": field is immutable
        events.k8s.io/v1 Event
        message: Invalid value: "b": field is immutable
        resource.k8s.io/v1 ResourceSlice
        spec.pool.name: Invalid value: "q": field is immutable
        spec.driver: Invalid value: "b": field is immutable
        networking.k8s.io/v1 ServiceCIDR
        spec.cidrs[0]: Invalid value: "11.0.0.0/8": field is immutable
        networking.k8s.io/v1 ServiceCIDR
        spec.cidrs: Invalid value: []: field is immutable
        apiextensions.k8s.io/v1 CustomResourceDefinition
        spec.names.kind: Invalid value: "B": field is immutable
        apiextensions.k8s.io/v1 CustomResourceDefinition
    "#]]
    .assert_eq(&lines.concat());
    check_releases(
        "networking.k8s.io/v1beta1 ServiceCIDR",
        &ranges(&["10.0.0.0/8"]),
        &ranges(&["10.0.0.0/8", "fd00::/64"]),
        &expect![[r#"
            1.31:
            spec.cidrs: Invalid value: ["10.0.0.0/8","fd00::/64"]: field is immutable
            1.33:
            1.37:
            unknown
        "#]],
    );
    let order = |scopes: Value| json!({"spec": {"scopes": scopes}});
    check_allowed("v1 ResourceQuota", &order(json!(["A", "B"])), &order(json!(["B", "A"])));
}

fn slice(driver: &str, pool: &str) -> Value {
    let pool = json!({"name": pool, "generation": 1, "resourceSliceCount": 1});
    json!({"spec": {"driver": driver, "pool": pool, "nodeName": "n"}})
}

fn ranges(ranges: &[&str]) -> Value {
    json!({"spec": {"cidrs": ranges}})
}

fn definition(kind: &str, established: &str) -> Value {
    let names = json!({"kind": kind, "listKind": "AList", "plural": "as", "singular": "a"});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let condition = json!({"type": "Established", "status": established});
    let spec = json!({"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]});
    json!({"spec": spec, "status": {"conditions": [condition], "storedVersions": ["v1"]}})
}
