//! What leads traffic to pods.

use std::collections::BTreeSet;

use api::json::JsonObject;
use serde_json::Value;

use super::Column;
use super::cells::{self, AGE, NAME, first_few_cell, string_cell, string_cell_or, string_column};
use crate::unstructured::{self, metadata_string, objects, texts};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "Ingress" => INGRESSES,
        "IngressClass" => INGRESS_CLASSES,
        "NetworkPolicy" => POLICIES,
        "EndpointSlice" => SLICES,
        "ServiceCIDR" => SERVICE_CIDRS,
        "IPAddress" => ADDRESSES,
        _ => return None,
    })
}

const INGRESSES: &[Column] = &[
    NAME,
    string_column("Class", "The class that serves it.", |ingress, _| {
        string_cell_or(ingress, &["spec", "ingressClassName"], "<none>")
    }),
    string_column("Hosts", "The hosts it answers for.", |ingress, _| ingress_hosts(ingress).into()),
    string_column("Address", "Where it is reached.", |ingress, _| load_balancer_addresses(ingress).into()),
    string_column("Ports", "The ports it listens on.", |ingress, _| {
        if unstructured::list(ingress, &["spec", "tls"]).is_empty() { "80".into() } else { "80, 443".into() }
    }),
    AGE,
];

/// Of the rules with a host, three; how many more is counted over all rules.
fn ingress_hosts(ingress: &JsonObject) -> String {
    const SHOWN_MAX: usize = 3;
    let rules = unstructured::list(ingress, &["spec", "rules"]).len();
    let named = objects(ingress, &["spec", "rules"]).map(|rule| unstructured::text(rule, &["host"]));
    let mut shown = Vec::new();
    let mut is_cut = false;
    for host in named {
        if shown.len() == SHOWN_MAX {
            is_cut = true;
            break;
        }
        if !host.is_empty() {
            shown.push(host);
        }
    }
    match shown.join(",") {
        none if none.is_empty() => "*".to_owned(),
        shown if is_cut => format!("{shown} + {} more...", rules - SHOWN_MAX),
        shown => shown,
    }
}

/// The addresses, or else names, that a load balancer has given.
pub(super) fn load_balancer_addresses(object: &JsonObject) -> String {
    let points = objects(object, &["status", "loadBalancer", "ingress"]);
    let addresses: BTreeSet<&str> = points
        .map(|point| match unstructured::text(point, &["ip"]) {
            "" => unstructured::text(point, &["hostname"]),
            address => address,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

const INGRESS_CLASSES: &[Column] = &[
    Column {
        format: "name",
        ..string_column("Name", "The name of the object.", |class, _| {
            name_with_default_mark(class, &["ingressclass.kubernetes.io/is-default-class"])
        })
    },
    string_column("Controller", "What serves it.", |class, _| string_cell(class, &["spec", "controller"])),
    string_column("Parameters", "Where its parameters are.", |class, _| {
        let Some(parameters) = unstructured::nested_object(class, &["spec", "parameters"]) else {
            return "<none>".into();
        };
        let group = unstructured::text(parameters, &["apiGroup"]);
        let kind = api::GroupKind { group, kind: unstructured::text(parameters, &["kind"]) };
        format!("{kind}/{}", unstructured::text(parameters, &["name"])).into()
    }),
    AGE,
];

/// The name, marked if an annotation makes it the default of its kind.
pub(super) fn name_with_default_mark(object: &JsonObject, annotations: &[&str]) -> Value {
    let name = metadata_string(object, "name");
    let is_set = |annotation: &&str| unstructured::text(object, &["metadata", "annotations", annotation]) == "true";
    if annotations.iter().any(is_set) { format!("{name} (default)").into() } else { name.into() }
}

const POLICIES: &[Column] = &[
    NAME,
    string_column("Pod-Selector", "Which pods it applies to.", |policy, _| {
        cells::or_placeholder(cells::selector_text(policy, &["spec", "podSelector"]), "<none>")
    }),
    AGE,
];

const SLICES: &[Column] = &[
    NAME,
    string_column("AddressType", "What its addresses are.", |slice, _| string_cell(slice, &["addressType"])),
    string_column("Ports", "Its ports.", |slice, _| {
        first_few_cell(
            objects(slice, &["ports"]).map(|port| match unstructured::integer(port, &["port"]) {
                Some(number) => number.to_string(),
                None if port.contains_key("name") => unstructured::text(port, &["name"]).to_owned(),
                None => "*".to_owned(),
            }),
            "<unset>",
        )
    }),
    string_column("Endpoints", "Its addresses.", |slice, _| {
        first_few_cell(
            objects(slice, &["endpoints"]).flat_map(|endpoint| texts(endpoint, &["addresses"])).map(str::to_owned),
            "<unset>",
        )
    }),
    AGE,
];

const SERVICE_CIDRS: &[Column] = &[
    NAME,
    string_column("CIDRs", "The ranges of addresses.", |range, _| {
        texts(range, &["spec", "cidrs"]).collect::<Vec<_>>().join(",").into()
    }),
    AGE,
];

const ADDRESSES: &[Column] = &[
    NAME,
    string_column("ParentRef", "What uses it.", |address, _| {
        let Some(parent) = unstructured::nested_object(address, &["spec", "parentRef"]) else { return "<none>".into() };
        let field = |name: &str| unstructured::text(parent, &[name]);
        let resource = api::GroupResource { group: field("group"), resource: field("resource") };
        let resource = resource.to_string().to_lowercase();
        match field("namespace") {
            "" => format!("{resource}/{}", field("name")).into(),
            namespace => format!("{resource}/{namespace}/{}", field("name")).into(),
        }
    }),
];

/// The addresses and ports of an `Endpoints` object.
pub(super) fn endpoints_cell(endpoints: &JsonObject) -> Value {
    if unstructured::list(endpoints, &["subsets"]).is_empty() {
        return "<none>".into();
    }
    let all = objects(endpoints, &["subsets"]).flat_map(|subset| {
        let addresses = objects(subset, &["addresses"]).map(|address| unstructured::text(address, &["ip"]));
        let ports = objects(subset, &["ports"]);
        let bare = unstructured::list(subset, &["ports"]).is_empty().then(|| addresses.clone().map(str::to_owned));
        let joined = ports.flat_map(move |port| {
            let number = unstructured::integer(port, &["port"]).unwrap_or_default();
            addresses.clone().map(move |address| join_host_port(address, number))
        });
        bare.into_iter().flatten().chain(joined)
    });
    first_few_cell(all, "")
}

/// IPv6 addresses stand in brackets before a port.
fn join_host_port(address: &str, port: i64) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}
