//! What is valid in endpoint slices.

use std::collections::HashSet;

use api::json::JsonObject;
use api::validation::{validate_dns1123_label, validate_dns1123_subdomain};

use serde_json::Value;

use super::{PROTOCOLS, check_endpoint_address};
use crate::validation::Field;

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const HINTS_MAX: usize = 8;

pub(super) fn check_slice(slice: Field<'_>) {
    let (ports, endpoints, kind) = (slice.at("ports"), slice.at("endpoints"), slice.at("addressType"));
    kind.require_one_of(&["FQDN", "IPv4", "IPv6"]);
    if ports.at_most(PORTS_MAX) {
        let mut names = HashSet::new();
        for port in ports.items() {
            let name = port.at("name");
            if !name.text().is_empty() {
                name.dns_label();
            }
            if !names.insert(name.text()) {
                name.duplicate_of(name.text());
            }
            port.at("protocol").require_one_of(&PROTOCOLS);
            if port.at("appProtocol").is_present() {
                port.at("appProtocol").qualified_name();
            }
        }
    }
    if endpoints.at_most(ENDPOINTS_MAX) {
        endpoints.items().for_each(|endpoint| check_endpoint(endpoint, kind.text()));
    }
}

fn check_endpoint(endpoint: Field<'_>, kind: &str) {
    let addresses = endpoint.at("addresses");
    if addresses.len() == 0 {
        addresses.required("must contain at least 1 address");
    }
    addresses.at_most(ADDRESSES_MAX);
    addresses.items().for_each(|address| check_address(address, addresses, kind));
    if endpoint.at("nodeName").is_present() {
        endpoint.at("nodeName").dns_subdomain();
    }
    if endpoint.at("hostname").is_present() {
        endpoint.at("hostname").dns_label();
    }
    for (hints, is_zone) in [("forZones", true), ("forNodes", false)] {
        let hints = endpoint.at("hints").at(hints);
        if !hints.at_most(HINTS_MAX) {
            return;
        }
        let mut names = HashSet::new();
        for name in hints.items().map(|hint| hint.at("name")) {
            if !names.insert(name.text()) {
                name.duplicate_of(name.text());
            }
            if is_zone {
                name.label_value()
            } else {
                name.dns_subdomain()
            };
        }
    }
}

fn check_address(address: Field<'_>, addresses: Field<'_>, kind: &str) {
    let errors = address.error_count();
    let is_other_family = match kind {
        "IPv4" => address.legacy_ip().is_some_and(|ip| !ip.is_ipv4()),
        "IPv6" => {
            address.canonical_ip();
            !address.text().contains(':')
        }
        "FQDN" => return check_domain(address),
        _ => return,
    };
    if address.error_count() == errors {
        if is_other_family {
            addresses.invalid_as(address.text(), format!("must be an {kind} address"));
        }
        check_endpoint_address(address);
    }
}

/// A domain of at least two labels.
fn check_domain(address: Field<'_>) {
    if !address.require_text() {
        return;
    }
    let domain = address.text().strip_suffix('.').unwrap_or(address.text());
    let errors = validate_dns1123_subdomain(domain);
    let label =
        domain.split('.').map(|label| (label, validate_dns1123_label(label))).find(|(_, errors)| !errors.is_empty());
    if !errors.is_empty() {
        address.invalid_as(domain, errors.join(","));
    } else if !domain.contains('.') {
        address.invalid_as(domain, "should be a domain with at least two segments separated by dots");
    } else if let Some((label, errors)) = label {
        address.invalid_as(label, errors.join(","));
    }
}

/// Version v1 has the topology of an endpoint only to read what an older version stored: others are dropped.
pub(super) fn drop_topology(slice: &mut JsonObject, stored: &[Value]) {
    let Some(Value::Array(endpoints)) = slice.get_mut("endpoints") else { return };
    let topologies = |endpoints: &[Value]| -> Vec<Option<Value>> {
        endpoints.iter().map(|endpoint| endpoint.get("deprecatedTopology").cloned()).collect()
    };
    if topologies(endpoints) != topologies(stored) {
        for endpoint in endpoints.iter_mut().filter_map(Value::as_object_mut) {
            endpoint.remove("deprecatedTopology");
        }
    }
}
