//! The formats of texts that Kubernetes enforces. Others are ignored.

mod address;
mod code;
mod mail;
mod time;
mod uri;

use super::node::{SchemaNode, SchemaType};

/// The first release that checks the range of numbers, and ignores formats that do not fit the type.
pub(super) const NUMBER_RANGES_SINCE: u8 = 36;

/// The first release that enforces `k8s-short-name` and `k8s-long-name`. They came with 1.34, but a server enforces only
/// the formats of the release before its own.
const KUBERNETES_NAMES_SINCE: u8 = 35;

/// The format of a schema if the release enforces it for its type.
pub(super) fn enforced(schema: &SchemaNode, release: u8) -> Option<&str> {
    let format = schema.format()?;
    let is_enforced = match schema.schema_type() {
        Some(_) if release < NUMBER_RANGES_SINCE || schema.is_int_or_string() => is_text_format(format, release),
        Some(SchemaType::String) | None => is_text_format(format, release),
        Some(SchemaType::Integer) => matches!(format, "int32" | "int64"),
        Some(SchemaType::Number) => matches!(format, "float" | "double"),
        Some(SchemaType::Object | SchemaType::Array | SchemaType::Boolean) => false,
    };
    is_enforced.then_some(format)
}

fn is_text_format(format: &str, release: u8) -> bool {
    match &*normalized(format) {
        "k8sshortname" | "k8slongname" => release >= KUBERNETES_NAMES_SINCE,
        name => check_of(name).is_some(),
    }
}

/// Whether a text has a format; `None` if no text can be checked for it.
pub(super) fn validate(format: &str, text: &str) -> Option<bool> {
    check_of(&normalized(format)).map(|check| check(text))
}

/// Dashes in the names of formats do not count.
fn normalized(format: &str) -> String {
    format.replace('-', "")
}

fn check_of(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => uri::is_request_uri,
        "email" => mail::is_address,
        "hostname" => address::is_hostname,
        "ipv4" => address::is_ipv4,
        "ipv6" => address::is_ipv6,
        "cidr" => address::is_cidr,
        "mac" => address::is_mac,
        "uuid" => |text| code::is_uuid(text, None, false),
        "uuid3" => |text| code::is_uuid(text, Some('3'), false),
        "uuid4" => |text| code::is_uuid(text, Some('4'), true),
        "uuid5" => |text| code::is_uuid(text, Some('5'), true),
        "isbn" => |text| code::is_isbn10(text) || code::is_isbn13(text),
        "isbn10" => code::is_isbn10,
        "isbn13" => code::is_isbn13,
        "creditcard" => code::is_credit_card,
        "ssn" => code::is_ssn,
        "hexcolor" => code::is_hex_color,
        "rgbcolor" => code::is_rgb_color,
        "byte" => code::is_base64,
        "password" => |_| true,
        "date" => time::is_date,
        "duration" => time::is_duration,
        "datetime" => time::is_date_time,
        "k8sshortname" => code::is_short_name,
        "k8slongname" => code::is_long_name,
        _ => return None,
    })
}

/// A regular expression of ours.
macro_rules! pattern {
    ($text:expr) => {{
        static PATTERN: std::sync::LazyLock<Option<regex::Regex>> =
            std::sync::LazyLock::new(|| re2::compile($text).ok());
        &*PATTERN
    }};
}
use pattern;

fn matches(pattern: &Option<regex::Regex>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}
