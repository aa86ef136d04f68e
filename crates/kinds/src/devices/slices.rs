//! What is valid in resource slices: the devices of a pool, and the nodes that reach them.

use serde_json::Value;

use super::capacity::check_request_policy;
use super::names::check_qualified_name;
use super::validation::{check_binding_conditions, check_pool_name, check_taint};
use crate::validation::labels::SelectorValues;
use crate::validation::{Field, go_object};

const VALUE_LENGTH_MAX: usize = 64;
const ATTRIBUTES_MAX: usize = 32;
const DEVICES_MAX: usize = 128;
/// Of slices whose devices have taints or share counters.
const ADVANCED_DEVICES_MAX: usize = 64;
const TAINTS_MAX: usize = 16;
const ATTRIBUTE_VALUES_MAX: usize = 48;
const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
/// Counter sets that one device consumes from.
const CONSUMED_SETS_MAX: usize = 2;
/// Attributes with several values.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];
const ONE_SELECTION: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
const DEVICE_SELECTION: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
     `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
const NO_DEVICE_SELECTION: &str = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is \
     set to true in the ResourceSlice spec";
/// Fields of an attribute with their names in Kubernetes' messages.
const ATTRIBUTE_FIELDS: [(&str, &str); 8] = [
    ("int", "IntValue"),
    ("bool", "BoolValue"),
    ("string", "StringValue"),
    ("version", "VersionValue"),
    ("ints", "IntValues"),
    ("bools", "BoolValues"),
    ("strings", "StringValues"),
    ("versions", "VersionValues"),
];

pub(super) fn check_slice(slice: Field<'_>) {
    let spec = slice.at("spec");
    spec.at("driver").csi_driver_name();
    check_pool(spec.at("pool"));
    check_node_selection(spec);
    if spec.at("sharedCounters").is_present() && spec.at("devices").is_present() {
        spec.invalid_as("", "only one of `sharedCounters` or `devices` is allowed");
    }
    check_devices(spec);
    let sets = spec.at("sharedCounters");
    if sets.at_most(COUNTER_SETS_MAX) {
        sets.each(|set| {
            check_required_name(set.at("name"));
            check_counters(set.at("counters"));
        });
        sets.unique_by(|set| set.at("name").text());
    }
}

fn check_devices(spec: Field<'_>) {
    let devices = spec.at("devices");
    let is_advanced = |device: Field<'_>| {
        let has_lists = |attribute: Field<'_>| LISTS.iter().any(|name| attribute.at(name).is_present());
        device.at("taints").len() + device.at("consumesCounters").len() > 0
            || device.at("attributes").entries().any(|(_, attribute)| has_lists(attribute))
    };
    let max = if devices.items().any(is_advanced) { ADVANCED_DEVICES_MAX } else { DEVICES_MAX };
    if devices.at_most(max) {
        devices.each(|device| check_device(device, spec.at("perDeviceNodeSelection").flag()));
        devices.unique_by(|device| device.at("name").text());
    }
}

fn check_required_name(name: Field<'_>) {
    if name.require_text() {
        name.dns_label();
    }
}

fn check_counters(counters: Field<'_>) {
    if counters.len() == 0 {
        return counters.required("");
    }
    if counters.at_most(COUNTERS_MAX) {
        for (name, _) in counters.entries() {
            counters.check_other(&name.into(), |name| {
                name.dns_label();
            });
        }
    }
}

fn check_pool(pool: Field<'_>) {
    check_pool_name(pool.at("name"));
    if pool.at("resourceSliceCount").integer_or_zero() <= 0 {
        let count = pool.at("resourceSliceCount");
        count.invalid_as(count.integer_or_zero(), "must be greater than zero");
    }
    if pool.at("generation").integer_or_zero() < 0 {
        pool.at("generation").invalid("must be greater than or equal to zero");
    }
}

/// The nodes of a slice, named in one of four ways.
fn check_node_selection(spec: Field<'_>) {
    let (name, selector) = (spec.at("nodeName"), spec.at("nodeSelector"));
    let mut used = Vec::new();
    if name.is_present() {
        if name.text().is_empty() {
            name.invalid_text("must be either unset or set to a non-empty string");
        } else {
            used.push("`nodeName`");
            name.dns_subdomain();
        }
    }
    if selector.is_present() {
        used.push("`nodeSelector`");
        selector.node_selector(SelectorValues::Checked);
        let terms = selector.at("nodeSelectorTerms");
        if terms.len() != 1 {
            terms.invalid("must have exactly one node selector term");
        }
    }
    for (flag, shown) in
        [(spec.at("allNodes"), "`allNodes`"), (spec.at("perDeviceNodeSelection"), "`perDeviceNodeSelection`")]
    {
        check_true_flag(flag, shown, &mut used);
    }
    match used.len() {
        0 => spec.required(ONE_SELECTION),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", used.join(", "));
            spec.invalid_as(shown, format!("{ONE_SELECTION}, but multiple fields are set"));
        }
    }
}

fn check_true_flag(flag: Field<'_>, shown: &'static str, used: &mut Vec<&'static str>) {
    if flag.flag() {
        used.push(shown);
    } else if flag.is_present() {
        flag.invalid("must be either unset or set to true");
    }
}

fn check_device(device: Field<'_>, selects_nodes: bool) {
    device.at("name").dns_label();
    let (attributes, capacities) = (device.at("attributes"), device.at("capacity"));
    let count = attributes.len() + capacities.len();
    if count > ATTRIBUTES_MAX {
        let detail = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
        device.invalid_as(count, detail);
    }
    let values: usize = attributes.entries().map(|(_, attribute)| count_values(attribute)).sum();
    if values > ATTRIBUTE_VALUES_MAX {
        let detail = format!("the total number of attribute values must not exceed {ATTRIBUTE_VALUES_MAX}");
        device.invalid_as(values, detail);
    }
    for (name, attribute) in attributes.entries() {
        check_qualified_name(name, attributes);
        check_attribute(attribute);
    }
    for (name, capacity) in capacities.entries() {
        check_qualified_name(name, capacities);
        check_request_policy(capacity, device.at("allowMultipleAllocations").flag());
    }
    if device.at("taints").at_most(TAINTS_MAX) {
        device.at("taints").each(check_taint);
    }
    let consumed = device.at("consumesCounters");
    if consumed.at_most(CONSUMED_SETS_MAX) {
        consumed.each(|set| {
            check_required_name(set.at("counterSet"));
            check_counters(set.at("counters"));
        });
        consumed.unique_by(|set| set.at("counterSet").text());
    }
    check_device_nodes(device, selects_nodes);
    check_binding_conditions(device);
}

fn check_device_nodes(device: Field<'_>, selects_nodes: bool) {
    let (name, selector, all) = (device.at("nodeName"), device.at("nodeSelector"), device.at("allNodes"));
    if !selects_nodes {
        if name.is_present() || selector.is_present() || all.is_present() {
            device.invalid_as(Value::Null, NO_DEVICE_SELECTION);
        }
        return;
    }
    let mut used = Vec::new();
    if name.is_present() {
        if name.text().is_empty() {
            name.invalid_text("must not be empty");
        } else {
            used.push("`nodeName`");
            name.dns_subdomain();
        }
    }
    if selector.is_present() {
        used.push("`nodeSelector`");
        selector.node_selector(SelectorValues::Checked);
    }
    check_true_flag(all, "`allNodes`", &mut used);
    match used.len() {
        0 => device.required(DEVICE_SELECTION),
        1 => {}
        _ => device.invalid_as(format!("{{{}}}", used.join(", ")), DEVICE_SELECTION),
    }
}

/// An attribute without a list counts as one.
fn count_values(attribute: Field<'_>) -> usize {
    LISTS.iter().map(|name| attribute.at(name).len()).sum::<usize>().max(1)
}

/// Exactly one value.
fn check_attribute(attribute: Field<'_>) {
    let check_text = |text: Field<'_>| {
        if text.text().len() > VALUE_LENGTH_MAX {
            text.too_long(VALUE_LENGTH_MAX);
        }
    };
    let check_version = |version: Field<'_>| {
        if !is_semantic_version(version.text()) {
            version.invalid_text("must be a string compatible with semver.org spec 2.0.0");
        }
        check_text(version);
    };
    if attribute.at("string").is_present() {
        check_text(attribute.at("string"));
    }
    if attribute.at("version").is_present() {
        check_version(attribute.at("version"));
    }
    for list in LISTS.map(|name| attribute.at(name)).iter().filter(|list| list.is_present() && list.len() == 0) {
        list.invalid("must not be empty if specified");
    }
    attribute.at("strings").each(check_text);
    attribute.at("versions").each(check_version);
    let used = ATTRIBUTE_FIELDS.iter().filter(|(name, _)| attribute.at(name).is_present()).count();
    let detail = "exactly one value must be specified";
    match used {
        0 => attribute.invalid_as("", detail),
        1 => {}
        _ => {
            let values =
                ATTRIBUTE_FIELDS.map(|(name, shown)| (shown, attribute.at(name).value().cloned().unwrap_or_default()));
            attribute.invalid_showing(go_object(&values), detail);
        }
    }
}

/// `1.2.3-rc.1+build.5`
fn is_semantic_version(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    let is_word =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric());
    let is_number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let is_pre = |part: &str| is_word(part) && (is_number(part) || !part.bytes().all(|byte| byte.is_ascii_digit()));
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(is_pre))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semantic_versions_are_told_from_other_text() {
        for text in ["1.2.3", "0.0.0", "1.2.3-rc.1", "1.2.3-0a+b.01", "1.0.0+x"] {
            assert!(is_semantic_version(text), "{text}");
        }
        for text in ["", "1", "1.2", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "v1.2.3", "1.2.3.4"] {
            assert!(!is_semantic_version(text), "{text}");
        }
    }
}
