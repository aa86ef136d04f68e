//! What runs, how much of it, where, and when it may be disturbed.

use crate::kind::Group;
use crate::kind::row::{SCALE, STATUS, cluster, group, namespaced, old, v};
use crate::release::Release::*;

pub(super) static APPS: Group = group(
    "apps",
    17800,
    &[("v1", 15)],
    &[
        namespaced("ControllerRevision", "controllerrevisions").versions(&[v("v1"), old("v1beta2"), old("v1beta1")]),
        namespaced("DaemonSet", "daemonsets")
            .short(&["ds"])
            .category(&["all"])
            .versions(&[v("v1"), old("v1beta2")])
            .status(),
        namespaced("Deployment", "deployments")
            .short(&["deploy"])
            .category(&["all"])
            .versions(&[v("v1"), old("v1beta2"), old("v1beta1")])
            .subresources(&[SCALE, STATUS]),
        namespaced("ReplicaSet", "replicasets")
            .short(&["rs"])
            .category(&["all"])
            .versions(&[v("v1"), old("v1beta2")])
            .subresources(&[SCALE, STATUS]),
        namespaced("StatefulSet", "statefulsets")
            .short(&["sts"])
            .category(&["all"])
            .versions(&[v("v1"), old("v1beta2"), old("v1beta1")])
            .subresources(&[SCALE, STATUS]),
    ],
);

pub(super) static AUTOSCALING: Group = group(
    "autoscaling",
    17500,
    &[("v2", 30), ("v1", 15)],
    &[namespaced("HorizontalPodAutoscaler", "horizontalpodautoscalers")
        .short(&["hpa"])
        .category(&["all"])
        .versions(&[v("v2"), v("v1"), old("v2beta1").forgotten(R36), old("v2beta2").forgotten(R36)])
        .status()],
);

pub(super) static BATCH: Group = group(
    "batch",
    17400,
    &[("v1", 15)],
    &[
        namespaced("CronJob", "cronjobs")
            .short(&["cj"])
            .category(&["all"])
            .versions(&[v("v1"), old("v1beta1")])
            .status(),
        namespaced("Job", "jobs").category(&["all"]).status(),
    ],
);

pub(super) static LIFECYCLE: Group = group(
    "lifecycle.k8s.io",
    15700,
    &[("v1alpha1", 1)],
    &[
        namespaced("EvictionRequest", "evictionrequests")
            .gate("EvictionRequestAPI")
            .versions(&[v("v1alpha1").since(R37)])
            .status(),
        namespaced("Eviction", "evictions").gate("EvictionRequestAPI").versions(&[v("v1alpha1").since(R37)]).status(),
    ],
);

pub(super) static NODE: Group = group(
    "node.k8s.io",
    16300,
    &[("v1", 15)],
    &[cluster("RuntimeClass", "runtimeclasses").versions(&[v("v1"), old("v1beta1"), old("v1alpha1")])],
);

pub(super) static POLICY: Group = group(
    "policy",
    17100,
    &[("v1", 15)],
    &[namespaced("PodDisruptionBudget", "poddisruptionbudgets")
        .short(&["pdb"])
        .versions(&[v("v1"), old("v1beta1")])
        .status()],
);

pub(super) static SCHEDULING: Group = group(
    "scheduling.k8s.io",
    16600,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha3", 3), ("v1alpha2", 2), ("v1alpha1", 1)],
    &[
        namespaced("CompositePodGroup", "compositepodgroups")
            .gate("CompositePodGroup")
            .versions(&[v("v1alpha3").since(R37)])
            .status(),
        namespaced("PodGroup", "podgroups")
            .gate("GenericWorkload")
            .versions(&[v("v1beta1").since(R37), v("v1alpha3").since(R37), v("v1alpha2").since(R36).forgotten(R37)])
            .status(),
        cluster("PriorityClass", "priorityclasses").short(&["pc"]).versions(&[
            v("v1"),
            old("v1beta1"),
            old("v1alpha1").forgotten(R36),
        ]),
        namespaced("Workload", "workloads").gate("GenericWorkload").versions(&[
            v("v1beta1").since(R37),
            v("v1alpha3").since(R37),
            v("v1alpha2").since(R36).forgotten(R37),
            v("v1alpha1").since(R35).forgotten(R36),
        ]),
    ],
);
