use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::kinds::GROUPS;
use crate::release::Release::*;

/// The named gates after the flag, or the refusal.
#[track_caller]
fn check(release: Release, flag: &str, names: &[&str], expected: &Expect) {
    let text = match Gates::parse(release, flag) {
        Ok(gates) => names.iter().map(|name| format!("{name}={}", gates.enabled(name))).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&text);
}

#[test]
fn defaults_follow_the_release() {
    for release in [R31, R33, R37] {
        let gates = Gates::new(release);
        let on = ["WatchList", "InPlacePodVerticalScaling", "ClusterTrustBundle"].map(|name| gates.enabled(name));
        assert_eq!(on, [release == R37, release >= R33, release == R37], "{release}");
    }
}

#[test]
fn the_features_this_server_is_for_are_on_in_every_release() {
    for release in Release::ALL {
        let gates = Gates::new(release);
        assert!(ON_BY_DEFAULT.iter().all(|name| gates.enabled(name)), "{release}");
        let off = Gates::parse(release, "StorageVersionAPI=false,UnknownVersionInteroperabilityProxy=false").unwrap();
        assert!(ON_BY_DEFAULT.iter().all(|name| !off.enabled(name)), "{release}");
    }
}

#[test]
fn a_flag_sets_gates_and_the_last_word_counts() {
    check(
        R36,
        " WatchList = false , WatchListClient=0",
        &["WatchList", "WatchListClient"],
        &expect![[r#"WatchList=false WatchListClient=false"#]],
    );
    check(R36, "WatchList=false,,WatchList=T", &["WatchList"], &expect!["WatchList=true"]);
    check(R36, "kube:WatchList=false", &["WatchList"], &expect!["WatchList=false"]);
    check(R36, "", &["WatchList", "NoSuchGate"], &expect!["WatchList=true NoSuchGate=false"]);
}

#[test]
fn the_gates_for_all_yield_to_gates_by_name_wherever_they_stand() {
    let names = &["StorageVersionAPI", "APIServingWithRoutine", "StorageVersionMigrator", "WatchList"];
    check(
        R36,
        "AllAlpha=true",
        names,
        &expect!["StorageVersionAPI=true APIServingWithRoutine=true StorageVersionMigrator=false WatchList=true"],
    );
    check(
        R36,
        "AllAlpha=false",
        names,
        &expect!["StorageVersionAPI=false APIServingWithRoutine=false StorageVersionMigrator=false WatchList=true"],
    );
    check(
        R36,
        "AllBeta=true",
        names,
        &expect!["StorageVersionAPI=true APIServingWithRoutine=false StorageVersionMigrator=true WatchList=true"],
    );
    check(
        R36,
        "APIServingWithRoutine=false,WatchList=true,StorageVersionAPI=false,AllAlpha=true,AllBeta=true",
        names,
        &expect!["StorageVersionAPI=false APIServingWithRoutine=false StorageVersionMigrator=true WatchList=true"],
    );
}

#[test]
fn everything_on_is_accepted_by_every_release() {
    for release in Release::ALL {
        let gates = Gates::parse(release, "AllAlpha=true,AllBeta=true,OpenAPIEnums=false").unwrap();
        assert!(gates.enabled("StorageVersionAPI") && !gates.enabled("OpenAPIEnums"));
    }
}

#[test]
fn refusals_are_those_of_kube_apiserver() {
    check(R36, "NoSuchGate=true", &[], &expect!["unrecognized feature gate: NoSuchGate"]);
    check(R33, "GenericWorkload=true", &[], &expect!["unrecognized feature gate: GenericWorkload"]);
    check(
        R37,
        "AggregatedDiscoveryEndpoint=true",
        &[],
        &expect!["unrecognized feature gate: AggregatedDiscoveryEndpoint"],
    );
    check(R36, "WatchList", &[], &expect!["missing bool value for WatchList"]);
    check(
        R36,
        "WatchList=yes",
        &[],
        &expect![[r#"invalid value of WatchList=yes, err: strconv.ParseBool: parsing "yes": invalid syntax"#]],
    );
    check(R36, "wardle:WatchList=true", &[], &expect!["component not registered: wardle"]);
    check(
        R36,
        "WatchList=true,kube:WatchList=true",
        &[],
        &expect!["set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use"],
    );
}

#[test]
fn a_locked_gate_can_only_be_set_to_what_it_is() {
    let gate = "AggregatedDiscoveryRemoveBetaType";
    check(R34, &format!("{gate}=false"), &[gate], &expect!["AggregatedDiscoveryRemoveBetaType=false"]);
    check(R35, &format!("{gate}=true"), &[gate], &expect!["AggregatedDiscoveryRemoveBetaType=true"]);
    check(
        R35,
        &format!("{gate}=false"),
        &[gate],
        &expect!["cannot set feature gate AggregatedDiscoveryRemoveBetaType to false, feature is locked to true"],
    );
    check(
        R36,
        &format!("{gate}=false,MultiCIDRServiceAllocator=false"),
        &[],
        &expect![
            "[cannot set feature gate AggregatedDiscoveryRemoveBetaType to false, feature is locked to true, cannot set feature gate MultiCIDRServiceAllocator to false, feature is locked to true]"
        ],
    );
}

#[test]
fn whoever_sets_a_gate_that_is_about_to_go_is_told() {
    let flag =
        "WatchList=false,MultiCIDRServiceAllocator=false,AllowDNSOnlyNodeCSR=true,MultiCIDRServiceAllocator=true";
    let said = |release| {
        let gates = Gates::parse(release, flag).unwrap();
        gates.notices().iter().map(|notice| format!("{notice}\n")).collect::<String>()
    };
    expect![[r#"
        Setting deprecated feature gate AllowDNSOnlyNodeCSR=true. It will be removed in a future release.
    "#]]
    .assert_eq(&said(R32));
    expect![[r#"
        Setting deprecated feature gate AllowDNSOnlyNodeCSR=true. It will be removed in a future release.
        Setting GA feature gate MultiCIDRServiceAllocator=true. It will be removed in a future release.
    "#]]
    .assert_eq(&said(R33));
    assert_eq!(Gates::parse(R36, "AllAlpha=true,AllBeta=true").unwrap().notices(), []);
}

#[test]
fn a_gate_needs_the_gates_it_depends_on() {
    check(
        R36,
        "APIServerIdentity=false,StorageVersionAPI=false",
        &[],
        &expect![
            "UnknownVersionInteroperabilityProxy is enabled, but depends on features that are disabled: [APIServerIdentity]"
        ],
    );
    check(
        R31,
        "APIServerIdentity=false",
        &[],
        &expect![
            "[StorageVersionAPI is enabled, but depends on features that are disabled: [APIServerIdentity], UnknownVersionInteroperabilityProxy is enabled, but depends on features that are disabled: [APIServerIdentity]]"
        ],
    );
    check(
        R37,
        "CompositePodGroup=true",
        &[],
        &expect![
            "CompositePodGroup is enabled, but depends on features that are disabled: [GenericWorkload TopologyAwareWorkloadScheduling]"
        ],
    );
    // Checked from 1.35 on only.
    check(
        R34,
        "ClusterTrustBundleProjection=true",
        &["ClusterTrustBundleProjection"],
        &expect!["ClusterTrustBundleProjection=true"],
    );
    check(
        R35,
        "ClusterTrustBundleProjection=true",
        &[],
        &expect![
            "ClusterTrustBundleProjection is enabled, but depends on features that are disabled: [ClusterTrustBundle]"
        ],
    );
}

#[test]
fn the_table_is_sorted_for_the_search() {
    assert!(table::ROWS.is_sorted_by(|a, b| a.name < b.name));
    assert!(dependencies::DEPENDENCIES.is_sorted_by_key(|dependency| dependency.gate));
    let counts = Release::ALL.map(|release| Gates::new(release).all().count());
    expect!["[165, 177, 189, 206, 216, 239, 251]"].assert_eq(&format!("{counts:?}"));
}

#[test]
fn whatever_hangs_on_a_gate_hangs_on_one_that_its_releases_know() {
    for kind in GROUPS.iter().flat_map(|group| group.kinds) {
        for release in Release::ALL {
            if kind.versions_served(release).next().is_none() {
                continue;
            }
            let gates = kind.subresources_of(release).filter_map(|subresource| subresource.gate).chain(kind.gate);
            for gate in gates {
                assert!(spec(release, gate).is_some(), "{} in {release}: {gate}", kind.name);
            }
        }
    }
    for dependency in dependencies::DEPENDENCIES {
        for release in Release::ALL.into_iter().filter(|release| dependency.span.contains(*release)) {
            let known = spec(release, dependency.gate).is_some();
            assert!(!known || dependency.needs.iter().all(|gate| spec(release, gate).is_some()), "{}", dependency.gate);
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "([A-Za-z]{0,8}|AllAlpha|AllBeta|WatchList|kube:)(=(true|false|x)?)?(,[A-Za-z:=]{0,9})?") {
        let _ = Gates::parse(R36, &text);
    }
}
