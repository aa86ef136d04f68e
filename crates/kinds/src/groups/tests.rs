use expect_test::{Expect, expect};

use super::*;
use crate::kind::StabilityLevel;

/// Served versions and storage version of a kind, per release.
#[track_caller]
fn check(group: &str, resource: &str, expected: &Expect) {
    let kind = find_kind(group, resource).unwrap();
    let lines = Release::ALL.map(|release| {
        let Some(stored) = kind.storage_version(release) else { return format!("{release} -\n") };
        let served: Vec<_> = kind.served_versions(release).map(|version| version.name).collect();
        let known: Vec<_> = kind.decodable_versions(release).map(|version| version.name).collect();
        format!("{release} serves {:24} stores {stored:8} reads {}\n", served.join(","), known.join(","))
    });
    expected.assert_eq(&lines.concat());
}

#[test]
fn storage_version_lags_behind_served_versions() {
    check(
        "storage.k8s.io",
        "volumeattributesclasses",
        &expect![[r#"
            1.31 serves v1beta1,v1alpha1         stores v1beta1  reads v1beta1,v1alpha1
            1.32 serves v1beta1,v1alpha1         stores v1beta1  reads v1beta1,v1alpha1
            1.33 serves v1beta1,v1alpha1         stores v1beta1  reads v1beta1,v1alpha1
            1.34 serves v1,v1beta1,v1alpha1      stores v1beta1  reads v1,v1beta1,v1alpha1
            1.35 serves v1,v1beta1               stores v1beta1  reads v1,v1beta1,v1alpha1
            1.36 serves v1,v1beta1               stores v1       reads v1,v1beta1,v1alpha1
            1.37 serves v1                       stores v1       reads v1,v1beta1,v1alpha1
        "#]],
    );
    check(
        "resource.k8s.io",
        "resourceclaims",
        &expect![[r#"
            1.31 serves v1alpha3                 stores v1alpha3 reads v1alpha3
            1.32 serves v1beta1,v1alpha3         stores v1beta1  reads v1beta1,v1alpha3
            1.33 serves v1beta2,v1beta1,v1alpha3 stores v1beta1  reads v1beta2,v1beta1,v1alpha3
            1.34 serves v1,v1beta2,v1beta1       stores v1beta2  reads v1,v1beta2,v1beta1
            1.35 serves v1,v1beta2,v1beta1       stores v1       reads v1,v1beta2,v1beta1
            1.36 serves v1,v1beta2,v1beta1       stores v1       reads v1,v1beta2,v1beta1
            1.37 serves v1,v1beta2,v1beta1       stores v1       reads v1,v1beta2,v1beta1
        "#]],
    );
    check(
        "scheduling.k8s.io",
        "workloads",
        &expect![[r#"
            1.31 -
            1.32 -
            1.33 -
            1.34 -
            1.35 serves v1alpha1                 stores v1alpha1 reads v1alpha1
            1.36 serves v1alpha2                 stores v1alpha2 reads v1alpha2
            1.37 serves v1beta1,v1alpha3         stores v1beta1  reads v1beta1,v1alpha3
        "#]],
    );
    check(
        "autoscaling",
        "horizontalpodautoscalers",
        &expect![[r#"
            1.31 serves v2,v1                    stores v2       reads v2,v1,v2beta1,v2beta2
            1.32 serves v2,v1                    stores v2       reads v2,v1,v2beta1,v2beta2
            1.33 serves v2,v1                    stores v2       reads v2,v1,v2beta1,v2beta2
            1.34 serves v2,v1                    stores v2       reads v2,v1,v2beta1,v2beta2
            1.35 serves v2,v1                    stores v2       reads v2,v1,v2beta1,v2beta2
            1.36 serves v2,v1                    stores v2       reads v2,v1
            1.37 serves v2,v1                    stores v2       reads v2,v1
        "#]],
    );
}

#[test]
fn crds_are_stored_in_unserved_v1beta1() {
    let definitions = find_kind("apiextensions.k8s.io", "customresourcedefinitions").unwrap();
    for release in Release::ALL {
        assert_eq!(definitions.storage_version(release), Some("v1beta1"));
        assert!(!definitions.version("v1beta1").unwrap().is_served(release));
    }
}

#[test]
fn groups_and_kinds_are_sorted_and_unique() {
    assert!(GROUPS.is_sorted_by(|a, b| a.name < b.name));
    for group in GROUPS {
        assert!(group.kinds.is_sorted_by(|a, b| a.plural < b.plural), "{}", group.name);
        for kind in group.kinds {
            assert!(kind.subresources.is_sorted_by(|a, b| a.name < b.name), "{}", kind.name);
        }
    }
}

#[test]
fn storage_version_is_decodable_in_every_release() {
    for kind in GROUPS.iter().flat_map(|group| group.kinds) {
        for release in Release::ALL {
            let Some(stored) = kind.storage_version(release) else { continue };
            let readable = kind.decodable_versions(release).any(|version| version.name == stored);
            assert!(readable, "{} is stored as {stored} in {release}", kind.name);
            let served = kind.served_versions(release);
            for version in served {
                assert!(kind.decodable_versions(release).any(|known| known.name == version.name), "{}", kind.name);
            }
        }
    }
}

/// During an upgrade, servers of adjacent releases share the storage, so the older must decode what the newer writes.
#[test]
fn previous_release_decodes_storage_version() {
    let mut unreadable = Vec::new();
    for kind in GROUPS.iter().flat_map(|group| group.kinds) {
        for (older, newer) in Release::ALL.into_iter().zip(&Release::ALL[1..]) {
            let (Some(stored), Some(_)) = (kind.storage_version(*newer), kind.storage_version(older)) else { continue };
            if !kind.decodable_versions(older).any(|version| version.name == stored) {
                unreadable.push(format!("{} {newer} {stored}\n", kind.plural));
            }
        }
    }
    // These versions were disabled by default; a downgrade loses their objects only if an operator had enabled them.
    expect![[r#"
        clustertrustbundles 1.33 v1beta1
        podcertificaterequests 1.35 v1beta1
        leasecandidates 1.32 v1alpha2
        leasecandidates 1.33 v1beta1
        deviceclasses 1.32 v1beta1
        resourceclaims 1.32 v1beta1
        resourceclaimtemplates 1.32 v1beta1
        resourceslices 1.32 v1beta1
        podgroups 1.37 v1beta1
        workloads 1.36 v1alpha2
        workloads 1.37 v1beta1
        storageversionmigrations 1.35 v1beta1
    "#]]
    .assert_eq(&unreadable.concat());
}

#[test]
fn version_priorities_match_declared_order() {
    for group in GROUPS {
        for kind in group.kinds {
            let priorities = kind.versions.iter().filter(|version| version.is_ever_served());
            let priorities = priorities.map(|version| group.version_priority(version.name));
            assert!(priorities.rev().is_sorted(), "{} {}", group.name, kind.name);
        }
    }
}

#[test]
fn key_prefix_is_plural_except_listed() {
    let kinds = GROUPS.iter().flat_map(|group| group.kinds);
    let exceptions = kinds.filter(|kind| kind.key_prefix() != kind.plural);
    let exceptions: Vec<_> = exceptions.map(|kind| format!("{} {}\n", kind.plural, kind.key_prefix())).collect();
    expect![[r#"
        endpoints services/endpoints
        nodes minions
        replicationcontrollers controllers
        services services/specs
        customresourcedefinitions apiextensions.k8s.io/customresourcedefinitions
        apiservices apiregistration.k8s.io/apiservices
        ingresses ingress
    "#]]
    .assert_eq(&exceptions.concat());
}

#[test]
fn not_implemented_resources_are_listed() {
    let mut unbuilt = Vec::new();
    for kind in GROUPS.iter().flat_map(|group| group.kinds) {
        unbuilt.extend((!kind.is_implemented).then(|| kind.plural.to_owned()));
        let subresources = kind.subresources.iter().filter(|subresource| !subresource.is_implemented);
        unbuilt.extend(subresources.map(|subresource| format!("{}/{}", kind.plural, subresource.name)));
    }
    expect!["bindings componentstatuses nodes/proxy pods/attach pods/exec pods/log pods/portforward pods/proxy services/proxy"].assert_eq(&unbuilt.join(" "));
}

#[test]
fn may_be_built_in_covers_every_release() {
    assert!(may_be_built_in("", "v1", "pods"));
    assert!(may_be_built_in("flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas"));
    assert!(may_be_built_in("lifecycle.k8s.io", "v1alpha1", "evictions"));
    // Decoded from storage, never served.
    assert!(!may_be_built_in("apps", "v1beta1", "deployments"));
    assert!(!may_be_built_in("apps", "v1", "pods"));
    assert!(!may_be_built_in("example.com", "v1", "widgets"));
}

#[test]
fn has_built_in_group_name_accepts_k8s_io_groups() {
    for group in ["", "apps", "tomorrow", "storage.k8s.io", "sub.group.k8s.io"] {
        assert!(has_built_in_group_name(group), "{group}");
    }
    for group in ["example.com", "k8s.io.example", "notk8s.io", "x-k8s.io", "gateway.networking.x-k8s.io"] {
        assert!(!has_built_in_group_name(group), "{group}");
    }
}

#[test]
fn stability_level_follows_version_name() {
    for (version, stability) in [
        ("v1", StabilityLevel::Stable),
        ("v2", StabilityLevel::Stable),
        ("v1beta3", StabilityLevel::Beta),
        ("v1alpha2", StabilityLevel::Alpha),
    ] {
        assert_eq!(StabilityLevel::of_version(version), stability);
    }
}
