//! Query parameters, parsed like Go's `net/url`.
//!
//! Pairs with a malformed escape or a semicolon are dropped, `+` is a space, and the first of several values counts.
//! Escaped bytes that are not UTF-8 become U+FFFD, which no parameter accepts.

use std::borrow::Cow;
use std::num::IntErrorKind;

/// Iterates over the decoded pairs; pairs without escapes are borrowed.
pub fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    raw_pairs(query).filter_map(|(key, value)| Some((key, decode(value)?)))
}

/// Returns the first value of a parameter.
pub fn first_value<'a>(query: &'a str, parameter: &str) -> Option<Cow<'a, str>> {
    pairs(query).find(|(key, _)| key == parameter).map(|(_, value)| value)
}

/// Parses a boolean option as Kubernetes does: any value except `0` and `false` is true, also the empty one.
pub fn is_true_parameter(value: &str) -> bool {
    !(value == "0" || value.eq_ignore_ascii_case("false"))
}

/// Parses a signed integer with the errors of Go's `strconv.ParseInt`.
pub fn parse_int(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|error| strconv_error("ParseInt", text, error.kind()))
}

/// Parses an unsigned integer with the errors of Go's `strconv.ParseUint`.
pub fn parse_uint(text: &str) -> Result<u64, String> {
    // Rust accepts a plus sign, Go does not.
    let digits = if text.starts_with('+') { "" } else { text };
    digits.parse::<u64>().map_err(|error| strconv_error("ParseUint", text, error.kind()))
}

fn strconv_error(function: &str, text: &str, kind: &IntErrorKind) -> String {
    let is_out_of_range = matches!(kind, IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
    let why = if is_out_of_range { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing \"{text}\": {why}")
}

/// Iterates over the pairs with undecoded values, for callers that need only a few.
pub(crate) fn raw_pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
    query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(key)?, value))
    })
}

/// Decodes `%XX` and `+`; `None` if an escape is malformed.
pub(crate) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let bytes = unescape(text, b' ').ok()?;
    Some(Cow::Owned(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }))
}

/// Decodes `%XX`, and `+` as `plus`. The error is the offset of the malformed escape.
pub(crate) fn unescape(text: &str, plus: u8) -> Result<Vec<u8>, usize> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'%' => {
                let digit = |offset: usize| bytes.get(at + offset).and_then(|&byte| hex_digit(byte));
                decoded.push(digit(1).zip(digit(2)).map(|(high, low)| high << 4 | low).ok_or(at)?);
                at += 3;
                continue;
            }
            b'+' => decoded.push(plus),
            _ => decoded.push(byte),
        }
        at += 1;
    }
    Ok(decoded)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parse_int_and_parse_uint_match_go_strconv() {
        for (text, signed, unsigned) in [
            ("5", Ok(5), Ok(5)),
            ("+5", Ok(5), Err("invalid syntax")),
            ("-5", Ok(-5), Err("invalid syntax")),
            ("9223372036854775807", Ok(i64::MAX), Ok(i64::MAX as u64)),
            ("-9223372036854775808", Ok(i64::MIN), Err("invalid syntax")),
            ("18446744073709551615", Err("value out of range"), Ok(u64::MAX)),
            ("18446744073709551616", Err("value out of range"), Err("value out of range")),
            ("-9223372036854775809", Err("value out of range"), Err("invalid syntax")),
            ("1e3", Err("invalid syntax"), Err("invalid syntax")),
            ("", Err("invalid syntax"), Err("invalid syntax")),
        ] {
            let wording = |function: &str, why: &str| format!("strconv.{function}: parsing \"{text}\": {why}");
            assert_eq!(parse_int(text), signed.map_err(|why: &str| wording("ParseInt", why)), "{text}");
            assert_eq!(parse_uint(text), unsigned.map_err(|why: &str| wording("ParseUint", why)), "{text}");
        }
    }

    #[track_caller]
    fn check(query: &str, expected: &[(&str, &str)]) {
        let pairs: Vec<_> = pairs(query).collect();
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(pairs, expected, "{query}");
    }

    #[test]
    fn pairs_match_go_url_parsing() {
        check("", &[]);
        check("&&", &[]);
        check("a", &[("a", "")]);
        check("a=1&b=2=3&=4", &[("a", "1"), ("b", "2=3"), ("", "4")]);
        check("a%3d=+%2B%c3%A9", &[("a=", " +é")]);
        check("a=%ff", &[("a", "\u{fffd}")]);
        check("a=1;b=2&c=%zz&d=%4&e=%&%=1&f=3", &[("f", "3")]);
    }

    #[test]
    fn first_value_returns_first_valid_occurrence() {
        assert_eq!(first_value("x=0&watch=1&watch=0", "watch").as_deref(), Some("1"));
        assert_eq!(first_value("watch=%zz&watch=0", "watch").as_deref(), Some("0"));
        assert_eq!(first_value("watc%68=1", "watch").as_deref(), Some("1"));
        assert_eq!(first_value("Watch=1", "watch"), None);
    }

    #[test]
    fn is_true_parameter_rejects_only_zero_and_false() {
        for value in ["0", "false", "FALSE", "False"] {
            assert!(!is_true_parameter(value), "{value}");
        }
        for value in ["", "1", "true", "no", "00", " false"] {
            assert!(is_true_parameter(value), "{value}");
        }
    }

    proptest! {
        #[test]
        fn query_parsing_never_panics_and_keeps_plain_pairs(text in any::<String>(), key in "[a-z]{1,5}", value in "[a-z.]{0,5}") {
            let query = format!("{key}={value}&{text}");
            prop_assert_eq!(first_value(&query, &key), Some(Cow::Owned(value)));
            prop_assert!(pairs(&text).count() <= text.len());
        }
    }
}
