//! Endpoints and endpoint slices.

use api::json::JsonObject;
use object::KindRules;
use object::rules::GenerationRule;
use object::table::Column;
use object::table::cells::{AGE, NAME, first_few_cell, string_cell, string_column};
use object::unstructured;
use object::unstructured::{objects, texts};
use serde_json::Value;

use crate::release::Release;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;

pub(crate) static ENDPOINTS_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { allows_create_on_update: true, ..RULES },
    deprecation: Some((Release::R33, "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")),
    columns: ENDPOINTS,
    ..KindStrategy::DEFAULT
};

pub(crate) static ENDPOINT_SLICE_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..RULES },
    immutable_fields: &[fixed_field("addressType")],
    columns: SLICES,
    ..KindStrategy::DEFAULT
};

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
