//! Immutable fields of services: the allocated addresses.

use api::FieldError;
use serde_json::Value;

use crate::fields::list_items;
use crate::update_validation::ObjectUpdate;

const MAY_NOT_CHANGE_ONCE_SET: &str = "may not change once set";

pub(crate) fn check_service(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let [was, is] = [update.old_string("spec.type"), update.new_string("spec.type")];
    if was != "ExternalName" && is != "ExternalName" {
        let [was_headless, is_headless] =
            [update.old_value("spec.clusterIPs"), update.new_value("spec.clusterIPs")].map(is_headless);
        if !(was_headless && is_headless) {
            errors.extend(check_address_list(update, "clusterIPs", "primary clusterIP can not be unset", "clusterIP"));
        }
        if !was_headless && !is_headless {
            errors.extend(check_address_list(update, "ipFamilies", "primary ipFamily can not be unset", "ipFamily"));
        }
    }
    // The list repeats the single address; a client that changed only the address meant to change both.
    let (address, addresses) = (update.new_string("spec.clusterIP"), update.new_value("spec.clusterIPs"));
    if !address.is_empty() && list_items(addresses).first().is_some_and(|first| first != address) {
        let detail = "first value must match `clusterIP`";
        errors.push(FieldError::invalid("spec.clusterIPs", update.displayed_value("spec.clusterIPs"), detail));
    }
    let class = "spec.loadBalancerClass";
    if was == "LoadBalancer" && is == "LoadBalancer" && update.old_value(class) != update.new_value(class) {
        errors.push(FieldError::invalid(class, update.displayed_value(class), MAY_NOT_CHANGE_ONCE_SET));
    }
    let port = "spec.healthCheckNodePort";
    let has_health_check = |kind: &str, policy: &str| kind == "LoadBalancer" && policy == "Local";
    if has_health_check(was, update.old_string("spec.externalTrafficPolicy"))
        && has_health_check(is, update.new_string("spec.externalTrafficPolicy"))
        && !update.is_unchanged(port)
    {
        errors.push(FieldError::forbidden(port, "field is immutable"));
    }
    errors
}

fn is_headless(addresses: Option<&Value>) -> bool {
    matches!(list_items(addresses), [only] if only == "None")
}

/// Checks a list of at most two entries: the first is immutable, the second follows the family policy.
fn check_address_list(update: ObjectUpdate<'_>, name: &str, unset: &str, released: &str) -> Vec<FieldError> {
    let path = format!("spec.{name}");
    let [old, new] = [update.old_value(&path), update.new_value(&path)].map(list_items);
    let error =
        |at: usize, detail: &str| FieldError::invalid(format!("{path}[{at}]"), update.displayed_value(&path), detail);
    if old.len() == new.len() {
        let pairs = old.iter().zip(new).enumerate();
        return pairs.filter(|(_, (old, new))| old != new).map(|(at, _)| error(at, MAY_NOT_CHANGE_ONCE_SET)).collect();
    }
    let mut errors = Vec::new();
    if new.is_empty() {
        errors.push(error(0, unset));
    } else if !old.is_empty() && old[0] != new[0] {
        errors.push(error(0, MAY_NOT_CHANGE_ONCE_SET));
    }
    let policy = "spec.ipFamilyPolicy";
    if old.len() > new.len() && new.len() == 1 && update.new_string(policy) != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {released}");
        errors.push(FieldError::invalid(policy, update.displayed_value(policy), detail));
    }
    errors
}
