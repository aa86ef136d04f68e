//! What API servers and control planes keep of themselves: extensions, admission, leases, events, fairness, storage versions.

use crate::kind::row::{cluster, group, namespaced, old, v};
use crate::kind::{Group, KindVersion};
use crate::release::Release::{self, *};

pub(super) static ADMISSION_REGISTRATION: Group = group(
    "admissionregistration.k8s.io",
    16700,
    &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)],
    &[
        cluster("MutatingAdmissionPolicy", "mutatingadmissionpolicies")
            .category(&["api-extensions"])
            .versions(MUTATING_VERSIONS)
            .stored(MUTATING_STORED),
        cluster("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
            .category(&["api-extensions"])
            .versions(MUTATING_VERSIONS)
            .stored(MUTATING_STORED),
        cluster("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
            .category(&["api-extensions"])
            .versions(&[v("v1"), old("v1beta1")]),
        cluster("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
            .category(&["api-extensions"])
            .versions(VALIDATING_VERSIONS)
            .status(),
        cluster("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
            .category(&["api-extensions"])
            .versions(VALIDATING_VERSIONS),
        cluster("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
            .category(&["api-extensions"])
            .versions(&[v("v1"), old("v1beta1")]),
    ],
);

const MUTATING_VERSIONS: &[KindVersion] = &[v("v1").since(R36), v("v1beta1").since(R34), v("v1alpha1").since(R32)];

const MUTATING_STORED: &[(Release, &str)] = &[(R32, "v1alpha1"), (R35, "v1beta1"), (R37, "v1")];

const VALIDATING_VERSIONS: &[KindVersion] = &[v("v1"), v("v1beta1").removed(R34), v("v1alpha1").removed(R32)];

/// Definitions are still stored in the version that is no longer served.
pub(super) static API_EXTENSIONS: Group = group(
    "apiextensions.k8s.io",
    16700,
    &[("v1", 15)],
    &[cluster("CustomResourceDefinition", "customresourcedefinitions")
        .short(&["crd", "crds"])
        .category(&["api-extensions"])
        .versions(&[v("v1"), old("v1beta1")])
        .stored(&[(R31, "v1beta1")])
        .key("apiextensions.k8s.io/customresourcedefinitions")
        .status()],
);

/// Always the first group, above anything that an APIService can ask for.
pub(super) static API_REGISTRATION: Group = group(
    "apiregistration.k8s.io",
    20001,
    &[("v1", 0)],
    &[cluster("APIService", "apiservices")
        .category(&["api-extensions"])
        .versions(&[v("v1"), old("v1beta1")])
        .key("apiregistration.k8s.io/apiservices")
        .status()],
);

pub(super) static COORDINATION: Group = group(
    "coordination.k8s.io",
    16500,
    &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12), ("v1alpha1", 9)],
    &[
        namespaced("LeaseCandidate", "leasecandidates")
            .versions(&[v("v1beta1").since(R33), v("v1alpha2").since(R32), v("v1alpha1").forgotten(R32)])
            .stored(&[(R31, "v1alpha1"), (R32, "v1alpha2"), (R33, "v1beta1")]),
        namespaced("Lease", "leases").versions(&[v("v1"), old("v1beta1")]),
    ],
);

/// The events of the core group in another form: the same objects.
pub(super) static EVENTS: Group = group(
    "events.k8s.io",
    17750,
    &[("v1", 15)],
    &[namespaced("Event", "events").short(&["ev"]).versions(&[v("v1"), old("v1beta1")]).stored_with("")],
);

pub(super) static FLOW_CONTROL: Group = group(
    "flowcontrol.apiserver.k8s.io",
    16100,
    &[("v1", 21), ("v1beta3", 18)],
    &[
        cluster("FlowSchema", "flowschemas").versions(FLOW_VERSIONS).status(),
        cluster("PriorityLevelConfiguration", "prioritylevelconfigurations").versions(FLOW_VERSIONS).status(),
    ],
);

const FLOW_VERSIONS: &[KindVersion] =
    &[v("v1"), v("v1beta3").removed(R32).on_by_default(), old("v1beta2"), old("v1beta1")];

pub(super) static INTERNAL: Group = group(
    "internal.apiserver.k8s.io",
    16000,
    &[("v1alpha1", 9)],
    &[cluster("StorageVersion", "storageversions").versions(&[v("v1alpha1")]).status()],
);
