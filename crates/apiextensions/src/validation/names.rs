//! The names of a custom resource: group, versions, plural, kind and aliases.

use api::FieldError;
use api::json::JsonObject;
use api::validation::{ValidationErrors, validate_dns1035_label, validate_dns1123_subdomain};

use super::error_list::ErrorList;
use super::json_fields::{text, texts};

/// The names that a definition must have and a status may lack.
const REQUIRED_NAMES: [&str; 4] = ["plural", "singular", "kind", "listKind"];

/// Checks `spec.group`.
pub(super) fn validate_group(errors: &mut ErrorList, group: &str) {
    let path = "spec.group";
    let faults = validate_dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !faults.is_empty() {
        errors.push(FieldError::invalid(path, group, faults.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(path, group, "should be a domain with at least one dot"));
    }
}

/// Reports a value that is no DNS-1035 label, all faults in one message after `prefix`.
pub(super) fn check_label(errors: &mut ErrorList, path: impl Into<String>, value: &str, prefix: &str) {
    report(errors, path, value, prefix, &validate_dns1035_label(value));
}

fn report(errors: &mut ErrorList, path: impl Into<String>, value: &str, prefix: &str, faults: &ValidationErrors) {
    if !faults.is_empty() {
        errors.push(FieldError::invalid(path, value, format!("{prefix}{}", faults.join(","))));
    }
}

/// Checks that `spec.names` has all names.
pub(super) fn require_names(errors: &mut ErrorList, names: &JsonObject) {
    for name in REQUIRED_NAMES.into_iter().filter(|name| text(names, name).is_empty()) {
        errors.push(FieldError::required(format!("spec.names.{name}"), ""));
    }
}

/// Checks the names of `spec.names` or `status.acceptedNames` that are there.
pub(super) fn validate_names(errors: &mut ErrorList, path: &str, names: &JsonObject) {
    let [kind, list_kind] = ["kind", "listKind"].map(|name| text(names, name));
    for name in ["plural", "singular"] {
        let value = text(names, name);
        if !value.is_empty() {
            check_label(errors, format!("{path}.{name}"), value, "");
        }
    }
    for (name, value) in [("kind", kind), ("listKind", list_kind)] {
        if !value.is_empty() {
            let faults = validate_dns1035_label(&value.to_lowercase());
            let prefix = "may have mixed case, but should otherwise match: ";
            report(errors, format!("{path}.{name}"), value, prefix, &faults);
        }
    }
    check_labels(errors, path, names, "shortNames");
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(format!("{path}.listKind"), list_kind, detail));
    }
    check_labels(errors, path, names, "categories");
}

fn check_labels(errors: &mut ErrorList, path: &str, names: &JsonObject, list: &str) {
    for (at, value) in texts(names, list).enumerate() {
        check_label(errors, format!("{path}.{list}[{at}]"), value, "");
    }
}
