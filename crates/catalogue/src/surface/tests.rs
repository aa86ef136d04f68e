use expect_test::{Expect, expect};

use super::*;
use crate::release::Release::*;

fn surface(release: Release, gates: &str, config: &str) -> Surface {
    let gates = Gates::parse(release, gates).unwrap();
    Surface::new(&gates, &RuntimeConfig::parse(release, config).unwrap())
}

fn everything(release: Release) -> Surface {
    surface(release, "AllAlpha=true,AllBeta=true", "api/all=true")
}

#[test]
fn a_resource_is_found_by_its_name() {
    let surface = everything(R36);
    let name = String::from("deployments");
    let deployments = surface.get("apps", "v1", &name).unwrap();
    assert_eq!(deployments.name().to_string(), "apps/v1, Resource=deployments");
    assert_eq!(deployments.response_kind().to_string(), "apps/v1, Kind=Deployment");
    assert!(deployments.subresource("scale").is_some());
    assert!(deployments.subresource("exec").is_none());
    assert!(surface.get("apps", "v1beta1", &name).is_none());
    assert!(surface.get("", "v1", &name).is_none());
    for served in surface.served() {
        let GroupVersionResource { group, version, resource } = served.name();
        assert_eq!(surface.get(group, version, resource).map(Served::name), Some(served.name()));
    }
}

#[test]
fn gates_take_away_resources_and_subresources() {
    let has_resize = |release, gates| {
        let surface = surface(release, gates, "");
        surface.get("", "v1", "pods").unwrap().subresource("resize").is_some()
    };
    assert!(!has_resize(R31, "InPlacePodVerticalScaling=true"));
    assert!(!has_resize(R32, ""));
    assert!(has_resize(R32, "InPlacePodVerticalScaling=true"));
    assert!(has_resize(R33, ""));
    assert!(!has_resize(R34, "InPlacePodVerticalScaling=false"));

    let has_bundles = |gates, config| {
        surface(R36, gates, config).get("certificates.k8s.io", "v1beta1", "clustertrustbundles").is_some()
    };
    assert!(!has_bundles("ClusterTrustBundle=true", ""));
    assert!(!has_bundles("", "certificates.k8s.io/v1beta1=true"));
    assert!(has_bundles("ClusterTrustBundle=true", "certificates.k8s.io/v1beta1=true"));
}

#[test]
fn storage_versions_are_served_as_long_as_their_gate_is_on() {
    let has = |release, gates, config| {
        surface(release, gates, config).get("internal.apiserver.k8s.io", "v1alpha1", "storageversions").is_some()
    };
    for release in Release::ALL {
        assert!(has(release, "", ""), "{release}");
        assert!(!has(release, "StorageVersionAPI=false", ""), "{release}");
        assert!(!has(release, "", "internal.apiserver.k8s.io/v1alpha1=false"), "{release}");
        assert!(has(release, "StorageVersionAPI=false", "internal.apiserver.k8s.io/v1alpha1=true"), "{release}");
    }
}

/// How a resource is kept: what StorageVersion objects publish of it, and where.
#[track_caller]
fn check_persisted(surface: &Surface, group: &str, version: &str, resource: &str, expected: &Expect) {
    let persisted = surface.get(group, version, resource).unwrap().persisted.as_ref();
    let text = persisted.map_or("not kept".to_owned(), |persisted| {
        let decodable: Vec<_> = persisted.decodable.iter().map(ToString::to_string).collect();
        let hash = persisted.hash.as_deref().unwrap_or("no hash");
        format!(
            "{} | reads {} | serves {} | {}/ | {hash}",
            persisted.encoding,
            decodable.join(" "),
            persisted.served.join(" "),
            persisted.key_prefix
        )
    });
    expected.assert_eq(&text);
}

#[test]
fn versions_and_groups_share_what_they_keep() {
    let surface = everything(R34);
    check_persisted(
        &surface,
        "",
        "v1",
        "pods",
        &expect!["/v1, Kind=Pod | reads v1 | serves v1 | pods/ | xPOwRZ+Yhw8="],
    );
    check_persisted(
        &surface,
        "",
        "v1",
        "services",
        &expect!["/v1, Kind=Service | reads v1 | serves v1 | services/specs/ | 0/CO1lhkEBI="],
    );
    check_persisted(
        &surface,
        "apps",
        "v1",
        "deployments",
        &expect![
            "apps/v1, Kind=Deployment | reads apps/v1 apps/v1beta2 apps/v1beta1 | serves v1 | deployments/ | 8aSe+NMegvE="
        ],
    );
    check_persisted(
        &surface,
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        &expect![
            "autoscaling/v2, Kind=HorizontalPodAutoscaler | reads autoscaling/v2 autoscaling/v1 autoscaling/v2beta1 autoscaling/v2beta2 | serves v2 v1 | horizontalpodautoscalers/ | qwQve8ut294="
        ],
    );
    check_persisted(
        &surface,
        "networking.k8s.io",
        "v1beta1",
        "ipaddresses",
        &expect![
            "networking.k8s.io/v1, Kind=IPAddress | reads networking.k8s.io/v1 networking.k8s.io/v1beta1 | serves v1 v1beta1 | ipaddresses/ | 3f/plJFChNE="
        ],
    );
    check_persisted(
        &surface,
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        &expect![
            "apiextensions.k8s.io/v1beta1, Kind=CustomResourceDefinition | reads apiextensions.k8s.io/v1 apiextensions.k8s.io/v1beta1 | serves v1 | apiextensions.k8s.io/customresourcedefinitions/ | jfWCUB31mvA="
        ],
    );
    check_persisted(&surface, "authorization.k8s.io", "v1", "subjectaccessreviews", &expect!["not kept"]);
    check_persisted(
        &surface,
        "events.k8s.io",
        "v1",
        "events",
        &expect!["/v1, Kind=Event | reads v1 events.k8s.io/v1 | serves v1 | events/ | r2yiGXH7wu8="],
    );
    let events =
        ["", "events.k8s.io"].map(|group| surface.get(group, "v1", "events").unwrap().persisted.clone().unwrap());
    assert!(Arc::ptr_eq(&events[0], &events[1]));
}

#[test]
fn events_are_kept_by_the_group_that_is_left() {
    let without_core = surface(R36, "", "/v1=false");
    check_persisted(
        &without_core,
        "events.k8s.io",
        "v1",
        "events",
        &expect![
            "events.k8s.io/v1, Kind=Event | reads events.k8s.io/v1 events.k8s.io/v1beta1 | serves v1 | events/ | x51sC10/5OA="
        ],
    );
    let without_core_events = surface(R36, "", "/v1/events=false");
    check_persisted(
        &without_core_events,
        "events.k8s.io",
        "v1",
        "events",
        &expect!["/v1, Kind=Event | reads v1 events.k8s.io/v1 | serves  | events/ | r2yiGXH7wu8="],
    );
}

#[test]
fn only_the_gate_shows_the_hash() {
    check_persisted(
        &surface(R36, "StorageVersionHash=false", ""),
        "",
        "v1",
        "configmaps",
        &expect!["/v1, Kind=ConfigMap | reads v1 | serves v1 | configmaps/ | no hash"],
    );
}

#[test]
fn what_is_kept_is_listed_once() {
    for release in Release::ALL {
        let surface = everything(release);
        let names: Vec<_> = surface.persisted().iter().map(|kept| (kept.encoding.group, kept.resource)).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{release}");
        for kept in surface.persisted() {
            let encoding = GroupVersion { group: kept.encoding.group, version: kept.encoding.version };
            assert!(kept.decodable.contains(&encoding), "{release} {}", kept.resource);
            assert!(!kept.served.is_empty(), "{release} {}", kept.resource);
        }
        let prefixes: std::collections::HashSet<_> = surface.persisted().iter().map(|kept| kept.key_prefix).collect();
        assert_eq!(prefixes.len(), surface.persisted().len(), "{release}: two resources under one prefix");
    }
}

#[test]
fn the_groups_stand_in_their_order() {
    let order = |release| {
        let groups = everything(release).groups_apis();
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
fn counts_by_release() {
    let counts = Release::ALL.map(|release| {
        let [all, default] = [everything(release), surface(release, "", "")];
        format!("{release}: {} of {}, {} kept\n", default.served().len(), all.served().len(), all.persisted().len())
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
fn servers_up_to_1_33_write_a_null_timestamp() {
    use discovery::CreationTimestamp::{Absent, Null};
    let written = Release::ALL.map(|release| surface(release, "", "").creation_timestamp());
    assert_eq!(written, [Null, Null, Null, Absent, Absent, Absent, Absent]);
}

#[test]
fn a_version_that_is_not_served_has_no_list() {
    let surface = surface(R36, "", "");
    assert!(surface.resource_list("apps", "v1beta1").is_none());
    assert_eq!(&*surface.resource_list("", "v1").unwrap().group_version, "v1");
    assert_eq!(&*surface.resource_list("apps", "v1").unwrap().group_version, "apps/v1");
}

/// The rows alone; the strings they name are about as much again.
#[test]
fn the_table_is_small() {
    let kinds = || GROUPS.into_iter().flat_map(|group| group.kinds);
    let rows = kinds().count() * size_of::<Kind>()
        + kinds().map(|kind| size_of_val(kind.versions)).sum::<usize>()
        + kinds().map(|kind| size_of_val(kind.subresources)).sum::<usize>();
    assert!(rows < 64 * 1024, "{rows} bytes");
}
