//! What is valid in containers.

use std::collections::HashSet;

use super::{PodContext, environment, handlers, security, volumes};
use crate::validation::Field;
use crate::validation::resources::ResourceScope;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
pub(super) const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const TERMINATION_MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const RESTART_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const ONLY_SIDECARS: &str = "may not be set for init containers without restartPolicy=Always";
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
/// Fields that an ephemeral container must not have.
const NOT_IN_EPHEMERAL: [&str; 8] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];
const EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

pub(super) fn check_containers(context: &PodContext<'_>) {
    let containers = context.spec.at("containers");
    if containers.len() == 0 {
        return containers.required("");
    }
    let mut names = HashSet::new();
    for container in containers.items() {
        check_container(container, context);
        if !names.insert(container.at("name").text()) {
            container.at("name").duplicate_of(container.at("name").text());
        }
        handlers::check_lifecycle(container.at("lifecycle"), context);
        PROBES.iter().for_each(|name| handlers::check_probe(name, container.at(name), context));
        if container.is_enabled("ContainerRestartRules") {
            check_restart_policy(container);
        } else {
            container.forbid(&["restartPolicy"], "may not be set for non-init containers");
        }
    }
    check_host_ports(containers.items(), containers);
}

pub(super) fn check_init_containers(context: &PodContext<'_>) {
    let of_containers = context.spec.at("containers").items();
    let mut names: HashSet<&str> = of_containers.map(|container| container.at("name").text()).collect();
    let containers = context.spec.at("initContainers");
    for container in containers.items() {
        check_container(container, context);
        check_init_restart_policy(container);
        let name = container.at("name");
        if names.contains(name.text()) {
            name.duplicate_of(name.text());
        } else if !name.text().is_empty() {
            names.insert(name.text());
        }
        check_host_ports(std::iter::once(container), containers);
        let is_sidecar = container.at("restartPolicy").text() == "Always";
        if is_sidecar {
            handlers::check_lifecycle(container.at("lifecycle"), context);
            PROBES.iter().for_each(|name| handlers::check_probe(name, container.at(name), context));
            continue;
        }
        container.forbid(&["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"], ONLY_SIDECARS);
        for policy in container.at("resizePolicy").items() {
            if policy.at("restartPolicy").text() == "RestartContainer" {
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                policy.at("restartPolicy").invalid(detail);
            }
        }
    }
}

pub(super) fn check_ephemeral_containers(context: &PodContext<'_>) {
    let others = ["containers", "initContainers"].into_iter().flat_map(|list| context.spec.at(list).items());
    let others: HashSet<&str> = others.map(|container| container.at("name").text()).collect();
    let mut names = others.clone();
    for container in context.spec.at("ephemeralContainers").items() {
        check_container(container, context);
        check_image_spaces(container);
        if !names.insert(container.at("name").text()) {
            container.at("name").duplicate_of(container.at("name").text());
        }
        let target = container.at("targetContainerName");
        if !target.text().is_empty() && !others.contains(target.text()) {
            target.not_found();
        }
        for (name, field) in NOT_IN_EPHEMERAL.iter().map(|name| (*name, container.at(name))) {
            // An empty list is absent, and so is an empty struct that is not a pointer.
            let is_set =
                if field.object().is_some() { name != "resources" || field.len() > 0 } else { field.len() > 0 };
            if is_set {
                field.forbidden(EPHEMERAL);
            }
        }
        container.forbid(&["restartPolicy"], EPHEMERAL);
        for mount in container.at("volumeMounts").items() {
            for path in ["subPath", "subPathExpr"].iter().map(|name| mount.at(name)) {
                if !path.text().is_empty() {
                    path.forbidden(EPHEMERAL);
                }
            }
        }
    }
}

/// The rules that containers of every list have in common.
fn check_container(container: Field<'_>, context: &PodContext<'_>) {
    let name = container.at("name");
    if name.require_text() {
        name.dns_label();
    }
    container.require(&["image"]);
    container.at("terminationMessagePolicy").require_one_of(&TERMINATION_MESSAGE_POLICIES);
    check_ports(container.at("ports"));
    environment::check_variables(container.at("env"));
    environment::check_sources(container.at("envFrom"));
    volumes::check_mounts(container, context);
    volumes::check_devices(container, context);
    container.at("imagePullPolicy").require_one_of(&PULL_POLICIES);
    container.at("resources").resource_requirements(ResourceScope::Container, &context.claims);
    check_resize_policies(container.at("resizePolicy"), context);
    security::check_security_context(container.at("securityContext"), context);
}

pub(super) fn check_image_spaces(container: Field<'_>) {
    let image = container.at("image");
    if image.text().trim() != image.text() {
        image.invalid("must not have leading or trailing whitespace");
    }
}

fn check_ports(ports: Field<'_>) {
    let mut names = HashSet::new();
    for port in ports.items() {
        let (name, number, host) = (port.at("name"), port.at("containerPort"), port.at("hostPort"));
        if !name.text().is_empty() && name.port_name() && !names.insert(name.text()) {
            name.duplicate();
        }
        if number.integer_or_zero() == 0 {
            number.required("");
        } else {
            number.port_number();
        }
        if host.integer_or_zero() != 0 {
            host.port_number();
        }
        port.at("protocol").require_one_of(&PROTOCOLS);
    }
}

/// Two containers cannot have the same port of the host. The index in errors is the one among these containers.
fn check_host_ports<'a>(containers: impl Iterator<Item = Field<'a>>, list: Field<'a>) {
    let mut seen = HashSet::new();
    for (index, container) in containers.enumerate() {
        let container = container.reported_at(list.index(index));
        for port in container.at("ports").items().filter(|port| port.at("hostPort").integer_or_zero() != 0) {
            let number = port.at("hostPort").integer_or_zero();
            let key = format!("{}/{}/{number}", port.at("protocol").text(), port.at("hostIP").text());
            if !seen.insert(key.clone()) {
                port.at("hostPort").duplicate_of(key);
            }
        }
    }
}

fn check_resize_policies(policies: Field<'_>, context: &PodContext<'_>) {
    let mut seen = HashSet::new();
    for policy in policies.items() {
        let (resource, restart) = (policy.at("resourceName"), policy.at("restartPolicy"));
        if !seen.insert(resource.text()) {
            policy.duplicate_of(resource.text());
        }
        resource.reported_at(policies).require_one_of(&["cpu", "memory"]);
        restart.reported_at(policies).require_one_of(&["NotRequired", "RestartContainer"]);
        if context.restart_policy == "Never" && restart.text() != "NotRequired" {
            policies.invalid_as(restart.text(), "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

fn check_init_restart_policy(container: Field<'_>) {
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if !policy.is_present() {
        if rules.len() > 0 {
            policy.required("must specify restartPolicy when restart rules are used");
        }
    } else if !container.is_enabled("ContainerRestartRules") {
        policy.one_of(&["Always"]);
    } else if policy.text() == "Always" && !container.is_enabled("RestartAllContainersOnContainerExits") {
        if rules.len() > 0 {
            rules.forbidden("restartPolicyRules are not allowed for init containers with restart policy Always");
        }
    } else {
        check_restart_policy(container);
    }
}

fn check_restart_policy(container: Field<'_>) {
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if policy.is_present() {
        policy.one_of(&RESTART_POLICIES);
    } else if rules.len() > 0 {
        policy.required("must specify restartPolicy when restart rules are used");
    }
    rules.at_most(RESTART_RULES_MAX);
    let with_all = container.is_enabled("RestartAllContainersOnContainerExits");
    let actions: &[&str] = if with_all { &["Restart", "RestartAllContainers"] } else { &["Restart"] };
    rules.each(|rule| {
        rule.at("action").one_of(actions);
        let codes = rule.at("exitCodes");
        if codes.is_present() {
            codes.at("operator").one_of(&["In", "NotIn"]);
            codes.at("values").at_most(EXIT_CODES_MAX);
        } else {
            codes.required("must be specified");
        }
    });
}
