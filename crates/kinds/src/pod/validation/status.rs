//! What is valid in the status of a pod.

use std::collections::{HashMap, HashSet};

use crate::validation::Field;

const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
const NOT_NEGATIVE: &str = "must be a non-negative integer";

pub(crate) fn check_pod_status(pod: Field<'_>, old: Field<'_>) {
    let (status, before) = (pod.at("status"), old.at("status"));
    status.at("conditions").each(|condition| {
        let generation = condition.at("observedGeneration");
        if generation.integer_or_zero() < 0 {
            generation.invalid(NOT_NEGATIVE);
        }
        if !SYSTEM_CONDITIONS.contains(&condition.at("type").text()) {
            condition.at("type").reported_at(condition.at("Type")).qualified_name();
        }
    });
    check_nominated_node(status, before, old.path("spec.nodeName"));
    if status.at("observedGeneration").integer_or_zero() < 0 {
        status.at("observedGeneration").invalid(NOT_NEGATIVE);
    }
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        check_transitions(status.at(list), before.at(list), old.at("spec"), list);
    }
    check_claims(status.at("resourceClaimStatuses"), pod.path("spec.resourceClaims"));
    check_addresses(status.at("podIPs"), before.at("podIPs"));
    let hosts = status.at("hostIPs");
    if hosts.len() > 0 {
        let first = hosts.index(0).at("ip");
        if status.at("hostIP").text() != first.text() {
            first.invalid("must be equal to `hostIP`");
        }
        check_addresses(hosts, before.at("hostIPs"));
    }
}

fn check_nominated_node(status: Field<'_>, before: Field<'_>, node: Field<'_>) {
    let name = status.at("nominatedNodeName");
    if name.text().is_empty() || name.text() == before.at("nominatedNodeName").text() {
        return;
    }
    name.dns_subdomain();
    if name.is_enabled("ClearingNominatedNodeNameAfterBinding") && !node.text().is_empty() {
        name.forbidden("may not be set on pods that are already bound to a node");
    }
}

/// A container that has terminated for good does not run again.
fn check_transitions(statuses: Field<'_>, before: Field<'_>, spec: Field<'_>, list: &str) {
    let policy = spec.at("restartPolicy").text();
    if list == "containerStatuses" && policy == "Always" {
        return;
    }
    let list_in_spec = if list == "containerStatuses" { "containers" } else { "initContainers" };
    let mut restarting = HashMap::new();
    for container in spec.at(list_in_spec).items() {
        let restarts = container.at("restartPolicy").text() == "Always" || container.at("restartPolicyRules").len() > 0;
        restarting.entry(container.at("name").text()).or_insert(restarts);
    }
    let mut running: HashMap<&str, usize> = HashMap::new();
    for new in statuses.items().filter(|new| !new.path("state.terminated").is_present()) {
        *running.entry(new.at("name").text()).or_default() += 1;
    }
    for old in before.items() {
        let terminated = old.path("state.terminated");
        if !terminated.is_present() {
            continue;
        }
        let has_failed = terminated.at("exitCode").integer_or_zero() != 0;
        let name = old.at("name").text();
        let restarts = restarting.get(name).copied().unwrap_or_default();
        if list != "ephemeralContainerStatuses" && (has_failed && policy == "OnFailure" || restarts) {
            continue;
        }
        for _ in 0..running.get(name).copied().unwrap_or_default() {
            let detail = "may not be transitioned to non-terminated state";
            statuses.index(old.position()).at("state").forbidden(detail);
        }
    }
}

fn check_claims(statuses: Field<'_>, claims: Field<'_>) {
    let known = claims.texts_of_items("name");
    let mut seen = HashSet::new();
    for status in statuses.items() {
        let name = status.at("name");
        if !known.contains(name.text()) {
            name.invalid_text("must match the name of an entry in `spec.resourceClaims`");
        }
        if !seen.insert(name.text()) {
            name.duplicate_of(name.text());
        }
        if status.at("resourceClaimName").is_present() {
            status.at("resourceClaimName").dns_subdomain();
        }
    }
}

/// At most one address of each family; addresses that were there before stay valid.
fn check_addresses(addresses: Field<'_>, before: Field<'_>) {
    let known = before.texts_of_items("ip");
    let mut parsed = Vec::new();
    for item in addresses.items() {
        let address = item.at("ip").reported_at(item);
        if known.contains(address.text()) {
            continue;
        }
        parsed.extend(address.legacy_ip());
    }
    let is_pair = parsed.len() == 2 && parsed[0].is_ipv4() != parsed[1].is_ipv4();
    if addresses.len() > 1 && parsed.len() == addresses.len() && !is_pair {
        addresses.invalid("may specify no more than one IP for each IP family");
    }
}
