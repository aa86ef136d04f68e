//! Strings quoted like Go's `%q`, as Kubernetes' messages have them.

use std::fmt::{self, Write as _};

/// Displays a string in double quotes, with Go's escapes.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

/// Displays a list of strings like Go: `["a" "b"]`.
#[derive(Clone, Copy, Debug)]
pub struct QuotedList<'a, S>(pub &'a [S]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\x07' => f.write_str("\\a")?,
                '\x08' => f.write_str("\\b")?,
                '\x0b' => f.write_str("\\v")?,
                '\x0c' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\0'..='\x1f' | '\x7f' => write!(f, "\\x{:02x}", character as u32)?,
                _ if is_printable(character) => f.write_char(character)?,
                '\u{10000}'.. => write!(f, "\\U{:08x}", character as u32)?,
                _ => write!(f, "\\u{:04x}", character as u32)?,
            }
        }
        f.write_char('"')
    }
}

impl<S: AsRef<str>> fmt::Display for QuotedList<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (index, item) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_char(' ')?;
            }
            Quoted(item.as_ref()).fmt(f)?;
        }
        f.write_char(']')
    }
}

/// Displays a floating-point number like Go's `%v`: with an exponent below 1e-4 and from 1e6 on.
#[derive(Clone, Copy, Debug)]
pub struct GoFloat(pub f64);

impl fmt::Display for GoFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scientific = format!("{:e}", self.0);
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or_default();
        if (-4..6).contains(&exponent) {
            return write!(f, "{}", self.0);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(f, "{mantissa}e{sign}{:02}", exponent.abs())
    }
}

/// Reports whether Go prints the character unescaped: letters, marks, numbers, punctuation, symbols and the space.
/// The character is tested behind another one, because `escape_debug` also escapes a leading combining mark.
pub fn is_printable(character: char) -> bool {
    let mut buffer = [b'a', 0, 0, 0, 0];
    let length = 1 + character.encode_utf8(&mut buffer[1..]).len();
    character.is_ascii_graphic()
        || character == ' '
        || std::str::from_utf8(&buffer[..length]).is_ok_and(|pair| pair.escape_debug().count() == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_matches_go_percent_q() {
        for (text, quoted) in [
            ("", r#""""#),
            ("a b'c", r#""a b'c""#),
            ("\"\\", r#""\"\\""#),
            ("\u{7}\u{8}\u{c}\n\r\t\u{b}\0\u{1f}\u{7f}", r#""\a\b\f\n\r\t\v\x00\x1f\x7f""#),
            ("é世e\u{301}", "\"é世e\u{301}\""),
            ("\u{80}\u{a0}\u{200b}\u{2028}\u{feff}\u{e000}", r#""\u0080\u00a0\u200b\u2028\ufeff\ue000""#),
            ("😀\u{10ffff}", r#""😀\U0010ffff""#),
        ] {
            assert_eq!(Quoted(text).to_string(), quoted, "{text:?}");
        }
    }

    #[test]
    fn go_float_matches_go_percent_v() {
        let numbers = [1e5, 123_456.0, 1e6, 12_345_678.5, 1e21, 0.0001, 0.000_01, 2_147_483_648.0, 0.0, -1.5];
        let texts: Vec<_> = numbers.iter().map(|number| GoFloat(*number).to_string()).collect();
        let expected = "100000 123456 1e+06 1.23456785e+07 1e+21 0.0001 1e-05 2.147483648e+09 0 -1.5";
        assert_eq!(texts.join(" "), expected);
    }

    #[test]
    fn quoted_list_matches_go_slice_format() {
        assert_eq!(QuotedList(&["a", "b c"]).to_string(), r#"["a" "b c"]"#);
        assert_eq!(QuotedList::<&str>(&[]).to_string(), "[]");
    }
}
