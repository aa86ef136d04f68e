//! What leads traffic to pods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Column;
use super::cells::{self, AGE, NAME, first_few, text, text_at, text_or};
use crate::access::{self, Object, metadata_text, objects, texts};

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
    text("Class", "The class that serves it.", |ingress, _| text_or(ingress, &["spec", "ingressClassName"], "<none>")),
    text("Hosts", "The hosts it answers for.", |ingress, _| hosts(ingress).into()),
    text("Address", "Where it is reached.", |ingress, _| load_balancer(ingress).into()),
    text("Ports", "The ports it listens on.", |ingress, _| {
        if access::list(ingress, &["spec", "tls"]).is_empty() { "80".into() } else { "80, 443".into() }
    }),
    AGE,
];

/// Of the rules with a host, three; how many more is counted over all rules.
fn hosts(ingress: &Object) -> String {
    const SHOWN_MAX: usize = 3;
    let rules = access::list(ingress, &["spec", "rules"]).len();
    let named = objects(ingress, &["spec", "rules"]).map(|rule| access::text(rule, &["host"]));
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
pub(super) fn load_balancer(object: &Object) -> String {
    let points = objects(object, &["status", "loadBalancer", "ingress"]);
    let addresses: BTreeSet<&str> = points
        .map(|point| match access::text(point, &["ip"]) {
            "" => access::text(point, &["hostname"]),
            address => address,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

const INGRESS_CLASSES: &[Column] = &[
    Column {
        format: "name",
        ..text("Name", "The name of the object.", |class, _| {
            default_name(class, &["ingressclass.kubernetes.io/is-default-class"])
        })
    },
    text("Controller", "What serves it.", |class, _| text_at(class, &["spec", "controller"])),
    text("Parameters", "Where its parameters are.", |class, _| {
        let Some(parameters) = access::part(class, &["spec", "parameters"]) else { return "<none>".into() };
        let group = access::text(parameters, &["apiGroup"]);
        let kind = api::GroupKind { group, kind: access::text(parameters, &["kind"]) };
        format!("{kind}/{}", access::text(parameters, &["name"])).into()
    }),
    AGE,
];

/// The name, marked if an annotation makes it the default of its kind.
pub(super) fn default_name(object: &Object, annotations: &[&str]) -> Value {
    let name = metadata_text(object, "name");
    let is_set = |annotation: &&str| access::text(object, &["metadata", "annotations", annotation]) == "true";
    if annotations.iter().any(is_set) { format!("{name} (default)").into() } else { name.into() }
}

const POLICIES: &[Column] = &[
    NAME,
    text("Pod-Selector", "Which pods it applies to.", |policy, _| {
        cells::or(cells::selector(policy, &["spec", "podSelector"]), "<none>")
    }),
    AGE,
];

const SLICES: &[Column] = &[
    NAME,
    text("AddressType", "What its addresses are.", |slice, _| text_at(slice, &["addressType"])),
    text("Ports", "Its ports.", |slice, _| {
        first_few(
            objects(slice, &["ports"]).map(|port| match access::integer(port, &["port"]) {
                Some(number) => number.to_string(),
                None if port.contains_key("name") => access::text(port, &["name"]).to_owned(),
                None => "*".to_owned(),
            }),
            "<unset>",
        )
    }),
    text("Endpoints", "Its addresses.", |slice, _| {
        first_few(
            objects(slice, &["endpoints"]).flat_map(|endpoint| texts(endpoint, &["addresses"])).map(str::to_owned),
            "<unset>",
        )
    }),
    AGE,
];

const SERVICE_CIDRS: &[Column] = &[
    NAME,
    text("CIDRs", "The ranges of addresses.", |range, _| {
        texts(range, &["spec", "cidrs"]).collect::<Vec<_>>().join(",").into()
    }),
    AGE,
];

const ADDRESSES: &[Column] = &[
    NAME,
    text("ParentRef", "What uses it.", |address, _| {
        let Some(parent) = access::part(address, &["spec", "parentRef"]) else { return "<none>".into() };
        let field = |name: &str| access::text(parent, &[name]);
        let resource = api::GroupResource { group: field("group"), resource: field("resource") };
        let resource = resource.to_string().to_lowercase();
        match field("namespace") {
            "" => format!("{resource}/{}", field("name")).into(),
            namespace => format!("{resource}/{namespace}/{}", field("name")).into(),
        }
    }),
];

/// The addresses and ports of an `Endpoints` object.
pub(super) fn endpoint_list(endpoints: &Object) -> Value {
    if access::list(endpoints, &["subsets"]).is_empty() {
        return "<none>".into();
    }
    let all = objects(endpoints, &["subsets"]).flat_map(|subset| {
        let addresses = objects(subset, &["addresses"]).map(|address| access::text(address, &["ip"]));
        let ports = objects(subset, &["ports"]);
        let bare = access::list(subset, &["ports"]).is_empty().then(|| addresses.clone().map(str::to_owned));
        let joined = ports.flat_map(move |port| {
            let number = access::integer(port, &["port"]).unwrap_or_default();
            addresses.clone().map(move |address| join(address, number))
        });
        bare.into_iter().flatten().chain(joined)
    });
    first_few(all, "")
}

/// IPv6 addresses stand in brackets before a port.
fn join(address: &str, port: i64) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}
