//! Discovery and networking.

use crate::kind::builder::{cluster_scoped_kind, group, namespaced_kind, stored_only, version};
use crate::kind::{BuiltInGroup, KindVersion};
use crate::release::Release::{self, *};
use crate::{endpoints, ingress, network_policy, service_cidr};

pub(super) static DISCOVERY: BuiltInGroup = group(
    "discovery.k8s.io",
    16200,
    &[("v1", 15)],
    &[namespaced_kind("EndpointSlice", "endpointslices")
        .strategy(&endpoints::ENDPOINT_SLICE_STRATEGY)
        .versions(&[version("v1"), stored_only("v1beta1")])],
);

pub(super) static NETWORKING: BuiltInGroup = group(
    "networking.k8s.io",
    17200,
    &[("v1", 15), ("v1beta1", 9)],
    &[
        cluster_scoped_kind("IngressClass", "ingressclasses")
            .strategy(&ingress::INGRESS_CLASS_STRATEGY)
            .versions(&[version("v1"), stored_only("v1beta1")]),
        namespaced_kind("Ingress", "ingresses")
            .strategy(&ingress::INGRESS_STRATEGY)
            .short_names(&["ing"])
            .versions(&[version("v1"), stored_only("v1beta1")])
            .key_override("ingress")
            .status(),
        cluster_scoped_kind("IPAddress", "ipaddresses")
            .strategy(&service_cidr::IP_ADDRESS_STRATEGY)
            .short_names(&["ip"])
            .versions(ADDRESS_VERSIONS)
            .storage_versions(ADDRESS_STORED),
        namespaced_kind("NetworkPolicy", "networkpolicies")
            .strategy(&network_policy::STRATEGY)
            .short_names(&["netpol"]),
        cluster_scoped_kind("ServiceCIDR", "servicecidrs")
            .strategy(&service_cidr::SERVICE_CIDR_STRATEGY)
            .versions(ADDRESS_VERSIONS)
            .storage_versions(ADDRESS_STORED)
            .status(),
    ],
);

const ADDRESS_VERSIONS: &[KindVersion] =
    &[version("v1").since(R33), version("v1beta1").removed(R37), stored_only("v1alpha1").undecodable_since(R34)];

const ADDRESS_STORED: &[(Release, &str)] = &[(R31, "v1beta1"), (R34, "v1")];
