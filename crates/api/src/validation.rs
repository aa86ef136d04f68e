//! Validation of names, label keys and label values, with Kubernetes' messages.
//!
//! Each function returns all errors, as Kubernetes reports them; an empty list means valid and does not allocate.
//! Some limits are worded in bytes and some in characters, as in release 1.36.

use std::borrow::Cow;

/// One message per violated rule; empty if valid.
pub type ValidationErrors = Vec<Cow<'static, str>>;

/// The maximum length of a DNS label (RFC 1123), of a label value, and of the name part of a label key.
pub const LABEL_LENGTH_MAX: usize = 63;
/// The maximum length of a DNS subdomain (RFC 1123), hence of most object names.
pub const SUBDOMAIN_LENGTH_MAX: usize = 253;

macro_rules! label_1123 {
    () => {
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    };
}
macro_rules! label_key_name {
    () => {
        "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
    };
}
macro_rules! label_key_rule {
    () => {
        concat!(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character ",
            "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '",
            label_key_name!(),
            "')"
        )
    };
}

const LABEL_TOO_LONG: &str = "must be no more than 63 characters";
const LABEL_TOO_LONG_IN_BYTES: &str = "must be no more than 63 bytes";
const SUBDOMAIN_TOO_LONG: &str = "must be no more than 253 characters";
const SUBDOMAIN_TOO_LONG_IN_BYTES: &str = "must be no more than 253 bytes";
const NOT_A_LABEL_1123: &str = concat!(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an ",
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '",
    label_1123!(),
    "')"
);
const NOT_A_SUBDOMAIN: &str = concat!(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end ",
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is '",
    label_1123!(),
    r"(\.",
    label_1123!(),
    ")*')"
);
const NOT_A_LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
     is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NOT_A_LABEL_KEY: &str = concat!(
    "a valid label key ",
    label_key_rule!(),
    " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
);
const NOT_A_CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
     'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const NOT_A_LABEL_VALUE: &str = concat!(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end ",
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(",
    label_key_name!(),
    ")?')"
);

/// Validates a DNS label (RFC 1123), such as a namespace name.
pub fn validate_dns1123_label(value: &str) -> ValidationErrors {
    let mut errors = ValidationErrors::new();
    if value.len() > LABEL_LENGTH_MAX {
        errors.push(LABEL_TOO_LONG.into());
    }
    if !is_label_1123(value) {
        errors.push(if is_subdomain(value) { "must not contain dots" } else { NOT_A_LABEL_1123 }.into());
    }
    errors
}

/// Validates a DNS subdomain (RFC 1123), such as most object names and API groups.
pub fn validate_dns1123_subdomain(value: &str) -> ValidationErrors {
    validate_subdomain(value, SUBDOMAIN_TOO_LONG)
}

/// Validates a DNS label (RFC 1035), which starts with a letter, such as a service name or a resource.
pub fn validate_dns1035_label(value: &str) -> ValidationErrors {
    let mut errors = ValidationErrors::new();
    if value.len() > LABEL_LENGTH_MAX {
        errors.push(LABEL_TOO_LONG.into());
    }
    if !(is_label_1123(value) && value.starts_with(|first: char| first.is_ascii_lowercase())) {
        errors.push(NOT_A_LABEL_1035.into());
    }
    errors
}

/// Validates a name as a path segment, the minimum for every name. The empty string is valid, as in Kubernetes.
pub fn validate_path_segment_name(name: &str) -> ValidationErrors {
    match name {
        "." => vec!["may not be '.'".into()],
        ".." => vec!["may not be '..'".into()],
        _ => validate_path_segment_prefix(name),
    }
}

/// Validates the prefix of a name, such as `generateName`.
pub fn validate_path_segment_prefix(prefix: &str) -> ValidationErrors {
    let mut errors = ValidationErrors::new();
    if prefix.contains('/') {
        errors.push("may not contain '/'".into());
    }
    if prefix.contains('%') {
        errors.push("may not contain '%'".into());
    }
    errors
}

/// Validates a label key (qualified name): a name with an optional subdomain prefix and slash.
pub fn validate_label_key(key: &str) -> ValidationErrors {
    let mut errors = ValidationErrors::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => return vec![NOT_A_LABEL_KEY.into()],
        Some(("", name)) => {
            errors.push("prefix part must be non-empty".into());
            name
        }
        Some((prefix, name)) => {
            let in_prefix = validate_subdomain(prefix, SUBDOMAIN_TOO_LONG_IN_BYTES);
            errors.extend(in_prefix.iter().map(|error| format!("prefix part {error}").into()));
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > LABEL_LENGTH_MAX {
        errors.push("name part must be no more than 63 bytes".into());
    }
    if !is_label_key_name(name) {
        errors.push(concat!("name part ", label_key_rule!()).into());
    }
    errors
}

/// Validates the key of a config map or a secret, which is a file name.
pub fn validate_config_key(key: &str) -> ValidationErrors {
    let mut errors = ValidationErrors::new();
    if key.len() > SUBDOMAIN_LENGTH_MAX {
        errors.push(SUBDOMAIN_TOO_LONG.into());
    }
    if key.is_empty() || !key.bytes().all(|byte| matches!(byte, b'-' | b'.' | b'_') || byte.is_ascii_alphanumeric()) {
        errors.push(NOT_A_CONFIG_KEY.into());
    }
    if key == "." {
        errors.push("must not be '.'".into());
    }
    if key == ".." {
        errors.push("must not be '..'".into());
    } else if key.starts_with("..") {
        errors.push("must not start with '..'".into());
    }
    errors
}

/// Validates a label value, which may be empty.
pub fn validate_label_value(value: &str) -> ValidationErrors {
    let mut errors = ValidationErrors::new();
    if value.len() > LABEL_LENGTH_MAX {
        errors.push(LABEL_TOO_LONG_IN_BYTES.into());
    }
    if !value.is_empty() && !is_label_key_name(value) {
        errors.push(NOT_A_LABEL_VALUE.into());
    }
    errors
}

fn validate_subdomain(value: &str, too_long: &'static str) -> ValidationErrors {
    let mut errors = ValidationErrors::new();
    if value.len() > SUBDOMAIN_LENGTH_MAX {
        errors.push(too_long.into());
    }
    if !is_subdomain(value) {
        errors.push(NOT_A_SUBDOMAIN.into());
    }
    errors
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label_1123)
}

fn is_label_1123(value: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    starts_and_ends_with(value, is_alphanumeric) && value.bytes().all(|byte| byte == b'-' || is_alphanumeric(byte))
}

fn is_label_key_name(value: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_alphanumeric();
    starts_and_ends_with(value, is_alphanumeric)
        && value.bytes().all(|byte| matches!(byte, b'-' | b'_' | b'.') || is_alphanumeric(byte))
}

fn starts_and_ends_with(value: &str, allowed: impl Fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    bytes.first().copied().is_some_and(&allowed) && bytes.last().copied().is_some_and(&allowed)
}

#[cfg(test)]
mod tests;
