//! Base64 and percent encoding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes standard base64 with padding; line breaks are skipped.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    if !bytes.len().is_multiple_of(4) {
        return None;
    }
    let padding = bytes.iter().rev().take_while(|&&b| b == b'=').count();
    let body = &bytes[..bytes.len() - padding.min(2)];
    if padding > 2 || body.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(body.len() * 3 / 4);
    let (mut buffer, mut bits) = (0u32, 0u32);
    for b in body {
        let value = ALPHABET.iter().position(|known| known == b)?;
        buffer = (buffer << 6 | u32::try_from(value).ok()?) & 0x00FF_FFFF;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(((buffer >> bits) & 0xFF) as u8);
        }
    }
    Some(out)
}

/// Encodes as standard base64 with padding.
pub(crate) fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let packed = group.iter().fold(0u32, |packed, byte| packed << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let digit = usize::try_from(packed >> (18 - 6 * at) & 0x3F).unwrap_or_default();
            text.push(if at <= group.len() { char::from(ALPHABET[digit]) } else { '=' });
        }
    }
    text
}

/// The offset that Go reports for text which [`decode_base64`] refuses: of the first character that does not belong
/// there, or of a group that is not complete.
pub(crate) fn corrupt_base64_at(text: &str) -> usize {
    let mut group = (0, 0);
    for (at, byte) in text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n')) {
        if group.1 == 0 {
            group.0 = at;
        }
        if !ALPHABET.contains(&byte) {
            let is_padding = byte == b'=' && group.1 >= 2;
            return if is_padding { text.len().min(at + 4 - group.1) } else { at };
        }
        group.1 = (group.1 + 1) % 4;
    }
    group.0
}

/// Decodes `%41`; nothing if an escape is malformed.
pub(crate) fn decode_percent(text: &str, plus_is_space: bool) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let hex = text.get(at + 1..at + 3)?;
                if !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return None;
                }
                out.push(u8::from_str_radix(hex, 16).ok()?);
                at += 3;
                continue;
            }
            b'+' if plus_is_space => out.push(b' '),
            b => out.push(b),
        }
        at += 1;
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_needs_padding() {
        assert_eq!(decode_base64("aGVsbG8=").as_deref(), Some(&b"hello"[..]));
        assert_eq!(decode_base64(""), Some(Vec::new()));
        assert_eq!(decode_base64("aGVsbG8"), None);
        assert_eq!(decode_base64("a==="), None);
    }

    #[test]
    fn percent_escapes_are_decoded() {
        assert_eq!(decode_percent("a%20b+c", true).as_deref(), Some("a b c"));
        assert_eq!(decode_percent("%zz", false), None);
    }
}
