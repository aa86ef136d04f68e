//! The core group, which has no name.

use crate::kind::builder::{
    SCALE, STATUS, cluster_scoped_kind, connect_subresource, group, namespaced_kind, subresource,
};
use crate::kind::{BuiltInGroup, BuiltInSubresource, ResponseKind};
use crate::release::Release::*;
use crate::verbs::VerbSet;
use crate::{
    config_map, endpoints, event, limit_range, namespace, node, persistent_volume, persistent_volume_claim, pod,
    pod_template, replication_controller, resource_quota, secret, service, service_account,
};

pub(super) static CORE: BuiltInGroup = group(
    "",
    18000,
    &[("v1", 1)],
    &[
        namespaced_kind("Binding", "bindings").verbs(VerbSet::CREATE).not_stored().not_implemented(),
        cluster_scoped_kind("ComponentStatus", "componentstatuses")
            .short_names(&["cs"])
            .verbs(VerbSet::GET_LIST)
            .not_stored()
            .not_implemented(),
        namespaced_kind("ConfigMap", "configmaps").strategy(&config_map::STRATEGY).short_names(&["cm"]),
        namespaced_kind("Endpoints", "endpoints")
            .strategy(&endpoints::ENDPOINTS_STRATEGY)
            .short_names(&["ep"])
            .key_override("services/endpoints"),
        namespaced_kind("Event", "events").strategy(&event::CORE_STRATEGY).short_names(&["ev"]),
        namespaced_kind("LimitRange", "limitranges").strategy(&limit_range::STRATEGY).short_names(&["limits"]),
        cluster_scoped_kind("Namespace", "namespaces")
            .strategy(&namespace::STRATEGY)
            .short_names(&["ns"])
            .verbs(VerbSet::ALL_BUT_DELETE_COLLECTION)
            .subresources(&[subresource("finalize", VerbSet::UPDATE), STATUS]),
        cluster_scoped_kind("Node", "nodes")
            .strategy(&node::STRATEGY)
            .short_names(&["no"])
            .key_override("minions")
            .subresources(&[
                connect_subresource("proxy", "NodeProxyOptions", VerbSet::PROXY).not_implemented(),
                STATUS,
            ]),
        namespaced_kind("PersistentVolumeClaim", "persistentvolumeclaims")
            .strategy(&persistent_volume_claim::STRATEGY)
            .short_names(&["pvc"])
            .status(),
        cluster_scoped_kind("PersistentVolume", "persistentvolumes")
            .strategy(&persistent_volume::STRATEGY)
            .short_names(&["pv"])
            .status(),
        namespaced_kind("Pod", "pods")
            .strategy(&pod::STRATEGY)
            .short_names(&["po"])
            .categories(&["all"])
            .subresources(POD_SUBRESOURCES),
        namespaced_kind("PodTemplate", "podtemplates").strategy(&pod_template::STRATEGY),
        namespaced_kind("ReplicationController", "replicationcontrollers")
            .strategy(&replication_controller::STRATEGY)
            .short_names(&["rc"])
            .categories(&["all"])
            .key_override("controllers")
            .subresources(&[SCALE, STATUS]),
        namespaced_kind("ResourceQuota", "resourcequotas")
            .strategy(&resource_quota::STRATEGY)
            .short_names(&["quota"])
            .status(),
        namespaced_kind("Secret", "secrets").strategy(&secret::STRATEGY),
        namespaced_kind("ServiceAccount", "serviceaccounts")
            .strategy(&service_account::STRATEGY)
            .short_names(&["sa"])
            .subresources(&[TOKEN]),
        namespaced_kind("Service", "services")
            .strategy(&service::STRATEGY)
            .short_names(&["svc"])
            .categories(&["all"])
            .key_override("services/specs")
            .subresources(&[
                connect_subresource("proxy", "ServiceProxyOptions", VerbSet::PROXY).not_implemented(),
                STATUS,
            ]),
    ],
);

const POD_SUBRESOURCES: &[BuiltInSubresource] = &[
    connect_subresource("attach", "PodAttachOptions", VerbSet::UPGRADE).not_implemented(),
    subresource("binding", VerbSet::CREATE).kind(ResponseKind::Sibling("Binding")),
    subresource("ephemeralcontainers", VerbSet::GET_PATCH_UPDATE),
    subresource("eviction", VerbSet::CREATE).kind(ResponseKind::Foreign("policy", "v1", "Eviction")),
    connect_subresource("exec", "PodExecOptions", VerbSet::UPGRADE).not_implemented(),
    subresource("log", VerbSet::GET).not_implemented(),
    connect_subresource("portforward", "PodPortForwardOptions", VerbSet::UPGRADE).not_implemented(),
    connect_subresource("proxy", "PodProxyOptions", VerbSet::PROXY).not_implemented(),
    subresource("resize", VerbSet::GET_PATCH_UPDATE).since(R32).gate("InPlacePodVerticalScaling"),
    STATUS,
];

const TOKEN: BuiltInSubresource =
    subresource("token", VerbSet::CREATE).kind(ResponseKind::Foreign("authentication.k8s.io", "v1", "TokenRequest"));
