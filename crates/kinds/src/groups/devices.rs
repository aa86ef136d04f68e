//! Dynamic resource allocation.

use crate::devices;
use crate::kind::builder::{STATUS, cluster_scoped_kind, group, namespaced_kind, version};
use crate::kind::{BuiltInGroup, KindVersion};
use crate::release::Release::{self, *};

/// In 1.31, with an alpha version only, the group had a lower priority.
pub(super) static RESOURCE: BuiltInGroup = group(
    "resource.k8s.io",
    16200,
    &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)],
    &[
        cluster_scoped_kind("DeviceClass", "deviceclasses")
            .strategy(&devices::DEVICE_CLASS_STRATEGY)
            .versions(CLAIM_VERSIONS)
            .storage_versions(CLAIM_STORED),
        cluster_scoped_kind("DeviceTaintRule", "devicetaintrules")
            .strategy(&devices::DEVICE_TAINT_RULE_STRATEGY)
            .versions(&[version("v1").since(R37), version("v1beta2").since(R36), version("v1alpha3").since(R33)])
            .storage_versions(&[(R33, "v1alpha3"), (R37, "v1beta2")])
            .subresources(&[STATUS.since(R35)]),
        namespaced_kind("PodSchedulingContext", "podschedulingcontexts")
            .versions(&[version("v1alpha3").undecodable_since(R32)])
            .status(),
        namespaced_kind("ResourceClaim", "resourceclaims")
            .strategy(&devices::RESOURCE_CLAIM_STRATEGY)
            .versions(CLAIM_VERSIONS)
            .storage_versions(CLAIM_STORED)
            .status(),
        namespaced_kind("ResourceClaimTemplate", "resourceclaimtemplates")
            .strategy(&devices::RESOURCE_CLAIM_TEMPLATE_STRATEGY)
            .versions(CLAIM_VERSIONS)
            .storage_versions(CLAIM_STORED),
        cluster_scoped_kind("ResourcePoolStatusRequest", "resourcepoolstatusrequests")
            .strategy(&devices::RESOURCE_POOL_STATUS_REQUEST_STRATEGY)
            .versions(&[version("v1alpha3").since(R36)])
            .status(),
        cluster_scoped_kind("ResourceSlice", "resourceslices")
            .strategy(&devices::RESOURCE_SLICE_STRATEGY)
            .versions(CLAIM_VERSIONS)
            .storage_versions(CLAIM_STORED),
    ],
)
.priority_before(R32, 15900);

/// Versions shared by claims, templates, classes and slices.
const CLAIM_VERSIONS: &[KindVersion] = &[
    version("v1").since(R34),
    version("v1beta2").since(R33),
    version("v1beta1").since(R32),
    version("v1alpha3").undecodable_since(R34),
];

const CLAIM_STORED: &[(Release, &str)] = &[(R31, "v1alpha3"), (R32, "v1beta1"), (R34, "v1beta2"), (R35, "v1")];
