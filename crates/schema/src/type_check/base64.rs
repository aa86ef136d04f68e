//! Base64 as decoded by Go's standard encoding: padded, line breaks ignored.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The base64 of bytes that are given as numbers; null is 0.
pub(crate) fn bytes_of_numbers(items: &[Value]) -> String {
    let byte = |item: &Value| item.as_u64().and_then(|number| u8::try_from(number).ok()).unwrap_or_default();
    BASE64_STANDARD.encode(items.iter().map(byte).collect::<Vec<_>>())
}

/// Checks base64; the error names the byte at which Go's decoder fails.
pub(super) fn check(text: &str) -> Result<(), String> {
    check_bytes(text.as_bytes()).map_err(|position| format!("illegal base64 data at input byte {position}"))
}

fn check_bytes(text: &[u8]) -> Result<(), usize> {
    let is_break = |byte: u8| matches!(byte, b'\r' | b'\n');
    // Digits of the current group of four, and the position behind the last of them.
    let (mut digits, mut position) = (0, 0);
    while let Some(byte) = text.get(position) {
        position += 1;
        match byte {
            byte if is_break(*byte) => {}
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => digits = (digits + 1) % 4,
            b'=' if digits >= 2 => return check_padding(text, position, digits),
            _ => return Err(position - 1),
        }
    }
    if digits == 0 { Ok(()) } else { Err(position - digits) }
}

/// Behind the first `=`: a second one after two digits, and then nothing.
fn check_padding(text: &[u8], start: usize, digits: usize) -> Result<(), usize> {
    let skip = |mut position: usize| {
        while matches!(text.get(position), Some(b'\r' | b'\n')) {
            position += 1;
        }
        position
    };
    let mut position = skip(start);
    if digits == 2 {
        match text.get(position) {
            None => return Err(text.len()),
            Some(b'=') => position = skip(position + 1),
            Some(_) => return Err(position - 1),
        }
    }
    if position < text.len() { Err(position) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_error_names_same_byte_as_go() {
        for (text, expected) in [
            ("", Ok(())),
            ("aGVsbG8=", Ok(())),
            ("aGVs\nbG8=\n", Ok(())),
            ("aGVsbA==", Ok(())),
            ("not base64", Err(3)),
            ("aGVsbG8", Err(4)),
            ("aGVsb", Err(4)),
            ("aGVsbA=", Err(7)),
            ("aGVsbA=x", Err(6)),
            ("aGVsbG8=x", Err(8)),
            ("=", Err(0)),
            ("a===", Err(1)),
            ("aGVs_-8=", Err(4)),
        ] {
            assert_eq!(check_bytes(text.as_bytes()), expected, "{text:?}");
        }
    }
}
