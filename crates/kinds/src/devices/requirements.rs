//! What a write of a claim or a claim template needs beyond the permission of its request.

use std::collections::{BTreeMap, BTreeSet};

use api::json::JsonObject;
use object::unstructured::{get, list, nested_object_mut, set_or_remove};
use serde_json::Value;

use crate::{FeatureGates, Release};

const DEVICE_STATES: &[&str] = &["status", "devices"];

/// Requirements of a write that depend on the namespace or on the writer. The default requires nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequirements {
    /// The namespace must have a label with the value `true`.
    pub admin_access: Option<AdminAccess>,
    /// The writer changes what is allocated or reserved, for which it needs permission.
    pub binding: bool,
    /// The drivers whose device states the writer changes: it needs permission for each.
    pub drivers: BTreeSet<String>,
    /// The node of the allocation, if it is only one. A driver there may have permission for this node alone.
    pub node: Option<String>,
}

/// A request for access to devices in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminAccess {
    /// The field that asks for it.
    pub field: String,
    /// The label that allows it.
    pub label: &'static str,
}

/// The requirements of a new object, whose requests are at `devices`.
pub(super) fn of_new(gates: &FeatureGates, object: &JsonObject, devices: &[&str]) -> DeviceRequirements {
    let requests = list(object, &[devices, &["requests"]].concat());
    // At the top of a request in v1beta1. Kubernetes names the field without `exactly` for every version.
    let asks = |request: &Value| has_admin_access(request) || request.get("exactly").is_some_and(has_admin_access);
    DeviceRequirements {
        admin_access: admin_access(gates, "spec.devices.requests", requests.iter().position(asks)),
        ..DeviceRequirements::default()
    }
}

/// The requirements of an update of a claim's status.
pub(super) fn of_status(gates: &FeatureGates, old: &JsonObject, new: &JsonObject) -> DeviceRequirements {
    let granted = match results(old).iter().any(has_admin_access) {
        true => None,
        false => results(new).iter().position(has_admin_access),
    };
    let admin_access = admin_access(gates, "status.allocation.devices.results", granted);
    if !gates.enabled("DRAResourceClaimGranularStatusAuthorization") {
        return DeviceRequirements { admin_access, ..DeviceRequirements::default() };
    }
    let allocation = |claim| get(claim, &["status", "allocation"]).filter(|allocation| !allocation.is_null());
    let reserved = |claim| list(claim, &["status", "reservedFor"]);
    // The states of devices go with the allocation.
    let reports_devices = gates.enabled("DRAResourceClaimDeviceStatus") && allocation(new).is_some();
    DeviceRequirements {
        admin_access,
        binding: allocation(old) != allocation(new) || reserved(old) != reserved(new),
        drivers: if reports_devices { changed_drivers(old, new) } else { BTreeSet::new() },
        node: allocation(new).and_then(only_node).map(str::to_owned),
    }
}

fn has_admin_access(holder: &Value) -> bool {
    holder["adminAccess"] == true
}

fn admin_access(gates: &FeatureGates, list: &str, position: Option<usize>) -> Option<AdminAccess> {
    let label = match gates.release() {
        Release::R31 | Release::R32 => return None,
        Release::R33 => "resource.k8s.io/admin-access",
        Release::R34 | Release::R35 | Release::R36 | Release::R37 => "resource.kubernetes.io/admin-access",
    };
    position.map(|position| AdminAccess { field: format!("{list}[{position}].adminAccess"), label })
}

/// The drivers of the device states that were added, changed or removed.
fn changed_drivers(old: &JsonObject, new: &JsonObject) -> BTreeSet<String> {
    let mut before: BTreeMap<_, _> = list(old, DEVICE_STATES).iter().map(|state| (device_key(state), state)).collect();
    let mut changed = Vec::new();
    for state in list(new, DEVICE_STATES) {
        if before.remove(&device_key(state)) != Some(state) {
            changed.push(state);
        }
    }
    let drivers = changed.into_iter().chain(before.into_values()).map(|state| state["driver"].as_str());
    drivers.map(|driver| driver.unwrap_or_default().to_owned()).collect()
}

/// What tells devices apart, and their shares.
fn device_key(holder: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|name| holder[name].as_str().unwrap_or_default())
}

/// The node of an allocation that is available on one node only.
fn only_node(allocation: &Value) -> Option<&str> {
    let [term] = allocation["nodeSelector"]["nodeSelectorTerms"].as_array()?.as_slice() else { return None };
    let expressions = term["matchExpressions"].as_array().map_or(0, Vec::len);
    let [field] = term["matchFields"].as_array()?.as_slice() else { return None };
    let [node] = field["values"].as_array()?.as_slice() else { return None };
    let is_one_node = expressions == 0 && field["key"] == "metadata.name" && field["operator"] == "In";
    node.as_str().filter(|node| is_one_node && !node.is_empty())
}

/// Removes the states of devices that are allocated no more.
pub(super) fn drop_states_of_deallocated_devices(old: &JsonObject, new: &mut JsonObject) {
    let mut deallocated: BTreeSet<_> = results(old).iter().map(device_key).collect();
    for result in results(new) {
        deallocated.remove(&device_key(result));
    }
    let is_kept = |state: &&Value| !deallocated.contains(&device_key(state));
    let kept: Vec<Value> = list(new, DEVICE_STATES).iter().filter(is_kept).cloned().collect();
    if kept.len() < list(new, DEVICE_STATES).len() {
        let kept = if kept.is_empty() { None } else { Some(kept.into()) };
        set_or_remove(nested_object_mut(new, "status"), "devices", kept);
    }
}

fn results(claim: &JsonObject) -> &[Value] {
    list(claim, &["status", "allocation", "devices", "results"])
}
