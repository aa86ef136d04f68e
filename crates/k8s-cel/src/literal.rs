//! String and bytes literals: quotes, prefixes and escapes.

use std::borrow::Cow;

const FAILED: &str = "unable to unescape string";

/// Removes quotes and escapes of a string token (with its `r` prefix, without the `b` prefix). `bytes` decides whether
/// `\x` and octal escapes are bytes or code points.
pub(crate) fn unescape(token: &str, bytes: bool) -> Result<Cow<'_, [u8]>, &'static str> {
    let raw = token.starts_with(['r', 'R']);
    let quoted = if raw { &token[1..] } else { token };
    let body = if quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\"")) {
        &quoted[3..quoted.len() - 3]
    } else if quoted.len() >= 2 {
        &quoted[1..quoted.len() - 1]
    } else {
        return Err(FAILED);
    };
    let normalized: Cow<'_, str> = if body.contains('\r') {
        Cow::Owned(body.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(body)
    };
    if raw || !normalized.contains('\\') {
        return Ok(match normalized {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        });
    }
    decode(&normalized, bytes).map(Cow::Owned)
}

fn decode(text: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let code = rest.bytes().next().ok_or("unable to unescape string, found '\\' as last character")?;
        rest = &rest[1..];
        let simple = match code {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'\\' | b'\'' | b'"' | b'`' | b'?' => code,
            _ => {
                let (value, digits) = numeric(code, rest, bytes)?;
                rest = &rest[digits..];
                push(&mut out, value, bytes)?;
                continue;
            }
        };
        out.push(simple);
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Reads the digits after `\x`, `\u`, `\U` or the first octal digit; returns the value and how many digits were read.
fn numeric(code: u8, rest: &str, bytes: bool) -> Result<(u32, usize), &'static str> {
    let digits = match code {
        b'x' | b'X' => 2,
        b'u' if !bytes => 4,
        b'U' if !bytes => 8,
        b'0'..=b'3' => {
            let octal = rest.get(..2).ok_or("unable to unescape octal sequence in string")?;
            let low = u32::from_str_radix(octal, 8).map_err(|_| "unable to unescape octal sequence in string")?;
            return Ok((u32::from(code - b'0') * 64 + low, 2));
        }
        _ => return Err(FAILED),
    };
    let hex = rest.get(..digits).ok_or(FAILED)?;
    Ok((u32::from_str_radix(hex, 16).map_err(|_| FAILED)?, digits))
}

fn push(out: &mut Vec<u8>, value: u32, bytes: bool) -> Result<(), &'static str> {
    if bytes {
        out.push(u8::try_from(value).map_err(|_| FAILED)?);
        return Ok(());
    }
    let c = char::from_u32(value).ok_or("invalid unicode code point")?;
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded() {
        for (token, bytes, expected) in [
            (r"'a\n\t\x41\u00e9\101'", false, "a\n\tAéA".as_bytes()),
            (r"'\303\277'", true, &[0xC3, 0xBF]),
            (r"'\303\277'", false, "Ã¿".as_bytes()),
            (r"r'\n'", false, br"\n"),
            ("'''a\r\nb'''", false, b"a\nb"),
            (r#""""""""#, false, b""),
        ] {
            assert_eq!(unescape(token, bytes).as_deref(), Ok(expected), "{token}");
        }
    }

    #[test]
    fn impossible_code_points_are_refused() {
        assert_eq!(unescape(r"'\ud800'", false), Err("invalid unicode code point"));
        assert_eq!(unescape(r"'\u00e9'", true), Err(FAILED));
    }
}
