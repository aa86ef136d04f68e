use serde_json::json;

use super::*;

#[track_caller]
fn check_readability(release: Release, flags: &str, group: &str, resource: &str, stored: &str, expected: Readability) {
    let mut server_flags = ServerFlags::default();
    server_flags.push("runtime-config", flags.to_owned());
    let (target, refusals) = TargetServer::new(release, &server_flags);
    assert_eq!(refusals, []);
    assert_eq!(target.readability(group, resource, stored), expected, "{release} {resource} {stored}");
}

#[test]
fn readability_follows_release_and_flags() {
    use Readability::*;
    use Release::*;
    let beta = "storage.k8s.io/v1beta1=true";
    check_readability(R36, "", "", "pods", "v1", Readable);
    check_readability(R36, "", "storage.k8s.io", "volumeattributesclasses", "storage.k8s.io/v1", Readable);
    check_readability(R34, "", "storage.k8s.io", "volumeattributesclasses", "storage.k8s.io/v1", Readable);
    check_readability(R33, "", "storage.k8s.io", "volumeattributesclasses", "storage.k8s.io/v1", NotServed);
    check_readability(R33, beta, "storage.k8s.io", "volumeattributesclasses", "storage.k8s.io/v1", Unreadable);
    check_readability(R33, beta, "storage.k8s.io", "volumeattributesclasses", "storage.k8s.io/v1beta1", Readable);
    check_readability(R36, "", "autoscaling", "horizontalpodautoscalers", "autoscaling/v2beta2", Unreadable);
    check_readability(R35, "", "autoscaling", "horizontalpodautoscalers", "autoscaling/v2beta2", Readable);
    check_readability(R34, "", "resource.k8s.io", "resourceclaims", "resource.k8s.io/v1alpha3", Unreadable);
    check_readability(R32, "", "resource.k8s.io", "podschedulingcontexts", "resource.k8s.io/v1alpha3", NotServed);
    check_readability(R36, "", "", "events", "events.k8s.io/v1", Readable);
}

#[test]
fn emulation_does_not_change_what_the_program_decodes() {
    let mut flags = ServerFlags::default();
    flags.push("emulated-version", "1.35".to_owned());
    flags.push("feature-gates", "GenericWorkload=true".to_owned());
    flags.push("runtime-config", "api/all=true".to_owned());
    let (target, refusals) = TargetServer::new(Release::R36, &flags);
    assert_eq!(refusals, []);
    let readability =
        |version: &str| target.readability("scheduling.k8s.io", "workloads", &format!("scheduling.k8s.io/{version}"));
    assert_eq!(readability("v1alpha1"), Readability::Unreadable, "1.36 has no code for it");
    assert_eq!(readability("v1alpha2"), Readability::Readable);
}

#[track_caller]
fn check_dropped(release: Release, kind: (&str, &str, &str), object: &Value, expected: &[&str]) {
    let kind = GroupVersionKind { group: kind.0, version: kind.1, kind: kind.2 };
    let dropped = drop_fields(release, &mut object.as_object().unwrap().clone(), kind).unwrap_or_default();
    assert_eq!(dropped.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{release}");
}

#[test]
fn fields_of_newer_releases_are_dropped_by_older_ones() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"hostnameOverride": "h", "containers": [{"name": "c", "image": "i", "restartPolicyRules": []}],
                 "resources": {"limits": {"cpu": "1"}}, "noSuchField": 1, "nodeName": null},
        "status": {"observedGeneration": 1}});
    let kind = ("", "v1", "Pod");
    check_dropped(Release::R37, kind, &pod, &[]);
    check_dropped(Release::R34, kind, &pod, &[]);
    check_dropped(Release::R33, kind, &pod, &["spec.containers[].restartPolicyRules", "spec.hostnameOverride"]);
    check_dropped(
        Release::R31,
        kind,
        &pod,
        &[
            "spec.containers[].restartPolicyRules",
            "spec.hostnameOverride",
            "spec.resources",
            "status.observedGeneration",
        ],
    );
    check_dropped(Release::R33, ("example.com", "v1", "Widget"), &pod, &[]);
}

#[test]
fn releases_are_named_by_what_they_read_and_store() {
    assert_eq!(releases_that_read("storage.k8s.io", "volumeattributesclasses", "storage.k8s.io/v1")[0], Release::R34);
    assert_eq!(releases_that_store("resource.k8s.io", "podschedulingcontexts"), [Release::R31]);
    assert!(releases_that_store("example.com", "widgets").is_empty());
}
