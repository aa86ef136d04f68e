//! What is valid in webhook configurations.

use std::collections::HashSet;

use api::validation::{validate_dns1035_label, validate_dns1123_subdomain};
use apiextensions::validation::validate_webhook_client;

use super::matching::{FAILURE_POLICIES, MATCH_POLICIES, REINVOCATION_POLICIES, check_match_conditions, check_rule};
use crate::validation::Field;

const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
/// Versions of AdmissionReview that servers send.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const TIMEOUT_SECONDS_MAX: i64 = 30;

pub(super) fn check_webhooks(configuration: Field<'_>) {
    let mut names = HashSet::new();
    for hook in configuration.at("webhooks").items() {
        check_webhook(hook);
        check_review_versions(hook.at("admissionReviewVersions"));
        let name = hook.at("name");
        if !name.text().is_empty() && !names.insert(name.text()) {
            name.duplicate();
        }
    }
}

fn check_webhook(hook: Field<'_>) {
    check_qualified_name(hook.at("name"));
    hook.at("rules").each(check_rule);
    hook.at("failurePolicy").one_of_if_present(&FAILURE_POLICIES);
    hook.at("matchPolicy").one_of_if_present(&MATCH_POLICIES);
    let side_effects = hook.at("sideEffects");
    if side_effects.is_present() {
        side_effects.one_of(&SIDE_EFFECTS);
    } else {
        side_effects.required("must specify one of None, NoneOnDryRun");
    }
    let timeout = hook.at("timeoutSeconds");
    if timeout.integer().is_some_and(|seconds| !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds)) {
        timeout.invalid("the timeout value must be between 1 and 30 seconds");
    }
    hook.at("namespaceSelector").label_selector();
    hook.at("objectSelector").label_selector();
    hook.at("reinvocationPolicy").one_of_if_present(&REINVOCATION_POLICIES);
    let client = hook.at("clientConfig");
    let errors = validate_webhook_client(&client.path_text(), client.object());
    errors.into_iter().for_each(|error| client.add_error(error));
    check_match_conditions(hook.at("matchConditions"), false);
}

/// A domain of at least three segments.
fn check_qualified_name(name: Field<'_>) {
    if !name.require_text() {
        return;
    }
    let faults = validate_dns1123_subdomain(name.text());
    if !faults.is_empty() {
        name.invalid_text(faults.join(","));
    } else if name.text().split('.').count() < 3 {
        name.invalid_text("should be a domain with at least three segments separated by dots");
    }
}

fn check_review_versions(versions: Field<'_>) {
    if versions.len() == 0 {
        return versions.required("must specify one of v1, v1beta1");
    }
    let mut seen = HashSet::new();
    for version in versions.items() {
        if seen.insert(version.text()) {
            version.check_text(validate_dns1035_label(version.text()));
        } else {
            version.invalid_text("duplicate version");
        }
    }
    if !REVIEW_VERSIONS.iter().any(|known| seen.contains(known)) {
        versions.invalid("must include at least one of v1, v1beta1");
    }
}
