use expect_test::{Expect, expect};

use super::*;
use crate::feature_gates::FeatureGates;
use crate::release::Release::*;
use crate::served_resources::ServedResources;

/// The named resources that are served with the flag, or the error.
#[track_caller]
fn check(release: Release, flag: &str, resources: &[&str], expected: &Expect) {
    let text = match RuntimeConfig::parse(release, flag) {
        Ok(config) => {
            let served_resources =
                ServedResources::new(&FeatureGates::parse(release, "StorageVersionAPI=false").unwrap(), &config);
            let is_served = |name: &&&str| {
                let RuntimeConfigKey { group, version, resource } = RuntimeConfigKey::parse(name).unwrap();
                served_resources.get(group, version, resource.unwrap()).is_some()
            };
            resources.iter().filter(is_served).copied().collect::<Vec<_>>().join(" ")
        }
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&text);
}

const SAMPLE_RESOURCES: &[&str] = &[
    "/v1/pods",
    "apps/v1/deployments",
    "networking.k8s.io/v1beta1/ipaddresses",
    "networking.k8s.io/v1beta1/servicecidrs",
    "coordination.k8s.io/v1alpha2/leasecandidates",
];

#[test]
fn only_stable_versions_are_enabled_by_default() {
    check(R36, "", SAMPLE_RESOURCES, &expect!["/v1/pods apps/v1/deployments"]);
}

#[test]
fn stability_keys_enable_their_versions() {
    check(
        R36,
        "api/beta=true",
        SAMPLE_RESOURCES,
        &expect![
            "/v1/pods apps/v1/deployments networking.k8s.io/v1beta1/ipaddresses networking.k8s.io/v1beta1/servicecidrs"
        ],
    );
    check(
        R36,
        "api/alpha=true,api/ga=false",
        SAMPLE_RESOURCES,
        &expect!["coordination.k8s.io/v1alpha2/leasecandidates"],
    );
    check(
        R36,
        "api/all=true,api/beta=false",
        SAMPLE_RESOURCES,
        &expect!["/v1/pods apps/v1/deployments coordination.k8s.io/v1alpha2/leasecandidates"],
    );
    check(R36, "api/all=false,api/ga=true", SAMPLE_RESOURCES, &expect!["/v1/pods apps/v1/deployments"]);
}

#[test]
fn narrower_key_wins_regardless_of_order() {
    check(
        R36,
        "networking.k8s.io/v1beta1/ipaddresses=false,networking.k8s.io/v1beta1,api/beta=false",
        SAMPLE_RESOURCES,
        &expect!["/v1/pods apps/v1/deployments networking.k8s.io/v1beta1/servicecidrs"],
    );
    check(R36, "api/all=false,/v1/pods=true", SAMPLE_RESOURCES, &expect!["/v1/pods"]);
    check(R36, "api/all=false,/v1=true,/v1/pods=0", SAMPLE_RESOURCES, &expect![""]);
    check(R36, " apps/v1 = false ,apps/v1=true", SAMPLE_RESOURCES, &expect!["/v1/pods apps/v1/deployments"]);
}

#[test]
fn registered_but_unserved_versions_are_accepted() {
    check(
        R36,
        "apps/v1beta1=true,extensions/v1beta1=true,apiextensions.k8s.io/v1beta1=true",
        SAMPLE_RESOURCES,
        &expect!["/v1/pods apps/v1/deployments"],
    );
}

#[test]
fn early_betas_follow_api_beta_setting() {
    let flows = &["flowcontrol.apiserver.k8s.io/v1beta3/flowschemas"];
    check(R31, "", flows, &expect!["flowcontrol.apiserver.k8s.io/v1beta3/flowschemas"]);
    check(R31, "api/beta=false", flows, &expect![""]);
    check(R32, "api/beta=true", flows, &expect![""]);
}

#[test]
fn runtime_config_errors_match_kube_apiserver() {
    check(R36, "api/all=false", &[], &expect!["invalid runtime-config with only api/all=false"]);
    check(R36, "api/all", &[], &expect!["invalid value api/all="]);
    check(R36, "api/beta=1", &[], &expect!["invalid value api/beta=1"]);
    check(R36, "v1=true", &[], &expect!["runtime-config invalid key v1"]);
    check(R36, "a/b/c/d=true", &[], &expect!["runtime-config invalid key a/b/c/d"]);
    check(
        R36,
        "b.example/v1=true,a.example/v2/things=true,apps/v1=true",
        &[],
        &expect!["unknown api groups a.example/v2,b.example/v1"],
    );
    // kube-apiserver's help still mentions it, but no release accepts it.
    check(R36, "api/legacy=true", &[], &expect!["unknown api groups api/legacy"]);
    check(R36, "lifecycle.k8s.io/v1alpha1=true", &[], &expect!["unknown api groups lifecycle.k8s.io/v1alpha1"]);
    check(
        R33,
        "resource.k8s.io/v1=true",
        &[],
        &expect!["group version resource.k8s.io/v1 that has not been registered"],
    );
    check(R36, "/v2=true", &[], &expect!["group version v2 that has not been registered"]);
    check(
        R36,
        "apps/v1=yes",
        &[],
        &expect![[r#"invalid value of apps/v1: yes, err: strconv.ParseBool: parsing "yes": invalid syntax"#]],
    );
    check(
        R36,
        "apps/v1/Deployments=true",
        &[],
        &expect![[
            r#"invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not "Deployments""#
        ]],
    );
}
