//! What is valid in pods and pod templates.

mod annotations;
mod containers;
mod environment;
mod handlers;
mod operating_system;
mod scheduling;
mod security;
mod status;
mod volumes;

use std::collections::HashMap;

use crate::validation::Field;
use crate::validation::resources::ResourceScope;

pub(crate) use scheduling::{TAINT_EFFECTS, check_tolerations};
pub(crate) use status::check_pod_status;

pub(crate) const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const HOSTNAME_OVERRIDE_LENGTH_MAX: usize = 64;
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_LIST_LENGTH_MAX: usize = 2048;

/// What rules of a container need to know of its pod.
struct PodContext<'a> {
    spec: Field<'a>,
    /// The valid volumes, by name, and whether they can be block devices.
    volumes: HashMap<&'a str, bool>,
    claims: Vec<&'a str>,
    grace_period: Option<i64>,
    restart_policy: &'a str,
    /// False if the pod has a user namespace of its own.
    has_host_users: bool,
    /// A pod itself, not the template of one.
    is_pod: bool,
}

/// Checks a new or updated pod.
pub(crate) fn check_pod(pod: Field<'_>) {
    let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
    annotations::check_pod_annotations(metadata.at("annotations"), spec);
    check_pod_spec(spec, Some(metadata), &[]);
    if spec.at("serviceAccountName").text().is_empty() {
        for source in spec.at("volumes").items().flat_map(|volume| volume.path("projected.sources").items()) {
            source.forbid(&["serviceAccountToken"], "must not be specified when serviceAccountName is not set");
        }
    }
    for container in ["containers", "initContainers"].iter().flat_map(|list| spec.at(list).items()) {
        containers::check_image_spaces(container);
    }
}

/// Checks what a pod must not have when it is created.
pub(crate) fn check_new_pod(pod: Field<'_>) {
    let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
    if spec.at("ephemeralContainers").len() > 0 {
        spec.at("ephemeralContainers").forbidden("cannot be set on create");
    }
    if !spec.at("nodeName").text().is_empty() && spec.at("schedulingGates").len() > 0 {
        spec.at("nodeName").forbidden("cannot be set until all schedulingGates have been cleared");
    }
    annotations::check_profiles_match(metadata.at("annotations"), spec);
}

/// Checks the template of a workload's pods.
pub(crate) fn check_pod_template(template: Field<'_>) {
    check_pod_template_with(template, &[]);
}

/// Checks the template of a stateful set's pods, with the names of its volume claim templates.
pub(crate) fn check_pod_template_with<'a>(template: Field<'a>, claims: &[&'a str]) {
    let (metadata, spec) = (template.at("metadata"), template.at("spec"));
    // Kubernetes' paths leave out the metadata here.
    metadata.at("labels").reported_at(template.at("labels")).labels();
    let annotations = metadata.at("annotations").reported_at(template.at("annotations"));
    annotations.annotations();
    annotations::check_pod_annotations(annotations, spec);
    check_pod_spec(spec, None, claims);
    annotations::check_profiles_match(annotations, spec);
    if spec.at("ephemeralContainers").len() > 0 {
        spec.at("ephemeralContainers").forbidden("ephemeral containers not allowed in pod template");
    }
}

/// `metadata` is that of a pod, which a template does not have.
fn check_pod_spec<'a>(spec: Field<'a>, metadata: Option<Field<'a>>, claim_templates: &[&'a str]) {
    let claims = spec.at("resourceClaims");
    let context = PodContext {
        spec,
        volumes: volumes::check_volumes(spec.at("volumes"), metadata, claim_templates),
        claims: claims.items().map(|claim| claim.at("name").text()).filter(|name| !name.is_empty()).collect(),
        grace_period: spec.at("terminationGracePeriodSeconds").integer(),
        restart_policy: spec.at("restartPolicy").text(),
        has_host_users: !spec.at("hostUsers").is_present() || spec.at("hostUsers").flag(),
        is_pod: metadata.is_some(),
    };
    check_resource_claims(claims);
    containers::check_containers(&context);
    containers::check_init_containers(&context);
    containers::check_ephemeral_containers(&context);
    check_pod_resources(&context);
    if spec.at("hostNetwork").flag() {
        check_host_ports_match(&context);
    }
    spec.at("restartPolicy").require_one_of(&RESTART_POLICIES);
    spec.at("dnsPolicy").require_one_of(&DNS_POLICIES);
    spec.at("nodeSelector").labels();
    security::check_pod_security_context(spec);
    scheduling::check_affinity(spec.at("affinity"));
    check_dns(spec);
    spec.at("readinessGates").each(|gate| {
        gate.at("conditionType").qualified_name();
    });
    check_scheduling_gates(spec.at("schedulingGates"));
    scheduling::check_topology_spread(spec.at("topologySpreadConstraints"));
    operating_system::check_host_process(spec);
    security::check_user_namespace(&context);
    check_hostname_override(spec);
    check_names(spec);
    operating_system::check_operating_system(spec);
    if spec.at("schedulingGroup").is_present() && spec.is_enabled("GenericWorkload") {
        check_scheduling_group(spec.at("schedulingGroup"));
    }
    environment::check_file_key_volumes(spec);
}

/// Names and numbers of a pod spec that are optional.
fn check_names(spec: Field<'_>) {
    let is_set = |name: &&'static str| !spec.at(name).text().is_empty();
    for name in ["serviceAccountName", "nodeName"].iter().filter(|name| is_set(name)) {
        spec.at(name).dns_subdomain();
    }
    spec.at("activeDeadlineSeconds").in_range(1, i64::from(i32::MAX));
    for name in ["hostname", "subdomain"].iter().filter(|name| is_set(name)) {
        spec.at(name).dns_label();
    }
    check_tolerations(spec.at("tolerations"));
    spec.at("hostAliases").each(|alias| {
        alias.at("ip").legacy_ip();
        alias.at("hostnames").each(|name| {
            name.dns_subdomain();
        });
    });
    if !spec.at("priorityClassName").text().is_empty() {
        spec.at("priorityClassName").dns_subdomain();
    }
    if spec.at("runtimeClassName").is_present() {
        spec.at("runtimeClassName").dns_subdomain();
    }
    if spec.at("preemptionPolicy").is_present() {
        spec.at("preemptionPolicy").require_one_of(&["PreemptLowerPriority", "Never"]);
    }
    let overhead = spec.at("overhead");
    let limits = overhead.at("limits");
    for (name, amount) in overhead.entries() {
        amount.reported_at(limits.key(name)).resource_entry(name, ResourceScope::Container);
    }
}

fn check_resource_claims(claims: Field<'_>) {
    let mut seen = Vec::new();
    for claim in claims.items() {
        let name = claim.at("name");
        if name.require_text() {
            if seen.contains(&name.text()) {
                name.duplicate();
            } else {
                name.dns_label();
                seen.push(name.text());
            }
        }
        let sources = [claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName")];
        match sources.map(Field::is_present) {
            [true, true] => {
                claim.invalid("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified");
            }
            [false, false] => claim.invalid("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            [true, false] | [false, true] => {}
        }
        sources.into_iter().filter(|source| source.is_present()).for_each(|source| {
            source.dns_subdomain();
        });
    }
}

/// Requests and limits of the pod as a whole.
fn check_pod_resources(context: &PodContext<'_>) {
    let resources = context.spec.at("resources");
    if !resources.is_present() || !resources.is_enabled("PodLevelResources") {
        return;
    }
    if context.spec.path("os.name").text() == "windows" {
        return resources.forbidden("may not be set for a windows pod");
    }
    if resources.at("claims").is_present() {
        resources.at("claims").forbidden("claims may not be set for Resources at pod-level");
    }
    resources.resource_requirements(ResourceScope::Pod, &context.claims);
    for container in context.spec.at("containers").items() {
        for (name, limit) in container.path("resources.limits").entries() {
            let of_pod = resources.at("limits").key(name);
            if of_pod.is_present() && limit.compare_quantity(of_pod).is_gt() {
                let detail = format!("must be less than or equal to pod limits of {}", of_pod.quantity_text());
                let index = container.reported_at(resources.at("containers").index(container.position()));
                index.key(name).at("limits").invalid_as(limit.quantity_text(), detail);
            }
        }
    }
}

/// On the host's network a container's ports are the host's.
fn check_host_ports_match(context: &PodContext<'_>) {
    let containers = context.spec.at("containers");
    for port in containers.items().flat_map(|container| container.at("ports").items()) {
        let (host, own) = (port.at("hostPort").integer_or_zero(), port.at("containerPort").integer_or_zero());
        if (context.is_pod || host != 0) && host != own {
            port.at("hostPort").invalid_as(host, "must match `containerPort` when `hostNetwork` is true");
        }
    }
}

fn check_dns(spec: Field<'_>) {
    let config = spec.at("dnsConfig");
    let nameservers = config.at("nameservers");
    if spec.at("dnsPolicy").text() == "None" {
        if !config.is_present() {
            return config.required("must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if nameservers.len() == 0 {
            return nameservers.required("must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if nameservers.len() > NAMESERVERS_MAX {
        nameservers.invalid(format!("must not have more than {NAMESERVERS_MAX} nameservers"));
    }
    nameservers.each(|server| {
        server.legacy_ip();
    });
    let searches = config.at("searches");
    if searches.len() > SEARCHES_MAX {
        searches.invalid(format!("must not have more than {SEARCHES_MAX} search paths"));
    }
    if searches.texts().map(|search| search.len() + 1).sum::<usize>() > SEARCH_LIST_LENGTH_MAX + 1 {
        let detail = format!(
            "must not have more than {SEARCH_LIST_LENGTH_MAX} characters (including spaces) in the search list"
        );
        searches.invalid(detail);
    }
    searches.each(check_dns_search);
    for option in config.at("options").items().filter(|option| option.at("name").text().is_empty()) {
        option.required("must not be empty");
    }
}

/// A domain, possibly with a dot at its end, which is not part of what is checked.
fn check_dns_search(search: Field<'_>) {
    let text = search.text();
    let is_relaxed = search.is_enabled("RelaxedDNSSearchValidation");
    if is_relaxed && text == "." {
        return;
    }
    let domain = serde_json::Value::from(text.strip_suffix('.').unwrap_or(text));
    search.check_other(&domain, |domain| {
        if is_relaxed {
            domain.subdomain_with_underscore();
        } else {
            domain.dns_subdomain();
        }
    });
}

fn check_scheduling_gates(gates: Field<'_>) {
    let mut seen = Vec::new();
    for gate in gates.items() {
        let name = gate.at("name").reported_at(gate);
        name.qualified_name();
        if seen.contains(&name.text()) {
            name.duplicate_of(name.text());
        }
        seen.push(name.text());
    }
}

fn check_hostname_override(spec: Field<'_>) {
    let name = spec.at("hostnameOverride");
    if !name.is_present() {
        return;
    }
    if spec.at("setHostnameAsFQDN").flag() {
        name.forbidden("may not be specified when setHostnameAsFQDN is true");
    }
    if spec.at("hostNetwork").flag() {
        name.forbidden("may not be specified when hostNetwork is true");
    }
    if name.text().len() > HOSTNAME_OVERRIDE_LENGTH_MAX {
        name.too_long(HOSTNAME_OVERRIDE_LENGTH_MAX);
    }
    name.dns_subdomain();
}

fn check_scheduling_group(group: Field<'_>) {
    let name = group.at("podGroupName");
    if name.is_present() {
        name.dns_subdomain();
    } else {
        name.invalid("must specify one of: `podGroupName`");
    }
}

/// Containers of all three lists, in Kubernetes' order.
fn all_containers(spec: Field<'_>) -> impl Iterator<Item = Field<'_>> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| spec.at(list).items())
}

#[cfg(test)]
mod tests;
