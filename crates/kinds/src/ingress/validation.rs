//! What is valid in ingresses and ingress classes.

use crate::service::validation::{check_ingress_host, check_ingress_point};
use crate::validation::Field;
use crate::validation::addresses::parse_ip;

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const INVALID_SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const INVALID_SUFFIXES: [&str; 2] = ["/..", "/."];
const CONTROLLER_LENGTH_MAX: usize = 250;

pub(super) fn check_ingress(ingress: Field<'_>) {
    let spec = ingress.at("spec");
    let (rules, backend) = (spec.at("rules"), spec.at("defaultBackend"));
    if rules.len() == 0 && !backend.is_present() {
        let shown = rules.value().cloned().unwrap_or_default();
        spec.invalid_as(shown, "either `defaultBackend` or `rules` must be specified");
    }
    if backend.is_present() {
        check_backend(backend);
    }
    rules.each(check_rule);
    spec.at("tls").each(|tls| {
        tls.at("hosts").each(check_host);
        if !tls.at("secretName").text().is_empty() {
            tls.at("secretName").dns_subdomain();
        }
    });
    if spec.at("ingressClassName").is_present() {
        spec.at("ingressClassName").dns_subdomain();
    }
}

pub(super) fn check_new_ingress(ingress: Field<'_>) {
    let class = ingress.path("spec.ingressClassName");
    let annotation = ingress.path("metadata.annotations").key(CLASS_ANNOTATION);
    if annotation.is_present() && class.is_present() && annotation.text() != class.text() {
        let shown = annotation.rooted_at("annotations").at(CLASS_ANNOTATION);
        shown.invalid_as(annotation.text(), "must match `ingressClassName` when both are specified");
    }
}

fn check_host(host: Field<'_>) {
    if host.text().contains('*') {
        host.wildcard_subdomain();
    } else {
        host.dns_subdomain();
    }
}

fn check_rule(rule: Field<'_>) {
    let (host, http) = (rule.at("host"), rule.at("http"));
    if !host.text().is_empty() {
        if parse_ip(host.text()).is_some() {
            host.invalid("must be a DNS name, not an IP address");
        }
        check_host(host);
    }
    if http.is_present() {
        if http.at("paths").len() == 0 {
            http.at("paths").required("");
        }
        http.at("paths").each(check_path);
    }
}

fn check_path(item: Field<'_>) {
    let (kind, path) = (item.at("pathType"), item.at("path"));
    if !kind.is_present() {
        return kind.required("pathType must be specified");
    }
    let is_absolute = path.text().starts_with('/');
    match kind.text() {
        "Exact" | "Prefix" => {
            if !is_absolute {
                path.invalid_text("must be an absolute path");
            }
            for sequence in INVALID_SEQUENCES.iter().filter(|one| path.text().contains(**one)) {
                path.invalid(format!("must not contain '{sequence}'"));
            }
            for suffix in INVALID_SUFFIXES.iter().filter(|suffix| path.text().ends_with(**suffix)) {
                path.invalid(format!("cannot end with '{suffix}'"));
            }
        }
        "ImplementationSpecific" if !path.text().is_empty() && !is_absolute => {
            path.invalid("must be an absolute path");
        }
        _ => kind.one_of(&PATH_TYPES),
    }
    check_backend(item.at("backend"));
}

fn check_backend(backend: Field<'_>) {
    let (resource, service) = (backend.at("resource"), backend.at("service"));
    match (resource.is_present(), service.is_present()) {
        (true, true) => backend.invalid_as("", "cannot set both resource and service backends"),
        (true, false) => check_reference(resource),
        (false, true) => {
            let name = service.at("name");
            if name.require_text() {
                if name.is_enabled("RelaxedServiceNameValidation") {
                    name.dns_label()
                } else {
                    name.dns_1035_label()
                };
            }
            let port = service.at("port");
            match (port.at("name").text().is_empty(), port.at("number").integer_or_zero() == 0) {
                (false, false) => backend.invalid_as("", "cannot set both port name & port number"),
                (false, true) => {
                    port.at("name").port_name();
                }
                (true, false) => port.at("number").port_number(),
                (true, true) => backend.required("port name or number is required"),
            }
        }
        (false, false) => backend.invalid_as("", "resource or service backend is required"),
    }
}

fn check_reference(reference: Field<'_>) {
    if reference.at("apiGroup").is_present() {
        reference.at("apiGroup").dns_subdomain();
    }
    for name in ["kind", "name"].map(|name| reference.at(name)) {
        if name.require_text() {
            name.path_segment();
        }
    }
}

pub(super) fn check_ingress_status(ingress: Field<'_>, old: Field<'_>) {
    let before = old.path("status.loadBalancer.ingress").texts_of_items("ip");
    for point in ingress.path("status.loadBalancer.ingress").items() {
        check_ingress_point(point, &before);
        check_ingress_host(point.at("hostname"));
    }
}

pub(super) fn check_ingress_class(spec: Field<'_>) {
    let (controller, parameters) = (spec.at("controller"), spec.at("parameters"));
    if controller.text().len() > CONTROLLER_LENGTH_MAX {
        controller.too_long(CONTROLLER_LENGTH_MAX);
    }
    controller.domain_prefixed_path();
    if !parameters.is_present() {
        return;
    }
    check_reference(parameters);
    let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
    if !scope.is_present() {
        return scope.required("");
    }
    scope.one_of(&["Cluster", "Namespace"]);
    match scope.text() {
        "Namespace" if !namespace.is_present() => {
            namespace.required("`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => {
            namespace.dns_label();
        }
        "Cluster" if namespace.is_present() => {
            namespace.forbidden("`parameters.scope` is set to 'Cluster'");
        }
        _ => {}
    }
}
