//! The core group, which has no name.

use crate::kind::row::{SCALE, STATUS, cluster, connection, group, namespaced, part};
use crate::kind::{Group, ResponseKind, Subresource};
use crate::release::Release::*;
use crate::verbs::Verbs;

pub(super) static CORE: Group = group(
    "",
    18000,
    &[("v1", 1)],
    &[
        namespaced("Binding", "bindings").verbs(Verbs::CREATE).computed().unbuilt(),
        cluster("ComponentStatus", "componentstatuses").short(&["cs"]).verbs(Verbs::READ).computed().unbuilt(),
        namespaced("ConfigMap", "configmaps").short(&["cm"]),
        namespaced("Endpoints", "endpoints").short(&["ep"]).key("services/endpoints"),
        namespaced("Event", "events").short(&["ev"]),
        namespaced("LimitRange", "limitranges").short(&["limits"]),
        cluster("Namespace", "namespaces")
            .short(&["ns"])
            .verbs(Verbs::ONE_BY_ONE)
            .subresources(&[part("finalize", Verbs::UPDATE), STATUS]),
        cluster("Node", "nodes")
            .short(&["no"])
            .key("minions")
            .subresources(&[connection("proxy", "NodeProxyOptions", Verbs::PROXY).unbuilt(), STATUS]),
        namespaced("PersistentVolumeClaim", "persistentvolumeclaims").short(&["pvc"]).status(),
        cluster("PersistentVolume", "persistentvolumes").short(&["pv"]).status(),
        namespaced("Pod", "pods").short(&["po"]).category(&["all"]).subresources(POD_SUBRESOURCES),
        namespaced("PodTemplate", "podtemplates"),
        namespaced("ReplicationController", "replicationcontrollers")
            .short(&["rc"])
            .category(&["all"])
            .key("controllers")
            .subresources(&[SCALE, STATUS]),
        namespaced("ResourceQuota", "resourcequotas").short(&["quota"]).status(),
        namespaced("Secret", "secrets"),
        namespaced("ServiceAccount", "serviceaccounts").short(&["sa"]).subresources(&[TOKEN]),
        namespaced("Service", "services")
            .short(&["svc"])
            .category(&["all"])
            .key("services/specs")
            .subresources(&[connection("proxy", "ServiceProxyOptions", Verbs::PROXY).unbuilt(), STATUS]),
    ],
);

const POD_SUBRESOURCES: &[Subresource] = &[
    connection("attach", "PodAttachOptions", Verbs::UPGRADE).unbuilt(),
    part("binding", Verbs::CREATE).kind(ResponseKind::Sibling("Binding")),
    part("ephemeralcontainers", Verbs::PART),
    part("eviction", Verbs::CREATE).kind(ResponseKind::Foreign("policy", "v1", "Eviction")),
    connection("exec", "PodExecOptions", Verbs::UPGRADE).unbuilt(),
    part("log", Verbs::GET).unbuilt(),
    connection("portforward", "PodPortForwardOptions", Verbs::UPGRADE).unbuilt(),
    connection("proxy", "PodProxyOptions", Verbs::PROXY).unbuilt(),
    part("resize", Verbs::PART).since(R32).gate("InPlacePodVerticalScaling"),
    STATUS,
];

const TOKEN: Subresource =
    part("token", Verbs::CREATE).kind(ResponseKind::Foreign("authentication.k8s.io", "v1", "TokenRequest"));
