//! What is valid in the status of a claim: what was allocated, for whom, and the state of the devices.

use std::collections::HashSet;

use crate::validation::conditions::check_conditions;
use crate::validation::labels::SelectorValues;
use crate::validation::{Field, go_object};

use super::validation::{
    RequestNames, check_binding_conditions, check_configuration, check_pool_name, check_raw_object, check_request_name,
    check_request_names,
};

const RESULTS_MAX: usize = 32;
const RESERVED_MAX: usize = 256;
const CONDITIONS_MAX: usize = 8;
const ADDRESSES_MAX: usize = 16;
const INTERFACE_NAME_LENGTH_MAX: usize = 256;
const HARDWARE_ADDRESS_LENGTH_MAX: usize = 128;

/// Devices are the same if these fields are.
const DEVICE_IDENTITY: [(&str, &str); 4] =
    [("driver", "Driver"), ("pool", "Pool"), ("device", "Device"), ("shareID", "ShareID")];

pub(super) fn check_claim_status(claim: Field<'_>, old: Field<'_>) {
    let (status, requests) = (claim.at("status"), claim.path("spec.devices.requests"));
    let (allocation, reserved) = (status.at("allocation"), status.at("reservedFor"));
    reserved.at_most(RESERVED_MAX);
    let mut users = HashSet::new();
    for user in reserved.items() {
        user.require(&["resource", "name", "uid"]);
        if !users.insert(user.at("uid").text()) {
            user.duplicate_of(user.at("uid").text());
        }
    }
    let allocated: HashSet<[&str; 4]> = allocation.path("devices.results").items().map(identity).collect();
    status.at("devices").each(|device| check_device_status(device, &allocated));
    if reserved.len() > 0 && !allocation.is_present() {
        reserved.forbidden("may not be specified when `allocated` is not set");
    }
    let before = old.path("status.allocation");
    if allocation.is_present() && !before.is_present() {
        check_allocation(allocation, requests);
    }
}

fn identity(device: Field<'_>) -> [&str; 4] {
    DEVICE_IDENTITY.map(|(name, _)| device.at(name).text())
}

fn check_device_status(device: Field<'_>, allocated: &HashSet<[&str; 4]>) {
    device.at("driver").csi_driver_name();
    check_pool_name(device.at("pool"));
    device.at("device").dns_label();
    if !allocated.contains(&identity(device)) {
        let shown = DEVICE_IDENTITY.map(|(name, shown)| (shown, device.at(name).text().into()));
        device.invalid_showing(go_object(&shown), "must be an allocated device in the claim");
    }
    device.at("conditions").at_most(CONDITIONS_MAX);
    check_conditions(device.at("conditions"));
    check_raw_object(device.at("data"));
    let network = device.at("networkData");
    for (name, max) in [("interfaceName", INTERFACE_NAME_LENGTH_MAX), ("hardwareAddress", HARDWARE_ADDRESS_LENGTH_MAX)]
    {
        if network.at(name).text().len() > max {
            network.at(name).too_long(max);
        }
    }
    let addresses = network.at("ips");
    if addresses.at_most(ADDRESSES_MAX) {
        addresses.each(Field::interface_address);
        addresses.unique_items();
    }
}

fn check_allocation<'a>(allocation: Field<'a>, requests: Field<'a>) {
    let devices = allocation.at("devices");
    let requests = &RequestNames::new(requests);
    devices.at("results").at_most(RESULTS_MAX);
    for result in devices.at("results").items() {
        check_request_name(result.at("request"), requests);
        result.at("driver").csi_driver_name();
        check_pool_name(result.at("pool"));
        result.at("device").dns_label();
        check_binding_conditions(result);
    }
    for config in devices.at("config").items() {
        config.at("source").require_one_of(&["FromClaim", "FromClass"]);
        check_request_names(config.at("requests"), requests);
        check_configuration(config);
    }
    if allocation.at("nodeSelector").is_present() {
        allocation.at("nodeSelector").node_selector(SelectorValues::Checked);
    }
}
