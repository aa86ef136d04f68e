//! What is valid in claims, classes and taints of devices.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::names::check_fully_qualified_name;
use crate::validation::Field;
use crate::validation::conditions::check_conditions;

const REQUESTS_MAX: usize = 32;
const SELECTORS_MAX: usize = 32;
const SUB_REQUESTS_MAX: usize = 8;
const POOL_NAME_LENGTH_MAX: usize = 253;
const POOLS_MAX: i64 = 1000;
const EXPRESSION_LENGTH_MAX: usize = 10 * 1024;
const TAINT_EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const TOLERATION_EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
/// Conditions that a binding waits for, and of those that end the wait.
const BINDING_CONDITIONS_MAX: usize = 4;
/// Bytes of JSON in the parameters and data of drivers.
const RAW_OBJECT_LENGTH_MAX: usize = 10 * 1024;
const UNKNOWN_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
const ONE_REQUEST: &str = "exactly one of `exactly` or `firstAvailable` is required";

pub(super) fn check_device_class(class: Field<'_>) {
    let spec = class.at("spec");
    check_selectors(spec.at("selectors"));
    spec.at("config").at_most(REQUESTS_MAX);
    spec.at("config").each(check_configuration);
    let name = spec.at("extendedResourceName");
    if name.is_present() {
        let is_extended = name.text().contains('/')
            && !name.text().contains("kubernetes.io/")
            && !name.text().starts_with("requests.")
            && api::validation::validate_label_key(&format!("requests.{}", name.text())).is_empty();
        if !is_extended {
            name.invalid_text("must be a valid extended resource name");
        }
    }
}

/// The spec of a claim, or of a claim template.
pub(super) fn check_claim_spec(spec: Field<'_>) {
    let devices = spec.at("devices");
    let requests = devices.at("requests");
    requests.at_most(REQUESTS_MAX);
    let mut names = HashSet::new();
    for request in requests.items() {
        check_request(request);
        if !names.insert(request.at("name").text()) {
            request.duplicate_of(request.at("name").text());
        }
    }
    let requests = &RequestNames::new(requests);
    devices.at("constraints").at_most(REQUESTS_MAX);
    for constraint in devices.at("constraints").items() {
        check_request_names(constraint.at("requests"), requests);
        let (equal, distinct) = (constraint.at("matchAttribute"), constraint.at("distinctAttribute"));
        if equal.is_present() {
            check_fully_qualified_name(equal);
        } else if distinct.is_present() {
            check_fully_qualified_name(distinct);
        } else {
            if constraint.is_enabled("DRAConsumableCapacity") {
                let detail = r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#;
                constraint.required(detail);
            } else {
                constraint.at("matchAttribute").required("");
            }
        }
    }
    devices.at("config").at_most(REQUESTS_MAX);
    for config in devices.at("config").items() {
        check_request_names(config.at("requests"), requests);
        check_configuration(config);
    }
}

pub(super) fn check_claim_template(template: Field<'_>) {
    let spec = template.at("spec");
    let metadata = spec.at("metadata");
    metadata.at("annotations").annotations();
    metadata.at("labels").labels();
    for (name, field) in metadata.entries().filter(|(name, _)| !["annotations", "labels"].contains(name)) {
        if !field.is_zero() {
            metadata.at(name).forbidden("cannot be set");
        }
    }
    check_claim_spec(spec.at("spec"));
}

fn check_request(request: Field<'_>) {
    request.at("name").dns_label();
    let (exact, choices) = (request.at("exactly"), request.at("firstAvailable"));
    // Version v1beta1 has the fields of `exactly` in the request itself.
    let is_flat = request.at("deviceClassName").is_present();
    match (exact.is_present(), choices.len() > 0) {
        (false, false) if is_flat => check_exact_request(request),
        (false, false) => request.required(ONE_REQUEST),
        (true, true) => request.invalid_as(Value::Null, format!("{ONE_REQUEST}, but multiple fields are set")),
        (true, false) => check_exact_request(exact),
        (false, true) => {
            choices.at_most(SUB_REQUESTS_MAX);
            let mut names = HashSet::new();
            for choice in choices.items() {
                choice.at("name").dns_label();
                check_exact_request(choice);
                if !names.insert(choice.at("name").text()) {
                    choice.duplicate_of(choice.at("name").text());
                }
            }
        }
    }
}

fn check_exact_request(request: Field<'_>) {
    request.at("deviceClassName").require_object_name();
    check_selectors(request.at("selectors"));
    let (mode, count) = (request.at("allocationMode"), request.at("count"));
    match mode.text() {
        "All" if count.integer_or_zero() != 0 => count.invalid("must not be specified when allocationMode is 'All'"),
        "ExactCount" if count.integer_or_zero() <= 0 => {
            count.invalid_as(count.integer_or_zero(), "must be greater than zero");
        }
        _ => mode.one_of(&["All", "ExactCount"]),
    }
    request.at("tolerations").each(|toleration| {
        let (key, operator, value) = (toleration.at("key"), toleration.at("operator"), toleration.at("value"));
        if !key.text().is_empty() {
            key.qualified_name();
        }
        match operator.text() {
            "Exists" if !value.text().is_empty() => value.invalid("must be empty for operator `Exists`"),
            "Equal" => {
                value.label_value();
            }
            "" => operator.required(""),
            _ => operator.one_of(&["Equal", "Exists"]),
        }
        toleration.at("effect").one_of_if_set(&TOLERATION_EFFECTS);
    });
}

fn check_selectors(selectors: Field<'_>) {
    selectors.at_most(SELECTORS_MAX);
    selectors.each(|selector| {
        let expression = selector.at("cel").at("expression");
        if !selector.at("cel").is_present() {
            selector.at("cel").required("");
        } else if expression.text().len() > EXPRESSION_LENGTH_MAX {
            expression.too_long(EXPRESSION_LENGTH_MAX);
        } else {
            expression.device_expression();
        }
    });
}

/// The names of the requests of a claim, each with those of its alternatives.
pub(super) struct RequestNames<'a>(HashMap<&'a str, HashSet<&'a str>>);

impl<'a> RequestNames<'a> {
    pub(super) fn new(requests: Field<'a>) -> Self {
        let mut names = HashMap::new();
        for request in requests.items() {
            let choices = || request.at("firstAvailable").texts_of_items("name");
            names.entry(request.at("name").text()).or_insert_with(choices);
        }
        Self(names)
    }

    fn contains(&self, request: &str, choice: Option<&str>) -> bool {
        self.0.get(request).is_some_and(|choices| choice.is_none_or(|choice| choices.contains(choice)))
    }
}

pub(super) fn check_request_names(names: Field<'_>, requests: &RequestNames<'_>) {
    names.at_most(REQUESTS_MAX);
    names.each(|name| check_request_name(name, requests));
    names.unique_items();
}

/// The name of a request in the claim, or of one of its alternatives.
pub(super) fn check_request_name(name: Field<'_>, requests: &RequestNames<'_>) {
    let mut segments = name.text().split('/');
    let (request, choice) = (segments.next().unwrap_or_default(), segments.next());
    if segments.next().is_some() {
        return name.invalid(UNKNOWN_REQUEST);
    }
    for segment in [Some(request), choice].into_iter().flatten() {
        name.check_other(&segment.into(), |segment| {
            segment.dns_label();
        });
    }
    if !requests.contains(request, choice) {
        name.invalid_text(UNKNOWN_REQUEST);
    }
}

pub(super) fn check_configuration(config: Field<'_>) {
    let opaque = config.at("opaque");
    if !opaque.is_present() {
        return opaque.required("");
    }
    opaque.at("driver").csi_driver_name();
    let parameters = opaque.at("parameters");
    match parameters.value() {
        None => parameters.required(""),
        Some(_) => check_raw_object(parameters),
    }
}

/// An object of any type, of limited size.
pub(super) fn check_raw_object(raw: Field<'_>) {
    match raw.value() {
        None => {}
        Some(value) if value.to_string().len() > RAW_OBJECT_LENGTH_MAX => raw.too_long(RAW_OBJECT_LENGTH_MAX),
        Some(Value::Object(_)) => {}
        Some(_) => raw.invalid_as("<value omitted>", "must be a valid JSON object"),
    }
}

/// Conditions of a device that its binding waits for, and those that end the wait: both or none.
pub(super) fn check_binding_conditions(device: Field<'_>) {
    let (conditions, failures) = (device.at("bindingConditions"), device.at("bindingFailureConditions"));
    for list in [conditions, failures] {
        if list.at_most(BINDING_CONDITIONS_MAX) {
            list.each(|condition| {
                condition.qualified_name();
            });
        }
    }
    conditions.unique_items();
    let mut seen = HashSet::new();
    for failure in failures.items() {
        if !seen.insert(failure.text()) {
            failure.duplicate();
        }
        if conditions.texts().any(|condition| condition == failure.text()) {
            failure.invalid("bindingFailureConditions must not overlap with bindingConditions");
        }
    }
    if conditions.len() == 0 && failures.len() > 0 {
        conditions.invalid("bindingConditions are required to use bindingFailureConditions");
    }
    if failures.len() == 0 && conditions.len() > 0 {
        failures.invalid("bindingFailureConditions are required to use bindingConditions");
    }
}

pub(super) fn check_taint_rule(rule: Field<'_>) {
    let selector = rule.path("spec.deviceSelector");
    if selector.at("driver").is_present() {
        selector.at("driver").csi_driver_name();
    }
    if selector.at("pool").is_present() {
        check_pool_name(selector.at("pool"));
    }
    if selector.at("device").is_present() {
        selector.at("device").dns_label();
    }
    check_taint(rule.path("spec.taint"));
}

pub(super) fn check_taint_rule_status(rule: Field<'_>) {
    check_conditions(rule.path("status.conditions"));
}

pub(super) fn check_taint(taint: Field<'_>) {
    taint.at("key").qualified_name();
    if !taint.at("value").text().is_empty() {
        taint.at("value").label_value();
    }
    taint.at("effect").require_one_of(&TAINT_EFFECTS);
}

pub(super) fn check_pool_name(name: Field<'_>) {
    if !name.require_text() {
        return;
    }
    if name.text().len() > POOL_NAME_LENGTH_MAX {
        name.too_long(POOL_NAME_LENGTH_MAX);
    }
    for part in name.text().split('/') {
        name.check_other(&part.into(), |part| {
            part.dns_subdomain();
        });
    }
}

const CASELESS_SUBDOMAIN: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and \
     end with an alphanumeric character (e.g. 'Example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Declarative rules of newer types word the same conditions in another way.
fn check_caseless_subdomain(name: Field<'_>) {
    let text = name.text();
    if text.len() > POOL_NAME_LENGTH_MAX {
        name.invalid_text(format!("must be no more than {POOL_NAME_LENGTH_MAX} bytes"));
    } else if !api::validation::validate_dns1123_subdomain(&text.to_lowercase()).is_empty() {
        name.invalid_text(CASELESS_SUBDOMAIN);
    }
}

fn check_pool_segments(name: Field<'_>) {
    if name.text().len() > POOL_NAME_LENGTH_MAX {
        name.too_long(POOL_NAME_LENGTH_MAX);
    }
    for (at, segment) in name.text().split('/').enumerate() {
        if segment.is_empty() {
            name.invalid_text(format!("segment {at}: must not be empty"));
        } else if segment.len() > POOL_NAME_LENGTH_MAX {
            name.invalid_as(segment, format!("segment {at}: must be no more than {POOL_NAME_LENGTH_MAX} bytes"));
        } else {
            let faults = api::validation::validate_dns1123_subdomain(segment);
            faults.into_iter().for_each(|fault| name.invalid_as(segment, format!("segment {at}: {fault}")));
        }
    }
}

pub(super) fn check_pool_status_request(request: Field<'_>) {
    let spec = request.at("spec");
    let (driver, pool, limit) = (spec.at("driver"), spec.at("poolName"), spec.at("limit"));
    if driver.require_text() {
        check_caseless_subdomain(driver);
    }
    if pool.is_present() {
        check_pool_segments(pool);
    }
    if limit.integer().is_some_and(|limit| limit < 1) {
        limit.invalid("must be greater than or equal to 1");
    }
    if limit.integer().is_some_and(|limit| limit > POOLS_MAX) {
        limit.invalid(format!("must be less than or equal to {POOLS_MAX}"));
    }
}
