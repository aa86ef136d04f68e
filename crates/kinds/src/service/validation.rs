//! What is valid in services.

use std::collections::HashSet;

use api::FieldError;
use api::json::JsonObject;
use api::validation::validate_dns1123_subdomain;
use serde_json::Value;

use crate::FeatureGates;
use crate::endpoints::check_endpoint_address;
use crate::validation::addresses::parse_ip;
use crate::validation::{Field, Report, go_object};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
const ONLY_LOAD_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";
const NOT_EXTERNAL_NAME: &str = "may not be set for ExternalName services";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// A day.
const AFFINITY_SECONDS_MAX: i64 = 86400;

pub(super) fn check_service(service: Field<'_>) {
    let (spec, annotations) = (service.at("spec"), service.path("metadata.annotations"));
    let (hints, mode) = (annotations.key(TOPOLOGY_HINTS), annotations.key(TOPOLOGY_MODE));
    if hints.is_present() && mode.is_present() && hints.text() != mode.text() {
        mode.invalid(format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified"));
    }
    let (ports, kind) = (spec.at("ports"), spec.at("type"));
    let first_ip = spec.at("clusterIPs").index(0);
    let is_headless = first_ip.text() == "None";
    if ports.len() == 0 && !is_headless && kind.text() != "ExternalName" {
        ports.required("");
    }
    match kind.text() {
        "LoadBalancer" | "NodePort" if is_headless => {
            first_ip.invalid(format!("may not be set to 'None' for {} services", kind.text()));
        }
        "ExternalName" => check_external_name(spec),
        _ => {}
    }
    check_ports(ports);
    spec.at("selector").labels();
    check_affinity(spec);
    if kind.text() != "ExternalName" {
        check_cluster_ips(spec);
    }
    for address in spec.at("externalIPs").items() {
        let errors = address.error_count();
        address.legacy_ip();
        if address.error_count() == errors {
            check_endpoint_address(address);
        }
    }
    kind.require_one_of(&TYPES);
    check_unique_ports(spec);
    check_load_balancer(spec, annotations);
    check_traffic_policies(spec);
}

fn check_external_name(spec: Field<'_>) {
    for list in ["clusterIPs", "ipFamilies"].map(|name| spec.at(name)).into_iter().filter(|list| list.len() > 0) {
        list.forbidden(NOT_EXTERNAL_NAME);
    }
    spec.forbid(&["ipFamilyPolicy"], NOT_EXTERNAL_NAME);
    let name = spec.at("externalName");
    match name.text().strip_suffix('.').unwrap_or(name.text()) {
        "" => name.required(""),
        domain => validate_dns1123_subdomain(domain).into_iter().for_each(|error| name.invalid_as(domain, error)),
    }
}

fn check_ports(ports: Field<'_>) {
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.at("name");
        if name.text().is_empty() {
            if ports.len() > 1 {
                name.required("");
            }
        } else {
            name.dns_label();
            if !names.insert(name.text()) {
                name.duplicate();
            }
        }
        port.at("port").port_number();
        port.at("protocol").require_one_of(&PROTOCOLS);
        port.at("targetPort").port_number_or_name();
        if port.at("appProtocol").is_present() {
            port.at("appProtocol").qualified_name();
        }
    }
}

fn check_affinity(spec: Field<'_>) {
    let (affinity, config) = (spec.at("sessionAffinity"), spec.at("sessionAffinityConfig"));
    affinity.require_one_of(&["ClientIP", "None"]);
    match affinity.text() {
        "ClientIP" => {
            let client = config.at("clientIP");
            let timeout = client.at("timeoutSeconds");
            let missing = [config, client, timeout].into_iter().find(|field| !field.is_present());
            if let Some(field) = missing {
                field.required("when session affinity type is ClientIP");
            } else if !(1..=AFFINITY_SECONDS_MAX).contains(&timeout.integer_or_zero()) {
                timeout.invalid(format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}"));
            }
        }
        "None" if config.is_present() => config.forbidden("must not be set when session affinity is None"),
        _ => {}
    }
}

/// What is invalid in the addresses and families of a spec, taken alone.
pub fn validate_service_addresses(gates: &FeatureGates, spec: &JsonObject) -> Vec<FieldError> {
    let validation = Report::new(gates);
    check_cluster_ips(validation.root(spec).rooted_at("spec"));
    validation.take_errors()
}

fn check_cluster_ips(spec: Field<'_>) {
    let (address, addresses, families) = (spec.at("clusterIP"), spec.at("clusterIPs"), spec.at("ipFamilies"));
    let first = addresses.index(0);
    match (address.text().is_empty(), addresses.len()) {
        (false, 0) => addresses.required(""),
        (false, _) if first.text() != address.text() => addresses.invalid("first value must match `clusterIP`"),
        (true, 1..) => addresses.invalid("must be empty when `clusterIP` is not specified"),
        _ => {}
    }
    let mut seen = HashSet::new();
    for family in families.items() {
        family.one_of(&FAMILIES);
        if !seen.insert(family.text()) {
            family.duplicate();
        }
    }
    spec.at("ipFamilyPolicy").one_of_if_present(&FAMILY_POLICIES);
    let errors = addresses.error_count();
    for (index, address) in addresses.items().enumerate() {
        if index == 0 && address.text() == "None" {
            if addresses.len() > 1 {
                addresses.invalid("'None' must be the first and only value");
            }
        } else {
            address.legacy_ip();
        }
    }
    let is_valid = addresses.error_count() == errors;
    if addresses.len() > 2 {
        addresses.invalid("may only hold up to 2 values");
    }
    if !is_valid {
        return;
    }
    let parsed: Vec<_> = addresses.texts().filter_map(parse_ip).collect();
    let is_dual = parsed.iter().any(std::net::IpAddr::is_ipv4) && parsed.iter().any(std::net::IpAddr::is_ipv6);
    if addresses.len() > 1 && !is_dual {
        addresses.invalid("may specify no more than one IP for each IP family");
    }
    for ((address, family), ip) in addresses.items().zip(families.texts()).zip(&parsed) {
        let index = address.position();
        if family == "IPv4" && ip.is_ipv6() || family == "IPv6" && ip.is_ipv4() {
            address.invalid(format!("expected an {family} value as indicated by `ipFamilies[{index}]`"));
        }
    }
}

fn check_unique_ports(spec: Field<'_>) {
    let ports = spec.at("ports");
    let of_node = |port: &Field<'_>| port.at("nodePort").integer_or_zero() != 0;
    if spec.at("type").text() == "ClusterIP" {
        for port in ports.items().filter(of_node) {
            port.at("nodePort").forbidden("may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut seen = HashSet::new();
    for port in ports.items().filter(of_node) {
        if !seen.insert((port.at("protocol").text(), port.at("nodePort").integer_or_zero())) {
            port.at("nodePort").duplicate();
        }
    }
    let mut seen = HashSet::new();
    for port in ports.items() {
        let (protocol, number) = (port.at("protocol").text(), port.at("port").integer_or_zero());
        if !seen.insert((protocol, number)) {
            // As Kubernetes' own type is shown.
            port.duplicate_showing(go_object(&[
                ("Name", "".into()),
                ("Protocol", protocol.into()),
                ("AppProtocol", Value::Null),
                ("Port", number.into()),
                ("TargetPort", 0.into()),
                ("NodePort", 0.into()),
            ]));
        }
    }
}

fn check_load_balancer(spec: Field<'_>, annotations: Field<'_>) {
    let is_load_balancer = spec.at("type").text() == "LoadBalancer";
    let (ranges, annotation) = (spec.at("loadBalancerSourceRanges"), annotations.key(SOURCE_RANGES));
    if ranges.len() > 0 {
        let shown = spec.at("LoadBalancerSourceRanges");
        if !is_load_balancer {
            shown.forbidden(ONLY_LOAD_BALANCERS);
        }
        for range in ranges.items() {
            let text = Value::from(range.text().trim());
            range.reported_at(shown.index(range.position())).check_other(&text, |range| {
                range.legacy_cidr();
            });
        }
    } else if annotation.is_present() {
        if !is_load_balancer {
            annotation.forbidden(ONLY_LOAD_BALANCERS);
        }
        for range in annotation.text().trim().split(',').filter(|_| !annotation.text().trim().is_empty()) {
            annotation.check_other(&range.trim().into(), |range| {
                range.legacy_cidr();
            });
        }
    }
    if !is_load_balancer {
        spec.forbid(&["allocateLoadBalancerNodePorts"], ONLY_LOAD_BALANCERS);
        spec.forbid(&["loadBalancerClass"], ONLY_LOAD_BALANCERS);
    } else if spec.at("loadBalancerClass").is_present() {
        spec.at("loadBalancerClass").qualified_name();
    }
}

fn check_traffic_policies(spec: Field<'_>) {
    let (kind, external) = (spec.at("type").text(), spec.at("externalTrafficPolicy"));
    let is_external =
        matches!(kind, "LoadBalancer" | "NodePort") || kind == "ClusterIP" && spec.at("externalIPs").len() > 0;
    if !is_external && !external.text().is_empty() {
        external.invalid("may only be set for externally-accessible services");
    } else if is_external {
        external.require_one_of(&["Cluster", "Local"]);
    }
    let port = spec.at("healthCheckNodePort");
    let is_checked = kind == "LoadBalancer" && external.text() == "Local";
    match port.integer_or_zero() {
        0 => {}
        _ if is_checked => port.port_number(),
        _ => port.invalid("may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"),
    }
    let internal = spec.at("internalTrafficPolicy");
    if internal.is_present() {
        internal.one_of(&["Cluster", "Local"]);
    } else if matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        internal.required("");
    }
    let known = if spec.is_enabled("PreferSameTrafficDistribution") { 3 } else { 1 };
    spec.at("trafficDistribution").one_of_if_present(&DISTRIBUTIONS[..known]);
}

/// The addresses of a load balancer; those that were there before stay valid.
pub(super) fn check_status(service: Field<'_>, old: Field<'_>) {
    let ingress = service.path("status.loadBalancer.ingress");
    if service.path("spec.type").text() != "LoadBalancer" && ingress.len() > 0 {
        return ingress.forbidden("may only be used when `spec.type` is 'LoadBalancer'");
    }
    let before = old.path("status.loadBalancer.ingress").texts_of_items("ip");
    for point in ingress.items() {
        let (address, mode) = (point.at("ip"), point.at("ipMode"));
        check_ingress_point(point, &before);
        match (mode.is_present(), address.text().is_empty()) {
            (false, false) => mode.required("must be specified when `ip` is set"),
            (true, true) => mode.forbidden("may not be specified when `ip` is not set"),
            _ => mode.one_of_if_present(&["Proxy", "VIP"]),
        }
        check_ingress_host(point.at("hostname"));
    }
}

/// The address of a load balancer of a service or an ingress; `before` has those that were there before.
pub(crate) fn check_ingress_point(point: Field<'_>, before: &HashSet<&str>) {
    let address = point.at("ip");
    if !address.text().is_empty() && !before.contains(address.text()) {
        address.legacy_ip();
    }
}

pub(crate) fn check_ingress_host(host: Field<'_>) {
    if !host.text().is_empty() {
        host.dns_subdomain();
        if parse_ip(host.text()).is_some() {
            host.invalid("must be a DNS name, not an IP address");
        }
    }
}
