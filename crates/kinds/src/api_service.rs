//! API services.

use api::validation::validate_path_segment_name;
use object::KindRules;
use object::rules::{NameRule, StatusSubresource};
use object::table::Column;
use object::table::cells::{AGE, NAME, find_condition, string_column};
use object::unstructured;

use crate::reset_fields;
use crate::strategy::{KindStrategy, RULES};
use crate::validation::Field;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    allows_any_finalizer: true,
    rules: KindRules {
        name_rule: NameRule::PathSegment,
        status: StatusSubresource::StatusOnly,
        allows_unconditional_update: false,
        ..RULES
    },
    validate,
    validate_status: |service, _| {
        let conditions = service.path("status.conditions");
        conditions.each(|condition| condition.at("status").one_of(&["True", "False", "Unknown"]));
    },
    columns: API_SERVICES,
    ..KindStrategy::DEFAULT
};

fn validate(service: Field<'_>) {
    let (metadata, spec) = (service.at("metadata"), service.at("spec"));
    let (group, version) = (spec.at("group"), spec.at("version"));
    let wanted = format!("{}.{}", version.text(), group.text());
    for name in ["generateName", "name"].map(|name| metadata.at(name)).into_iter().filter(|name| !name.is_zero()) {
        if name.text() != wanted && validate_path_segment_name(name.text()).is_empty() {
            name.invalid_text(format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
        }
    }
    if !group.text().is_empty() {
        group.dns_subdomain();
    } else if version.text() != "v1" {
        group.required("only v1 may have an empty group and it better be legacy kube");
    }
    version.dns_1035_label();
    check_priority(spec.at("groupPriorityMinimum"), 20000);
    check_priority(spec.at("versionPriority"), 1000);
    check_backend(spec);
}

fn check_priority(priority: Field<'_>, max: i64) {
    if !(1..=max).contains(&priority.integer_or_zero()) {
        priority.invalid_as(priority.integer_or_zero(), format!("must be positive and less than {max}"));
    }
}

fn check_backend(spec: Field<'_>) {
    let (service, bundle, insecure) = (spec.at("service"), spec.at("caBundle"), spec.at("insecureSkipTLSVerify"));
    if !service.is_present() {
        if !bundle.text().is_empty() {
            // The text is base64.
            let bytes = bundle.text().trim_end_matches('=').len() * 3 / 4;
            bundle.invalid_as(format!("{bytes} bytes"), "local APIServices may not have a caBundle");
        }
        if insecure.flag() {
            insecure.invalid("local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    service.require(&["namespace", "name"]);
    let port = service.at("port").integer_or_zero();
    if !(1..=65535).contains(&port) {
        service.at("port").invalid_as(port, "port is not valid: must be between 1 and 65535, inclusive");
    }
    if insecure.flag() && !bundle.text().is_empty() {
        insecure.invalid("may not be true if caBundle is present");
    }
}

const API_SERVICES: &[Column] = &[
    NAME,
    string_column("Service", "What serves it.", |service, _| {
        let Some(reference) = unstructured::nested_object(service, &["spec", "service"]) else { return "Local".into() };
        format!("{}/{}", unstructured::text(reference, &["namespace"]), unstructured::text(reference, &["name"])).into()
    }),
    string_column("Available", "Whether it answers.", |service, _| {
        let Some(condition) = find_condition(service, "Available") else { return "Unknown".into() };
        match (unstructured::text(condition, &["status"]), unstructured::text(condition, &["reason"])) {
            (status @ "True", _) | (status, "") => status.into(),
            (status, reason) => format!("{status} ({reason})").into(),
        }
    }),
    AGE,
];
