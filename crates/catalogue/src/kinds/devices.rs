//! Devices that pods claim: dynamic resource allocation.

use crate::kind::row::{STATUS, cluster, group, namespaced, v};
use crate::kind::{Group, KindVersion};
use crate::release::Release::{self, *};

/// In 1.31, with an alpha version only, the group stood further down.
pub(super) static RESOURCE: Group = group(
    "resource.k8s.io",
    16200,
    &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)],
    &[
        cluster("DeviceClass", "deviceclasses").versions(CLAIM_VERSIONS).stored(CLAIM_STORED),
        cluster("DeviceTaintRule", "devicetaintrules")
            .versions(&[v("v1").since(R37), v("v1beta2").since(R36), v("v1alpha3").since(R33)])
            .stored(&[(R33, "v1alpha3"), (R37, "v1beta2")])
            .subresources(&[STATUS.since(R35)]),
        namespaced("PodSchedulingContext", "podschedulingcontexts").versions(&[v("v1alpha3").forgotten(R32)]).status(),
        namespaced("ResourceClaim", "resourceclaims").versions(CLAIM_VERSIONS).stored(CLAIM_STORED).status(),
        namespaced("ResourceClaimTemplate", "resourceclaimtemplates").versions(CLAIM_VERSIONS).stored(CLAIM_STORED),
        cluster("ResourcePoolStatusRequest", "resourcepoolstatusrequests")
            .versions(&[v("v1alpha3").since(R36)])
            .status(),
        cluster("ResourceSlice", "resourceslices").versions(CLAIM_VERSIONS).stored(CLAIM_STORED),
    ],
)
.priority_before(R32, 15900);

/// Claims, and what they choose from, went through their versions together.
const CLAIM_VERSIONS: &[KindVersion] =
    &[v("v1").since(R34), v("v1beta2").since(R33), v("v1beta1").since(R32), v("v1alpha3").forgotten(R34)];

const CLAIM_STORED: &[(Release, &str)] = &[(R31, "v1alpha3"), (R32, "v1beta1"), (R34, "v1beta2"), (R35, "v1")];
