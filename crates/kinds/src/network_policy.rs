//! Network policies.

use api::json::JsonObject;
use object::KindRules;
use object::rules::GenerationRule;
use object::table::cells::{AGE, NAME, string_column};
use object::table::{Column, cells};
use serde_json::json;

use crate::fields::{is_empty_value, set_if_empty};
use crate::strategy::{KindStrategy, LENIENT_RULES};
use crate::validation::Field;
use crate::validation::addresses::{parse_cidr, range_contains};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..LENIENT_RULES },
    validate: |policy| check_spec(policy.at("spec")),
    columns: POLICIES,
    ..KindStrategy::DEFAULT
};

const TYPES: [&str; 2] = ["Ingress", "Egress"];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

fn check_spec(spec: Field<'_>) {
    spec.at("podSelector").label_selector();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(direction).items() {
            rule.at("ports").each(check_port);
            rule.at(peers).each(check_peer);
        }
    }
    let types = spec.at("policyTypes");
    if types.len() > TYPES.len() {
        return types.invalid("may not specify more than two policyTypes");
    }
    types.each(|kind| kind.one_of(&TYPES));
}

/// A port by number or name, or a range of numbers.
fn check_port(item: Field<'_>) {
    let (port, end) = (item.at("port"), item.at("endPort"));
    item.at("protocol").one_of_if_present(&PROTOCOLS);
    if !port.is_present() {
        if end.is_present() {
            end.invalid("may not be specified when `port` is not specified");
        }
    } else if port.is_text() {
        if end.is_present() {
            end.invalid("may not be specified when `port` is non-numeric");
        }
        port.port_name();
    } else {
        port.port_number();
        if end.is_present() {
            if end.integer_or_zero() < port.integer_or_zero() {
                end.invalid_as(port.integer_or_zero(), "must be greater than or equal to `port`");
            }
            end.port_number();
        }
    }
}

fn check_peer(peer: Field<'_>) {
    let selectors = ["podSelector", "namespaceSelector"].map(|name| peer.at(name));
    let block = peer.at("ipBlock");
    selectors.into_iter().for_each(Field::label_selector);
    if block.is_present() {
        check_block(block);
    }
    match (selectors.into_iter().any(Field::is_present), block.is_present()) {
        (false, false) => peer.required("must specify a peer"),
        (true, true) => peer.forbidden("may not specify both ipBlock and another peer"),
        _ => {}
    }
}

/// A range of addresses without parts of it.
fn check_block(block: Field<'_>) {
    let range = block.at("cidr");
    if !range.require_text() {
        return;
    }
    range.legacy_cidr();
    let Some((address, bits)) = parse_cidr(range.text()) else { return };
    for except in block.at("except").items() {
        except.legacy_cidr();
        let Some((first, except_bits)) = parse_cidr(except.text()) else { continue };
        if !range_contains((address, bits), first) || bits >= except_bits {
            except.invalid("must be a strict subset of `cidr`");
        }
    }
}

pub(crate) fn set_network_policy_defaults(spec: &mut JsonObject) {
    let has_egress = spec.get("egress").is_some_and(|egress| !is_empty_value(egress));
    let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    set_if_empty(spec, "policyTypes", types);
}

const POLICIES: &[Column] = &[
    NAME,
    string_column("Pod-Selector", "Which pods it applies to.", |policy, _| {
        cells::or_placeholder(cells::selector_text(policy, &["spec", "podSelector"]), "<none>")
    }),
    AGE,
];
