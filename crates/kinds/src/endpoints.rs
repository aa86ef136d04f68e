//! Endpoints and endpoint slices.

mod slice;

use std::net::IpAddr;

use api::json::JsonObject;
use object::KindRules;
use object::rules::GenerationRule;
use object::table::Column;
use object::table::cells::{AGE, NAME, first_few_cell, string_cell, string_column};
use object::unstructured;
use object::unstructured::{list, objects, texts};
use serde_json::Value;

use crate::release::Release;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;
use crate::validation::Field;
use crate::validation::addresses::parse_ip;

pub(crate) static ENDPOINTS_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { allows_create_on_update: true, ..RULES },
    deprecation: Some((Release::R33, "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")),
    validate: |endpoints| endpoints.at("subsets").each(check_subset),
    columns: ENDPOINTS,
    ..KindStrategy::DEFAULT
};

pub(crate) static ENDPOINT_SLICE_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::CountedWithLabels, ..RULES },
    prepare_for_create: |_, slice| {
        slice::drop_topology(slice, &[]);
        Ok(())
    },
    prepare_for_update: |old, slice| {
        slice::drop_topology(slice, list(old, &["endpoints"]));
        Ok(())
    },
    validate: slice::check_slice,
    immutable_fields: &[fixed_field("addressType")],
    columns: SLICES,
    ..KindStrategy::DEFAULT
};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

fn check_subset(subset: Field<'_>) {
    let lists = ["addresses", "notReadyAddresses"].map(|name| subset.at(name));
    if lists.into_iter().all(|list| list.len() == 0) {
        subset.required("must specify `addresses` or `notReadyAddresses`");
    }
    for address in lists.into_iter().flat_map(Field::items) {
        address.at("ip").legacy_ip();
        if !address.at("hostname").text().is_empty() {
            address.at("hostname").dns_label();
        }
        if address.at("nodeName").is_present() {
            address.at("nodeName").dns_subdomain();
        }
        check_endpoint_address(address.at("ip"));
    }
    let ports = subset.at("ports");
    for port in ports.items() {
        if !port.at("name").text().is_empty() {
            port.at("name").dns_label();
        } else if ports.len() > 1 {
            port.at("name").required("");
        }
        port.at("port").port_number();
        port.at("protocol").require_one_of(&PROTOCOLS);
        if port.at("appProtocol").is_present() {
            port.at("appProtocol").qualified_name();
        }
    }
}

/// An address that traffic can be sent to.
pub(crate) fn check_endpoint_address(address: Field<'_>) {
    let text = address.text();
    let Some(ip) = parse_ip(text) else { return address.invalid_text("must be a valid IP address") };
    let (is_link_local, is_link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        address.invalid(format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        address.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if is_link_local {
        address.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if is_link_local_multicast {
        address.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

const ENDPOINTS: &[Column] =
    &[NAME, string_column("Endpoints", "Addresses and ports.", |endpoints, _| endpoints_cell(endpoints)), AGE];

/// The addresses and ports of an `Endpoints` object.
fn endpoints_cell(endpoints: &JsonObject) -> Value {
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

/// Joins address and port; IPv6 addresses are in brackets.
fn join_host_port(address: &str, port: i64) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

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
