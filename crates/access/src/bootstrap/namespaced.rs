//! Default roles and bindings in `kube-system` and `kube-public`.

use super::rule_row::{EVENTS, READ, RuleRow, rule, rule_for_names};

const LEADER_ELECTION_VERBS: &str = "get list watch create update";

/// Namespace, name and rules.
pub(super) static NAMESPACED_ROLES: &[(&str, &str, &[RuleRow])] = &[
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        &[rule(READ, "core", "configmaps"), rule_for_names("update", "core", "configmaps", "cluster-info"), EVENTS],
    ),
    // Extension API servers read the front proxy settings from this ConfigMap.
    (
        "kube-system",
        "extension-apiserver-authentication-reader",
        &[rule_for_names(READ, "core", "configmaps", "extension-apiserver-authentication")],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        &[
            rule(LEADER_ELECTION_VERBS, "coordination.k8s.io", "leases"),
            rule(LEADER_ELECTION_VERBS, "coordination.k8s.io", "leasecandidates"),
        ],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        &[
            rule(LEADER_ELECTION_VERBS, "coordination.k8s.io", "leases"),
            rule(LEADER_ELECTION_VERBS, "coordination.k8s.io", "leasecandidates"),
        ],
    ),
    ("kube-system", "system:controller:bootstrap-signer", &[rule(READ, "core", "secrets")]),
    ("kube-system", "system:controller:cloud-provider", &[rule("get list watch create", "core", "configmaps")]),
    ("kube-system", "system:controller:token-cleaner", &[rule("get list watch delete", "core", "secrets"), EVENTS]),
];

/// Namespace, name, role and subjects. `sa:` marks service accounts of kube-system; the other subjects are users.
pub(super) static NAMESPACED_BINDINGS: &[(&str, &str, &str, &[&str])] = &[
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        "system:controller:bootstrap-signer",
        &["sa:bootstrap-signer"],
    ),
    (
        "kube-system",
        "system::extension-apiserver-authentication-reader",
        "extension-apiserver-authentication-reader",
        &["system:kube-controller-manager", "system:kube-scheduler"],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        "system::leader-locking-kube-controller-manager",
        &["system:kube-controller-manager", "sa:kube-controller-manager", "sa:leader-election-controller"],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        "system::leader-locking-kube-scheduler",
        &["system:kube-scheduler", "sa:kube-scheduler"],
    ),
    (
        "kube-system",
        "system:controller:bootstrap-signer",
        "system:controller:bootstrap-signer",
        &["sa:bootstrap-signer"],
    ),
    ("kube-system", "system:controller:cloud-provider", "system:controller:cloud-provider", &["sa:cloud-provider"]),
    ("kube-system", "system:controller:token-cleaner", "system:controller:token-cleaner", &["sa:token-cleaner"]),
];
