//! How traffic finds its way.

use crate::kind::row::{cluster, group, namespaced, old, v};
use crate::kind::{Group, KindVersion};
use crate::release::Release::{self, *};

pub(super) static DISCOVERY: Group = group(
    "discovery.k8s.io",
    16200,
    &[("v1", 15)],
    &[namespaced("EndpointSlice", "endpointslices").versions(&[v("v1"), old("v1beta1")])],
);

pub(super) static NETWORKING: Group = group(
    "networking.k8s.io",
    17200,
    &[("v1", 15), ("v1beta1", 9)],
    &[
        cluster("IngressClass", "ingressclasses").versions(&[v("v1"), old("v1beta1")]),
        namespaced("Ingress", "ingresses").short(&["ing"]).versions(&[v("v1"), old("v1beta1")]).key("ingress").status(),
        cluster("IPAddress", "ipaddresses").short(&["ip"]).versions(ADDRESS_VERSIONS).stored(ADDRESS_STORED),
        namespaced("NetworkPolicy", "networkpolicies").short(&["netpol"]),
        cluster("ServiceCIDR", "servicecidrs").versions(ADDRESS_VERSIONS).stored(ADDRESS_STORED).status(),
    ],
);

const ADDRESS_VERSIONS: &[KindVersion] =
    &[v("v1").since(R33), v("v1beta1").removed(R37), old("v1alpha1").forgotten(R34)];

const ADDRESS_STORED: &[(Release, &str)] = &[(R31, "v1beta1"), (R34, "v1")];
