//! Authentication, authorization, certificates and RBAC.

use crate::kind::builder::{STATUS, cluster_scoped_kind, group, namespaced_kind, stored_only, subresource, version};
use crate::kind::{BuiltInGroup, KindVersion};
use crate::release::Release::*;
use crate::verbs::VerbSet;
use crate::{certificate_signing_request, cluster_trust_bundle, pod_certificate_request, rbac, review};

/// Reviews are answered, not stored.
pub(super) static AUTHENTICATION: BuiltInGroup = group(
    "authentication.k8s.io",
    17700,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    &[
        cluster_scoped_kind("SelfSubjectReview", "selfsubjectreviews")
            .strategy(&review::SELF_SUBJECT_REVIEW_STRATEGY)
            .verbs(VerbSet::CREATE)
            .not_stored()
            .versions(&[version("v1"), version("v1beta1").removed(R33), version("v1alpha1").removed(R32)]),
        cluster_scoped_kind("TokenReview", "tokenreviews")
            .strategy(&review::TOKEN_REVIEW_STRATEGY)
            .verbs(VerbSet::CREATE)
            .not_stored()
            .versions(&[version("v1"), stored_only("v1beta1")]),
    ],
);

/// Reviews are answered, not stored.
pub(super) static AUTHORIZATION: BuiltInGroup = group(
    "authorization.k8s.io",
    17600,
    &[("v1", 15)],
    &[
        namespaced_kind("LocalSubjectAccessReview", "localsubjectaccessreviews")
            .strategy(&review::LOCAL_SUBJECT_ACCESS_REVIEW_STRATEGY)
            .verbs(VerbSet::CREATE)
            .not_stored()
            .versions(&[version("v1"), stored_only("v1beta1")]),
        cluster_scoped_kind("SelfSubjectAccessReview", "selfsubjectaccessreviews")
            .strategy(&review::SELF_SUBJECT_ACCESS_REVIEW_STRATEGY)
            .verbs(VerbSet::CREATE)
            .not_stored()
            .versions(&[version("v1"), stored_only("v1beta1")]),
        cluster_scoped_kind("SelfSubjectRulesReview", "selfsubjectrulesreviews")
            .strategy(&review::SELF_SUBJECT_RULES_REVIEW_STRATEGY)
            .verbs(VerbSet::CREATE)
            .not_stored()
            .versions(&[version("v1"), stored_only("v1beta1")]),
        cluster_scoped_kind("SubjectAccessReview", "subjectaccessreviews")
            .strategy(&review::SUBJECT_ACCESS_REVIEW_STRATEGY)
            .verbs(VerbSet::CREATE)
            .not_stored()
            .versions(&[version("v1"), stored_only("v1beta1")]),
    ],
);

pub(super) static CERTIFICATES: BuiltInGroup = group(
    "certificates.k8s.io",
    17300,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    &[
        cluster_scoped_kind("CertificateSigningRequest", "certificatesigningrequests")
            .strategy(&certificate_signing_request::STRATEGY)
            .short_names(&["csr"])
            .versions(&[version("v1"), stored_only("v1beta1")])
            .subresources(&[subresource("approval", VerbSet::GET_PATCH_UPDATE), STATUS]),
        cluster_scoped_kind("ClusterTrustBundle", "clustertrustbundles")
            .strategy(&cluster_trust_bundle::STRATEGY)
            .gate("ClusterTrustBundle")
            .versions(&[version("v1").since(R37), version("v1beta1").since(R33), version("v1alpha1").removed(R37)])
            .storage_versions(&[(R31, "v1alpha1"), (R33, "v1beta1")]),
        namespaced_kind("PodCertificateRequest", "podcertificaterequests")
            .strategy(&pod_certificate_request::STRATEGY)
            .gate("PodCertificateRequest")
            .versions(&[
                version("v1").since(R37),
                version("v1beta1").since(R35),
                version("v1alpha1").since(R34).undecodable_since(R35),
            ])
            .storage_versions(&[(R34, "v1alpha1"), (R35, "v1beta1")])
            .status(),
    ],
);

pub(super) static RBAC: BuiltInGroup = group(
    "rbac.authorization.k8s.io",
    17000,
    &[("v1", 15)],
    &[
        cluster_scoped_kind("ClusterRoleBinding", "clusterrolebindings")
            .strategy(&rbac::CLUSTER_ROLE_BINDING_STRATEGY)
            .versions(RBAC_VERSIONS),
        cluster_scoped_kind("ClusterRole", "clusterroles")
            .strategy(&rbac::CLUSTER_ROLE_STRATEGY)
            .versions(RBAC_VERSIONS),
        namespaced_kind("RoleBinding", "rolebindings").strategy(&rbac::ROLE_BINDING_STRATEGY).versions(RBAC_VERSIONS),
        namespaced_kind("Role", "roles").strategy(&rbac::ROLE_STRATEGY).versions(RBAC_VERSIONS),
    ],
);

const RBAC_VERSIONS: &[KindVersion] = &[version("v1"), stored_only("v1beta1"), stored_only("v1alpha1")];
