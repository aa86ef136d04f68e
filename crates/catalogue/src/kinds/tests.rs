use expect_test::{Expect, expect};

use super::*;
use crate::kind::Stability;

/// A kind as a newcomer would ask for it: per release the versions served, and the one stored.
#[track_caller]
fn check(group: &str, resource: &str, expected: &Expect) {
    let kind = kind(group, resource).unwrap();
    let lines = Release::ALL.map(|release| {
        let Some(stored) = kind.version_stored(release) else { return format!("{release} -\n") };
        let served: Vec<_> = kind.versions_served(release).map(|version| version.name).collect();
        let known: Vec<_> = kind.versions_decodable(release).map(|version| version.name).collect();
        format!("{release} serves {:24} stores {stored:8} reads {}\n", served.join(","), known.join(","))
    });
    expected.assert_eq(&lines.concat());
}

#[test]
fn versions_come_and_go_and_storage_follows_later() {
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
fn definitions_are_stored_in_a_version_that_is_no_longer_served() {
    let definitions = kind("apiextensions.k8s.io", "customresourcedefinitions").unwrap();
    for release in Release::ALL {
        assert_eq!(definitions.version_stored(release), Some("v1beta1"));
        assert!(!definitions.version("v1beta1").unwrap().is_served(release));
    }
}

#[test]
fn groups_and_kinds_are_in_order_and_named_once() {
    assert!(GROUPS.is_sorted_by(|a, b| a.name < b.name));
    for group in GROUPS {
        assert!(group.kinds.is_sorted_by(|a, b| a.plural < b.plural), "{}", group.name);
        for kind in group.kinds {
            assert!(kind.subresources.is_sorted_by(|a, b| a.name < b.name), "{}", kind.name);
        }
    }
}

#[test]
fn what_is_stored_can_be_read_back() {
    for kind in GROUPS.iter().flat_map(|group| group.kinds) {
        for release in Release::ALL {
            let Some(stored) = kind.version_stored(release) else { continue };
            let readable = kind.versions_decodable(release).any(|version| version.name == stored);
            assert!(readable, "{} is stored as {stored} in {release}", kind.name);
            let served = kind.versions_served(release);
            for version in served {
                assert!(kind.versions_decodable(release).any(|known| known.name == version.name), "{}", kind.name);
            }
        }
    }
}

/// Servers of neighbouring releases run side by side during an upgrade, and the older must read what the newer writes.
#[test]
fn the_previous_release_reads_what_a_release_stores() {
    let mut unreadable = Vec::new();
    for kind in GROUPS.iter().flat_map(|group| group.kinds) {
        for (older, newer) in Release::ALL.into_iter().zip(&Release::ALL[1..]) {
            let (Some(stored), Some(_)) = (kind.version_stored(*newer), kind.version_stored(older)) else { continue };
            if !kind.versions_decodable(older).any(|version| version.name == stored) {
                unreadable.push(format!("{} {newer} {stored}\n", kind.plural));
            }
        }
    }
    // All of them were off by default when it happened: an operator who had turned them on loses them on the way back.
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
fn priorities_put_the_versions_of_a_group_in_the_order_of_the_rows() {
    for group in GROUPS {
        for kind in group.kinds {
            let priorities = kind.versions.iter().filter(|version| version.is_ever_served());
            let priorities = priorities.map(|version| group.version_priority(version.name));
            assert!(priorities.rev().is_sorted(), "{} {}", group.name, kind.name);
        }
    }
}

#[test]
fn keys_follow_the_plural_but_for_the_exceptions() {
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
fn what_is_listed_and_not_built() {
    let mut unbuilt = Vec::new();
    for kind in GROUPS.iter().flat_map(|group| group.kinds) {
        unbuilt.extend((!kind.built).then(|| kind.plural.to_owned()));
        let subresources = kind.subresources.iter().filter(|subresource| !subresource.built);
        unbuilt.extend(subresources.map(|subresource| format!("{}/{}", kind.plural, subresource.name)));
    }
    expect!["bindings componentstatuses nodes/proxy pods/attach pods/exec pods/log pods/portforward pods/proxy services/proxy"].assert_eq(&unbuilt.join(" "));
}

#[test]
fn whatever_some_release_serves_may_be_built_in() {
    assert!(may_be_built_in("", "v1", "pods"));
    assert!(may_be_built_in("flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas"));
    assert!(may_be_built_in("lifecycle.k8s.io", "v1alpha1", "evictions"));
    // Read from storage, never served.
    assert!(!may_be_built_in("apps", "v1beta1", "deployments"));
    assert!(!may_be_built_in("apps", "v1", "pods"));
    assert!(!may_be_built_in("example.com", "v1", "widgets"));
}

#[test]
fn names_tell_what_a_newer_release_might_serve() {
    for group in ["", "apps", "tomorrow", "storage.k8s.io", "sub.group.k8s.io"] {
        assert!(looks_built_in(group), "{group}");
    }
    for group in ["example.com", "k8s.io.example", "notk8s.io", "x-k8s.io", "gateway.networking.x-k8s.io"] {
        assert!(!looks_built_in(group), "{group}");
    }
}

#[test]
fn the_form_of_a_version_says_how_far_it_has_come() {
    for (version, stability) in [
        ("v1", Stability::Stable),
        ("v2", Stability::Stable),
        ("v1beta3", Stability::Beta),
        ("v1alpha2", Stability::Alpha),
    ] {
        assert_eq!(Stability::of(version), stability);
    }
}
