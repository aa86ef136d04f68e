//! Conditions in a status.

use std::collections::HashSet;

use super::Field;

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const REASON_LENGTH_MAX: usize = 1024;
const MESSAGE_LENGTH_MAX: usize = 32 * 1024;
const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
     characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or \
     'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Conditions of the common type: one of each type, with a reason and a time.
pub(crate) fn check_conditions(conditions: Field<'_>) {
    let mut types = HashSet::new();
    for condition in conditions.items() {
        let (kind, reason) = (condition.at("type"), condition.at("reason"));
        if !types.insert(kind.text()) {
            kind.duplicate_of(kind.text());
        }
        kind.qualified_name();
        condition.at("status").one_of(&STATUSES);
        if condition.at("observedGeneration").integer_or_zero() < 0 {
            condition.at("observedGeneration").invalid("must be greater than or equal to zero");
        }
        if !condition.at("lastTransitionTime").is_present() {
            condition.at("lastTransitionTime").required("");
        }
        if reason.require_text() {
            if !is_reason(reason.text()) {
                reason.invalid(REASON);
            }
            if reason.text().len() > REASON_LENGTH_MAX {
                reason.too_long(REASON_LENGTH_MAX);
            }
        }
        if condition.at("message").text().len() > MESSAGE_LENGTH_MAX {
            condition.at("message").too_long(MESSAGE_LENGTH_MAX);
        }
    }
}

fn is_reason(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().copied().is_some_and(is_word)
        && bytes.iter().all(|byte| matches!(byte, b',' | b':') || is_word(*byte))
}
