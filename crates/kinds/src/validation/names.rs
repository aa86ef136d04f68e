//! Names, keys and paths.

use std::borrow::Cow;

use api::validation::{self as rule, ValidationErrors};

use super::Field;

const ENV_VAR_NAME: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";
const STRICT_ENV_VAR_NAME: &str = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or \
     '.', and must not start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation \
     is '[-._a-zA-Z][-._a-zA-Z0-9]*')";
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
const WILDCARD_SUBDOMAIN: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which \
     must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
     '*.example.com', regex used for validation is \
     '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const HTTP_HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used \
     for validation is '[-A-Za-z0-9]+')";
const SUBDOMAIN_WITH_UNDERSCORE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', \
     '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const BACKSTEPS: &str = "must not contain '..'";

/// Limit for a signer: a domain, and a path of a label and a domain.
const SIGNER_LENGTH_MAX: usize = 253 + 1 + 253 + 1 + 63;

impl<'a> Field<'a> {
    /// Reports each message about the text.
    pub(crate) fn check_text(self, errors: ValidationErrors) -> bool {
        let is_valid = errors.is_empty();
        errors.into_iter().for_each(|error| self.invalid_as(self.text(), error));
        is_valid
    }

    pub(crate) fn dns_label(self) -> bool {
        self.check_text(rule::validate_dns1123_label(self.text()))
    }

    pub(crate) fn dns_subdomain(self) -> bool {
        self.check_text(rule::validate_dns1123_subdomain(self.text()))
    }

    pub(crate) fn dns_1035_label(self) -> bool {
        self.check_text(rule::validate_dns1035_label(self.text()))
    }

    pub(crate) fn qualified_name(self) -> bool {
        self.check_text(rule::validate_label_key(self.text()))
    }

    pub(crate) fn path_segment(self) -> bool {
        self.check_text(rule::validate_path_segment_name(self.text()))
    }

    pub(crate) fn config_key(self) -> bool {
        self.check_text(rule::validate_config_key(self.text()))
    }

    pub(crate) fn wildcard_subdomain(self) -> bool {
        self.check_text(validate_wildcard_subdomain(self.text()))
    }

    /// The name of a port: a service name of IANA.
    pub(crate) fn port_name(self) -> bool {
        self.check_text(validate_port_name(self.text()))
    }

    pub(crate) fn http_header_name(self) {
        let text = self.text();
        if text.is_empty() || !text.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric()) {
            self.invalid_text(HTTP_HEADER);
        }
    }

    pub(crate) fn env_var_name(self) {
        let text = self.text();
        if text.is_empty() {
            self.invalid_text("environment variable name must be non-empty");
        }
        if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
            self.invalid_text(ENV_VAR_NAME);
        }
    }

    /// The name of a variable before names were relaxed.
    pub(crate) fn strict_env_var_name(self) {
        let text = self.text();
        let is_inner = |byte: u8| matches!(byte, b'-' | b'.' | b'_') || byte.is_ascii_alphanumeric();
        if !text.bytes().all(is_inner) || text.bytes().next().is_none_or(|first| first.is_ascii_digit()) {
            self.invalid_text(STRICT_ENV_VAR_NAME);
        }
        match text {
            "." => self.invalid_text("must not be '.'"),
            ".." => self.invalid_text("must not be '..'"),
            _ if text.starts_with("..") => self.invalid_text("must not start with '..'"),
            _ => {}
        }
    }

    /// A finalizer of Kubernetes itself, or one with a domain.
    pub(crate) fn finalizer_name(self) {
        if !self.text().contains('/') && !STANDARD_FINALIZERS.contains(&self.text()) {
            self.invalid_text("name is neither a standard finalizer name nor is it fully qualified");
        }
    }

    /// A domain and a path: `example.com/name`.
    pub(crate) fn domain_prefixed_path(self) {
        if !self.require_text() {
            return;
        }
        let parts = self.text().split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty());
        let Some((domain, path)) = parts else {
            return self.invalid_text("must be a domain-prefixed path (such as \"acme.io/foo\")");
        };
        rule::validate_dns1123_subdomain(domain).into_iter().for_each(|error| self.invalid_as(domain, error));
        let is_allowed = |byte: u8| b"/-._~%!$&'()*+,;=:".contains(&byte) || byte.is_ascii_alphanumeric();
        if !path.bytes().all(is_allowed) {
            let detail = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
            self.invalid_as(path, detail);
        }
    }

    /// A signer of certificates: `example.com/name`.
    pub(crate) fn signer_name(self) {
        if !self.require_text() {
            return;
        }
        let Some((domain, path)) = self.text().split_once('/').filter(|(_, path)| !path.contains('/')) else {
            let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            return self.invalid_text(detail);
        };
        if domain.len() > rule::SUBDOMAIN_LENGTH_MAX {
            self.too_long(rule::SUBDOMAIN_LENGTH_MAX);
        }
        self.check_labels_of_signer(domain, rule::validate_dns1123_label);
        if !domain.contains('.') {
            self.invalid_as(domain, "should be a domain with at least two segments separated by dots");
        }
        self.check_labels_of_signer(path, rule::validate_dns1123_subdomain);
        if self.text().len() > SIGNER_LENGTH_MAX {
            self.too_long(SIGNER_LENGTH_MAX);
        }
    }

    /// Reports the first invalid part.
    fn check_labels_of_signer(self, text: &str, check: fn(&str) -> ValidationErrors) {
        let first = text.split('.').map(|label| (label, check(label))).find(|(_, errors)| !errors.is_empty());
        for (label, error) in
            first.into_iter().flat_map(|(label, errors)| errors.into_iter().map(move |one| (label, one)))
        {
            self.invalid_as(text, format!("validating label {label:?}: {error}"));
        }
    }

    /// A path below a volume: relative and without `..`.
    pub(crate) fn local_descending_path(self) {
        if self.text().starts_with('/') {
            self.invalid_text("must be a relative path");
        }
        self.path_without_backsteps();
    }

    pub(crate) fn path_without_backsteps(self) {
        if self.text().split('/').any(|part| part == "..") {
            self.invalid_text(BACKSTEPS);
        }
    }

    /// A path below a volume that does not begin with the kubelet's own prefix.
    pub(crate) fn local_non_reserved_path(self) {
        self.local_descending_path();
        if self.text().starts_with("..") && !self.text().starts_with("../") {
            self.invalid_text("must not start with '..'");
        }
    }

    pub(crate) fn subdomain_with_underscore(self) {
        let text = self.text();
        if text.len() > rule::SUBDOMAIN_LENGTH_MAX {
            self.invalid_text("must be no more than 253 characters");
        }
        let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_label = |label: &str| {
            let bytes = label.strip_prefix('_').unwrap_or(label).as_bytes();
            bytes.first().copied().is_some_and(is_edge)
                && bytes.last().copied().is_some_and(is_edge)
                && bytes.iter().all(|byte| matches!(byte, b'-' | b'_') || is_edge(*byte))
        };
        if !text.split('.').all(is_label) {
            self.invalid_text(SUBDOMAIN_WITH_UNDERSCORE);
        }
    }
}

pub(crate) fn validate_wildcard_subdomain(value: &str) -> ValidationErrors {
    let mut errors = ValidationErrors::new();
    if value.len() > rule::SUBDOMAIN_LENGTH_MAX {
        errors.push("must be no more than 253 characters".into());
    }
    if !value.strip_prefix("*.").is_some_and(is_subdomain_form) {
        errors.push(WILDCARD_SUBDOMAIN.into());
    }
    errors
}

/// The form alone, without the limit of length.
fn is_subdomain_form(value: &str) -> bool {
    value.split('.').all(|label| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        label.bytes().all(|byte| byte == b'-' || is_inner(byte))
            && label.bytes().next().is_some_and(is_inner)
            && label.bytes().next_back().is_some_and(is_inner)
    })
}

pub(crate) fn validate_port_name(name: &str) -> ValidationErrors {
    let mut errors: Vec<Cow<'static, str>> = Vec::new();
    if name.len() > 15 {
        errors.push("must be no more than 15 characters".into());
    }
    if !name.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        errors.push("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        errors.push("must not begin or end with a hyphen".into());
    }
    errors
}
