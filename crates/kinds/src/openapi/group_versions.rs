//! The group-versions that kube-apiserver knows, served or not.
//!
//! Types that belong to all group-versions, such as `DeleteOptions`, name them in OpenAPI documents. The lists of releases before 1.35 are
//! not recorded: documents of those name the group-versions that are served.

use crate::release::Release;

/// Groups with versions of 1.35 and later.
const SINCE_1_35: [(&str, &str); 26] = [
    ("", "v1"),
    ("admission.k8s.io", "v1 v1beta1"),
    ("admissionregistration.k8s.io", "v1 v1alpha1 v1beta1"),
    ("apiextensions.k8s.io", "v1 v1beta1"),
    ("apiregistration.k8s.io", "v1 v1beta1"),
    ("apps", "v1 v1beta1 v1beta2"),
    ("authentication.k8s.io", "v1 v1alpha1 v1beta1"),
    ("authorization.k8s.io", "v1 v1beta1"),
    ("autoscaling", "v1 v2"),
    ("batch", "v1 v1beta1"),
    ("certificates.k8s.io", "v1 v1alpha1 v1beta1"),
    ("coordination.k8s.io", "v1 v1alpha2 v1beta1"),
    ("discovery.k8s.io", "v1 v1beta1"),
    ("events.k8s.io", "v1 v1beta1"),
    ("extensions", "v1beta1"),
    ("flowcontrol.apiserver.k8s.io", "v1 v1beta1 v1beta2 v1beta3"),
    ("imagepolicy.k8s.io", "v1alpha1"),
    ("internal.apiserver.k8s.io", "v1alpha1"),
    ("networking.k8s.io", "v1 v1beta1"),
    ("node.k8s.io", "v1 v1alpha1 v1beta1"),
    ("policy", "v1 v1beta1"),
    ("rbac.authorization.k8s.io", "v1 v1alpha1 v1beta1"),
    ("resource.k8s.io", "v1 v1alpha3 v1beta1 v1beta2"),
    ("scheduling.k8s.io", "v1 v1beta1"),
    ("storage.k8s.io", "v1 v1alpha1 v1beta1"),
    ("storagemigration.k8s.io", "v1beta1"),
];

/// Versions that 1.36 no longer knows.
const ONLY_1_35: [(&str, &str); 2] = [("autoscaling", "v2beta1 v2beta2"), ("scheduling.k8s.io", "v1alpha1")];

/// Versions that are new in 1.36.
const SINCE_1_36: [(&str, &str); 1] = [("scheduling.k8s.io", "v1alpha2")];

/// The group-versions that a release knows, as far as they are recorded.
pub(super) fn known_group_versions(release: Release) -> impl Iterator<Item = (&'static str, &'static str)> {
    let tables: [&[(&'static str, &'static str)]; 2] = match release {
        Release::R31 | Release::R32 | Release::R33 | Release::R34 => [&[], &[]],
        Release::R35 => [&SINCE_1_35, &ONLY_1_35],
        Release::R36 | Release::R37 => [&SINCE_1_35, &SINCE_1_36],
    };
    let groups = tables.into_iter().flatten();
    groups.flat_map(|(group, versions)| versions.split(' ').map(move |version| (*group, version)))
}
