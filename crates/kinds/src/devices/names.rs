//! Names of attributes and capacities: an identifier, perhaps with the domain that defines it.

use crate::validation::Field;

const IDENTIFIER_LENGTH_MAX: usize = 32;
const IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
     alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
     '[A-Za-z_][A-Za-z0-9_]*')";

/// A name whose domain may be left out, since it is then that of the driver; reported at `place`.
pub(super) fn check_qualified_name(name: &str, place: Field<'_>) {
    let mut parts = name.split('/');
    match (parts.next().unwrap_or_default(), parts.next(), parts.next()) {
        (id, None, _) => check_identifier(id, place),
        (domain, Some(id), None) => {
            if domain.is_empty() {
                place.invalid_as("", "the domain must not be empty");
            } else {
                place.check_other(&domain.into(), |domain| domain.csi_driver_name());
            }
            if id.is_empty() {
                place.invalid_as("", "the name must not be empty");
            } else {
                check_identifier(id, place);
            }
        }
        // Kubernetes accepts more parts.
        (_, Some(_), Some(_)) => {}
    }
}

/// A name that has its domain.
pub(super) fn check_fully_qualified_name(name: Field<'_>) {
    check_qualified_name(name.text(), name);
    if !name.text().contains('/') {
        name.invalid_text("a fully qualified name must be a domain and a name separated by a slash");
    }
}

fn check_identifier(id: &str, place: Field<'_>) {
    if id.len() > IDENTIFIER_LENGTH_MAX {
        place.too_long(IDENTIFIER_LENGTH_MAX);
    }
    let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    let starts = id.bytes().next().is_some_and(|first| is_word(first) && !first.is_ascii_digit());
    if !starts || !id.bytes().all(is_word) {
        place.invalid_as(id, IDENTIFIER);
    }
}
