//! The columns of services.

use std::collections::BTreeSet;

use api::json::JsonObject;
use object::table::cells::{AGE, NAME, string_cell, string_column, wide_column};
use object::table::{Column, cells};
use object::unstructured;
use object::unstructured::{objects, texts};
use serde_json::Value;

pub(crate) const SERVICES: &[Column] = &[
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

/// The addresses, or else host names, of a load balancer.
pub(crate) fn load_balancer_addresses(object: &JsonObject) -> String {
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
