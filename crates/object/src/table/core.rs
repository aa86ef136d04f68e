//! The kinds of the core group, pods and events aside.

use std::collections::BTreeSet;

use api::json::JsonObject;
use serde_json::Value;

use super::Column;
use super::cells::{
    self, AGE, CONTAINERS, IMAGES, NAME, count_at, integer_cell, integer_column, string_cell, string_cell_or,
    string_column, wide_column,
};
use super::events::EVENTS;
use super::network::{endpoints_cell, load_balancer_addresses};
use super::pods::PODS;
use super::storage::{CLAIMS, VOLUMES};
use crate::unstructured::{self, objects, texts};

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
    string_column("Pod Labels", "The labels of its pods.", |template, _| {
        cells::labels_cell(template, &["template", "metadata", "labels"])
    }),
];

const CONTROLLERS: &[Column] = &[
    NAME,
    integer_column("Desired", "How many pods it wants.", |controller, _| cells::desired_replicas(controller).into()),
    integer_column("Current", "How many pods there are.", |controller, _| {
        integer_cell(controller, &["status", "replicas"])
    }),
    integer_column("Ready", "How many pods are ready.", |controller, _| {
        integer_cell(controller, &["status", "readyReplicas"])
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    wide_column("Selector", "Which pods are its own.", |controller, _| {
        cells::labels_cell(controller, &["spec", "selector"])
    }),
];

const SERVICES: &[Column] = &[
    NAME,
    string_column("Type", "How it is exposed.", |service, _| string_cell(service, &["spec", "type"])),
    string_column("Cluster-IP", "Its address in the cluster.", |service, _| {
        let address = texts(service, &["spec", "clusterIPs"]).next();
        let address = address.unwrap_or_else(|| unstructured::text(service, &["spec", "clusterIP"]));
        cells::or_placeholder(address.to_owned(), "<none>")
    }),
    string_column("External-IP", "Its addresses outside of the cluster.", |service, _| external_address_cell(service)),
    string_column("Port(s)", "The ports it listens on.", |service, _| {
        let ports: Vec<String> = objects(service, &["spec", "ports"]).map(port_text).collect();
        cells::or_placeholder(ports.join(","), "<none>")
    }),
    AGE,
    wide_column("Selector", "Which pods it sends traffic to.", |service, _| {
        cells::labels_cell(service, &["spec", "selector"])
    }),
];

fn port_text(port: &JsonObject) -> String {
    let number = unstructured::integer(port, &["port"]).unwrap_or_default();
    let protocol = match unstructured::text(port, &["protocol"]) {
        "" => "TCP",
        protocol => protocol,
    };
    match unstructured::integer(port, &["nodePort"]).unwrap_or_default() {
        on_node @ 1.. => format!("{number}:{on_node}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_address_cell(service: &JsonObject) -> Value {
    let own: Vec<&str> = texts(service, &["spec", "externalIPs"]).collect();
    match unstructured::text(service, &["spec", "type"]) {
        "ClusterIP" | "NodePort" => cells::or_placeholder(own.join(","), "<none>"),
        "LoadBalancer" => {
            let balancer = load_balancer_addresses(service);
            let all: Vec<&str> = [balancer.as_str()].into_iter().filter(|part| !part.is_empty()).chain(own).collect();
            cells::or_placeholder(all.join(","), "<pending>")
        }
        "ExternalName" => string_cell(service, &["spec", "externalName"]),
        _ => "<unknown>".into(),
    }
}

const ENDPOINTS: &[Column] =
    &[NAME, string_column("Endpoints", "Addresses and ports.", |endpoints, _| endpoints_cell(endpoints)), AGE];

const NODES: &[Column] = &[
    NAME,
    string_column("Status", "Whether it can run pods.", |node, _| node_status(node).into()),
    string_column("Roles", "Its roles.", |node, _| cells::or_placeholder(node_roles(node), "<none>")),
    AGE,
    string_column("Version", "The version of its kubelet.", |node, _| {
        string_cell(node, &["status", "nodeInfo", "kubeletVersion"])
    }),
    wide_column("Internal-IP", "Its address in the cluster.", |node, _| node_address_cell(node, "InternalIP")),
    wide_column("External-IP", "Its address outside of the cluster.", |node, _| node_address_cell(node, "ExternalIP")),
    wide_column("OS-Image", "Its operating system.", |node, _| {
        string_cell_or(node, &["status", "nodeInfo", "osImage"], "<unknown>")
    }),
    wide_column("Kernel-Version", "Its kernel.", |node, _| {
        let kernel = string_cell_or(node, &["status", "nodeInfo", "kernelVersion"], "<unknown>");
        match unstructured::text(node, &["status", "nodeInfo", "architecture"]) {
            "" => kernel,
            architecture => format!("{} ({architecture})", kernel.as_str().unwrap_or_default()).into(),
        }
    }),
    wide_column("Container-Runtime", "What runs its containers.", |node, _| {
        string_cell_or(node, &["status", "nodeInfo", "containerRuntimeVersion"], "<unknown>")
    }),
];

fn node_status(node: &JsonObject) -> String {
    let ready = match cells::find_condition(node, "Ready") {
        None => "Unknown",
        Some(condition) if unstructured::text(condition, &["status"]) == "True" => "Ready",
        Some(_) => "NotReady",
    };
    if unstructured::flag(node, &["spec", "unschedulable"]) {
        format!("{ready},SchedulingDisabled")
    } else {
        ready.to_owned()
    }
}

fn node_roles(node: &JsonObject) -> String {
    let labels = unstructured::nested_object(node, &["metadata", "labels"]).into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn node_address_cell(node: &JsonObject, kind: &str) -> Value {
    let mut of_kind =
        objects(node, &["status", "addresses"]).filter(|address| unstructured::text(address, &["type"]) == kind);
    of_kind.next().map_or_else(|| "<none>".into(), |address| string_cell(address, &["address"]))
}

const NAMESPACES: &[Column] = &[
    NAME,
    string_column("Status", "Whether it takes new objects.", |namespace, _| {
        string_cell(namespace, &["status", "phase"])
    }),
    AGE,
];

const SECRETS: &[Column] = &[
    NAME,
    string_column("Type", "What it is used for.", |secret, _| string_cell(secret, &["type"])),
    string_column("Data", "How many keys it has.", |secret, _| count_at(secret, &["data"]).into()),
    AGE,
];

const CONFIG_MAPS: &[Column] = &[
    NAME,
    string_column("Data", "How many keys it has.", |map, _| {
        (count_at(map, &["data"]) + count_at(map, &["binaryData"])).into()
    }),
    AGE,
];

const SERVICE_ACCOUNTS: &[Column] = &[NAME, AGE];

const QUOTAS: &[Column] = &[
    NAME,
    string_column("Request", "What is used, of how much.", |quota, _| {
        quota_usage_cell(quota, |resource| !is_limit(resource))
    }),
    string_column("Limit", "What limits are used, of how much.", |quota, _| quota_usage_cell(quota, is_limit)),
    AGE,
];

fn is_limit(resource: &str) -> bool {
    resource.starts_with("limits.")
}

fn quota_usage_cell(quota: &JsonObject, is_shown: fn(&str) -> bool) -> Value {
    let hard = unstructured::nested_object(quota, &["status", "hard"]).into_iter().flatten();
    let shown: Vec<String> = hard
        .filter(|(resource, _)| is_shown(resource))
        .map(|(resource, hard)| {
            let used = string_cell_or(quota, &["status", "used", resource], "0");
            format!("{resource}: {}/{}", used.as_str().unwrap_or_default(), hard.as_str().unwrap_or("0"))
        })
        .collect();
    shown.join(", ").into()
}
