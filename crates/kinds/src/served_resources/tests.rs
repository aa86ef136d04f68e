use expect_test::{Expect, expect};
use object::rules::NameRule;

use super::*;
use crate::release::Release::*;

fn served_resources_of(release: Release, gates: &str, config: &str) -> ServedResources {
    let gates = FeatureGates::parse(release, gates).unwrap();
    ServedResources::new(&gates, &RuntimeConfig::parse(release, config).unwrap())
}

fn everything(release: Release) -> ServedResources {
    served_resources_of(release, "AllAlpha=true,AllBeta=true", "api/all=true")
}

#[test]
fn get_finds_resource_by_group_version_and_name() {
    let served_resources = everything(R36);
    let name = String::from("deployments");
    let deployments = served_resources.get("apps", "v1", &name).unwrap();
    assert_eq!(deployments.group_version_resource().to_string(), "apps/v1, Resource=deployments");
    assert_eq!(deployments.group_version_kind().to_string(), "apps/v1, Kind=Deployment");
    assert!(deployments.subresource("scale").is_some());
    assert!(deployments.subresource("exec").is_none());
    assert!(served_resources.get("apps", "v1beta1", &name).is_none());
    assert!(served_resources.get("", "v1", &name).is_none());
    for served in served_resources.resources() {
        let GroupVersionResource { group, version, resource } = served.group_version_resource();
        assert_eq!(
            served_resources.get(group, version, resource).map(ServedResource::group_version_resource),
            Some(served.group_version_resource())
        );
    }
}

#[test]
fn disabled_gates_remove_resources_and_subresources() {
    let has_resize = |release, gates| {
        let served_resources = served_resources_of(release, gates, "");
        served_resources.get("", "v1", "pods").unwrap().subresource("resize").is_some()
    };
    assert!(!has_resize(R31, "InPlacePodVerticalScaling=true"));
    assert!(!has_resize(R32, ""));
    assert!(has_resize(R32, "InPlacePodVerticalScaling=true"));
    assert!(has_resize(R33, ""));
    assert!(!has_resize(R34, "InPlacePodVerticalScaling=false"));

    let has_bundles = |gates, config| {
        served_resources_of(R36, gates, config).get("certificates.k8s.io", "v1beta1", "clustertrustbundles").is_some()
    };
    assert!(!has_bundles("ClusterTrustBundle=true", ""));
    assert!(!has_bundles("", "certificates.k8s.io/v1beta1=true"));
    assert!(has_bundles("ClusterTrustBundle=true", "certificates.k8s.io/v1beta1=true"));
}

#[test]
fn storage_version_api_follows_its_gate() {
    let has = |release, gates, config| {
        served_resources_of(release, gates, config)
            .get("internal.apiserver.k8s.io", "v1alpha1", "storageversions")
            .is_some()
    };
    for release in Release::ALL {
        assert!(has(release, "", ""), "{release}");
        assert!(!has(release, "StorageVersionAPI=false", ""), "{release}");
        assert!(!has(release, "", "internal.apiserver.k8s.io/v1alpha1=false"), "{release}");
        assert!(has(release, "StorageVersionAPI=false", "internal.apiserver.k8s.io/v1alpha1=true"), "{release}");
    }
}

/// Storage of a resource: versions as published in StorageVersion objects, and the key prefix.
#[track_caller]
fn check_stored(served_resources: &ServedResources, group: &str, version: &str, resource: &str, expected: &Expect) {
    let persisted = served_resources.get(group, version, resource).unwrap().stored_resource.as_ref();
    let text = persisted.map_or("not kept".to_owned(), |persisted| {
        let decodable: Vec<_> = persisted.decodable_versions.iter().map(ToString::to_string).collect();
        let hash = persisted.storage_version_hash.as_deref().unwrap_or("no hash");
        format!(
            "{} | reads {} | serves {} | {}/ | {hash}",
            persisted.encoding,
            decodable.join(" "),
            persisted.served_versions.join(" "),
            persisted.key_prefix
        )
    });
    expected.assert_eq(&text);
}

#[test]
fn versions_and_groups_share_stored_resource() {
    let served_resources = everything(R34);
    check_stored(
        &served_resources,
        "",
        "v1",
        "pods",
        &expect!["/v1, Kind=Pod | reads v1 | serves v1 | pods/ | xPOwRZ+Yhw8="],
    );
    check_stored(
        &served_resources,
        "",
        "v1",
        "services",
        &expect!["/v1, Kind=Service | reads v1 | serves v1 | services/specs/ | 0/CO1lhkEBI="],
    );
    check_stored(
        &served_resources,
        "apps",
        "v1",
        "deployments",
        &expect![
            "apps/v1, Kind=Deployment | reads apps/v1 apps/v1beta2 apps/v1beta1 | serves v1 | deployments/ | 8aSe+NMegvE="
        ],
    );
    check_stored(
        &served_resources,
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        &expect![
            "autoscaling/v2, Kind=HorizontalPodAutoscaler | reads autoscaling/v2 autoscaling/v1 autoscaling/v2beta1 autoscaling/v2beta2 | serves v2 v1 | horizontalpodautoscalers/ | qwQve8ut294="
        ],
    );
    check_stored(
        &served_resources,
        "networking.k8s.io",
        "v1beta1",
        "ipaddresses",
        &expect![
            "networking.k8s.io/v1, Kind=IPAddress | reads networking.k8s.io/v1 networking.k8s.io/v1beta1 | serves v1 v1beta1 | ipaddresses/ | 3f/plJFChNE="
        ],
    );
    check_stored(
        &served_resources,
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        &expect![
            "apiextensions.k8s.io/v1beta1, Kind=CustomResourceDefinition | reads apiextensions.k8s.io/v1 apiextensions.k8s.io/v1beta1 | serves v1 | apiextensions.k8s.io/customresourcedefinitions/ | jfWCUB31mvA="
        ],
    );
    check_stored(&served_resources, "authorization.k8s.io", "v1", "subjectaccessreviews", &expect!["not kept"]);
    check_stored(
        &served_resources,
        "events.k8s.io",
        "v1",
        "events",
        &expect!["/v1, Kind=Event | reads v1 events.k8s.io/v1 | serves v1 | events/ | r2yiGXH7wu8="],
    );
    let events = ["", "events.k8s.io"]
        .map(|group| served_resources.get(group, "v1", "events").unwrap().stored_resource.clone().unwrap());
    assert!(Arc::ptr_eq(&events[0], &events[1]));
}

#[test]
fn events_are_stored_by_remaining_group() {
    let without_core = served_resources_of(R36, "", "/v1=false");
    check_stored(
        &without_core,
        "events.k8s.io",
        "v1",
        "events",
        &expect![
            "events.k8s.io/v1, Kind=Event | reads events.k8s.io/v1 events.k8s.io/v1beta1 | serves v1 | events/ | x51sC10/5OA="
        ],
    );
    let without_core_events = served_resources_of(R36, "", "/v1/events=false");
    check_stored(
        &without_core_events,
        "events.k8s.io",
        "v1",
        "events",
        &expect!["/v1, Kind=Event | reads v1 events.k8s.io/v1 | serves  | events/ | r2yiGXH7wu8="],
    );
}

#[test]
fn storage_version_hash_requires_gate() {
    check_stored(
        &served_resources_of(R36, "StorageVersionHash=false", ""),
        "",
        "v1",
        "configmaps",
        &expect!["/v1, Kind=ConfigMap | reads v1 | serves v1 | configmaps/ | no hash"],
    );
}

#[test]
fn stored_resources_are_unique() {
    for release in Release::ALL {
        let served_resources = everything(release);
        let names: Vec<_> =
            served_resources.stored_resources().iter().map(|kept| (kept.encoding.group, kept.resource)).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{release}");
        for kept in served_resources.stored_resources() {
            let encoding = GroupVersion { group: kept.encoding.group, version: kept.encoding.version };
            assert!(kept.decodable_versions.contains(&encoding), "{release} {}", kept.resource);
            assert!(!kept.served_versions.is_empty(), "{release} {}", kept.resource);
        }
        let prefixes: std::collections::HashSet<_> =
            served_resources.stored_resources().iter().map(|kept| kept.key_prefix).collect();
        assert_eq!(
            prefixes.len(),
            served_resources.stored_resources().len(),
            "{release}: two resources under one prefix"
        );
    }
}

#[test]
fn discovery_of_apis_orders_groups_by_priority() {
    let order = |release| {
        let groups = everything(release).discovery_of_apis();
        let names = groups.items().iter().map(|group| {
            let versions: Vec<_> = group.versions.iter().map(|version| &*version.name).collect();
            format!("{} {}\n", group.name, versions.join(" "))
        });
        names.collect::<String>()
    };
    expect![[r#"
        apiregistration.k8s.io v1
        apps v1
        events.k8s.io v1
        authentication.k8s.io v1 v1beta1 v1alpha1
        authorization.k8s.io v1
        autoscaling v2 v1
        batch v1
        certificates.k8s.io v1 v1alpha1
        networking.k8s.io v1 v1beta1
        policy v1
        rbac.authorization.k8s.io v1
        storage.k8s.io v1 v1beta1 v1alpha1
        admissionregistration.k8s.io v1 v1beta1 v1alpha1
        apiextensions.k8s.io v1
        scheduling.k8s.io v1
        coordination.k8s.io v1 v1alpha1
        node.k8s.io v1
        discovery.k8s.io v1
        flowcontrol.apiserver.k8s.io v1 v1beta3
        internal.apiserver.k8s.io v1alpha1
        resource.k8s.io v1alpha3
        storagemigration.k8s.io v1alpha1
    "#]]
    .assert_eq(&order(R31));
    expect![[r#"
        apiregistration.k8s.io v1
        apps v1
        events.k8s.io v1
        authentication.k8s.io v1
        authorization.k8s.io v1
        autoscaling v2 v1
        batch v1
        certificates.k8s.io v1 v1beta1
        networking.k8s.io v1
        policy v1
        rbac.authorization.k8s.io v1
        storage.k8s.io v1
        admissionregistration.k8s.io v1 v1beta1 v1alpha1
        apiextensions.k8s.io v1
        scheduling.k8s.io v1 v1beta1 v1alpha3
        coordination.k8s.io v1 v1beta1 v1alpha2
        node.k8s.io v1
        discovery.k8s.io v1
        resource.k8s.io v1 v1beta2 v1beta1 v1alpha3
        flowcontrol.apiserver.k8s.io v1
        internal.apiserver.k8s.io v1alpha1
        storagemigration.k8s.io v1 v1beta1
        lifecycle.k8s.io v1alpha1
    "#]]
    .assert_eq(&order(R37));
}

#[test]
fn served_resource_counts_by_release() {
    let counts = Release::ALL.map(|release| {
        let [all, default] = [everything(release), served_resources_of(release, "", "")];
        format!(
            "{release}: {} of {}, {} kept\n",
            default.resources().len(),
            all.resources().len(),
            all.stored_resources().len()
        )
    });
    expect![[r#"
        1.31: 62 of 80, 61 kept
        1.32: 60 of 80, 62 kept
        1.33: 62 of 88, 63 kept
        1.34: 67 of 90, 64 kept
        1.35: 67 of 90, 65 kept
        1.36: 69 of 95, 67 kept
        1.37: 73 of 100, 70 kept
    "#]]
    .assert_eq(&counts.concat());
}

#[test]
fn creation_timestamp_is_null_up_to_1_33() {
    use discovery::CreationTimestamp::{Absent, Null};
    let written = Release::ALL.map(|release| served_resources_of(release, "", "").creation_timestamp());
    assert_eq!(written, [Null, Null, Null, Absent, Absent, Absent, Absent]);
}

#[test]
fn resource_list_of_unserved_version_is_none() {
    let served_resources = served_resources_of(R36, "", "");
    assert!(served_resources.resource_list("apps", "v1beta1").is_none());
    assert_eq!(&*served_resources.resource_list("", "v1").unwrap().group_version, "v1");
    assert_eq!(&*served_resources.resource_list("apps", "v1").unwrap().group_version, "apps/v1");
}

/// Size of the rows without their strings, which take about the same again.
#[test]
fn kind_table_stays_below_64_kib() {
    let kinds = || GROUPS.into_iter().flat_map(|group| group.kinds);
    let rows = kinds().count() * size_of::<BuiltInKind>()
        + kinds().map(|kind| size_of_val(kind.versions)).sum::<usize>()
        + kinds().map(|kind| size_of_val(kind.subresources)).sum::<usize>();
    assert!(rows < 64 * 1024, "{rows} bytes");
}

#[test]
fn names_of_services_may_begin_with_digit_from_1_36_on() {
    let rule = |release| served_resources_of(release, "", "").get("", "v1", "services").unwrap().rules.name_rule;
    assert_eq!([R35, R36].map(rule), [NameRule::Label1035, NameRule::Label]);
}
