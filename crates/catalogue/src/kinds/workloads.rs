//! What runs, how much of it, where, and when it may be disturbed.

use crate::kind::BuiltInGroup;
use crate::kind::builder::{SCALE, STATUS, cluster_scoped_kind, group, namespaced_kind, stored_only, version};
use crate::release::Release::*;

pub(super) static APPS: BuiltInGroup = group(
    "apps",
    17800,
    &[("v1", 15)],
    &[
        namespaced_kind("ControllerRevision", "controllerrevisions").versions(&[
            version("v1"),
            stored_only("v1beta2"),
            stored_only("v1beta1"),
        ]),
        namespaced_kind("DaemonSet", "daemonsets")
            .short_names(&["ds"])
            .categories(&["all"])
            .versions(&[version("v1"), stored_only("v1beta2")])
            .status(),
        namespaced_kind("Deployment", "deployments")
            .short_names(&["deploy"])
            .categories(&["all"])
            .versions(&[version("v1"), stored_only("v1beta2"), stored_only("v1beta1")])
            .subresources(&[SCALE, STATUS]),
        namespaced_kind("ReplicaSet", "replicasets")
            .short_names(&["rs"])
            .categories(&["all"])
            .versions(&[version("v1"), stored_only("v1beta2")])
            .subresources(&[SCALE, STATUS]),
        namespaced_kind("StatefulSet", "statefulsets")
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
            .short_names(&["cj"])
            .categories(&["all"])
            .versions(&[version("v1"), stored_only("v1beta1")])
            .status(),
        namespaced_kind("Job", "jobs").categories(&["all"]).status(),
    ],
);

pub(super) static LIFECYCLE: BuiltInGroup = group(
    "lifecycle.k8s.io",
    15700,
    &[("v1alpha1", 1)],
    &[
        namespaced_kind("EvictionRequest", "evictionrequests")
            .gate("EvictionRequestAPI")
            .versions(&[version("v1alpha1").since(R37)])
            .status(),
        namespaced_kind("Eviction", "evictions")
            .gate("EvictionRequestAPI")
            .versions(&[version("v1alpha1").since(R37)])
            .status(),
    ],
);

pub(super) static NODE: BuiltInGroup = group(
    "node.k8s.io",
    16300,
    &[("v1", 15)],
    &[cluster_scoped_kind("RuntimeClass", "runtimeclasses").versions(&[
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
            .gate("CompositePodGroup")
            .versions(&[version("v1alpha3").since(R37)])
            .status(),
        namespaced_kind("PodGroup", "podgroups")
            .gate("GenericWorkload")
            .versions(&[
                version("v1beta1").since(R37),
                version("v1alpha3").since(R37),
                version("v1alpha2").since(R36).undecodable_since(R37),
            ])
            .status(),
        cluster_scoped_kind("PriorityClass", "priorityclasses").short_names(&["pc"]).versions(&[
            version("v1"),
            stored_only("v1beta1"),
            stored_only("v1alpha1").undecodable_since(R36),
        ]),
        namespaced_kind("Workload", "workloads").gate("GenericWorkload").versions(&[
            version("v1beta1").since(R37),
            version("v1alpha3").since(R37),
            version("v1alpha2").since(R36).undecodable_since(R37),
            version("v1alpha1").since(R35).undecodable_since(R36),
        ]),
    ],
);
