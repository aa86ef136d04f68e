//! Default roles of kube-controller-manager's controllers, each bound to a service account in kube-system.

use super::rule_row::RuleCondition::{Gate, Since, Until};
use super::rule_row::{EVENTS, READ, READ_UPDATE, RuleRow, rule, rule_for_names, rule_when};

/// Controllers that create and delete pods.
pub(super) static WORKLOAD_CONTROLLER_ROLES: &[(&str, &[RuleRow])] = &[
    (
        "cronjob-controller",
        &[
            rule("get list watch update", "batch", "cronjobs"),
            rule("get list watch create update patch delete", "batch", "jobs"),
            rule("update", "batch", "cronjobs/status"),
            rule("update", "batch", "cronjobs/finalizers"),
            rule("list watch delete", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "daemon-set-controller",
        &[
            rule(READ, "apps extensions", "daemonsets"),
            rule("update", "apps extensions", "daemonsets/status"),
            rule("update", "apps extensions", "daemonsets/finalizers"),
            rule("list watch", "core", "nodes"),
            rule("list watch create patch delete", "core", "pods"),
            rule("create", "core", "pods/binding"),
            rule("get list watch create update patch delete", "apps", "controllerrevisions"),
            EVENTS,
        ],
    ),
    (
        "deployment-controller",
        &[
            rule("get list watch update", "apps extensions", "deployments"),
            rule("update", "apps extensions", "deployments/status"),
            rule("update", "apps extensions", "deployments/finalizers"),
            rule("get list watch create update patch delete", "apps extensions", "replicasets"),
            rule("get list watch update", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "device-taint-eviction-controller",
        &[
            rule("get list watch delete", "core", "pods"),
            rule("update patch", "core", "pods/status"),
            rule(READ, "resource.k8s.io", "resourceclaims"),
            rule(READ, "resource.k8s.io", "resourceslices"),
            rule(READ, "resource.k8s.io", "deviceclasses"),
            EVENTS,
            rule_when(Gate("DRADeviceTaintRules"), rule("update patch", "resource.k8s.io", "devicetaintrules/status")),
            rule_when(Gate("DRADeviceTaintRules"), rule(READ, "resource.k8s.io", "devicetaintrules")),
        ],
    ),
    (
        "disruption-controller",
        &[
            rule(READ, "apps extensions", "deployments"),
            rule(READ, "apps extensions", "replicasets"),
            rule(READ, "core", "replicationcontrollers"),
            rule(READ, "policy", "poddisruptionbudgets"),
            rule(READ, "apps", "statefulsets"),
            rule("update", "policy", "poddisruptionbudgets/status"),
            rule("update patch", "core", "pods/status"),
            rule("get", "*", "*/scale"),
            EVENTS,
        ],
    ),
    (
        "horizontal-pod-autoscaler",
        &[
            rule(READ, "autoscaling", "horizontalpodautoscalers"),
            rule("update", "autoscaling", "horizontalpodautoscalers/status"),
            rule("get update", "*", "*/scale"),
            rule("list watch", "core", "pods"),
            rule("list watch", "metrics.k8s.io", "pods"),
            rule(READ, "custom.metrics.k8s.io", "*"),
            rule(READ, "external.metrics.k8s.io", "*"),
            EVENTS,
        ],
    ),
    (
        "job-controller",
        &[
            rule(READ_UPDATE, "batch", "jobs"),
            rule("update", "batch", "jobs/status"),
            rule("update", "batch", "jobs/finalizers"),
            rule("list watch create patch delete", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "pod-garbage-collector",
        &[rule("list watch delete", "core", "pods"), rule(READ, "core", "nodes"), rule("patch", "core", "pods/status")],
    ),
    (
        "podgroup-protection-controller",
        &[rule("get list watch update", "scheduling.k8s.io", "podgroups"), rule(READ, "core", "pods")],
    ),
    (
        "replicaset-controller",
        &[
            rule("get list watch update", "apps extensions", "replicasets"),
            rule("update", "apps extensions", "replicasets/status"),
            rule("update", "apps extensions", "replicasets/finalizers"),
            rule("list watch create patch delete", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "replication-controller",
        &[
            rule("get list watch update", "core", "replicationcontrollers"),
            rule("update", "core", "replicationcontrollers/status"),
            rule("update", "core", "replicationcontrollers/finalizers"),
            rule("list watch create patch delete", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "resource-claim-controller",
        &[
            rule(READ, "core", "pods"),
            rule("update", "core", "pods/finalizers"),
            rule("get list watch create delete", "resource.k8s.io", "resourceclaims"),
            rule("update patch", "resource.k8s.io", "resourceclaims resourceclaims/status"),
            rule("update patch", "core", "pods/status"),
            EVENTS,
            rule_when(
                Gate("DRAResourceClaimGranularStatusAuthorization"),
                rule("update patch", "resource.k8s.io", "resourceclaims/binding"),
            ),
        ],
    ),
    (
        "resourcepoolstatusrequest-controller",
        &[
            rule("get list watch delete", "resource.k8s.io", "resourcepoolstatusrequests"),
            rule("update patch", "resource.k8s.io", "resourcepoolstatusrequests/status"),
            rule(READ, "resource.k8s.io", "resourceslices"),
            rule(READ, "resource.k8s.io", "resourceclaims"),
            rule(READ, "resource.k8s.io", "devicetaintrules"),
            EVENTS,
        ],
    ),
    (
        "statefulset-controller",
        &[
            rule("list watch", "core", "pods"),
            rule(READ, "apps", "statefulsets"),
            rule("update", "apps", "statefulsets/status"),
            rule("update", "apps", "statefulsets/finalizers"),
            rule("get create update patch delete", "core", "pods"),
            rule("get list watch create update patch delete", "apps", "controllerrevisions"),
            rule("get list watch create", "core", "persistentvolumeclaims"),
            rule("update delete", "core", "persistentvolumeclaims"),
            rule("update", "core", "pods/finalizers"),
            EVENTS,
        ],
    ),
    ("ttl-after-finished-controller", &[rule("get list watch delete", "batch", "jobs"), EVENTS]),
];

/// Controllers of endpoints, routes and services.
pub(super) static NETWORK_CONTROLLER_ROLES: &[(&str, &[RuleRow])] = &[
    (
        "endpoint-controller",
        &[
            rule(READ, "core", "pods services"),
            rule("get list watch create update delete", "core", "endpoints"),
            rule("create", "core", "endpoints/restricted"),
            EVENTS,
        ],
    ),
    (
        "endpointslice-controller",
        &[
            rule(READ, "core", "nodes pods services"),
            rule("update", "core", "services/finalizers"),
            rule("get list watch create update delete", "discovery.k8s.io", "endpointslices"),
            EVENTS,
        ],
    ),
    (
        "endpointslicemirroring-controller",
        &[
            rule(READ, "core", "endpoints services"),
            rule("update", "core", "services/finalizers"),
            rule("update", "core", "endpoints/finalizers"),
            rule("get list watch create update delete", "discovery.k8s.io", "endpointslices"),
            EVENTS,
        ],
    ),
    ("route-controller", &[rule("list watch", "core", "nodes"), rule("patch", "core", "nodes/status"), EVENTS]),
    (
        "service-cidrs-controller",
        &[
            rule(READ_UPDATE, "networking.k8s.io", "servicecidrs"),
            rule("update patch", "networking.k8s.io", "servicecidrs/finalizers"),
            rule("update patch", "networking.k8s.io", "servicecidrs/status"),
            rule(READ, "networking.k8s.io", "ipaddresses"),
            EVENTS,
        ],
    ),
    (
        "service-controller",
        &[
            rule(READ, "core", "services"),
            rule("update patch", "core", "services/status"),
            rule("list watch", "core", "nodes"),
            EVENTS,
        ],
    ),
];

/// Controllers of volumes and claims.
pub(super) static VOLUME_CONTROLLER_ROLES: &[(&str, &[RuleRow])] = &[
    (
        "attachdetach-controller",
        &[
            rule("list watch", "core", "persistentvolumeclaims persistentvolumes"),
            rule(READ, "core", "nodes"),
            rule("update patch", "core", "nodes/status"),
            rule("list watch", "core", "pods"),
            EVENTS,
            rule("get list watch create delete", "storage.k8s.io", "volumeattachments"),
            rule(READ, "storage.k8s.io", "csidrivers"),
            rule(READ, "storage.k8s.io", "csinodes"),
        ],
    ),
    (
        "ephemeral-volume-controller",
        &[
            rule(READ, "core", "pods"),
            rule("update", "core", "pods/finalizers"),
            rule("get list watch create", "core", "persistentvolumeclaims"),
            EVENTS,
        ],
    ),
    (
        "expand-controller",
        &[
            rule(READ_UPDATE, "core", "persistentvolumes"),
            rule("update patch", "core", "persistentvolumeclaims/status"),
            rule(READ, "core", "persistentvolumeclaims"),
            rule_when(Until(35), rule("get", "core", "services")),
            EVENTS,
        ],
    ),
    (
        "persistent-volume-binder",
        &[
            rule("get list watch create update delete", "core", "persistentvolumes"),
            rule("update", "core", "persistentvolumes/status"),
            rule("get list watch update", "core", "persistentvolumeclaims"),
            rule("update", "core", "persistentvolumeclaims/status"),
            rule("get list watch create delete", "core", "pods"),
            rule(READ, "storage.k8s.io", "storageclasses"),
            rule_when(Until(35), rule("get", "core", "services")),
            rule("list watch", "core", "nodes"),
            EVENTS,
            rule("watch", "core", "events"),
        ],
    ),
    ("pv-protection-controller", &[rule("get list watch update", "core", "persistentvolumes"), EVENTS]),
    (
        "pvc-protection-controller",
        &[
            rule("get list watch update", "core", "persistentvolumeclaims"),
            rule_when(Since(36), rule("update", "core", "persistentvolumeclaims/status")),
            rule(READ, "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "selinux-warning-controller",
        &[
            EVENTS,
            rule(READ, "core", "persistentvolumes"),
            rule(READ, "core", "persistentvolumeclaims"),
            rule(READ, "core", "pods"),
            rule(READ, "storage.k8s.io", "csidrivers"),
        ],
    ),
    (
        "volumeattributesclass-protection-controller",
        &[
            rule(READ, "core", "persistentvolumeclaims"),
            rule(READ, "core", "persistentvolumes"),
            rule("get list watch update", "storage.k8s.io", "volumeattributesclasses"),
            EVENTS,
        ],
    ),
];

/// Controllers of cluster-wide objects: certificates, namespaces, nodes, quota, garbage collection.
pub(super) static CLUSTER_CONTROLLER_ROLES: &[(&str, &[RuleRow])] = &[
    (
        "certificate-controller",
        &[
            rule("get list watch delete", "certificates.k8s.io", "certificatesigningrequests"),
            rule(
                "update",
                "certificates.k8s.io",
                "certificatesigningrequests/approval certificatesigningrequests/status",
            ),
            rule_for_names("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet"),
            rule_for_names(
                "sign",
                "certificates.k8s.io",
                "signers",
                "kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet kubernetes.io/kubelet-serving kubernetes.io/legacy-unknown",
            ),
            rule("create", "authorization.k8s.io", "subjectaccessreviews"),
            EVENTS,
        ],
    ),
    (
        "clusterrole-aggregation-controller",
        &[rule("get list watch update patch escalate", "rbac.authorization.k8s.io", "clusterroles")],
    ),
    ("generic-garbage-collector", &[rule("get list watch update patch delete", "*", "*"), EVENTS]),
    (
        "kube-apiserver-serving-clustertrustbundle-publisher",
        &[
            rule_for_names("attest", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-serving"),
            rule("list watch create update delete", "certificates.k8s.io", "clustertrustbundles"),
            EVENTS,
        ],
    ),
    (
        "legacy-service-account-token-cleaner",
        &[
            rule_for_names("get", "core", "configmaps", "kube-apiserver-legacy-service-account-token-tracking"),
            rule("patch delete", "core", "secrets"),
        ],
    ),
    (
        "namespace-controller",
        &[
            rule("get list watch delete", "core", "namespaces"),
            rule("update", "core", "namespaces/finalize namespaces/status"),
            rule("get list watch delete deletecollection", "*", "*"),
        ],
    ),
    (
        "node-controller",
        &[
            rule("get list watch update patch delete", "core", "nodes"),
            rule("update patch", "core", "nodes/status"),
            rule("update patch", "core", "pods/status"),
            rule("get list watch delete", "core", "pods"),
            rule_when(Since(37), rule(READ, "coordination.k8s.io", "leases")),
            EVENTS,
        ],
    ),
    ("podcertificaterequestcleaner", &[rule("get list watch delete", "certificates.k8s.io", "podcertificaterequests")]),
    (
        "resourcequota-controller",
        &[rule("list watch", "*", "*"), rule("update", "core", "resourcequotas/status"), EVENTS],
    ),
    ("root-ca-cert-publisher", &[rule("create update", "core", "configmaps"), EVENTS]),
    ("service-account-controller", &[rule("create", "core", "serviceaccounts"), EVENTS]),
    (
        "storage-version-garbage-collector",
        &[
            rule(READ, "coordination.k8s.io", "leases"),
            rule("get list watch update patch delete", "internal.apiserver.k8s.io", "storageversions"),
            rule("get update patch", "internal.apiserver.k8s.io", "storageversions/status"),
        ],
    ),
    (
        "storage-version-migrator-controller",
        &[
            rule("list patch", "*", "*"),
            rule("get", "apiextensions.k8s.io", "customresourcedefinitions"),
            rule("patch", "apiextensions.k8s.io", "customresourcedefinitions/status"),
            rule("update", "storagemigration.k8s.io", "storageversionmigrations/status"),
        ],
    ),
    ("ttl-controller", &[rule("list watch update patch", "core", "nodes"), EVENTS]),
    (
        "validatingadmissionpolicy-status-controller",
        &[
            rule(READ, "admissionregistration.k8s.io", "validatingadmissionpolicies"),
            rule("get update patch", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
            EVENTS,
        ],
    ),
];
