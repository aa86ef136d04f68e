//! `pods/resize`. The errors of 1.36 were recorded from a kube-apiserver 1.36.4.

use super::*;

/// Two containers, an init container and a sidecar.
fn resizable_pod() -> Value {
    let of = |name: &str, resources: Value| json!({"name": name, "image": "i", "resources": resources});
    let both = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}});
    let cpu = json!({"requests": {"cpu": "50m"}});
    let mut sidecar = of("s", cpu.clone());
    sidecar["restartPolicy"] = json!("Always");
    json!({
        "spec": {"containers": [of("a", both), of("b", cpu.clone())], "initContainers": [of("i", cpu), sidecar]},
        "status": {"qosClass": "Burstable"},
    })
}

fn resize_errors(release: Release, flags: &str, change: impl Fn(&mut Value)) -> String {
    resize_errors_from(release, flags, &resizable_pod(), change)
}

fn resize_errors_from(release: Release, flags: &str, old: &Value, change: impl Fn(&mut Value)) -> String {
    let mut new = old.clone();
    change(&mut new);
    subresource_update_errors("resize", release, flags, "v1 Pod", [old, &new])
}

/// Errors in 1.36; asserts that every release since 1.33 has the same.
#[track_caller]
fn check_resize(change: impl Fn(&mut Value), expected: &str) {
    assert_eq!(resize_errors(R36, "", &change), expected);
    for release in Release::ALL.into_iter().filter(|release| *release >= R33) {
        assert_eq!(resize_errors(release, "", &change), expected, "{release}");
    }
}

#[test]
fn resize_changes_cpu_and_memory_of_containers_and_sidecars() {
    check_resize(|pod| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("150m"), "");
    check_resize(|pod| pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("1Gi"), "");
    check_resize(|pod| pod["spec"]["containers"][1]["resources"]["limits"] = json!({"cpu": "1"}), "");
    check_resize(|pod| pod["spec"]["initContainers"][1]["resources"]["requests"]["cpu"] = json!("60m"), "");
}

#[test]
fn resize_refuses_renamed_reordered_added_and_removed_containers() {
    check_resize(
        |pod| pod["spec"]["containers"][0]["name"] = json!("z"),
        "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize\n",
    );
    check_resize(
        |pod| pod["spec"]["initContainers"].as_array_mut().unwrap().reverse(),
        "spec.initContainers[0].name: Forbidden: initContainers may not be renamed or reordered on resize\n\
         spec.initContainers[1].name: Forbidden: initContainers may not be renamed or reordered on resize\n",
    );
    check_resize(
        |pod| pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "c", "image": "i"})),
        "spec.containers: Forbidden: containers may not be added or removed on resize\n",
    );
    check_resize(
        |pod| drop(pod["spec"].as_object_mut().unwrap().remove("initContainers")),
        "spec.initContainers: Forbidden: initContainers may not be added or removed on resize\n",
    );
}

#[test]
fn resize_refuses_other_resources_policies_and_fields() {
    let only = "spec: Forbidden: only cpu and memory resources are mutable\n";
    check_resize(|pod| pod["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"] = json!("1Gi"), only);
    let policy = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    check_resize(|pod| pod["spec"]["containers"][0]["resizePolicy"] = policy.clone(), only);
    check_resize(|pod| pod["spec"]["nodeName"] = json!("n"), only);
    check_resize(|pod| pod["spec"]["containers"][0]["image"] = json!("j"), only);
    check_resize(
        |pod| drop(pod["spec"]["containers"][0].as_object_mut().unwrap().remove("resources")),
        "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed\n\
         spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed\n",
    );
}

#[test]
fn resize_keeps_qos_class() {
    let full = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    let guaranteed = |pod: &mut Value| {
        for list in ["containers", "initContainers"] {
            pod["spec"][list].as_array_mut().unwrap().iter_mut().for_each(|one| one["resources"] = full.clone());
        }
    };
    let refused = resize_errors(R36, "", guaranteed);
    assert_eq!(refused, "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing\n");
}

#[test]
fn resize_depends_on_the_pod_and_its_node() {
    let cpu = |pod: &mut Value| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("150m");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut old = resizable_pod();
        change(&mut old);
        resize_errors_from(R36, "", &old, cpu)
    };
    let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
    assert_eq!(with(&|pod| pod["metadata"] = mirror.clone()), "[]: Forbidden: static pods cannot be resized\n");
    assert_eq!(
        with(&|pod| pod["spec"]["os"] = json!({"name": "windows"})),
        "[]: Forbidden: windows pods cannot be resized\n"
    );
    let running = |resources: Value| {
        let state = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        json!([{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state, "resources": resources}])
    };
    assert_eq!(
        with(&|pod| pod["status"]["containerStatuses"] = running(Value::Null)),
        "spec: Forbidden: Pod running on node without support for resize\n"
    );
    assert_eq!(with(&|pod| pod["status"]["containerStatuses"] = running(json!({}))), "");
}

/// Errors in each release with the subresource that differ from the previous release.
#[track_caller]
fn check_resize_releases(old: &Value, change: impl Fn(&mut Value), expected: &Expect) {
    let mut lines = String::new();
    let mut last = None;
    for release in Release::ALL.into_iter().filter(|release| *release >= R32) {
        let said = resize_errors_from(release, "InPlacePodVerticalScaling=true", old, &change);
        if last.as_ref() != Some(&said) {
            let brief = said.lines().take_while(|line| !line.starts_with("@@")).map(|line| format!("{line}\n"));
            lines.push_str(&format!("{release}:\n{}", brief.collect::<String>()));
            last = Some(said);
        }
    }
    expected.assert_eq(&lines);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn resize_rules_differ_by_release() {
    check_resize_releases(
        &resizable_pod(),
        |pod| pod["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] = json!("60m"),
        &expect![[r#"
            1.32:
            spec: Forbidden: only cpu and memory resources are mutable
            1.33:
            spec: Forbidden: resources for non-sidecar init containers are immutable
            1.36:
        "#]],
    );
    check_resize_releases(
        &resizable_pod(),
        |pod| {
            let policy = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
            pod["spec"]["initContainers"][0]["resizePolicy"] = policy.clone();
            pod["spec"]["initContainers"][1]["resizePolicy"] = policy;
        },
        &expect![[r#"
            1.32:
            spec: Forbidden: only cpu and memory resources are mutable
            1.33:
            spec: Forbidden: resources for non-sidecar init containers are immutable
            spec: Forbidden: only cpu and memory resources for sidecar containers are mutable
            1.36:
            spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable
            spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer cannot be resized
            spec.initContainers[1]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable
        "#]],
    );
    check_resize_releases(
        &resizable_pod(),
        |pod| pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("100Mi"),
        &expect![[r#"
            1.32:
            1.33:
            spec.containers[0].resources.limits[memory]: Forbidden: memory limits cannot be decreased unless resizePolicy is RestartContainer
            1.34:
        "#]],
    );
    check_resize_releases(
        &resizable_pod(),
        |pod| {
            pod["spec"]["containers"][0]["resizePolicy"] =
                json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        },
        &expect![[r#"
            1.32:
            1.33:
            spec: Forbidden: only cpu and memory resources are mutable
        "#]],
    );
    let mut whole = resizable_pod();
    whole["spec"]["resources"] = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}});
    check_resize_releases(
        &whole,
        |pod| pod["spec"]["resources"]["limits"]["cpu"] = json!("3"),
        &expect![[r#"
            1.32:
            []: Forbidden: pods with pod-level resources cannot be resized
            1.35:
            []: Forbidden: resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled
            1.36:
        "#]],
    );
    check_resize_releases(
        &whole,
        |pod| pod["spec"]["resources"]["limits"] = json!({"hugepages-2Mi": "2Mi"}),
        &expect![[r#"
            1.32:
            []: Forbidden: pods with pod-level resources cannot be resized
            1.35:
            []: Forbidden: resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled
            1.36:
            spec.resources.limits: Forbidden: pod-level resource limits cannot be removed
            spec: Forbidden: only cpu and memory resources are mutable at pod-level
        "#]],
    );
    let mut claiming = resizable_pod();
    claiming["spec"]["resourceClaims"] = json!([{"name": "c"}]);
    claiming["spec"]["containers"][1]["resources"]["claims"] = json!([{"name": "c"}]);
    check_resize_releases(
        &claiming,
        |pod| pod["spec"]["containers"][1]["resources"]["requests"]["cpu"] = json!("60m"),
        &expect![[r#"
            1.32:
            spec: Forbidden: only cpu and memory resources are mutable
            1.33:
            spec: Forbidden: only cpu and memory resources are mutable
            1.37:
        "#]],
    );
}

#[test]
fn ephemeral_containers_can_only_be_added() {
    let with = |containers: Value| {
        let mut pod = resizable_pod();
        pod["spec"]["ephemeralContainers"] = containers;
        pod
    };
    let said = |old: Value, new: Value| {
        let said = subresource_update_errors("ephemeralcontainers", R36, "", "v1 Pod", [&with(old), &with(new)]);
        said.lines().take_while(|line| !line.starts_with("@@")).map(|line| format!("{line}\n")).collect::<String>()
    };
    let one = |name: &str, image: &str| json!({"name": name, "image": image});
    assert_eq!(said(json!([one("e", "i")]), json!([one("f", "i"), one("e", "i")])), "");
    let refused = "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be";
    assert_eq!(said(json!([one("e", "i")]), json!([one("e", "j")])), format!("{refused} changed\n"));
    assert_eq!(said(json!([one("e", "i")]), json!([])), format!("{refused} removed\n\n"));
}

#[test]
fn status_update_keeps_qos_class() {
    let mut new = resizable_pod();
    new["status"]["phase"] = json!("Running");
    assert_eq!(subresource_update_errors("status", R36, "", "v1 Pod", [&resizable_pod(), &new]), "");
    new["status"]["qosClass"] = json!("Guaranteed");
    assert_eq!(
        subresource_update_errors("status", R36, "", "v1 Pod", [&resizable_pod(), &new]),
        "status.qosClass: Invalid value: \"Guaranteed\": field is immutable\n"
    );
}
