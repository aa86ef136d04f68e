//! Who somebody is and what they may do.

use crate::kind::builder::{STATUS, cluster_scoped_kind, group, namespaced_kind, stored_only, subresource, version};
use crate::kind::{BuiltInGroup, KindVersion};
use crate::release::Release::*;
use crate::verbs::VerbSet;

/// Reviews are answered, not stored.
pub(super) static AUTHENTICATION: BuiltInGroup = group(
    "authentication.k8s.io",
    17700,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    &[
        cluster_scoped_kind("SelfSubjectReview", "selfsubjectreviews").verbs(VerbSet::CREATE).not_stored().versions(&[
            version("v1"),
            version("v1beta1").removed(R33),
            version("v1alpha1").removed(R32),
        ]),
        cluster_scoped_kind("TokenReview", "tokenreviews")
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
            .verbs(VerbSet::CREATE)
            .not_stored()
            .versions(&[version("v1"), stored_only("v1beta1")]),
        cluster_scoped_kind("SelfSubjectAccessReview", "selfsubjectaccessreviews")
            .verbs(VerbSet::CREATE)
            .not_stored()
            .versions(&[version("v1"), stored_only("v1beta1")]),
        cluster_scoped_kind("SelfSubjectRulesReview", "selfsubjectrulesreviews")
            .verbs(VerbSet::CREATE)
            .not_stored()
            .versions(&[version("v1"), stored_only("v1beta1")]),
        cluster_scoped_kind("SubjectAccessReview", "subjectaccessreviews")
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
            .short_names(&["csr"])
            .versions(&[version("v1"), stored_only("v1beta1")])
            .subresources(&[subresource("approval", VerbSet::GET_PATCH_UPDATE), STATUS]),
        cluster_scoped_kind("ClusterTrustBundle", "clustertrustbundles")
            .gate("ClusterTrustBundle")
            .versions(&[version("v1").since(R37), version("v1beta1").since(R33), version("v1alpha1").removed(R37)])
            .storage_versions(&[(R31, "v1alpha1"), (R33, "v1beta1")]),
        namespaced_kind("PodCertificateRequest", "podcertificaterequests")
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
        cluster_scoped_kind("ClusterRoleBinding", "clusterrolebindings").versions(RBAC_VERSIONS),
        cluster_scoped_kind("ClusterRole", "clusterroles").versions(RBAC_VERSIONS),
        namespaced_kind("RoleBinding", "rolebindings").versions(RBAC_VERSIONS),
        namespaced_kind("Role", "roles").versions(RBAC_VERSIONS),
    ],
);

const RBAC_VERSIONS: &[KindVersion] = &[version("v1"), stored_only("v1beta1"), stored_only("v1alpha1")];
