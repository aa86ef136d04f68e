//! Groups of the control plane: extensions, admission, leases, events, priority and fairness, storage versions.

use crate::kind::builder::{cluster_scoped_kind, group, namespaced_kind, stored_only, version};
use crate::kind::{BuiltInGroup, KindVersion};
use crate::release::Release::{self, *};
use crate::{admission, api_service, custom_resource_definition, event, flow_control, lease, storage_version};

pub(super) static ADMISSION_REGISTRATION: BuiltInGroup = group(
    "admissionregistration.k8s.io",
    16700,
    &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)],
    &[
        cluster_scoped_kind("MutatingAdmissionPolicy", "mutatingadmissionpolicies")
            .strategy(&admission::MUTATING_POLICY_STRATEGY)
            .categories(&["api-extensions"])
            .versions(MUTATING_VERSIONS)
            .storage_versions(MUTATING_STORED),
        cluster_scoped_kind("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
            .strategy(&admission::MUTATING_BINDING_STRATEGY)
            .categories(&["api-extensions"])
            .versions(MUTATING_VERSIONS)
            .storage_versions(MUTATING_STORED),
        cluster_scoped_kind("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
            .strategy(&admission::WEBHOOK_STRATEGY)
            .categories(&["api-extensions"])
            .versions(&[version("v1"), stored_only("v1beta1")]),
        cluster_scoped_kind("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
            .strategy(&admission::VALIDATING_POLICY_STRATEGY)
            .categories(&["api-extensions"])
            .versions(VALIDATING_VERSIONS)
            .status(),
        cluster_scoped_kind("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
            .strategy(&admission::VALIDATING_BINDING_STRATEGY)
            .categories(&["api-extensions"])
            .versions(VALIDATING_VERSIONS),
        cluster_scoped_kind("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
            .strategy(&admission::WEBHOOK_STRATEGY)
            .categories(&["api-extensions"])
            .versions(&[version("v1"), stored_only("v1beta1")]),
    ],
);

const MUTATING_VERSIONS: &[KindVersion] =
    &[version("v1").since(R36), version("v1beta1").since(R34), version("v1alpha1").since(R32)];

const MUTATING_STORED: &[(Release, &str)] = &[(R32, "v1alpha1"), (R35, "v1beta1"), (R37, "v1")];

const VALIDATING_VERSIONS: &[KindVersion] =
    &[version("v1"), version("v1beta1").removed(R34), version("v1alpha1").removed(R32)];

/// Definitions are still stored in the version that is no longer served.
pub(super) static API_EXTENSIONS: BuiltInGroup = group(
    "apiextensions.k8s.io",
    16700,
    &[("v1", 15)],
    &[cluster_scoped_kind("CustomResourceDefinition", "customresourcedefinitions")
        .strategy(&custom_resource_definition::STRATEGY)
        .short_names(&["crd", "crds"])
        .categories(&["api-extensions"])
        .versions(&[version("v1"), stored_only("v1beta1")])
        .storage_versions(&[(R31, "v1beta1")])
        .key_override("apiextensions.k8s.io/customresourcedefinitions")
        .status()],
);

/// Always the first group, above the maximum priority of an APIService.
pub(super) static API_REGISTRATION: BuiltInGroup = group(
    "apiregistration.k8s.io",
    20001,
    &[("v1", 0)],
    &[cluster_scoped_kind("APIService", "apiservices")
        .strategy(&api_service::STRATEGY)
        .categories(&["api-extensions"])
        .versions(&[version("v1"), stored_only("v1beta1")])
        .key_override("apiregistration.k8s.io/apiservices")
        .status()],
);

pub(super) static COORDINATION: BuiltInGroup = group(
    "coordination.k8s.io",
    16500,
    &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12), ("v1alpha1", 9)],
    &[
        namespaced_kind("LeaseCandidate", "leasecandidates")
            .strategy(&lease::LEASE_CANDIDATE_STRATEGY)
            .versions(&[
                version("v1beta1").since(R33),
                version("v1alpha2").since(R32),
                version("v1alpha1").undecodable_since(R32),
            ])
            .storage_versions(&[(R31, "v1alpha1"), (R32, "v1alpha2"), (R33, "v1beta1")]),
        namespaced_kind("Lease", "leases")
            .strategy(&lease::LEASE_STRATEGY)
            .versions(&[version("v1"), stored_only("v1beta1")]),
    ],
);

/// The events of the core group with other field names; both groups share the stored objects.
pub(super) static EVENTS: BuiltInGroup = group(
    "events.k8s.io",
    17750,
    &[("v1", 15)],
    &[namespaced_kind("Event", "events")
        .strategy(&event::EVENTS_STRATEGY)
        .short_names(&["ev"])
        .versions(&[version("v1"), stored_only("v1beta1")])
        .stored_in_group("")],
);

pub(super) static FLOW_CONTROL: BuiltInGroup = group(
    "flowcontrol.apiserver.k8s.io",
    16100,
    &[("v1", 21), ("v1beta3", 18)],
    &[
        cluster_scoped_kind("FlowSchema", "flowschemas")
            .strategy(&flow_control::FLOW_SCHEMA_STRATEGY)
            .versions(FLOW_VERSIONS)
            .status(),
        cluster_scoped_kind("PriorityLevelConfiguration", "prioritylevelconfigurations")
            .strategy(&flow_control::PRIORITY_LEVEL_STRATEGY)
            .versions(FLOW_VERSIONS)
            .status(),
    ],
);

const FLOW_VERSIONS: &[KindVersion] = &[
    version("v1"),
    version("v1beta3").removed(R32).enabled_by_default(),
    stored_only("v1beta2"),
    stored_only("v1beta1"),
];

pub(super) static INTERNAL: BuiltInGroup = group(
    "internal.apiserver.k8s.io",
    16000,
    &[("v1alpha1", 9)],
    &[cluster_scoped_kind("StorageVersion", "storageversions")
        .strategy(&storage_version::STRATEGY)
        .versions(&[version("v1alpha1")])
        .status()],
);
