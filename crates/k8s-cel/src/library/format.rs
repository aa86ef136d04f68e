//! Named formats: `format.dns1123Label().validate(x)`.

use crate::encoding::decode_base64;
use crate::eval::{Evaluated, Invocation};
use crate::function::Function;
use crate::library::{Opaque, url};
use crate::time::{parse_date, parse_date_time};
use crate::value::Value;

/// A named format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RFC 1123 label.
    Dns1123Label,
    /// RFC 1123 subdomain.
    Dns1123Subdomain,
    /// RFC 1035 label.
    Dns1035Label,
    /// Name with an optional domain prefix.
    QualifiedName,
    /// Beginning of an RFC 1123 label.
    Dns1123LabelPrefix,
    /// Beginning of an RFC 1123 subdomain.
    Dns1123SubdomainPrefix,
    /// Beginning of an RFC 1035 label.
    Dns1035LabelPrefix,
    /// Value of a label.
    LabelValue,
    /// Absolute URI.
    Uri,
    /// UUID.
    Uuid,
    /// Base64.
    Byte,
    /// RFC 3339 date.
    Date,
    /// RFC 3339 date and time.
    DateTime,
}

const ALL: [(&str, Format); 13] = [
    ("dns1123Label", Format::Dns1123Label),
    ("dns1123Subdomain", Format::Dns1123Subdomain),
    ("dns1035Label", Format::Dns1035Label),
    ("qualifiedName", Format::QualifiedName),
    ("dns1123LabelPrefix", Format::Dns1123LabelPrefix),
    ("dns1123SubdomainPrefix", Format::Dns1123SubdomainPrefix),
    ("dns1035LabelPrefix", Format::Dns1035LabelPrefix),
    ("labelValue", Format::LabelValue),
    ("uri", Format::Uri),
    ("uuid", Format::Uuid),
    ("byte", Format::Byte),
    ("date", Format::Date),
    ("datetime", Format::DateTime),
];

pub(crate) fn by_name(name: &str) -> Option<Format> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                          alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
                          regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                    character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                           must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                           regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

pub(crate) fn call<'a>(call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    if call.function == Function::FormatNamed {
        let format = by_name(call.text(0)?);
        return Ok(match format {
            Some(format) => Value::some(Value::opaque(Opaque::Format(format))),
            None => Value::Optional(None),
        });
    }
    let Value::Opaque(opaque) = &call.args[0] else { return Err(call.no_overload()) };
    let Opaque::Format(format) = &**opaque else { return Err(call.no_overload()) };
    let problems = format.problems(call.text(1)?);
    if problems.is_empty() {
        return Ok(Value::Optional(None));
    }
    Ok(Value::some(Value::list(problems.into_iter().map(Value::from).collect())))
}

/// Alphanumeric at both ends, `extra` in between.
fn is_name(text: &str, extra: &[u8], lower: bool) -> bool {
    let plain = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase() || (!lower && b.is_ascii_uppercase());
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            plain(first) && plain(last) && bytes.iter().all(|&b| plain(b) || extra.contains(&b))
        }
        _ => false,
    }
}

pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_name(text, b"-", true)
}

pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| is_name(label, b"-", true))
}

/// A trailing dash of a prefix is fine.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let cut = rest.char_indices().next_back().map_or(0, |(at, _)| at);
            format!("{}a", &rest[..cut])
        }
        _ => text.to_owned(),
    }
}

fn checked(text: &str, max: usize, valid: bool, message: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > max {
        problems.push(format!("must be no more than {max} characters"));
    }
    if !valid {
        problems.push(message.to_owned());
    }
    problems
}

fn single(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        ALL.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    /// The size of the pattern that costs assume.
    pub(crate) fn max_pattern_size(self) -> u64 {
        match self {
            Format::Dns1123Label | Format::Dns1035Label | Format::Dns1123LabelPrefix | Format::Dns1035LabelPrefix => 30,
            Format::Dns1123Subdomain | Format::QualifiedName | Format::Dns1123SubdomainPrefix => 60,
            Format::LabelValue => 40,
            Format::Uri => 1103,
            Format::Uuid => 70,
            Format::Byte => 84,
            Format::Date | Format::DateTime => 71,
        }
    }

    /// Why the text does not have the format; empty if it has.
    pub(crate) fn problems(self, text: &str) -> Vec<String> {
        match self {
            Format::Dns1123Label => checked(text, 63, is_name(text, b"-", true), LABEL),
            Format::Dns1123LabelPrefix => Format::Dns1123Label.problems(&without_dash(text)),
            Format::Dns1123Subdomain => {
                checked(text, 253, text.split('.').all(|label| is_name(label, b"-", true)), SUBDOMAIN)
            }
            Format::Dns1123SubdomainPrefix => Format::Dns1123Subdomain.problems(&without_dash(text)),
            Format::Dns1035Label => {
                let valid = is_name(text, b"-", true) && !text.starts_with(|c: char| c.is_ascii_digit());
                checked(text, 63, valid, LABEL_1035)
            }
            Format::Dns1035LabelPrefix => Format::Dns1035Label.problems(&without_dash(text)),
            Format::QualifiedName => qualified_name(text),
            Format::LabelValue => checked(text, 63, text.is_empty() || is_name(text, b"-_.", false), LABEL_VALUE),
            Format::Uri => url::request_uri_problem(text).into_iter().collect(),
            Format::Uuid => single(is_uuid(text), "does not match the UUID format"),
            Format::Byte => single(decode_base64(text).is_some(), "invalid base64"),
            Format::Date => single(parse_date(text).is_some(), "invalid date"),
            Format::DateTime => single(text.len() >= 20 && parse_date_time(text).is_some(), "invalid datetime"),
        }
    }
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (at, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..length) {
            Some(part) if part.bytes().all(|b| b.is_ascii_hexdigit()) => rest = &rest[length..],
            _ => return false,
        }
    }
    rest.is_empty()
}

fn qualified_name(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let mut problems = Vec::new();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let found = Format::Dns1123Subdomain.problems(prefix);
                problems.extend(found.into_iter().map(|problem| format!("prefix part {problem}")));
            }
            name
        }
        _ => {
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {NAME} {tail}")];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 characters".to_owned());
    }
    if !is_name(name, b"-_.", false) {
        problems.push(format!("name part {NAME}"));
    }
    problems
}
