use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::groups::GROUPS;
use crate::release::Release::*;

/// State of the named gates with the flag, or the error.
#[track_caller]
fn check(release: Release, flag: &str, names: &[&str], expected: &Expect) {
    let text = match FeatureGates::parse(release, flag) {
        Ok(gates) => names.iter().map(|name| format!("{name}={}", gates.enabled(name))).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&text);
}

#[test]
fn default_gates_follow_release() {
    for release in [R31, R33, R37] {
        let gates = FeatureGates::new(release);
        let on = ["WatchList", "InPlacePodVerticalScaling", "ClusterTrustBundle"].map(|name| gates.enabled(name));
        assert_eq!(on, [release == R37, release >= R33, release == R37], "{release}");
    }
}

#[test]
fn peering_gates_are_enabled_in_every_release() {
    for release in Release::ALL {
        let gates = FeatureGates::new(release);
        assert!(ENABLED_IN_EVERY_RELEASE.iter().all(|name| gates.enabled(name)), "{release}");
        let off =
            FeatureGates::parse(release, "StorageVersionAPI=false,UnknownVersionInteroperabilityProxy=false").unwrap();
        assert!(ENABLED_IN_EVERY_RELEASE.iter().all(|name| !off.enabled(name)), "{release}");
    }
}

#[test]
fn parse_sets_gates_and_last_value_wins() {
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
fn named_gates_override_all_alpha_and_all_beta() {
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
fn parse_accepts_all_alpha_and_all_beta_in_every_release() {
    for release in Release::ALL {
        let gates = FeatureGates::parse(release, "AllAlpha=true,AllBeta=true,OpenAPIEnums=false").unwrap();
        assert!(gates.enabled("StorageVersionAPI") && !gates.enabled("OpenAPIEnums"));
    }
}

#[test]
fn feature_gate_errors_match_kube_apiserver() {
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
fn locked_gate_rejects_other_value() {
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
fn setting_deprecated_or_ga_gate_warns() {
    let flag =
        "WatchList=false,MultiCIDRServiceAllocator=false,AllowDNSOnlyNodeCSR=true,MultiCIDRServiceAllocator=true";
    let said = |release| {
        let gates = FeatureGates::parse(release, flag).unwrap();
        gates.warnings().iter().map(|notice| format!("{notice}\n")).collect::<String>()
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
    assert_eq!(FeatureGates::parse(R36, "AllAlpha=true,AllBeta=true").unwrap().warnings(), []);
}

#[test]
fn parse_rejects_gate_with_disabled_dependency() {
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
fn gate_tables_are_sorted() {
    assert!(table::GATES.is_sorted_by(|a, b| a.name < b.name));
    assert!(dependencies::DEPENDENCIES.is_sorted_by_key(|dependency| dependency.gate));
    let counts = Release::ALL.map(|release| FeatureGates::new(release).all().count());
    expect!["[165, 177, 189, 206, 216, 239, 251]"].assert_eq(&format!("{counts:?}"));
}

#[test]
fn gates_of_kinds_exist_in_their_releases() {
    for kind in GROUPS.iter().flat_map(|group| group.kinds) {
        for release in Release::ALL {
            if kind.served_versions(release).next().is_none() {
                continue;
            }
            let gates = kind.subresources_in(release).filter_map(|subresource| subresource.gate).chain(kind.gate);
            for gate in gates {
                assert!(feature_spec(release, gate).is_some(), "{} in {release}: {gate}", kind.name);
            }
        }
    }
    for dependency in dependencies::DEPENDENCIES {
        for release in Release::ALL.into_iter().filter(|release| dependency.releases.contains(*release)) {
            let known = feature_spec(release, dependency.gate).is_some();
            assert!(
                !known || dependency.requires.iter().all(|gate| feature_spec(release, gate).is_some()),
                "{}",
                dependency.gate
            );
        }
    }
}

proptest! {
    #[test]
    fn parse_never_panics(text in "([A-Za-z]{0,8}|AllAlpha|AllBeta|WatchList|kube:)(=(true|false|x)?)?(,[A-Za-z:=]{0,9})?") {
        let _ = FeatureGates::parse(R36, &text);
    }
}
