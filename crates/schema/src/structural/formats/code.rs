//! Codes of digits and letters: UUIDs, ISBNs, colours, base64 and others.

use super::{matches, pattern};

/// An optional dash is between the groups. `version` begins the third one; the fourth begins with 8, 9, a or b if the
/// variant counts.
pub(super) fn is_uuid(text: &str, version: Option<char>, has_variant: bool) -> bool {
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else { return false };
        if !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        let fits = match index {
            2 => version.is_none_or(|version| group.starts_with(version)),
            3 => !has_variant || group.starts_with(['8', '9', 'a', 'b', 'A', 'B']),
            _ => true,
        };
        if !fits {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn without_spaces_and_dashes(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\x0c' | '\r' | '-')).collect()
}

pub(super) fn is_isbn10(text: &str) -> bool {
    let text = without_spaces_and_dashes(text);
    let bytes = text.as_bytes();
    let is_well_formed = bytes.len() == 10
        && bytes[..9].iter().all(u8::is_ascii_digit)
        && (bytes[9] == b'X' || bytes[9].is_ascii_digit());
    let digit = |byte: u8| if byte == b'X' { 10 } else { u32::from(byte - b'0') };
    is_well_formed && (1..).zip(bytes).map(|(factor, byte)| factor * digit(*byte)).sum::<u32>() % 11 == 0
}

pub(super) fn is_isbn13(text: &str) -> bool {
    let text = without_spaces_and_dashes(text);
    let digits: Vec<_> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    if text.len() != 13 || digits.len() != 13 {
        return false;
    }
    let sum: u32 = [1, 3].iter().cycle().zip(&digits[..12]).map(|(factor, digit)| factor * digit).sum();
    digits[12] == (10 - sum % 10) % 10
}

pub(super) fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let issuers = pattern!(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9]{2})[0-9]{12}|3[47][0-9]{13}|\
         3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
    );
    let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let values = digits.chars().rev().filter_map(|c| c.to_digit(10)).enumerate();
    let sum: u32 = values.map(|(index, digit)| if index % 2 == 1 { doubled(digit) } else { digit }).sum();
    matches(issuers, &digits) && sum % 10 == 0
}

/// All separators must be there, because Kubernetes checks the length.
pub(super) fn is_ssn(text: &str) -> bool {
    text.len() == 11 && matches(pattern!("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"), text)
}

pub(super) fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn is_rgb_color(text: &str) -> bool {
    const BYTE: &str = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    matches(pattern!(&format!(r"^rgb\({BYTE},{BYTE},{BYTE}\)$")), text)
}

/// Standard base64 with padding; not empty.
pub(super) fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !text.is_empty() && text.len().is_multiple_of(4) && text.len() - digits.len() <= 2 && digits.bytes().all(is_digit)
}

pub(super) fn is_short_name(text: &str) -> bool {
    text.len() <= api::validation::LABEL_LENGTH_MAX && is_label(text)
}

pub(super) fn is_long_name(text: &str) -> bool {
    text.len() <= api::validation::SUBDOMAIN_LENGTH_MAX && text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(is_inner)
}
