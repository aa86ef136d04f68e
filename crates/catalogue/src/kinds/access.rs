//! Who somebody is and what they may do.

use crate::kind::row::{STATUS, cluster, group, namespaced, old, part, v};
use crate::kind::{Group, KindVersion};
use crate::release::Release::*;
use crate::verbs::Verbs;

/// Reviews are answered, not stored.
pub(super) static AUTHENTICATION: Group = group(
    "authentication.k8s.io",
    17700,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    &[
        cluster("SelfSubjectReview", "selfsubjectreviews").verbs(Verbs::CREATE).computed().versions(&[
            v("v1"),
            v("v1beta1").removed(R33),
            v("v1alpha1").removed(R32),
        ]),
        cluster("TokenReview", "tokenreviews").verbs(Verbs::CREATE).computed().versions(&[v("v1"), old("v1beta1")]),
    ],
);

/// Reviews are answered, not stored.
pub(super) static AUTHORIZATION: Group = group(
    "authorization.k8s.io",
    17600,
    &[("v1", 15)],
    &[
        namespaced("LocalSubjectAccessReview", "localsubjectaccessreviews")
            .verbs(Verbs::CREATE)
            .computed()
            .versions(&[v("v1"), old("v1beta1")]),
        cluster("SelfSubjectAccessReview", "selfsubjectaccessreviews")
            .verbs(Verbs::CREATE)
            .computed()
            .versions(&[v("v1"), old("v1beta1")]),
        cluster("SelfSubjectRulesReview", "selfsubjectrulesreviews")
            .verbs(Verbs::CREATE)
            .computed()
            .versions(&[v("v1"), old("v1beta1")]),
        cluster("SubjectAccessReview", "subjectaccessreviews")
            .verbs(Verbs::CREATE)
            .computed()
            .versions(&[v("v1"), old("v1beta1")]),
    ],
);

pub(super) static CERTIFICATES: Group = group(
    "certificates.k8s.io",
    17300,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    &[
        cluster("CertificateSigningRequest", "certificatesigningrequests")
            .short(&["csr"])
            .versions(&[v("v1"), old("v1beta1")])
            .subresources(&[part("approval", Verbs::PART), STATUS]),
        cluster("ClusterTrustBundle", "clustertrustbundles")
            .gate("ClusterTrustBundle")
            .versions(&[v("v1").since(R37), v("v1beta1").since(R33), v("v1alpha1").removed(R37)])
            .stored(&[(R31, "v1alpha1"), (R33, "v1beta1")]),
        namespaced("PodCertificateRequest", "podcertificaterequests")
            .gate("PodCertificateRequest")
            .versions(&[v("v1").since(R37), v("v1beta1").since(R35), v("v1alpha1").since(R34).forgotten(R35)])
            .stored(&[(R34, "v1alpha1"), (R35, "v1beta1")])
            .status(),
    ],
);

pub(super) static RBAC: Group = group(
    "rbac.authorization.k8s.io",
    17000,
    &[("v1", 15)],
    &[
        cluster("ClusterRoleBinding", "clusterrolebindings").versions(RBAC_VERSIONS),
        cluster("ClusterRole", "clusterroles").versions(RBAC_VERSIONS),
        namespaced("RoleBinding", "rolebindings").versions(RBAC_VERSIONS),
        namespaced("Role", "roles").versions(RBAC_VERSIONS),
    ],
);

const RBAC_VERSIONS: &[KindVersion] = &[v("v1"), old("v1beta1"), old("v1alpha1")];
