//! Services: the addresses they were given stay theirs.

use api::FieldError;
use serde_json::Value;

use super::{Update, items};

/// What is said of an address and of the like.
const ONCE_SET: &str = "may not change once set";

pub(super) fn service(update: Update<'_>) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let [was, is] = [update.text_before("spec.type"), update.text_after("spec.type")];
    if was != "ExternalName" && is != "ExternalName" {
        let [was_headless, is_headless] =
            [update.before("spec.clusterIPs"), update.after("spec.clusterIPs")].map(is_headless);
        if !(was_headless && is_headless) {
            faults.extend(part(update, "clusterIPs", "primary clusterIP can not be unset", "clusterIP"));
        }
        if !was_headless && !is_headless {
            faults.extend(part(update, "ipFamilies", "primary ipFamily can not be unset", "ipFamily"));
        }
    }
    // The list and the one address say the same; a client that changed only the address meant to change both.
    let (address, addresses) = (update.text_after("spec.clusterIP"), update.after("spec.clusterIPs"));
    if !address.is_empty() && items(addresses).first().is_some_and(|first| first != address) {
        let detail = "first value must match `clusterIP`";
        faults.push(FieldError::invalid("spec.clusterIPs", update.shown("spec.clusterIPs"), detail));
    }
    let class = "spec.loadBalancerClass";
    if was == "LoadBalancer" && is == "LoadBalancer" && update.before(class) != update.after(class) {
        faults.push(FieldError::invalid(class, update.shown(class), ONCE_SET));
    }
    let port = "spec.healthCheckNodePort";
    let has_health_check = |kind: &str, policy: &str| kind == "LoadBalancer" && policy == "Local";
    if has_health_check(was, update.text_before("spec.externalTrafficPolicy"))
        && has_health_check(is, update.text_after("spec.externalTrafficPolicy"))
        && !update.keeps(port)
    {
        faults.push(FieldError::forbidden(port, "field is immutable"));
    }
    faults
}

fn is_headless(addresses: Option<&Value>) -> bool {
    matches!(items(addresses), [only] if only == "None")
}

/// A list of at most two whose first entry stays; a second one comes and goes with the family policy.
fn part(update: Update<'_>, name: &str, unset: &str, released: &str) -> Vec<FieldError> {
    let path = format!("spec.{name}");
    let [old, new] = [update.before(&path), update.after(&path)].map(items);
    let fault = |at: usize, detail: &str| FieldError::invalid(format!("{path}[{at}]"), update.shown(&path), detail);
    if old.len() == new.len() {
        let pairs = old.iter().zip(new).enumerate();
        return pairs.filter(|(_, (old, new))| old != new).map(|(at, _)| fault(at, ONCE_SET)).collect();
    }
    let mut faults = Vec::new();
    if new.is_empty() {
        faults.push(fault(0, unset));
    } else if !old.is_empty() && old[0] != new[0] {
        faults.push(fault(0, ONCE_SET));
    }
    let policy = "spec.ipFamilyPolicy";
    if old.len() > new.len() && new.len() == 1 && update.text_after(policy) != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {released}");
        faults.push(FieldError::invalid(policy, update.shown(policy), detail));
    }
    faults
}
