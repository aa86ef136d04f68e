//! The kinds of the core group, pods and events aside.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Column;
use super::cells::{self, AGE, CONTAINERS, IMAGES, NAME, count_at, number, number_at, text, text_at, text_or, wide};
use super::events::EVENTS;
use super::network::{endpoint_list, load_balancer};
use super::pods::PODS;
use super::storage::{CLAIMS, VOLUMES};
use crate::access::{self, Object, objects, texts};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "Pod" => PODS,
        "PodTemplate" => POD_TEMPLATES,
        "ReplicationController" => CONTROLLERS,
        "Service" => SERVICES,
        "Endpoints" => ENDPOINTS,
        "Node" => NODES,
        "Event" => EVENTS,
        "Namespace" => NAMESPACES,
        "Secret" => SECRETS,
        "ConfigMap" => CONFIG_MAPS,
        "ServiceAccount" => SERVICE_ACCOUNTS,
        "PersistentVolume" => VOLUMES,
        "PersistentVolumeClaim" => CLAIMS,
        "ResourceQuota" => QUOTAS,
        _ => return None,
    })
}

const POD_TEMPLATES: &[Column] = &[
    NAME,
    Column { priority: 0, ..CONTAINERS },
    Column { priority: 0, ..IMAGES },
    text("Pod Labels", "The labels of its pods.", |template, _| {
        cells::labels(template, &["template", "metadata", "labels"])
    }),
];

const CONTROLLERS: &[Column] = &[
    NAME,
    number("Desired", "How many pods it wants.", |controller, _| cells::desired(controller).into()),
    number("Current", "How many pods there are.", |controller, _| number_at(controller, &["status", "replicas"])),
    number("Ready", "How many pods are ready.", |controller, _| number_at(controller, &["status", "readyReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    wide("Selector", "Which pods are its own.", |controller, _| cells::labels(controller, &["spec", "selector"])),
];

const SERVICES: &[Column] = &[
    NAME,
    text("Type", "How it is exposed.", |service, _| text_at(service, &["spec", "type"])),
    text("Cluster-IP", "Its address in the cluster.", |service, _| {
        let address = texts(service, &["spec", "clusterIPs"]).next();
        let address = address.unwrap_or_else(|| access::text(service, &["spec", "clusterIP"]));
        cells::or(address.to_owned(), "<none>")
    }),
    text("External-IP", "Its addresses outside of the cluster.", |service, _| external_address(service)),
    text("Port(s)", "The ports it listens on.", |service, _| {
        let ports: Vec<String> = objects(service, &["spec", "ports"]).map(port).collect();
        cells::or(ports.join(","), "<none>")
    }),
    AGE,
    wide("Selector", "Which pods it sends traffic to.", |service, _| cells::labels(service, &["spec", "selector"])),
];

fn port(port: &Object) -> String {
    let number = access::integer(port, &["port"]).unwrap_or_default();
    let protocol = match access::text(port, &["protocol"]) {
        "" => "TCP",
        protocol => protocol,
    };
    match access::integer(port, &["nodePort"]).unwrap_or_default() {
        on_node @ 1.. => format!("{number}:{on_node}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_address(service: &Object) -> Value {
    let own: Vec<&str> = texts(service, &["spec", "externalIPs"]).collect();
    match access::text(service, &["spec", "type"]) {
        "ClusterIP" | "NodePort" => cells::or(own.join(","), "<none>"),
        "LoadBalancer" => {
            let balancer = load_balancer(service);
            let all: Vec<&str> = [balancer.as_str()].into_iter().filter(|part| !part.is_empty()).chain(own).collect();
            cells::or(all.join(","), "<pending>")
        }
        "ExternalName" => text_at(service, &["spec", "externalName"]),
        _ => "<unknown>".into(),
    }
}

const ENDPOINTS: &[Column] =
    &[NAME, text("Endpoints", "Addresses and ports.", |endpoints, _| endpoint_list(endpoints)), AGE];

const NODES: &[Column] = &[
    NAME,
    text("Status", "Whether it can run pods.", |node, _| node_status(node).into()),
    text("Roles", "Its roles.", |node, _| cells::or(node_roles(node), "<none>")),
    AGE,
    text("Version", "The version of its kubelet.", |node, _| text_at(node, &["status", "nodeInfo", "kubeletVersion"])),
    wide("Internal-IP", "Its address in the cluster.", |node, _| node_address(node, "InternalIP")),
    wide("External-IP", "Its address outside of the cluster.", |node, _| node_address(node, "ExternalIP")),
    wide("OS-Image", "Its operating system.", |node, _| text_or(node, &["status", "nodeInfo", "osImage"], "<unknown>")),
    wide("Kernel-Version", "Its kernel.", |node, _| {
        let kernel = text_or(node, &["status", "nodeInfo", "kernelVersion"], "<unknown>");
        match access::text(node, &["status", "nodeInfo", "architecture"]) {
            "" => kernel,
            architecture => format!("{} ({architecture})", kernel.as_str().unwrap_or_default()).into(),
        }
    }),
    wide("Container-Runtime", "What runs its containers.", |node, _| {
        text_or(node, &["status", "nodeInfo", "containerRuntimeVersion"], "<unknown>")
    }),
];

fn node_status(node: &Object) -> String {
    let ready = match cells::condition(node, "Ready") {
        None => "Unknown",
        Some(condition) if access::text(condition, &["status"]) == "True" => "Ready",
        Some(_) => "NotReady",
    };
    if access::flag(node, &["spec", "unschedulable"]) {
        format!("{ready},SchedulingDisabled")
    } else {
        ready.to_owned()
    }
}

fn node_roles(node: &Object) -> String {
    let labels = access::part(node, &["metadata", "labels"]).into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn node_address(node: &Object, kind: &str) -> Value {
    let mut of_kind =
        objects(node, &["status", "addresses"]).filter(|address| access::text(address, &["type"]) == kind);
    of_kind.next().map_or_else(|| "<none>".into(), |address| text_at(address, &["address"]))
}

const NAMESPACES: &[Column] = &[
    NAME,
    text("Status", "Whether it takes new objects.", |namespace, _| text_at(namespace, &["status", "phase"])),
    AGE,
];

const SECRETS: &[Column] = &[
    NAME,
    text("Type", "What it is used for.", |secret, _| text_at(secret, &["type"])),
    text("Data", "How many keys it has.", |secret, _| count_at(secret, &["data"]).into()),
    AGE,
];

const CONFIG_MAPS: &[Column] = &[
    NAME,
    text("Data", "How many keys it has.", |map, _| (count_at(map, &["data"]) + count_at(map, &["binaryData"])).into()),
    AGE,
];

const SERVICE_ACCOUNTS: &[Column] = &[NAME, AGE];

const QUOTAS: &[Column] = &[
    NAME,
    text("Request", "What is used, of how much.", |quota, _| quota_use(quota, |resource| !is_limit(resource))),
    text("Limit", "What limits are used, of how much.", |quota, _| quota_use(quota, is_limit)),
    AGE,
];

fn is_limit(resource: &str) -> bool {
    resource.starts_with("limits.")
}

fn quota_use(quota: &Object, is_wanted: fn(&str) -> bool) -> Value {
    let hard = access::part(quota, &["status", "hard"]).into_iter().flatten();
    let shown: Vec<String> = hard
        .filter(|(resource, _)| is_wanted(resource))
        .map(|(resource, hard)| {
            let used = text_or(quota, &["status", "used", resource], "0");
            format!("{resource}: {}/{}", used.as_str().unwrap_or_default(), hard.as_str().unwrap_or("0"))
        })
        .collect();
    shown.join(", ").into()
}
