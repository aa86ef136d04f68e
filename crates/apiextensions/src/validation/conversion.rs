//! `spec.conversion`: the strategy, and where its webhook is.

use std::collections::HashSet;

use api::FieldError;
use api::json::JsonObject;
use api::validation::{validate_dns1035_label, validate_dns1123_subdomain};
use serde_json::Value;

use super::ca_bundle::ca_bundle_problem;
use super::error_list::ErrorList;
use super::json_fields::{list, object, object_or_empty, text, texts};
use super::webhook_url::{Userinfo, parse_url};

const STRATEGIES: [&str; 2] = ["None", "Webhook"];

/// Versions of ConversionReview that this server reads.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

const PATH: &str = "spec.conversion";
const CLIENT_CONFIG: &str = "spec.conversion.webhookClientConfig";
const REVIEW_VERSIONS_PATH: &str = "spec.conversion.conversionReviewVersions";

/// What a definition may keep because its old state had it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConversionRules {
    pub(super) requires_recognized_review_version: bool,
    pub(super) allows_invalid_ca_bundle: bool,
}

/// Checks the conversion. Paths are those of the internal form, where the webhook's fields stand at the top.
pub(super) fn validate_conversion(errors: &mut ErrorList, spec: &JsonObject, rules: ConversionRules) {
    let Some(conversion) = object(spec, "conversion") else { return };
    let webhook = object_or_empty(conversion, "webhook");
    let client_config = object(webhook, "clientConfig");
    let strategy = text(conversion, "strategy");
    check_enum(errors, &format!("{PATH}.strategy"), strategy, &STRATEGIES);
    if strategy == "Webhook" {
        match client_config {
            None => errors.push(FieldError::required(CLIENT_CONFIG, "required when strategy is set to Webhook")),
            Some(config) => validate_client_config(errors, config, rules),
        }
        validate_review_versions(errors, list(webhook, "conversionReviewVersions"), rules);
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if client_config.is_some() {
        errors.push(FieldError::forbidden(CLIENT_CONFIG, detail));
    }
    if !list(webhook, "conversionReviewVersions").is_empty() {
        errors.push(FieldError::forbidden(REVIEW_VERSIONS_PATH, detail));
    }
}

/// Checks a required value of an enumeration.
pub(super) fn check_enum(errors: &mut ErrorList, path: &str, value: &str, supported: &[&str]) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, value, supported));
    }
}

fn validate_client_config(errors: &mut ErrorList, config: &JsonObject, rules: ConversionRules) {
    validate_endpoint(errors, CLIENT_CONFIG, Some(config));
    let bundle = text(config, "caBundle");
    if !bundle.is_empty()
        && !rules.allows_invalid_ca_bundle
        && let Some(problem) = ca_bundle_problem(bundle)
    {
        errors.push(FieldError::invalid(format!("{CLIENT_CONFIG}.caBundle"), bundle, problem));
    }
}

/// Checks where the webhook of a client configuration is: a URL or a service. Conversion and admission share the rules.
pub fn validate_webhook_client(path: &str, config: Option<&JsonObject>) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    validate_endpoint(&mut errors, path, config);
    errors.into_errors()
}

fn validate_endpoint(errors: &mut ErrorList, path: &str, config: Option<&JsonObject>) {
    let url = config.and_then(|config| config.get("url")).and_then(Value::as_str);
    match (url, config.and_then(|config| object(config, "service"))) {
        (Some(url), None) => validate_url(errors, &format!("{path}.url"), url),
        (None, Some(service)) => validate_service(errors, &format!("{path}.service"), service),
        (None, None) | (Some(_), Some(_)) => {
            errors.push(FieldError::required(path, "exactly one of url or service is required"));
        }
    }
}

fn validate_url(errors: &mut ErrorList, path: &str, url: &str) {
    const FORM: &str = "; desired format: https://host[/path]";
    let parsed = match parse_url(url) {
        Ok(parsed) => parsed,
        Err(problem) => {
            errors.push(FieldError::required(path, format!("url must be a valid URL: {problem}{FORM}")));
            return;
        }
    };
    if parsed.scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(path, parsed.scheme, detail));
    }
    if parsed.host.is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{FORM}")));
    }
    if let Some(Userinfo(user)) = parsed.user {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if !parsed.fragment.is_empty() {
        errors.push(FieldError::invalid(path, parsed.fragment, "fragments are not permitted in the URL"));
    }
    if !parsed.query.is_empty() {
        errors.push(FieldError::invalid(path, parsed.query, "query parameters are not permitted in the URL"));
    }
}

/// Checks the reference to a service. Kubernetes swaps name and namespace here, so a missing one is reported at the
/// other; clients may know the messages, so they stay.
fn validate_service(errors: &mut ErrorList, path: &str, service: &JsonObject) {
    for (reported, checked) in [("name", "namespace"), ("namespace", "name")] {
        if text(service, checked).is_empty() {
            errors.push(FieldError::required(format!("{path}.{reported}"), ""));
        }
    }
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{path}.port"), port, detail));
    }
    validate_url_path(errors, &format!("{path}.path"), text(service, "path"));
}

fn validate_url_path(errors: &mut ErrorList, path: &str, url_path: &str) {
    let mut report = |detail: String| errors.push(FieldError::invalid(path, url_path, detail));
    match url_path {
        "" | "/" => return,
        "//" => return report("segment[0] may not be empty".to_owned()),
        _ => {}
    }
    if !url_path.starts_with('/') {
        report("must start with a '/'".to_owned());
    }
    // Kubernetes skips the first byte, whatever it is; half a character is no part of a name either.
    let rest = url_path.get(1..).unwrap_or(url_path);
    for (at, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            report(format!("segment[{at}] may not be empty"));
            continue;
        }
        for fault in validate_dns1123_subdomain(segment) {
            report(format!("segment[{at}]: {fault}"));
        }
    }
}

fn validate_review_versions(errors: &mut ErrorList, versions: &[Value], rules: ConversionRules) {
    if versions.is_empty() {
        return errors.push(FieldError::required(REVIEW_VERSIONS_PATH, ""));
    }
    let mut seen = HashSet::new();
    for (at, version) in versions.iter().enumerate() {
        let version = version.as_str().unwrap_or_default();
        let path = format!("{REVIEW_VERSIONS_PATH}[{at}]");
        if !seen.insert(version) {
            errors.push(FieldError::invalid(path, version, "duplicate version"));
            continue;
        }
        for fault in validate_dns1035_label(version) {
            errors.push(FieldError::invalid(&path, version, fault));
        }
    }
    if rules.requires_recognized_review_version && !REVIEW_VERSIONS.iter().any(|known| seen.contains(known)) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(REVIEW_VERSIONS_PATH, versions.to_vec(), detail));
    }
}

/// True if the review versions of a stored definition include one that this server reads, or if there are none.
pub(super) fn has_recognized_review_version(spec: &JsonObject) -> bool {
    let webhook = object(spec, "conversion").and_then(|conversion| object(conversion, "webhook"));
    let Some(webhook) = webhook else { return true };
    list(webhook, "conversionReviewVersions").is_empty()
        || texts(webhook, "conversionReviewVersions").any(|version| REVIEW_VERSIONS.contains(&version))
}

/// True if a stored definition has a CA bundle that is not valid.
pub(super) fn has_invalid_ca_bundle(spec: &JsonObject) -> bool {
    let webhook = object(spec, "conversion").and_then(|conversion| object(conversion, "webhook"));
    let config = webhook.and_then(|webhook| object(webhook, "clientConfig"));
    let bundle = config.map_or("", |config| text(config, "caBundle"));
    !bundle.is_empty() && ca_bundle_problem(bundle).is_some()
}
