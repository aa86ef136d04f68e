//! Kubernetes' validation of StorageVersion objects, with its error texts.

use std::collections::{BTreeMap, BTreeSet};

use api::FieldError;
use api::objects::{ServerStorageVersion, StorageVersionCondition, StorageVersionStatus, common_encoding_version};
use api::validation::{ValidationErrors, validate_dns1035_label, validate_dns1123_subdomain, validate_label_key};

const NOT_AN_API_VERSION: &str = "an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric \
     characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
     'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain prefix and '/' \
     (e.g. 'example.com/MyVersion')";

/// The errors of a name, or of the beginning of one to generate, which is held to the same form.
pub(crate) fn validate_name(field: &str, name: &str) -> Vec<FieldError> {
    let faults = match name.rsplit_once('.') {
        None => vec!["name must be in the form of <group>.<resource>".to_owned()],
        Some((group, resource)) => {
            let of_group = prefix_messages("the group segment ", validate_dns1123_subdomain(group));
            of_group.chain(prefix_messages("the resource segment ", validate_dns1035_label(resource))).collect()
        }
    };
    faults.into_iter().map(|fault| FieldError::invalid(field, name, fault)).collect()
}

/// The errors of a status.
pub(crate) fn validate_status(status: &StorageVersionStatus) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, entry) in status.storage_versions.iter().enumerate() {
        let path = format!("status.storageVersions[{at}]");
        if !seen.insert(&entry.api_server_id) {
            errors.push(FieldError::duplicate(format!("{path}.apiServerID"), &*entry.api_server_id));
        }
        errors.extend(entry_errors(entry, &path));
    }
    errors.extend(common_version_error(status));
    errors.extend(condition_errors(&status.conditions));
    errors
}

fn entry_errors(entry: &ServerStorageVersion, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let ServerStorageVersion { api_server_id, encoding_version, decodable_versions, served_versions, .. } = entry;
    for fault in validate_dns1123_subdomain(api_server_id) {
        errors.push(FieldError::invalid(format!("{path}.apiServerID"), &**api_server_id, fault));
    }
    errors.extend(version_error(encoding_version, format!("{path}.encodingVersion")));
    for (at, version) in decodable_versions.iter().enumerate() {
        errors.extend(version_error(version, format!("{path}.decodableVersions[{at}]")));
    }
    if !decodable_versions.contains(encoding_version) {
        let detail = format!("decodableVersions must include encodingVersion {encoding_version}");
        errors.push(FieldError::invalid(format!("{path}.decodableVersions"), decodable_versions.clone(), detail));
    }
    for (at, version) in served_versions.iter().enumerate() {
        let path = format!("{path}.servedVersions[{at}]");
        errors.extend(version_error(version, path.clone()));
        if !decodable_versions.contains(version) {
            let all = decodable_versions.join(" ");
            let detail =
                format!("individual served version : {version} must be included in decodableVersions : [{all}]");
            errors.push(FieldError::invalid(path, &**version, detail));
        }
    }
    errors
}

fn common_version_error(status: &StorageVersionStatus) -> Option<FieldError> {
    let path = "status.commonEncodingVersion";
    let actual = common_encoding_version(&status.storage_versions);
    match (actual, status.common_encoding_version.as_deref()) {
        (None, None) => None,
        (Some(actual), Some(reported)) if actual == reported => None,
        (None, Some(reported)) => Some(FieldError::invalid(
            path,
            reported,
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the \
             supported versions yet",
        )),
        (Some(actual), None) => Some(FieldError::invalid(path, (), format!("the common encoding version is {actual}"))),
        (Some(actual), Some(reported)) => {
            Some(FieldError::invalid(path, reported, format!("the actual common encoding version is {actual}")))
        }
    }
}

/// Like Kubernetes, the field paths lack `conditions`.
fn condition_errors(conditions: &[StorageVersionCondition]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeMap::new();
    for (at, condition) in conditions.iter().enumerate() {
        let path = |field: &str| format!("status[{at}].{field}");
        let StorageVersionCondition { condition_type, status, reason, message, .. } = condition;
        if let Some(before) = seen.insert(condition_type, at) {
            let detail = format!("the type of the condition is not unique, it also appears in conditions[{before}]");
            errors.push(FieldError::invalid(path("type"), &**condition_type, detail));
        }
        for (field, value) in [("type", condition_type), ("status", status)] {
            errors.extend(
                validate_label_key(value).into_iter().map(|fault| FieldError::invalid(path(field), &**value, fault)),
            );
        }
        for (field, value) in [("reason", reason), ("message", message)] {
            if value.is_empty() {
                errors.push(FieldError::required(path(field), ""));
            }
        }
    }
    errors
}

fn version_error(version: &str, path: String) -> Option<FieldError> {
    let faults = version_messages(version);
    (!faults.is_empty()).then(|| FieldError::invalid(path, version, faults.join(",")))
}

fn version_messages(text: &str) -> Vec<String> {
    let (group, version) = match text.split('/').collect::<Vec<_>>()[..] {
        [version] => (None, version),
        [group, version] => (Some(group), version),
        _ => return vec![NOT_AN_API_VERSION.to_owned()],
    };
    let empty = || vec!["must be non-empty".into()];
    let of_group = group.map(|group| if group.is_empty() { empty() } else { validate_dns1123_subdomain(group) });
    let of_version = if version.is_empty() { empty() } else { validate_dns1035_label(version) };
    let of_group = of_group.unwrap_or_default();
    prefix_messages("group part: ", of_group).chain(prefix_messages("version part: ", of_version)).collect()
}

fn prefix_messages(prefix: &'static str, faults: ValidationErrors) -> impl Iterator<Item = String> {
    faults.into_iter().map(move |fault| format!("{prefix}{fault}"))
}

#[cfg(test)]
mod tests;
