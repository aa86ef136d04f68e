//! Workloads, autoscaling, scheduling and disruption.

use crate::kind::BuiltInGroup;
use crate::kind::builder::{SCALE, STATUS, cluster_scoped_kind, group, namespaced_kind, stored_only, version};
use crate::release::Release::*;
use crate::{
    controller_revision, cron_job, daemon_set, deployment, eviction_request, horizontal_pod_autoscaler, job,
    pod_disruption_budget, replica_set, runtime_class, scheduling, stateful_set,
};

pub(super) static APPS: BuiltInGroup = group(
    "apps",
    17800,
    &[("v1", 15)],
    &[
        namespaced_kind("ControllerRevision", "controllerrevisions")
            .strategy(&controller_revision::STRATEGY)
            .versions(&[version("v1"), stored_only("v1beta2"), stored_only("v1beta1")]),
        namespaced_kind("DaemonSet", "daemonsets")
            .strategy(&daemon_set::STRATEGY)
            .short_names(&["ds"])
            .categories(&["all"])
            .versions(&[version("v1"), stored_only("v1beta2")])
            .status(),
        namespaced_kind("Deployment", "deployments")
            .strategy(&deployment::STRATEGY)
            .short_names(&["deploy"])
            .categories(&["all"])
            .versions(&[version("v1"), stored_only("v1beta2"), stored_only("v1beta1")])
            .subresources(&[SCALE, STATUS]),
        namespaced_kind("ReplicaSet", "replicasets")
            .strategy(&replica_set::STRATEGY)
            .short_names(&["rs"])
            .categories(&["all"])
            .versions(&[version("v1"), stored_only("v1beta2")])
            .subresources(&[SCALE, STATUS]),
        namespaced_kind("StatefulSet", "statefulsets")
            .strategy(&stateful_set::STRATEGY)
            .short_names(&["sts"])
            .categories(&["all"])
            .versions(&[version("v1"), stored_only("v1beta2"), stored_only("v1beta1")])
            .subresources(&[SCALE, STATUS]),
    ],
);

pub(super) static AUTOSCALING: BuiltInGroup = group(
    "autoscaling",
    17500,
    &[("v2", 30), ("v1", 15)],
    &[namespaced_kind("HorizontalPodAutoscaler", "horizontalpodautoscalers")
        .strategy(&horizontal_pod_autoscaler::STRATEGY)
        .short_names(&["hpa"])
        .categories(&["all"])
        .versions(&[
            version("v2"),
            version("v1"),
            stored_only("v2beta1").undecodable_since(R36),
            stored_only("v2beta2").undecodable_since(R36),
        ])
        .status()],
);

pub(super) static BATCH: BuiltInGroup = group(
    "batch",
    17400,
    &[("v1", 15)],
    &[
        namespaced_kind("CronJob", "cronjobs")
            .strategy(&cron_job::STRATEGY)
            .short_names(&["cj"])
            .categories(&["all"])
            .versions(&[version("v1"), stored_only("v1beta1")])
            .status(),
        namespaced_kind("Job", "jobs").strategy(&job::STRATEGY).categories(&["all"]).status(),
    ],
);

pub(super) static LIFECYCLE: BuiltInGroup = group(
    "lifecycle.k8s.io",
    15700,
    &[("v1alpha1", 1)],
    &[
        namespaced_kind("EvictionRequest", "evictionrequests")
            .strategy(&eviction_request::EVICTION_REQUEST_STRATEGY)
            .gate("EvictionRequestAPI")
            .versions(&[version("v1alpha1").since(R37)])
            .status(),
        namespaced_kind("Eviction", "evictions")
            .strategy(&eviction_request::EVICTION_STRATEGY)
            .gate("EvictionRequestAPI")
            .versions(&[version("v1alpha1").since(R37)])
            .status(),
    ],
);

pub(super) static NODE: BuiltInGroup = group(
    "node.k8s.io",
    16300,
    &[("v1", 15)],
    &[cluster_scoped_kind("RuntimeClass", "runtimeclasses").strategy(&runtime_class::STRATEGY).versions(&[
        version("v1"),
        stored_only("v1beta1"),
        stored_only("v1alpha1"),
    ])],
);

pub(super) static POLICY: BuiltInGroup = group(
    "policy",
    17100,
    &[("v1", 15)],
    &[namespaced_kind("PodDisruptionBudget", "poddisruptionbudgets")
        .strategy(&pod_disruption_budget::STRATEGY)
        .short_names(&["pdb"])
        .versions(&[version("v1"), stored_only("v1beta1")])
        .status()],
);

pub(super) static SCHEDULING: BuiltInGroup = group(
    "scheduling.k8s.io",
    16600,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha3", 3), ("v1alpha2", 2), ("v1alpha1", 1)],
    &[
        namespaced_kind("CompositePodGroup", "compositepodgroups")
            .strategy(&scheduling::COMPOSITE_POD_GROUP_STRATEGY)
            .gate("CompositePodGroup")
            .versions(&[version("v1alpha3").since(R37)])
            .status(),
        namespaced_kind("PodGroup", "podgroups")
            .strategy(&scheduling::POD_GROUP_STRATEGY)
            .gate("GenericWorkload")
            .versions(&[
                version("v1beta1").since(R37),
                version("v1alpha3").since(R37),
                version("v1alpha2").since(R36).undecodable_since(R37),
            ])
            .status(),
        cluster_scoped_kind("PriorityClass", "priorityclasses")
            .strategy(&scheduling::PRIORITY_CLASS_STRATEGY)
            .short_names(&["pc"])
            .versions(&[version("v1"), stored_only("v1beta1"), stored_only("v1alpha1").undecodable_since(R36)]),
        namespaced_kind("Workload", "workloads")
            .strategy(&scheduling::WORKLOAD_STRATEGY)
            .gate("GenericWorkload")
            .versions(&[
                version("v1beta1").since(R37),
                version("v1alpha3").since(R37),
                version("v1alpha2").since(R36).undecodable_since(R37),
                version("v1alpha1").since(R35).undecodable_since(R36),
            ]),
    ],
);
